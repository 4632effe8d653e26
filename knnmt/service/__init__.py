"""Translating for many callers at once: what a server does, without HTTP.

`service.Service` is the entry point. `access` says who may do what, `scopes` what a request may search. `shelf` holds
models and open stores, and `views` fixes one version of them for a request. `scheduling` decodes waiting texts in
batches, `jobs` translates documents, `corrections` changes memories. `failures` has the errors.
"""
