"""A Hugging Face encoder-decoder as a translation model: its tokens, its languages, where its keys are.

Neighbours ask for `translation_model.load_model` and for what a `TranslationModel` says about itself.
"""
