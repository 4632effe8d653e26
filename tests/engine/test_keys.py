"""Keys are the same however they are made: one token at a time with a cache, all at once, alone or in a batch."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import ARCHITECTURES, ENGLISH, GERMAN, generate, generated_targets, tiny_model
from torch import nn

from knnmt import Translator
from knnmt.engine.keys import catching_keys, teacher_forced_keys
from knnmt.errors import ModelError
from knnmt.models.architectures import KeySite, key_site_of, module_at
from knnmt.models.translation_model import TranslationModel
from knnmt.translate.settings import TranslateSettings

TOLERANCE = 3e-4  # the keys' values are about 1
every_architecture = pytest.mark.parametrize("name", ARCHITECTURES)


def keys_at_every_step(model: TranslationModel, **options: Any) -> tuple[Any, list[torch.Tensor]]:
    """What `generate` gives, and the keys [rows, dimension] of each of its steps."""
    steps: list[torch.Tensor] = []
    with catching_keys(model.network, model.key_site) as catch:
        handle = model.network.register_forward_hook(lambda *_: steps.append(catch.keys[:, -1].clone()))
        try:
            output = generate(model, GERMAN, return_dict_in_generate=True, output_scores=True, **options)
        finally:
            handle.remove()
    return output, steps


@torch.inference_mode()
def forced_keys(model: TranslationModel, sources: list[list[int]], targets: list[list[int]]) -> torch.Tensor:
    return teacher_forced_keys(model.network, model.key_site, model.teacher_forcing(sources, targets))


@every_architecture
@pytest.mark.parametrize("beam", [1, 5])
def test_teacher_forced_keys_equal_incremental_keys(name: str, beam: int) -> None:
    model = tiny_model(name)
    output, steps = keys_at_every_step(model, num_beams=beam)
    targets = generated_targets(model, output.sequences)
    keys = forced_keys(model, model.encode_sources(GERMAN), targets)
    for row, target in enumerate(targets):
        length = len(model.decoder_prefix) - 1 + len(target)
        rows = output.beam_indices[row].tolist() if beam > 1 else [row] * length
        seen = torch.stack([steps[step][rows[step]] for step in range(length)])
        torch.testing.assert_close(keys[row, :length], seen, atol=TOLERANCE, rtol=0)


@every_architecture
def test_padding_does_not_change_keys(name: str) -> None:
    model = tiny_model(name)
    sources, targets = model.encode_sources(GERMAN), model.encode_targets(ENGLISH)
    together = forced_keys(model, sources, targets)
    assert together.shape[-1] == model.dimension
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = forced_keys(model, [source], [target])[0]
        assert len(alone) == len(model.decoder_prefix) - 1 + len(target)
        torch.testing.assert_close(together[row, : len(alone)], alone, atol=TOLERANCE, rtol=0)


@every_architecture
def test_the_tiny_models_say_different_things_and_some_end_early(name: str) -> None:
    """Were it not so, the comparisons here would show little."""
    model = tiny_model(name)
    targets = generated_targets(model, generate(model, GERMAN, num_beams=1))
    lengths = {len(target) for target in targets}
    assert len({tuple(target) for target in targets}) > 3
    assert len(lengths) > 1
    assert max(len(set(target)) for target in targets) > 3


@every_architecture
def test_keys_alone_need_no_feed_forward_and_no_projection(name: str) -> None:
    model = tiny_model(name)
    ran: list[str] = []
    block = module_at(model.network, model.key_site.path)
    handles = [
        block.register_forward_hook(lambda *_: ran.append("feed-forward")),
        model.network.register_forward_hook(lambda *_: ran.append("model")),
    ]
    try:
        forced_keys(model, model.encode_sources(GERMAN[:1]), model.encode_targets(ENGLISH[:1]))
    finally:
        for handle in handles:
            handle.remove()
    assert ran == []


@every_architecture
def test_the_key_is_what_the_last_feed_forward_block_is_given(name: str) -> None:
    """What comes after the key does not reach back: other weights there leave the keys as they are."""
    model = tiny_model(name)
    inputs = model.teacher_forcing(model.encode_sources(GERMAN[:2]), model.encode_targets(ENGLISH[:2]))
    block = module_at(model.network, model.key_site.path)
    with torch.inference_mode():
        keys = teacher_forced_keys(model.network, model.key_site, inputs)
        before = model.network(**inputs, use_cache=False).logits
        handle = block.register_forward_hook(lambda _, __, output: output + 1.5 * torch.arange(output.shape[-1]))
        try:
            same = teacher_forced_keys(model.network, model.key_site, inputs)
            after = model.network(**inputs, use_cache=False).logits
        finally:
            handle.remove()
    assert torch.equal(keys, same)
    assert not torch.allclose(before, after)
    layers = list(module_at(model.network, model.key_site.path.split("[")[0]).children())
    assert any(module is block for module in layers[-1].modules())


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("decoder.layers[-1].fc9", "--key-site decoder.layers[-1].fc9: the model has no 'fc9' there"),
        ("decoder.layers[7].fc1", "--key-site decoder.layers[7].fc1: the model has no '7' there"),
        ("decoder.fc1[0]", "--key-site decoder.fc1[0]: the model has no 'fc1' there"),
        ("decoder[0]", "--key-site decoder[0]: the model has no '0' there"),
        ("config", "--key-site config: not a module of the model"),
        ("", "--key-site : not a path such as decoder.layers[-1].fc1"),
        ("[[[", "--key-site [[[: not a path such as decoder.layers[-1].fc1"),
        ("decoder layers", "--key-site decoder layers: not a path such as decoder.layers[-1].fc1"),
        ("decoder.layers[-1].fc1!", "--key-site decoder.layers[-1].fc1!: not a path such as decoder.layers[-1].fc1"),
    ],
)
def test_a_bad_key_site_is_one_clear_line(path: str, complaint: str) -> None:
    with pytest.raises(ModelError) as caught:
        key_site_of(tiny_model("bart").network, path)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("decoder.layers", "the model's forward pass never came there"),
        ("decoder", "its input is not one vector for each token"),
        ("decoder.embed_tokens", "its input is not one vector for each token"),
    ],
)
def test_a_key_site_without_keys_is_one_clear_line(path: str, complaint: str) -> None:
    model = tiny_model("bart")
    inputs = model.teacher_forcing(model.encode_sources(GERMAN[:1]), model.encode_targets(ENGLISH[:1]))
    with pytest.raises(ModelError) as caught:
        teacher_forced_keys(model.network, key_site_of(model.network, path), inputs)
    assert str(caught.value) == f"--key-site {path}: {complaint}"


def test_an_unknown_kind_of_model_is_told_about_key_site() -> None:
    stranger = nn.Module()
    stranger.config = SimpleNamespace(model_type="new-kind")  # type: ignore[assignment]
    stranger.decoder = nn.ModuleDict({"last": nn.Linear(2, 2)})
    with pytest.raises(ModelError, match=r"^model type 'new-kind' is new to knnmt: .*--key-site"):
        key_site_of(stranger)
    assert key_site_of(stranger, "decoder.last") == KeySite("decoder.last")


def test_another_place_keeps_the_order_of_the_layers() -> None:
    assert key_site_of(tiny_model("fsmt").network, "decoder.layers[0].fc1") == KeySite("decoder.layers[0].fc1", True)


@every_architecture
def test_no_hook_stays(name: str) -> None:
    network, site = tiny_model(name).network, tiny_model(name).key_site
    with catching_keys(network, site):
        assert module_at(network, site.path)._forward_pre_hooks
    with pytest.raises(ZeroDivisionError), catching_keys(network, site):
        raise ZeroDivisionError
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_keys_are_read_while_another_thread_translates() -> None:
    """A hook sees every forward pass of its network: whoever runs one holds the network's lock."""
    model = tiny_model("marian")
    translator = Translator(model, None, TranslateSettings(beam=2, weight=0))
    expected = translator.translate(list(GERMAN))
    inputs = model.teacher_forcing(model.encode_sources(["eins zwei"]), model.encode_targets(["one two"]))
    keys = teacher_forced_keys(model.network, model.key_site, inputs)
    with ThreadPoolExecutor(3) as pool:
        read = [pool.submit(teacher_forced_keys, model.network, model.key_site, inputs) for _ in range(48)]
        translated = [pool.submit(translator.translate, list(GERMAN)) for _ in range(12)]
        assert all(torch.equal(one.result(), keys) for one in read)
        assert all(one.result() == expected for one in translated)
