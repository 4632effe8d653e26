"""Train a small Marian or M2M-100 translation model on a CPU: see README.md beside this file."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed
from torch.multiprocessing.spawn import spawn

from data import Corpus, hold_out, load_corpus, read_excluded
from settings import Settings, parse_settings
from text import RecipeError, read_lines
from trainer import Trainer
from vocabulary import copy_vocabulary, train_vocabulary


def prepare_vocabulary(settings: Settings) -> None:
    if settings.start is not None:
        copy_vocabulary(settings.start, settings.export)
        return
    # Each file once: with many directions, a language's file belongs to several of them.
    paths = dict.fromkeys(path for corpus in settings.corpora for path in (corpus.source, corpus.target))
    train_vocabulary(
        (line for path in paths for line in read_lines(path)),
        settings.export, size=settings.vocabulary, languages=settings.languages, seed=settings.seed,
        architecture=settings.architecture,
    )  # fmt: skip


def load_data(settings: Settings) -> list[tuple[Corpus, Corpus]]:
    """Each corpus as its training and its validation part."""
    exclude = read_excluded(settings.exclude)
    corpora = (
        load_corpus(source, settings.export, settings.cache, longest=settings.longest, exclude=exclude)
        for source in settings.corpora
    )
    return [hold_out(corpus, settings.held_out) for corpus in corpora]


# glibc's allocator: memory that a batch has used is kept for the next one. Fresh pages took a fifth of the time.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(2**28)}


def work(rank: int, settings: Settings, meeting: str) -> None:
    """The body of one process."""
    torch.set_num_threads(1)
    if settings.processes > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=settings.processes
        )
    trainer = Trainer(settings, load_data(settings))
    trainer.train()
    trainer.finish()
    if settings.processes > 1:
        torch.distributed.destroy_process_group()


def launch(settings: Settings) -> None:
    """Make the vocabulary and tokenise once, then train in as many processes as asked for."""
    if not settings.resume:
        shutil.rmtree(settings.run, ignore_errors=True)
        settings.run.mkdir(parents=True)
        prepare_vocabulary(settings)
    load_data(settings)
    # The processes talk over the loopback: the host's own name need not resolve.
    for name, value in {"GLOO_SOCKET_IFNAME": "lo", **KEEP_MEMORY}.items():
        os.environ.setdefault(name, value)
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        if settings.processes == 1:
            work(0, settings, meeting)
        else:
            spawn(work, args=(settings, meeting), nprocs=settings.processes)  # type: ignore[no-untyped-call]


def main(arguments: Sequence[str] | None = None) -> None:
    try:
        launch(parse_settings(arguments, description=__doc__))
    except RecipeError as error:
        sys.exit(f"train.py: {error}")


if __name__ == "__main__":
    main()
