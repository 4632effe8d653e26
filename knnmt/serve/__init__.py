"""The HTTP server and the web page.

`running.Running` is a server, `app.make_app` its FastAPI application. The APIs are LibreTranslate's (`libretranslate`),
our own under `/v1` (`translations`, `memories`, `documents`), and those of DeepL and Weblate's tmserver
(`other_apis`). All of them call `knnmt.service`, which knows nothing about HTTP.
"""
