"""Marian's tokenizer without sacremoses, which takes half a second and 7 MB to import and is not needed."""

from typing import Any

import transformers
from transformers.models.auto.tokenization_auto import get_tokenizer_config

NAME = "MarianTokenizer"


class MarianTokenizer(transformers.MarianTokenizer):
    """The same tokenizer under the same name; punctuation rules are loaded only when `normalize` needs them."""

    def _setup_normalizer(self) -> None:
        self.punc_normalizer = self._normalize_punctuation

    def _normalize_punctuation(self, text: str) -> str:
        super()._setup_normalizer()  # type: ignore[no-untyped-call]
        return str(self.punc_normalizer(text))


def load_tokenizer(place: str, *, model_type: str) -> Any:
    """The tokenizer that belongs to a model in a folder or on the Hub."""
    named = get_tokenizer_config(place).get("tokenizer_class", NAME) if model_type == "marian" else None
    kind = MarianTokenizer if named == NAME else transformers.AutoTokenizer
    return kind.from_pretrained(place)
