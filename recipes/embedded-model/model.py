"""The model: made anew or loaded, its loss, and its export as a Marian folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForSeq2SeqLM, GenerationConfig, MarianConfig, MarianMTModel

from text import RecipeError
from vocabulary import EOS, PAD, load_vocabulary


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The architecture of a model that is made anew."""

    dimension: int = 256
    feed_forward: int = 1024
    heads: int = 4
    encoder_layers: int = 4
    decoder_layers: int = 2

    def __post_init__(self) -> None:
        if self.dimension % self.heads:
            raise RecipeError(f"--dimension {self.dimension} is not a multiple of --heads {self.heads}")


def make_config(shape: Shape, vocabulary: dict[str, int]) -> MarianConfig:
    pad, eos = vocabulary[PAD], vocabulary[EOS]
    return MarianConfig(
        vocab_size=len(vocabulary), decoder_vocab_size=len(vocabulary), d_model=shape.dimension,
        encoder_layers=shape.encoder_layers, decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.heads, decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.feed_forward, decoder_ffn_dim=shape.feed_forward,
        activation_function="swish", scale_embedding=True, share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True, max_position_embeddings=512, dropout=0.0, attention_dropout=0.0,
        activation_dropout=0.0, bos_token_id=None, pad_token_id=pad, eos_token_id=eos,
        decoder_start_token_id=pad, forced_eos_token_id=eos,
    )  # fmt: skip


def make_model(folder: Path, shape: Shape, *, seed: int) -> MarianMTModel:
    torch.manual_seed(seed)
    return MarianMTModel(make_config(shape, load_vocabulary(folder)))


def load_model(folder: Path) -> MarianMTModel:
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    if not isinstance(model, MarianMTModel):
        raise RecipeError(f"--start {folder}: holds a {type(model).__name__}, this recipe trains Marian models")
    return model


def set_dropout(model: MarianMTModel, dropout: float) -> None:
    """Each layer copies its dropout from the config, so a change has to reach all of them."""
    model.config.dropout = dropout
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = dropout


def loss_sum(model: MarianMTModel, source: Tensor, target: Tensor, *, smoothing: float) -> tuple[Tensor, int]:
    """The summed loss and the tokens of a batch, (pairs, source length) and (pairs, target length)."""
    pad, first = model.config.pad_token_id, model.config.decoder_start_token_id
    given = torch.cat([torch.full_like(target[:, :1], first), target[:, :-1]], dim=1)
    hidden = model.model(input_ids=source, attention_mask=(source != pad).long(), decoder_input_ids=given)[0]
    real = target != pad
    # Padding leaves before the widest matrix product, (tokens, dimension) x (dimension, vocabulary).
    logits = functional.linear(hidden[real], model.lm_head.weight, model.final_logits_bias[0])
    labels = target[real]
    return functional.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum"), len(labels)


def generation_config(config: MarianConfig) -> GenerationConfig:
    return GenerationConfig(
        decoder_start_token_id=config.decoder_start_token_id, pad_token_id=config.pad_token_id,
        eos_token_id=config.eos_token_id, forced_eos_token_id=config.eos_token_id,
        bad_words_ids=[[config.pad_token_id]], num_beams=5, max_length=256,
    )  # fmt: skip


def export_model(model: MarianMTModel, weights: dict[str, Tensor], folder: Path) -> None:
    """Write the weights in half precision; the tokenizer's files are the vocabulary's."""
    exported = MarianMTModel(model.config)
    exported.load_state_dict(weights)
    exported.generation_config = generation_config(model.config)
    exported.half().save_pretrained(folder)


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
