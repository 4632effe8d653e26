"""Hugging Face encoder-decoders as translation models: their tokens, their languages, where their keys are.

Other packages use `translation_model.load_model` and `TranslationModel`. `architectures.ARCHITECTURES` has an entry for
each kind of model. `network.Network` is the protocol that every model follows.
"""
