"""Systems that translate a batch: stock `generate`, and ours without and with retrieval."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from knnmt import Translator
from knnmt.models.batching import pad
from knnmt.models.translation_model import TranslationModel
from knnmt.translate.beam import longest_output
from knnmt.translate.translator import text_tokens

ONE_BATCH = 10**9  # tokens: whatever is given at once is translated at once


class Translated(NamedTuple):
    text: str
    tokens: int  # of this system's own output, the end token included


System = Callable[[Sequence[str], int], list[Translated]]  # translates one batch with a given number of beams


@torch.inference_mode()
def by_generate(model: TranslationModel, texts: Sequence[str], beam: int) -> list[Translated]:
    ids, mask = pad(model.fitting_sources(texts)[0], model.padding)
    longest = longest_output(model)
    output = model.network.generate(
        input_ids=ids, attention_mask=mask, num_beams=beam, max_length=longest, **model.generation
    )
    rows = [text_tokens(row, model) for row in output.tolist()]
    return [Translated(model.decode(row), len(row)) for row in rows]


def by_knnmt(translator: Translator, texts: Sequence[str], beam: int) -> list[Translated]:
    settings = replace(translator.settings, beam=beam)
    translator = Translator(translator.translation_model, translator.retriever, settings, translator.mixer)
    translations = translator.translations(texts, batch_tokens=ONE_BATCH)
    return [Translated(translation.text, len(translation.tokens)) for translation in translations]
