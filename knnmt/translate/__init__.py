"""From a sentence to its translation: beam search with retrieval, explanations, whole documents.

`translator.Translator` is the class for users, `settings.TranslateSettings` its options. A `Retriever` of the package
`retrieval` finds the neighbours, and a `Mixer` of the package `mixing` decides how they are used.
"""
