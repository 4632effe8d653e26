"""Memories in and out: file formats, parallel text, languages, placeholders.

Readers turn a file into units (`units.Unit`) and `corpus.Corpus` turns units into segments. Other rooms
use `Corpus`, `languages` and `exporting`. Nothing here knows models or datastores.
"""
