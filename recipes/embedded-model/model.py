"""The model: made anew or loaded, its loss, and its export as a folder that transformers loads."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoModelForSeq2SeqLM,
    GenerationConfig,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
)

from languages import total_size
from loss import cross_entropy_sum
from text import RecipeError
from vocabulary import EOS, PAD, load_vocabulary

Model = MarianMTModel | M2M100ForConditionalGeneration
Config = MarianConfig | M2M100Config


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The architecture of a model that is made anew."""

    dimension: int = 256
    feed_forward: int = 1536
    heads: int = 4
    encoder_layers: int = 6
    decoder_layers: int = 2

    def __post_init__(self) -> None:
        if self.dimension % self.heads:
            raise RecipeError(f"--dimension {self.dimension} is not a multiple of --heads {self.heads}")


def common_settings(shape: Shape, vocabulary: dict[str, int]) -> dict[str, Any]:
    """What both architectures call by the same name."""
    return {
        "d_model": shape.dimension, "encoder_layers": shape.encoder_layers, "decoder_layers": shape.decoder_layers,
        "encoder_attention_heads": shape.heads, "decoder_attention_heads": shape.heads,
        "encoder_ffn_dim": shape.feed_forward, "decoder_ffn_dim": shape.feed_forward,
        "scale_embedding": True, "tie_word_embeddings": True, "max_position_embeddings": 512, "dropout": 0.0,
        "attention_dropout": 0.0, "activation_dropout": 0.0, "pad_token_id": vocabulary[PAD],
        "eos_token_id": vocabulary[EOS], "forced_eos_token_id": vocabulary[EOS],
    }  # fmt: skip


def make_config(shape: Shape, vocabulary: dict[str, int]) -> MarianConfig:
    return MarianConfig(
        vocab_size=len(vocabulary), decoder_vocab_size=len(vocabulary), activation_function="swish",
        share_encoder_decoder_embeddings=True, bos_token_id=None, decoder_start_token_id=vocabulary[PAD],
        **common_settings(shape, vocabulary),
    )  # fmt: skip


def make_m2m_config(shape: Shape, vocabulary: dict[str, int]) -> M2M100Config:
    return M2M100Config(
        vocab_size=total_size(vocabulary), encoder_layerdrop=0.0, decoder_layerdrop=0.0,
        bos_token_id=vocabulary["<s>"], decoder_start_token_id=vocabulary[EOS], **common_settings(shape, vocabulary),
    )  # fmt: skip


def make_model(folder: Path, shape: Shape, *, seed: int, architecture: str = "marian") -> Model:
    torch.manual_seed(seed)
    vocabulary = load_vocabulary(folder)
    if architecture == "m2m_100":
        return M2M100ForConditionalGeneration(make_m2m_config(shape, vocabulary))
    return MarianMTModel(make_config(shape, vocabulary))


def load_model(folder: Path) -> MarianMTModel:
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    if not isinstance(model, MarianMTModel):
        raise RecipeError(f"--start {folder}: holds a {type(model).__name__}, this recipe trains Marian models")
    return model


def set_dropout(model: Model, dropout: float) -> None:
    """Each layer copies its dropout from the config, so a change has to reach all of them."""
    model.config.dropout = dropout
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):
            setattr(module, "dropout", dropout)  # noqa: B010 - to mypy, an attribute of a module is a tensor


def choose_attention(model: Model, precision: str) -> None:
    """In bfloat16, the backward pass of PyTorch's fused attention is slower than that of plain products."""
    model.set_attn_implementation("eager" if precision == "bfloat16" else "sdpa")


def token_of(model: Model, name: str) -> int:
    """A special token by its name in the config, such as `pad_token_id`."""
    token = getattr(model.config, name)
    if token is None:
        raise RecipeError(f"the model's config names no {name}")
    return int(token)


def loss_sum(model: Model, source: Tensor, target: Tensor, *, smoothing: float) -> tuple[Tensor, int]:
    """The summed loss and the tokens of a batch, (pairs, source length) and (pairs, target length)."""
    pad, first = token_of(model, "pad_token_id"), token_of(model, "decoder_start_token_id")
    given = torch.cat([torch.full_like(target[:, :1], first), target[:, :-1]], dim=1)
    hidden = model.model(input_ids=source, attention_mask=(source != pad).long(), decoder_input_ids=given)[0]
    real = target != pad
    # Padding leaves before the widest matrix product, (tokens, dimension) x (dimension, vocabulary).
    bias = model.final_logits_bias[0] if isinstance(model, MarianMTModel) else None
    logits = functional.linear(hidden[real], model.lm_head.weight, bias)
    labels = target[real]
    return cross_entropy_sum(logits, labels, smoothing=smoothing), len(labels)


def generation_config(config: Config) -> GenerationConfig:
    return GenerationConfig(
        decoder_start_token_id=config.decoder_start_token_id, pad_token_id=config.pad_token_id,
        eos_token_id=config.eos_token_id, forced_eos_token_id=config.eos_token_id,
        bad_words_ids=[[config.pad_token_id]], num_beams=5, max_length=256,
    )  # fmt: skip


def export_model(model: Model, weights: dict[str, Tensor], folder: Path) -> None:
    """Write the weights in half precision; the tokenizer's files are the vocabulary's."""
    exported = copy.deepcopy(model)
    exported.load_state_dict(weights)
    exported.generation_config = generation_config(model.config)
    nn.Module.half(exported).save_pretrained(folder)


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
