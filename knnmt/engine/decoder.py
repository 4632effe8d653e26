"""The interface between beam search and a network: `Decoder` runs the decoder step by step.

| implementation | runs |
|---|---|
| `network_decoder.NetworkDecoder` | any Hugging Face network, by its own forward pass |
| `marian.MarianDecoder` | a Marian network, by its weights |
| `compiled.CompiledDecoder` | a Marian network with few rows, as one graph of ONNX Runtime |
"""

from typing import NamedTuple, Protocol

import torch


class Passed(NamedTuple):
    """The result of a decoder for the last token of each row."""

    keys: torch.Tensor  # [rows, dimension]
    states: torch.Tensor  # [rows, dimension]: what the projection to the vocabulary takes
    logits: torch.Tensor | None = None  # [rows, vocabulary], where the network's own projection ran


class Decoder(Protocol):
    """A decoder over encoded sources: one row for each sentence, or several after `spread`."""

    def begin(self, prefix: torch.Tensor) -> Passed:
        """Run the decoder's prefix, [sentences, time]."""

    def spread(self, beam: int) -> None:
        """Continue with several rows for each sentence, all alike at first."""

    def step(self, tokens: torch.Tensor) -> Passed:
        """Run one more token in each row, [rows]."""

    def keep(self, sentences: torch.Tensor | None, rows: torch.Tensor) -> None:
        """Continue with some sentences (None: all), whose beams continue the given rows."""
