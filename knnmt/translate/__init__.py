"""From a sentence to its translation: retrieve, mix, search the beam, explain.

`translator.Translator` is what users meet; `retriever` finds neighbours, `mixing` turns them into probabilities.
"""
