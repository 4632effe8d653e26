"""One process of a run. All processes hold the same weights and differ in their batches."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from batches import Indices, bucket
from card import describe_data, write_card
from checkpoint import (
    BEFORE_DECAY,
    FULL,
    Progress,
    average_weights,
    load_to_resume,
    save_checkpoint,
    save_weights,
    weight_files,
)
from data import Corpus
from model import (
    Model,
    choose_attention,
    count_parameters,
    export_model,
    load_model,
    loss_sum,
    make_model,
    set_dropout,
    token_of,
)
from optimizer import make_optimizers, split_like
from precision import computing, resolve
from processes import leaders, rank_and_world, share, sum_over_processes
from schedule import decays, rate_factor
from settings import Settings
from stream import Stream
from vocabulary import copy_files

CLIP = 1.0
REPORT_EVERY = 10


def say(message: str) -> None:
    print(time.strftime("%H:%M:%S"), message, file=sys.stderr, flush=True)


class Trainer:
    def __init__(self, settings: Settings, parts: Sequence[tuple[Corpus, Corpus]]) -> None:
        self.settings = settings
        self.parts = parts
        self.stream = Stream([training for training, _ in parts], settings)
        self.model: Model
        if settings.start:
            self.model = load_model(settings.start)
        else:
            self.model = make_model(
                settings.export, settings.shape, seed=settings.seed, architecture=settings.architecture
            )
        set_dropout(self.model, settings.dropout)
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.precision = resolve(settings.precision)
        choose_attention(self.model, self.precision)
        self.optimizers = make_optimizers(
            self.model, name=settings.optimizer, lr=settings.rate, dtype=getattr(torch, self.precision)
        )
        self.progress = Progress()
        self.leads = rank_and_world()[0] == 0
        if settings.resume:
            self.resume()

    def resume(self) -> None:
        content = load_to_resume(self.settings.run, budget=vars(self.settings.budget))
        self.progress = Progress(**content["progress"])
        self.model.load_state_dict(content["weights"])
        for optimizer, state in zip(self.optimizers, content["optimizers"], strict=True):
            optimizer.load_state_dict(state)

    def train(self) -> None:
        if self.leads:
            say(f"matrix products in {self.precision}, {count_parameters(self.model):,} parameters")
        began = time.monotonic() - self.progress.seconds
        if not self.progress.scores:
            self.validate()
        while (used := self.used(time.monotonic() - began)) < 1:
            if decays(used, decay=self.settings.decay) and not self.progress.decaying:
                self.begin_decay()
            loss = self.step(self.stream.take(self.progress), used=used)
            self.after_step(loss)

    def used(self, seconds: float) -> float:
        """The leader's clock decides, or one process would stop while another waits for it."""
        self.progress.seconds = leaders(seconds)
        return self.settings.budget.used(step=self.progress.step, seconds=self.progress.seconds)

    def begin_decay(self) -> None:
        """Keep what a longer training would go on from, here and as a folder that outlives this machine."""
        if self.leads:
            self.save(BEFORE_DECAY)
            self.export(self.settings.before_decay)
            say(f"the rate decays from step {self.progress.step}")
        self.progress.decaying = True

    def export(self, folder: Path) -> None:
        copy_files(self.settings.export, folder)
        export_model(self.model, self.model.state_dict(), folder)

    def step(self, batches: Sequence[Indices], *, used: float) -> float:
        """One update; returns the loss per target token over all processes."""
        # Seeded by the step, dropout needs no generator's state in the checkpoint.
        torch.manual_seed(hash((self.settings.seed, self.progress.step, rank_and_world()[0])))
        self.model.train()
        self.model.zero_grad(set_to_none=True)
        counts = torch.zeros(3, dtype=torch.float64)  # loss, source tokens, target tokens
        for pairs in batches:
            counts += self.backward(pairs)
        loss, source, target = sum_over_processes(counts).tolist()
        self.share_gradients(target)
        settings = self.settings
        self.update(rate_factor(step=self.progress.step, warmup=settings.warmup, used=used, decay=settings.decay))
        self.progress.advance(source_tokens=int(source), target_tokens=int(target))
        return float(loss / target)

    def backward(self, pairs: Indices) -> Tensor:
        pad = token_of(self.model, "pad_token_id")
        source, target = self.stream.source.padded(pairs, pad), self.stream.target.padded(pairs, pad)
        with computing(self.precision):
            loss, tokens = loss_sum(self.model, source, target, smoothing=self.settings.smoothing)
        loss.backward()  # type: ignore[no-untyped-call]
        return torch.tensor([loss.item(), (source != pad).sum().item(), tokens], dtype=torch.float64)

    def share_gradients(self, tokens: float) -> None:
        """Sum over the processes and divide by the tokens of all, so that each token counts the same."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        flat = sum_over_processes(torch.cat([gradient.flatten() for gradient in gradients])) / tokens
        for gradient, shared in zip(gradients, split_like(flat, gradients), strict=True):
            gradient.copy_(shared)
        torch.nn.utils.clip_grad_norm_(self.parameters, CLIP)

    def update(self, factor: float) -> None:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.settings.rate * factor
            optimizer.step()

    def after_step(self, loss: float) -> None:
        progress = self.progress
        if self.leads and progress.step % REPORT_EVERY == 0:
            speed = progress.target_tokens / max(1.0, progress.seconds)
            minutes = progress.seconds / 60
            say(f"step {progress.step} loss {loss:.3f} minutes {minutes:.1f} target tokens/s {speed:.0f}")
        if progress.step % self.settings.validate_every == 0:
            self.validate()
        if self.leads and progress.step % self.settings.save_every == 0:
            self.save()
            self.save_weights()

    def save(self, name: str = FULL) -> None:
        save_checkpoint(
            self.settings.run, progress=self.progress, weights=self.model.state_dict(), optimizers=self.optimizers,
            budget=vars(self.settings.budget), name=name,
        )  # fmt: skip

    def save_weights(self) -> None:
        save_weights(
            self.settings.run, step=self.progress.step, weights=self.model.state_dict(), keep=self.settings.average
        )

    def validate(self, weights: str = "last") -> float:
        """Record the loss per target token of each corpus's held-out pairs, and return their mean."""
        losses = {held.name: self.validation_loss(held) for _, held in self.parts}
        mean = float(np.mean(list(losses.values())))
        self.progress.note_scores(losses, mean=mean, weights=weights)
        if self.leads:
            say(f"validation {self.progress.scores[-1]}")
            write_card(self.settings.run, self.record())
        return mean

    @torch.inference_mode()
    def validation_loss(self, corpus: Corpus) -> float:
        """Without label smoothing, so that its exponential is the perplexity."""
        self.model.train(False)
        pad = token_of(self.model, "pad_token_id")
        lengths = (corpus.source.lengths, corpus.target.lengths)
        batches = bucket(np.arange(len(corpus)), *lengths, tokens=self.settings.tokens)
        total = torch.zeros(2, dtype=torch.float64)  # loss, target tokens
        for position in share(len(batches)):
            source, target = (side.padded(batches[position], pad) for side in (corpus.source, corpus.target))
            with computing(self.precision):
                loss, tokens = loss_sum(self.model, source, target, smoothing=0.0)
            total += torch.tensor([loss.item(), tokens], dtype=torch.float64)
        loss_sum_all, tokens_all = sum_over_processes(total).tolist()
        return float(loss_sum_all / tokens_all)

    def finish(self) -> None:
        """Export the average of the last checkpoints, or the last weights where they validate better."""
        if self.leads:
            self.save()
            self.save_weights()
        if torch.distributed.is_initialized():
            torch.distributed.barrier()  # the others average what the leader has saved
        last = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        last_loss = self.validate()
        paths = weight_files(self.settings.run)
        average = average_weights(paths)
        self.model.load_state_dict(average)
        average_loss = self.validate(f"average of {len(paths)}")
        if self.leads:
            export_model(self.model, average if average_loss <= last_loss else last, self.settings.export)
            write_card(self.settings.export, self.record())
            say(f"exported to {self.settings.export}")

    def record(self) -> dict[str, Any]:
        return {
            "data": [describe_data(*part) for part in self.parts],
            "settings": self.settings.describe(),
            "progress": {key: value for key, value in vars(self.progress).items() if key != "scores"},
            "scores": self.progress.scores,
        }
