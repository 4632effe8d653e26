"""Translating for many callers at once: what a server does, without HTTP.

`service.Service` is what neighbours ask. `access` says who may do what, `scopes` what a request may look at. `shelf`
holds models and open stores and makes `views` of them at one version; `scheduling` decodes together what waits
together; `corrections` changes memories. Errors are those of `failures`.
"""
