"""From a sentence to its translation: search the beam with what the memory knows, explain, put a document together.

`translator.Translator` is what users meet; `settings.TranslateSettings` is what may be asked of it. Neighbours come
from a `Retriever` of the room `retrieval`, and a `Mixer` of the room `mixing` says what becomes of them.
"""
