"""A Marian decoder that runs each step as one graph in ONNX Runtime, for small batches.

With few rows, calls cost as much as the products.

The graph is made from the network's own weights in memory, and no file is kept. Making it takes as long as translating
a few sentences, so it is made only after a model has run several small batches.
"""

import time
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.dlpack import from_dlpack

from knnmt.engine.decoder import Decoder, Passed
from knnmt.engine.marian import MarianDecoder, attention_of, gives_the_same, joint, padding_hidden
from knnmt.engine.projection import Projection
from knnmt.engine.runtime import Judged, Runtime, runtime_of
from knnmt.models.translation_model import TranslationModel
from knnmt.packed_weights import WeightSums
from knnmt.switches import left_out

FEW = 24  # rows; with more, the products of packed weights are as fast
WARM = 8  # batches of few rows after which a graph is made: a program that translates one sentence does not wait for it
TRIED = 8  # steps of either kind
LIBRARIES = ("onnx", "onnxruntime")


class Session(NamedTuple):
    """Runs the graph. It refers to the weights' memory and does not own it."""

    inference: Any
    weights: list[Any]


class Compiled(NamedTuple):
    """A compiled step, the weights that it was made of, and the objection to using it."""

    session: Session | None
    contents: WeightSums
    judged: Judged | None  # of the modules
    projection: Projection | None  # of the embeddings, where these are its weights: another is made when they change
    objection: str | None


class CompiledDecoder:
    """The decoder over encoded sources [sentences, time, dimension]: one row for each, or several after `spread`."""

    def __init__(self, network: Any, session: Session, encoded: torch.Tensor, mask: torch.Tensor) -> None:
        self.heads, self.layers = network.config.decoder_attention_heads, network.get_decoder().layers
        self.session, self.binding = session, session.inference.io_binding()
        self.outputs = [output.name for output in session.inference.get_outputs()]
        self.sources = self.sources_of(network, encoded)
        hidden, (sentences, time, dimension) = padding_hidden(mask, encoded.dtype), encoded.shape
        self.sources["mask"] = encoded.new_zeros(sentences, 1, 1, time) if hidden is None else hidden
        none = given(encoded.new_empty(sentences, self.heads, 0, dimension // self.heads))
        self.past = {f"{part}{number}": none for number in range(len(self.layers)) for part in ("keys", "values")}
        self.time, self.order = 0, torch.arange(sentences)
        self.bind_sources(beam=1)

    def sources_of(self, network: Any, encoded: torch.Tensor) -> dict[str, torch.Tensor]:
        """Keys and values of the source for each layer, [sentences, heads, time, width]."""
        found: dict[str, torch.Tensor] = {}
        for number, layer in enumerate(self.layers):
            both = joint(network, attention_of(layer.encoder_attn, "kv"))(encoded)
            by_head = both.view(*encoded.shape[:2], 2, self.heads, -1).permute(2, 0, 3, 1, 4).contiguous()
            found |= {f"source_keys{number}": by_head[0], f"source_values{number}": by_head[1]}
        return found

    def bind_sources(self, beam: int) -> None:
        self.beam = beam
        sentences, heads, _, width = self.sources["source_keys0"].shape
        tensors = self.sources | {"beams": torch.tensor([sentences, beam, heads, width])}
        self.held = {name: given(tensor) for name, tensor in tensors.items()}  # the binding holds no memory
        for name, value in self.held.items():
            self.binding.bind_ortvalue_input(name, value)

    def begin(self, prefix: torch.Tensor) -> Passed:
        """Run the decoder's prefix, [sentences, time]."""
        return [self.step(tokens) for tokens in prefix.T][-1]

    def spread(self, beam: int) -> None:
        """Continue with several rows for each sentence, all alike at first."""
        self.order = self.order.repeat_interleave(beam)
        self.bind_sources(beam)

    def step(self, tokens: torch.Tensor) -> Passed:
        """Run one more token in each row, [rows]; the last layer's feed-forward input is the key."""
        moving = {"tokens": tokens, "position": torch.tensor([self.time]), "order": self.order}
        held = {name: given(tensor) for name, tensor in moving.items()} | self.past
        for name, value in held.items():
            self.binding.bind_ortvalue_input(name, value)
        for name in self.outputs:
            self.binding.bind_output(name)
        self.session.inference.run_with_iobinding(self.binding)
        key, state, *past = self.binding.get_outputs()
        self.past = dict(zip(self.past, past, strict=True))
        self.time, self.order = self.time + 1, torch.arange(len(tokens))
        return Passed(from_dlpack(key), from_dlpack(state))

    def keep(self, sentences: torch.Tensor | None, rows: torch.Tensor) -> None:
        """Continue with some sentences (None: all) and some rows; the next step applies it."""
        self.order = self.order[rows]
        if sentences is not None:
            self.sources = {name: tensor[sentences] for name, tensor in self.sources.items()}
            self.bind_sources(self.beam)


def given(tensor: torch.Tensor) -> Any:
    """The same memory as a value for ONNX Runtime."""
    from onnxruntime import OrtValue

    return OrtValue.ortvalue_from_numpy(tensor.detach().contiguous().numpy())


def decoder_for(
    model: TranslationModel, encoded: torch.Tensor, mask: torch.Tensor, beam: int, dtype: torch.dtype
) -> MarianDecoder | CompiledDecoder:
    """The fastest decoder for this number of rows, of those that give the same result."""
    network, runtime = model.network, runtime_of(model.network)
    objection = objection_to_graph(network, runtime, len(encoded) * beam, dtype)
    compiled = None if objection else up_to_date(model, encoded, mask, beam)
    objection = compiled.objection if compiled else objection
    runtime.not_taken("compiled", objection)
    if objection or compiled is None or compiled.session is None:
        return MarianDecoder(network, encoded, mask)
    return CompiledDecoder(network, compiled.session, encoded, mask)


def objection_to_graph(network: Any, runtime: Runtime, rows: int, dtype: torch.dtype) -> str | None:
    """Why a graph does not run this batch."""
    if left_out("compiled"):
        return "KNNMT_PLAIN"
    missing = [library for library in LIBRARIES if not find_spec(library)]
    if missing:
        return f"{' and '.join(missing)} not installed: pip install 'knnmt[compiled]'"
    if rows > FEW:
        return f"more than {FEW} rows"
    if dtype != torch.float32 or network.dtype != torch.float32 or network.device.type != "cpu":
        return "it computes in float32 on the processor"
    layers = [module for layer in network.get_decoder().layers for module in layer.modules()]
    strange = [module for module in layers if isinstance(module, nn.Linear) and type(module) is not nn.Linear]
    if strange:
        return f"a layer is a {type(strange[0]).__name__}"
    runtime.small_batches += 1
    return None if runtime.small_batches > WARM else f"not before {WARM} small batches"


def up_to_date(model: TranslationModel, encoded: torch.Tensor, mask: torch.Tensor, beam: int) -> Compiled:
    """The step for the current weights. A new one is tested on these sources."""
    runtime = runtime_of(model.network)
    decoder, head = model.network.get_decoder(), model.network.get_output_embeddings()
    watched = [*decoder.layers.parameters(), decoder.embed_positions.weight]
    if head.weight is not decoder.embed_tokens.weight:
        watched.append(decoder.embed_tokens.weight)
    contents, known = WeightSums(watched), runtime.compiled
    made_of = (runtime.judged, runtime.projection)
    if known is None or (known.judged, known.projection) != made_of or known.contents != contents:
        session, objection = compiled_step(model, encoded, mask, beam)
        runtime.compiled = known = Compiled(session, contents, *made_of, objection)
    return known


def compiled_step(
    model: TranslationModel, encoded: torch.Tensor, mask: torch.Tensor, beam: int
) -> tuple[Session | None, str | None]:
    """A session, and the objection to using it: it is compared with the network, and timed beside its plain twin."""
    network = model.network
    try:
        session = session_of(network)
    except Exception as error:  # whatever ONNX Runtime raises: the plain twin is there
        return None, f"no graph can be made of it: {error}"
    if not gives_the_same(network, model, lambda *sources: CompiledDecoder(network, session, *sources)):
        return session, "its graph does not give what the network gives"
    ours, plain = CompiledDecoder(network, session, encoded, mask), MarianDecoder(network, encoded, mask)
    faster = seconds_of(ours, len(encoded), beam) < seconds_of(plain, len(encoded), beam)
    return session, None if faster else "packed weights are as fast on this machine"


def seconds_of(decoder: Decoder, sentences: int, beam: int) -> float:
    """The time of a step and its reordering; the fastest of several."""
    tokens, taken = torch.zeros(sentences * beam, dtype=torch.long), []
    decoder.begin(tokens[:sentences, None])
    decoder.spread(beam)
    for _ in range(TRIED):
        began = time.perf_counter()
        decoder.step(tokens)
        decoder.keep(None, torch.arange(len(tokens)))
        taken.append(time.perf_counter() - began)
    return min(taken)


def session_of(network: Any) -> Session:
    """A session with one thread: its own threads would compete with PyTorch's, and few rows are too little work for
    two.
    """
    import onnxruntime

    from knnmt.engine.graph import step_of

    graph, tensors = step_of(network)
    weights = [given(tensor) for tensor in tensors.values()]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_external_initializers(list(tensors), weights)
    return Session(onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"]), weights)
