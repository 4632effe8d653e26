"""`generate` with neighbours mixed in: a distribution at every step, the model's own rules kept, the model unharmed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from retrievers import ArrayRetriever
from tiny_models import ARCHITECTURES, ENGLISH, GERMAN, generate, generated_targets, tiny_model

from knnmt.engine.keys import teacher_forced_keys
from knnmt.engine.stepping import Stepper
from knnmt.errors import SettingsError
from knnmt.mixing.fixed import FixedMixer
from knnmt.mixing.fixed_values import FixedValues
from knnmt.mixing.neighbours import Neighbours
from knnmt.models.batching import pad
from knnmt.models.translation_model import TranslationModel
from knnmt.switches import VARIABLE
from knnmt.translate.decoding import RetrievalCounts, mixing_in, proposing
from knnmt.translate.settings import TranslateSettings

every_architecture = pytest.mark.parametrize("name", ARCHITECTURES)


class Nothing(ArrayRetriever):
    """Finds no neighbour at all."""

    def search(self, queries: NDArray[np.float32], k: int) -> Neighbours:
        return Neighbours.none(len(queries), k)


@torch.inference_mode()
def memory_of(model: TranslationModel) -> ArrayRetriever:
    """The keys and tokens of all test sentences."""
    targets = model.encode_targets(ENGLISH)
    inputs = model.teacher_forcing(model.encode_sources(GERMAN), targets)
    keys = teacher_forced_keys(model.network, model.key_site, inputs).numpy()
    first = len(model.decoder_prefix) - 1
    rows = [keys[row, first : first + len(target)] for row, target in enumerate(targets)]
    return ArrayRetriever(np.concatenate(rows), np.concatenate(targets))


def memory_of_tokens(
    model: TranslationModel, tokens: list[int], kind: type[ArrayRetriever] = ArrayRetriever
) -> ArrayRetriever:
    """Random keys that all stand for one of a few tokens."""
    keys = np.random.default_rng(5).normal(size=(12, model.dimension)).astype(np.float32)
    return kind(keys, np.resize(np.array(tokens), 12))


def mixing(model: TranslationModel, memory: Any, **settings: Any) -> Any:
    return mixing_in(model.network, model.key_site, memory, FixedMixer(**{"k": 4, **settings}))


@every_architecture
@pytest.mark.parametrize("beam", [1, 5])
def test_weight_0_is_the_model_alone(name: str, beam: int) -> None:
    model = tiny_model(name)
    alone = generate(model, GERMAN, num_beams=beam)
    with mixing(model, memory_of(model), weight=0.0):
        assert torch.equal(generate(model, GERMAN, num_beams=beam), alone)


@every_architecture
def test_where_nothing_is_found_the_model_stands_alone(name: str) -> None:
    model = tiny_model(name)
    alone = generate(model, GERMAN, num_beams=1)
    for weight in (0.5, 1.0):
        with mixing(model, memory_of_tokens(model, [5], Nothing), weight=weight):
            assert torch.equal(generate(model, GERMAN, num_beams=1), alone)


@every_architecture
@pytest.mark.parametrize("beam", [1, 3])
def test_neighbours_alone_say_what_they_remember(name: str, beam: int) -> None:
    """A key found again has distance 0: with weight 1 and one neighbour, a known source gives its own translation."""
    model = tiny_model(name)
    with mixing(model, memory_of(model), k=1, weight=1.0):
        sequences = generate(model, GERMAN, num_beams=beam, max_length=60, no_repeat_ngram_size=0)
    targets = generated_targets(model, sequences)
    assert targets == model.encode_targets(ENGLISH)
    assert [model.decode(target) for target in targets] == list(ENGLISH)


@every_architecture
@pytest.mark.parametrize("weight", [0.5, 1.0])
@torch.inference_mode()
def test_scores_are_the_mixed_distribution(name: str, weight: float) -> None:
    model, k, temperature = tiny_model(name), 4, 10.0
    memory = memory_of(model)
    inputs = model.teacher_forcing(model.encode_sources(GERMAN[::-1]), model.encode_targets(ENGLISH))
    with mixing(model, memory, k=k, temperature=temperature, weight=weight):
        scores = model.network(**inputs, use_cache=False).logits
    assert torch.isfinite(scores).all()
    mixture = scores.double().exp().numpy()
    np.testing.assert_allclose(mixture.sum(axis=-1), 1.0, atol=1e-5)
    assert (mixture <= 1 + 1e-6).all()
    alone = model.network(**inputs, use_cache=False).logits.double().softmax(dim=-1).numpy()
    keys = teacher_forced_keys(model.network, model.key_site, inputs).numpy()
    for row, position in [(0, 0), (1, 3), (5, 7)]:
        expected = (1 - weight) * alone[row, position]
        distances = ((memory.keys.astype(np.float64) - keys[row, position]) ** 2).sum(axis=1)
        nearest = np.argsort(distances)[:k]
        shares = np.exp(-distances[nearest] / temperature)
        for token, share in zip(memory.tokens[nearest], shares / shares.sum(), strict=True):
            expected[token] += weight * share
        np.testing.assert_allclose(mixture[row, position], expected, atol=1e-3)


FORCED = {"bart": "<s>", "mbart-50": "en_XX", "m2m_100": "__en__", "nllb": "eng_Latn"}


@pytest.mark.parametrize("name", FORCED)
@pytest.mark.parametrize("beam", [1, 5])
def test_the_forced_first_token_stands_against_neighbours(name: str, beam: int) -> None:
    """Neighbours that all say something else, and nobody to contradict them."""
    model = tiny_model(name)
    words = model.encode_targets(["the house"])[0][:-1]
    with mixing(model, memory_of_tokens(model, words), weight=1.0):
        sequences = generate(model, GERMAN, num_beams=beam, no_repeat_ngram_size=0)
    start, forced = model.decoder_prefix
    assert model.token_text(forced) == FORCED[name]
    assert sequences[:, 0].tolist() == [start] * len(GERMAN)
    assert sequences[:, 1].tolist() == [forced] * len(GERMAN)
    assert {token for row in generated_targets(model, sequences) for token in row} <= {*words, model.end_token}


def test_mbart_25_starts_with_the_language() -> None:
    model = tiny_model("mbart")
    with mixing(model, memory_of_tokens(model, [5, 6]), weight=1.0):
        sequences = generate(model, GERMAN, num_beams=5)
    assert {model.token_text(token) for token in sequences[:, 0].tolist()} == {"en_XX"}


@every_architecture
def test_a_forbidden_token_stays_forbidden(name: str) -> None:
    """Neighbours know two tokens, and one of them is not allowed."""
    model = tiny_model(name)
    forbidden, other = model.encode_targets(["the house"])[0][:2]
    options = {"num_beams": 3, "no_repeat_ngram_size": 0, "bad_words_ids": [[model.padding], [forbidden]]}
    with mixing(model, memory_of_tokens(model, [forbidden, other]), k=12, weight=1.0):
        targets = generated_targets(model, generate(model, GERMAN, **options))
    assert {token for target in targets for token in target} <= {other, model.end_token}


@every_architecture
def test_the_shortest_length_is_kept(name: str) -> None:
    """Neighbours that only want to stop."""
    model = tiny_model(name)
    with mixing(model, memory_of_tokens(model, [model.end_token]), weight=1.0):
        at_once = generated_targets(model, generate(model, GERMAN, num_beams=1))
        later = generated_targets(model, generate(model, GERMAN, num_beams=1, min_length=9))
    assert {len(target) for target in at_once} == {1}
    assert {len(model.decoder_prefix) + len(target) for target in later} == {10}


def state_of(network: torch.nn.Module) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """Every hook, every weight."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs")
    hooks = [dict(getattr(module, kind)) for module in network.modules() for kind in kinds]
    return hooks, {name: weight.clone() for name, weight in network.state_dict().items()}


@every_architecture
def test_a_model_leaves_as_it_came(name: str) -> None:
    model = tiny_model(name)
    hooks, weights = state_of(model.network)
    config, forward = model.network.config.to_json_string(), model.network.forward
    with mixing(model, memory_of(model)):
        generate(model, GERMAN[:2], num_beams=2)
    with pytest.raises(ZeroDivisionError), mixing(model, memory_of(model)):
        raise ZeroDivisionError
    hooks_after, weights_after = state_of(model.network)
    assert hooks_after == hooks
    assert weights_after.keys() == weights.keys()
    assert all(torch.equal(weights_after[key], weights[key]) for key in weights)
    assert model.network.config.to_json_string() == config
    assert model.network.forward == forward
    assert not model.network.training


def test_k_larger_than_the_store_is_refused_before_anything_is_hooked() -> None:
    model = tiny_model("marian")
    message = "--k 13: larger than the datastore, which has 12 entries"
    with pytest.raises(SettingsError, match=message), mixing(model, memory_of_tokens(model, [5]), k=13):
        pytest.fail("not reached")
    assert not any(state_of(model.network)[0])


def test_a_failing_search_leaves_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("marian")
    memory = memory_of_tokens(model, [5])
    monkeypatch.setattr(memory, "search", lambda *_: Path("index.faiss").read_bytes())
    with pytest.raises(FileNotFoundError), mixing(model, memory):
        generate(model, GERMAN)
    assert not any(state_of(model.network)[0])


def test_the_defaults_are_the_papers() -> None:
    assert TranslateSettings().fixed == FixedValues(k=64, temperature=10.0, weight=0.5, certain=1.0)
    assert TranslateSettings().beam == 5


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"k": 0}, "--k 0: must be at least 1"),
        ({"k": -3}, "--k -3: must be at least 1"),
        ({"temperature": 0.0}, "--temperature 0: must be above 0"),
        ({"temperature": -1.5}, "--temperature -1.5: must be above 0"),
        ({"temperature": float("nan")}, "--temperature nan: must be above 0"),
        ({"weight": -0.1}, "--weight -0.1: must be between 0 and 1"),
        ({"weight": 1.01}, "--weight 1.01: must be between 0 and 1"),
        ({"weight": float("nan")}, "--weight nan: must be between 0 and 1"),
        ({"beam": 0}, "--beam 0: must be at least 1"),
    ],
)
def test_settings_outside_their_range_name_the_flag(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        TranslateSettings(**settings)
    assert str(caught.value) == complaint


@every_architecture
@torch.inference_mode()
def test_mixing_only_rows_that_ask_is_mixing_all_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that the mixer does not ask for have no neighbours in the plain way, and are left out in the other."""
    model = tiny_model(name)
    memory, sentences = memory_of(model), torch.arange(len(GERMAN))
    signals = torch.rand(len(GERMAN), 3, generator=torch.Generator().manual_seed(1))
    ids, mask = pad(model.encode_sources(list(GERMAN)), model.padding)
    stepper = Stepper(model, 1, quick=False)
    with stepper.attached():
        step = stepper.begin(ids, mask)
        sure = step.following.rank(1).certainty().sort().values
        mixer = FixedMixer(k=4, temperature=10.0, weight=0.5, certain=float(sure[2:4].mean()))
        counts, told = [RetrievalCounts(), RetrievalCounts()], []
        for count, plain in zip(counts, ("", "asked"), strict=True):
            monkeypatch.setenv(VARIABLE, plain)
            proposal = proposing(memory, mixer, signals, count)(step, 5, sentences)
            told.append((proposal.scores, proposal.tokens, proposal.score(proposal.tokens.flip(0))))
    assert counts[0] == counts[1]
    assert (counts[0].retrieved, counts[0].skipped) == (3, 3)
    for fast, whole in zip(*told, strict=True):
        torch.testing.assert_close(fast, whole, rtol=1e-5, atol=1e-5)
