"""Scanners that split a file into pieces with their offsets, so that a piece can be replaced and all other bytes stay.

A parser that builds a tree loses quotes, references, comments and line ends. These scanners keep them: `encodings` for
lines and whole texts, `xml_text` for XML (checked by expat first), `html_tokens` for HTML, which need not be
well-formed, `po_entries` for entries of gettext. `documents` uses them; they know nothing about units or translations.
"""
