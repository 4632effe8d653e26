"""A loaded model as CTranslate2 runs it; imported only where CTranslate2 is installed."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from ctranslate2.converters import TransformersConverter

from bench.systems import System, Translated
from knnmt.models.translation_model import TranslationModel, model_folder
from knnmt.translate.beam import longest_output


class LoadedConverter(TransformersConverter):  # type: ignore[misc]
    """Converts the very weights that the others translate with, in single precision, not what a file holds."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__(model_folder(model.name))
        self.loaded = model

    def load_model(self, *_: Any, **__: Any) -> Any:
        network = copy.deepcopy(self.loaded.network)
        if network.config.model_type == "marian":
            start_from_zero(network, self.loaded.decoder_prefix[0])
        return network

    def load_tokenizer(self, *_: Any, **__: Any) -> Any:
        return self.loaded.tokenizer


@torch.no_grad()
def start_from_zero(network: Any, start: int) -> None:
    """Put the embedding of the start token into its position, the decoder's first.

    CTranslate2 takes for granted that Marian's start token is a vector of zeros. That of OPUS models is; that of a
    model trained with `transformers`, such as the embedded one, need not be, and its translations would be others.
    """
    decoder = network.get_decoder()
    decoder.embed_positions.weight[0] += decoder.embed_tokens.weight[start] * decoder.embed_scale


def convert(model: TranslationModel, folder: Path) -> Path:
    """ValueError where CTranslate2 does not know the architecture."""
    return Path(LoadedConverter(model).convert(str(folder)))


def opened(model: TranslationModel, folder: Path, kind: str, threads: int, *, in_parts: bool = False) -> System:
    """A system that computes in float32 or int8.

    All threads work on one batch together, or each on its own part of it, which is faster where there is a part for
    each: threads then do not wait for each other.
    """
    inter, intra = (threads, 1) if in_parts else (1, threads)
    translator = ctranslate2.Translator(
        str(folder), device="cpu", compute_type=kind, intra_threads=intra, inter_threads=inter
    )
    return lambda texts, beam: translate(translator, model, texts, beam, -(-len(texts) // inter))


def translate(translator: Any, model: TranslationModel, texts: Sequence[str], beam: int, part: int) -> list[Translated]:
    """With the limits and the length penalty that `generate` takes from the model."""
    prefix = model.tokenizer.convert_ids_to_tokens(list(model.decoder_prefix[1:]))
    penalty = model.network.generation_config.length_penalty
    results = translator.translate_batch(
        [model.tokenizer.convert_ids_to_tokens(ids) for ids in model.fitting_sources(texts)[0]],
        target_prefix=[prefix] * len(texts) if prefix else None,
        beam_size=beam,
        max_batch_size=part,
        length_penalty=1.0 if penalty is None else penalty,
        max_input_length=0,
        max_decoding_length=longest_output(model) - 1,  # without the start token
        return_end_token=True,
    )
    number_of = model.tokenizer.get_vocab().__getitem__
    rows = [[number_of(token) for token in result.hypotheses[0][len(prefix) :]] for result in results]
    return [Translated(model.decode(row), len(row)) for row in rows]
