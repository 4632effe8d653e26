"""Memories in and out: file formats, parallel text, languages, placeholders.

Readers turn a file into units (`units.Unit`), and `corpus.Corpus` turns units into segments. Other packages use
`Corpus`, `languages` and `exporting`. Nothing here knows about models or datastores.
"""
