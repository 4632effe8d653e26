"""Files as characters with their places, so that a stretch can be replaced and all other bytes stay.

A parser that builds a tree forgets quotes, references, comments and line ends. These scanners keep them: `encodings`
for lines and whole texts, `xml_text` for XML (checked by expat first), `html_tokens` for HTML that need not be
well-formed, `po_entries` for entries of gettext. `documents` asks for them; they know nothing of units or translations.
"""
