"""A decoder that runs a network in another way, walked beside the network's own forward pass over the same tokens."""

import torch
from tiny_models import GERMAN

from knnmt.engine.decoder import Decoder
from knnmt.models.batching import pad
from knnmt.models.translation_model import TranslationModel

BEAM = 3


@torch.inference_mode()
def states_of(model: TranslationModel, tokens: torch.Tensor, sources: list[str]) -> torch.Tensor:
    """The network's own states after the last of given target tokens [rows, time]."""
    ids, mask = pad(model.encode_sources(sources), model.padding)
    encoded = model.network.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
    output = model.network.get_decoder()(input_ids=tokens, encoder_hidden_states=encoded, encoder_attention_mask=mask)
    states: torch.Tensor = output.last_hidden_state[:, -1]
    return states


@torch.inference_mode()
def check_every_step(model: TranslationModel, decoder: Decoder, steps: int, *, leaving_every: int) -> None:
    """Random tokens, beams that change places, and a sentence that leaves now and then."""
    random, sources = torch.Generator().manual_seed(0), list(GERMAN)
    written = torch.tensor([model.decoder_prefix] * (len(sources) * BEAM))
    for step in range(steps):
        tokens = torch.randint(4, model.network.config.vocab_size, (len(written),), generator=random)
        written = torch.cat([written, tokens[:, None]], dim=1)
        expected = states_of(model, written, [source for source in sources for _ in range(BEAM)])
        torch.testing.assert_close(decoder.step(tokens).states, expected, atol=1e-4, rtol=1e-4)
        stay = torch.arange(len(sources))
        if step % leaving_every == 5 and len(sources) > 1:
            stay = stay[stay != step % len(sources)]
        rows = (stay[:, None] * BEAM + torch.randint(0, BEAM, (len(stay), BEAM), generator=random)).reshape(-1)
        decoder.keep(stay if len(stay) < len(sources) else None, rows)
        written, sources = written[rows], [sources[sentence] for sentence in stay]
