"""The training batches of each step and process."""

from __future__ import annotations

from collections.abc import Sequence

from batches import Indices, plan_round
from checkpoint import Progress
from data import Corpus, join_sides
from processes import rank_and_world
from settings import Settings
from text import RecipeError


class Stream:
    def __init__(self, corpora: Sequence[Corpus], settings: Settings) -> None:
        self.settings = settings
        self.sizes = [len(corpus) for corpus in corpora]
        self.weights = [corpus.weight for corpus in corpora]
        self.source = join_sides([corpus.source for corpus in corpora])
        self.target = join_sides([corpus.target for corpus in corpora])
        self.index: int | None = None
        self.batches: list[Indices] = []

    def plan(self, index: int) -> None:
        self.index = index
        self.batches = plan_round(
            sizes=self.sizes, weights=self.weights, source=self.source.lengths, target=self.target.lengths,
            tokens=self.settings.tokens, seed=self.settings.seed, index=index,
        )  # fmt: skip

    def take(self, progress: Progress) -> list[Indices]:
        """This process's batches of the step that `progress` is at.

        The end of a round that does not fill a step is left out.
        """
        rank, world = rank_and_world()
        width = world * self.settings.accumulate
        if self.index != progress.round:
            self.plan(progress.round)
        if len(self.batches) < width:
            raise RecipeError(f"the text fills {len(self.batches)} batches, a step takes {width}: lower --tokens")
        if (progress.round_step + 1) * width > len(self.batches):
            progress.round, progress.round_step = progress.round + 1, 0
            self.plan(progress.round)
        first = progress.round_step * width
        return self.batches[first + rank : first + width : world]
