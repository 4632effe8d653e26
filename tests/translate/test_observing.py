"""Teacher-forced passes that project wanted positions alone, against the network's own projection of all."""

import numpy as np
import pytest
import torch
from tiny_models import ARCHITECTURES, ENGLISH, GERMAN, tiny_model

from knnmt.engine.projection import Ranking
from knnmt.models.translation_model import TranslationModel
from knnmt.switches import VARIABLE
from knnmt.translate.observing import ForcedPasses, forced

RANKED = 5


def said_by(model: TranslationModel) -> tuple[np.ndarray, Ranking, torch.Tensor]:
    """Keys, rankings and logits of the targets' tokens, in the order of the pairs."""
    sources, targets = model.encode_sources(list(GERMAN)), model.encode_targets(list(ENGLISH))
    parts = [
        (one.keys, one.following.rank(RANKED), one.following.at(one.tokens[:, None]), one.pairs)
        for one in forced(model, sources, targets)
    ]
    assert sorted(np.concatenate([part[3] for part in parts]).tolist()) == sorted(
        number for number, target in enumerate(targets) for _ in target
    )
    ranking = Ranking(*(torch.cat(each) for each in zip(*(part[1] for part in parts), strict=True)))
    return np.concatenate([part[0] for part in parts]), ranking, torch.cat([part[2] for part in parts])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_wanted_positions_are_as_in_a_whole_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(name)
    keys, ranking, at = said_by(model)
    monkeypatch.setenv(VARIABLE, "forced")
    plain_keys, plain, plain_at = said_by(model)
    np.testing.assert_allclose(keys, plain_keys, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ranking.logits, plain.logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ranking.total, plain.total, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(at, plain_at, rtol=1e-4, atol=1e-4)


def test_a_pass_ends_before_the_networks_projection() -> None:
    model = tiny_model("marian")
    passes, calls = ForcedPasses(model), []
    sources, targets = model.encode_sources(list(GERMAN)), model.encode_targets(list(ENGLISH))
    passes.over(sources, targets)
    head = model.network.get_output_embeddings()
    plain = head.forward
    head.forward = lambda states: calls.append(states) or plain(states)
    try:
        passes.over(sources, targets)
        assert not calls
    finally:
        del head.forward


def test_a_hooked_network_projects_by_itself() -> None:
    """Whoever hooks a network's output changes what it says."""
    model = tiny_model("marian")
    sources, targets = model.encode_sources(list(GERMAN)), model.encode_targets(list(ENGLISH))
    passes = ForcedPasses(model)
    plain = passes.over(sources, targets)[1].rank(1).logits.clone()

    def double(_: object, __: object, output: object) -> None:
        output.logits = output.logits * 2  # type: ignore[attr-defined]

    handle = model.network.register_forward_hook(double)
    try:
        hooked = passes.over(sources, targets)[1].rank(1).logits
    finally:
        handle.remove()
    torch.testing.assert_close(hooked, plain * 2, rtol=1e-4, atol=1e-4)


def test_of_long_text_some_positions_are_looked_at() -> None:
    """Those that are drawn are what a whole pass gives there."""
    model = tiny_model("marian")
    sources, targets = model.encode_sources(list(GERMAN)), model.encode_targets(list(ENGLISH))
    total = sum(map(len, targets))
    (whole,), (some,) = (
        list(forced(model, sources, targets)),
        list(forced(model, sources, targets, positions=total // 2)),
    )
    assert total // 4 < len(some.tokens) < total - total // 4
    at = [next(row for row in range(total) if np.allclose(whole.keys[row], key, atol=1e-5)) for key in some.keys]
    assert at == sorted(at)
    assert (whole.pairs[at] == some.pairs).all()
    assert torch.equal(whole.tokens[at], some.tokens)
