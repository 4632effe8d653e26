"""Translating with our beam search, without and with retrieval, against stock `generate` without retrieval."""

import tempfile
from pathlib import Path

import torch

from bench.ratios import show, speeds
from knnmt import Translator, build_store, load_model
from knnmt.demo import demo_corpus, read_demo
from knnmt.translator import text_tokens

BATCH = 32


def search_against_generate(repeats: int) -> dict[str, dict[str, float]]:
    texts = [segment.source for segment in read_demo("test")][:BATCH]
    with tempfile.TemporaryDirectory() as folder:
        build_store(Path(folder) / "store", load_model("builtin:de-en"), [demo_corpus("memory")])
        translator = Translator.from_store(Path(folder) / "store", k=16)
        works = {
            "generate": lambda: by_generate(translator, texts),
            "knnmt without retrieval": lambda: by_knnmt(translator.base(), texts),
            "knnmt with retrieval": lambda: by_knnmt(translator, texts),
        }
        title = f"translating, embedded model, beam 5, one batch of {BATCH}"
        return show(title, speeds(works, repeats), "generate")


@torch.inference_mode()
def by_generate(translator: Translator, texts: list[str]) -> int:
    inputs = translator.tokenizer(texts, return_tensors="pt", padding=True)
    output = translator.model.generate(**inputs, num_beams=5)
    return sum(len(text_tokens(row, translator.translation_model)) for row in output.tolist())


def by_knnmt(translator: Translator, texts: list[str]) -> int:
    return sum(len(translation.tokens) for translation in translator.translations(texts, batch_tokens=10**6))
