"""Text in and out: files of every format, parallel text, languages, placeholders.

Readers turn a file into units (`units.Unit`) and `corpus.Corpus` turns units into segments. Neighbours ask for a
`Corpus`, for a language's names (`languages`) and for `exporting`. Nothing here knows a model or a datastore.
"""
