"""A Marian decoder's step as one graph of ONNX operators over the network's own weights in memory.

The input `order` says which row of the previous step each row continues, so the graph reorders the beams. The past keys
and values of each layer are inputs and outputs named `keys0`, `values0` and so on, [rows, heads, time, width].
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

OPERATORS, FUSED = 17, "com.microsoft"  # the operator set, and where ONNX Runtime has fused ones
SWISH = ("QuickGelu", FUSED, {"alpha": 1.0})  # a number times its logistic function
ACTIVATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gelu": ("Gelu", FUSED, {}),
    "relu": ("Relu", "", {}),
    "silu": SWISH,
    "swish": SWISH,
}
PARTS = ("keys", "values")
WHOLE = ("tokens", "position", "order", "beams")  # inputs that are whole numbers


class Graph:
    """Operators in the order in which they run, and their weights."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: dict[str, torch.Tensor] = {}
        self.constants: dict[str, Any] = {}

    def op(self, kind: str, inputs: Sequence[str], *, domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
        """The name of the result, or the names of several."""
        names = [f"{kind}{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, tensor: torch.Tensor) -> str:
        name = f"weight{len(self.weights)}"
        self.weights[name] = tensor.detach().contiguous()
        return name

    def numbers(self, *values: int) -> str:
        name = "numbers" + "_".join(map(str, values))
        self.constants[name] = numpy_helper.from_array(np.array(values, np.int64), name)
        return name

    def linear(self, states: str, *layers: Any) -> str:
        """Products of layers side by side."""
        weight, bias = (layers[0].weight, layers[0].bias) if len(layers) == 1 else side_by_side(layers)
        product: str = self.op("Gemm", [states, self.weight(weight), self.weight(bias)], transB=1)
        return product

    def added(self, states: str, more: str, norm: Any) -> str:
        """The norm of a sum."""
        weights = [self.weight(norm.weight), self.weight(norm.bias)]
        result: str = self.op("SkipLayerNormalization", [states, more, *weights], domain=FUSED, epsilon=float(norm.eps))
        return result

    def attention(self, query: str, keys: str, values: str, *, width: int, mask: str | None = None) -> str:
        """Each [n, heads, time, width]."""
        scores = self.op("FusedMatMul", [query, keys], domain=FUSED, transB=1, alpha=width**-0.5)
        scores = self.op("Add", [scores, mask]) if mask else scores
        attended: str = self.op("MatMul", [self.op("Softmax", [scores], axis=-1), values])
        return attended

    def named(self, given: str, name: str) -> str:
        """An output of the graph."""
        node = next(node for node in self.nodes if given in node.output)
        node.output[list(node.output).index(given)] = name
        for later in self.nodes:
            later.input[:] = [name if each == given else each for each in later.input]
        return name

    def serialized(self, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
        given = [helper.make_tensor_value_info(name, kind_of(name), None) for name in inputs]
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        weights = [from_elsewhere(name, weight) for name, weight in self.weights.items()]
        graph = helper.make_graph(self.nodes, "step", given, made, [*weights, *self.constants.values()])
        sets = [helper.make_opsetid("", OPERATORS), helper.make_opsetid(FUSED, 1)]
        model: bytes = helper.make_model(graph, opset_imports=sets, ir_version=9).SerializeToString()
        return model


def kind_of(name: str) -> int:
    return int(TensorProto.INT64 if name in WHOLE else TensorProto.FLOAT)


def side_by_side(layers: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    weight, bias = (torch.cat([getattr(layer, part).detach() for layer in layers]) for part in ("weight", "bias"))
    return weight, bias


def from_elsewhere(name: str, weight: torch.Tensor) -> Any:
    """A weight whose memory is given to the session."""
    tensor = onnx.TensorProto(name=name, data_type=TensorProto.FLOAT, dims=weight.shape)
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "memory"
    return tensor


def step_of(network: Any) -> tuple[bytes, dict[str, torch.Tensor]]:
    """The step of a Marian network's decoder, and the weights that the graph names."""
    decoder, graph = network.get_decoder(), Graph()
    inputs, outputs = ["tokens", "position", "order", "beams", "mask"], []
    scale = graph.weight(torch.tensor(float(decoder.embed_scale)))
    embedded = graph.op("Mul", [graph.op("Gather", [graph.weight(decoder.embed_tokens.weight), "tokens"]), scale])
    placed = graph.op("Gather", [graph.weight(decoder.embed_positions.weight), "position"])
    hidden = key = graph.op("Add", [embedded, placed])
    for number, layer in enumerate(decoder.layers):
        key, hidden, past = layer_of(graph, layer, hidden, number, network.config)
        outputs += past
        inputs += [f"{part}{number}" for part in ("keys", "values", "source_keys", "source_values")]
    outputs = [graph.named(key, "key"), graph.named(hidden, "state"), *outputs]
    return graph.serialized(inputs, outputs), graph.weights


def layer_of(graph: Graph, layer: Any, hidden: str, number: int, config: Any) -> tuple[str, str, list[str]]:
    """The key (the feed-forward block's input), the new states, and the keys and values of the past."""
    heads, width = config.decoder_attention_heads, config.d_model // config.decoder_attention_heads
    attended, past = attention_to_past(graph, layer.self_attn, hidden, number, heads, width)
    hidden = graph.added(hidden, attended, layer.self_attn_layer_norm)
    attended = attention_to_source(graph, layer.encoder_attn, hidden, number, heads * width)
    key = graph.added(hidden, attended, layer.encoder_attn_layer_norm)
    kind, domain, attributes = ACTIVATIONS[config.activation_function]
    wide = graph.op(kind, [graph.linear(key, layer.fc1)], domain=domain, **attributes)
    return key, graph.added(key, graph.linear(wide, layer.fc2), layer.final_layer_norm), past


def attention_to_past(
    graph: Graph, attention: Any, hidden: str, number: int, heads: int, width: int
) -> tuple[str, list[str]]:
    """Attention of one more token, and the keys and values of all tokens so far."""
    states = graph.linear(hidden, attention.q_proj, attention.k_proj, attention.v_proj)
    by_head = graph.op("Reshape", [states, graph.numbers(0, 3 * heads, 1, width)])
    query, *last = graph.op("Split", [by_head, graph.numbers(heads, heads, heads)], outputs=3, axis=1)
    past = []
    for part, new in zip(PARTS, last, strict=True):
        before = graph.op("Gather", [f"{part}{number}", "order"])
        past.append(graph.named(graph.op("Concat", [before, new], axis=2), f"{part}{number}_out"))
    attended = graph.op("Reshape", [graph.attention(query, *past, width=width), graph.numbers(-1, heads * width)])
    return graph.linear(attended, attention.out_proj), past


def attention_to_source(graph: Graph, attention: Any, hidden: str, number: int, dimension: int) -> str:
    """Attention to the source. The beams of a sentence share its keys and form a sequence here."""
    rows = graph.op("Reshape", [graph.linear(hidden, attention.q_proj), "beams"])
    query, source = graph.op("Transpose", [rows], perm=[0, 2, 1, 3]), [f"source_{part}{number}" for part in PARTS]
    seen = graph.attention(query, *source, width=attention.head_dim, mask="mask")
    by_row = graph.op("Transpose", [seen], perm=[0, 2, 1, 3])
    return graph.linear(graph.op("Reshape", [by_row, graph.numbers(-1, dimension)]), attention.out_proj)
