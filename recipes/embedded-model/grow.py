"""Make a start model out of a given one: a new vocabulary and a larger shape that translate nearly as before.

A piece that is new takes the mean of the old pieces that spell it. A wider feed-forward network gets neurons that
add nothing yet, and so do the layers that make the stack deeper.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import sentencepiece
import torch
from torch import Tensor, nn
from transformers import MarianMTModel

from model import Shape, export_model, load_model, make_model
from text import RecipeError, read_lines
from vocabulary import EOS, PAD, UNK, load_vocabulary, train_vocabulary

SPECIAL = (EOS, UNK, PAD)
NOISE = 0.02  # transformers' init_std: what new neurons start from


def spell(piece: str, pieces: sentencepiece.SentencePieceProcessor) -> list[str]:
    """The old pieces of a new piece's text; bytes and unknown signs have none."""
    known = set(pieces.encode(piece.replace("▁", " "), out_type=str)) if not piece.startswith("<0x") else set()
    return [part for part in known if pieces.piece_to_id(part) != pieces.unk_id()]


def map_embeddings(old: Tensor, start: Path, folder: Path) -> Tensor:
    """Old (pieces, dimension) to new."""
    before, after = load_vocabulary(start), load_vocabulary(folder)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(start / "source.spm"))
    result = old[before[UNK]].repeat(len(after), 1) + NOISE * torch.randn(len(after), old.size(1))
    for piece, index in after.items():
        parts = [piece] if piece in before or piece in SPECIAL else spell(piece, pieces)
        if parts:
            result[index] = old[[before[part] for part in parts]].mean(0)
    return result


def spread(before: int, after: int) -> list[tuple[int, bool]]:
    """For each new layer the old one that it is taken from, and whether it repeats the layer below.

    4 to 6 is 0, 0 again, 1, 2, 2 again, 3.
    """
    sources = [position * before // after for position in range(after)]
    return [(source, position > 0 and sources[position - 1] == source) for position, source in enumerate(sources)]


def silence(layer: nn.Module, below: nn.Module) -> None:
    """Let a repeated layer pass on what it is given: its branches add nothing.

    What comes in was normalised with weight w and bias b, so it has about the mean of b and the variance of
    mean(w²) + var(b); normalised again, it takes these two and is what it was.
    """
    last = below.get_submodule("final_layer_norm")
    if not isinstance(last, nn.LayerNorm):
        raise TypeError(f"a layer ends in a {type(last).__name__}")
    spread_in = (last.weight.square().mean() + last.bias.var()).sqrt()
    for name, module in layer.named_modules():
        if name.endswith(("out_proj", "fc2")):
            nn.init.zeros_(module.weight)
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm):
            nn.init.constant_(module.weight, float(spread_in))
            nn.init.constant_(module.bias, float(last.bias.mean()))


def widen(name: str, old: Tensor, new: Tensor) -> Tensor:
    """Copy into the larger tensor: neurons that are new read noise and write nothing."""
    if "fc2" in name:
        new.zero_()
    elif "fc1" in name:
        nn.init.normal_(new, std=NOISE)
    new[tuple(slice(0, size) for size in old.shape)] = old
    return new


def fill_layers(old: nn.ModuleList, new: nn.ModuleList) -> None:
    for (source, repeated), layer in zip(spread(len(old), len(new)), new, strict=True):
        given = dict(old[source].named_parameters())
        for name, parameter in layer.named_parameters():
            parameter.copy_(widen(name, given[name], parameter.detach().clone()))
        if repeated:
            silence(layer, old[source])


@torch.no_grad()
def grow(start: Path, folder: Path, shape: Shape, *, seed: int) -> MarianMTModel:
    """`folder` already holds the new vocabulary."""
    old, new = load_model(start), make_model(folder, shape, seed=seed)
    assert isinstance(new, MarianMTModel)
    if old.config.d_model != shape.dimension or old.config.encoder_attention_heads != shape.heads:
        raise RecipeError(f"--start {start}: --dimension and --heads must be its own")
    new.model.shared.weight.copy_(map_embeddings(old.model.shared.weight, start, folder))
    for side in ("encoder", "decoder"):
        fill_layers(getattr(old.model, side).layers, getattr(new.model, side).layers)
    return new


def lines_of(paths: Sequence[Path]) -> Iterator[str]:
    return (line for path in paths for line in read_lines(path))


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", type=Path, required=True, help="Marian folder to grow")
    parser.add_argument("--text", type=Path, nargs="+", required=True, help="what the new vocabulary is learnt from")
    parser.add_argument("--output", type=Path, required=True, help="the new Marian folder")
    parser.add_argument("--languages", nargs=2, default=("de", "en"), metavar=("SOURCE", "TARGET"))
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--feed-forward", type=int, default=1536)
    parser.add_argument("--encoder-layers", type=int, default=6)
    parser.add_argument("--decoder-layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    shape = Shape(
        dimension=options.dimension, feed_forward=options.feed_forward, heads=options.heads,
        encoder_layers=options.encoder_layers, decoder_layers=options.decoder_layers,
    )  # fmt: skip
    try:
        train_vocabulary(
            lines_of(options.text), options.output, size=options.vocabulary, languages=options.languages,
            seed=options.seed,
        )  # fmt: skip
        model = grow(options.start, options.output, shape, seed=options.seed)
    except RecipeError as error:
        sys.exit(f"grow.py: {error}")
    export_model(model, model.state_dict(), options.output)


if __name__ == "__main__":
    main()
