"""A Hugging Face encoder-decoder as a translation model: its tokens, its languages, where its keys are.

Other rooms use `translation_model.load_model` and `TranslationModel`. `architectures.ARCHITECTURES` has an entry for
each kind of model, and `network.Network` is what is asked of any of them.
"""
