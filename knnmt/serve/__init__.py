"""The HTTP server and the page: translations, explanations, corrections, memories and documents for other programs.

`running.Running` is a server, `app.make_app` its FastAPI application. The shapes are LibreTranslate's
(`libretranslate`), ours under `/v1` (`translations`, `memories`, `documents`), DeepL's and Weblate's tmserver's
(`other_shapes`). All of them ask `knnmt.service`; nothing below knows HTTP.
"""
