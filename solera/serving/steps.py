"""A translator as two graphs: what reads the source, and one step of writing, with the uncertainty of every step.

`encoder.onnx` takes `input_ids` and `attention_mask` and gives the decoder's keys and values; `step.onnx` takes the
last tokens, their position, the mask, these and the keys and values of the tokens so far (none at first), and gives
`log_mean`, `total` and, for most methods, `data` and `knowledge` of the next token, and the longer keys and values.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from solera.core.disk import write_bytes
from solera.core.seal import sealed
from solera.data import Pairs, Tokenizer
from solera.data.tokenizers import load_tokenizer
from solera.decoding import Hypotheses, beam, log_probs_of
from solera.distributions.base import SecondOrder
from solera.distributions.categorical import Categorical
from solera.nn.transformer import EncoderDecoder
from solera.serving.graph import Graph, require_onnx
from solera.serving.to_onnx import to_onnx
from solera.serving.trace import quietly
from solera.training.student import Student

BATCH, SOURCE, BEFORE = 103, 107, 109  # sizes to trace with, which no other axis of a network is likely to have
TOLERANCE = 1e-4  # of log-probabilities and of nats, relative to max(1, |value|)


def _in_pairs(tensors: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(tensors[::2], tensors[1::2], strict=True))


class _Reading(nn.Module):
    """The first graph."""

    def __init__(self, network: EncoderDecoder) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        state = self.network.begin({"input_ids": input_ids, "attention_mask": attention_mask})
        return tuple(tensor for pair in state["memory"] for tensor in pair)


class _Writing(nn.Module):
    """The second graph."""

    def __init__(self, student: Student) -> None:
        super().__init__()
        assert isinstance(student.model, EncoderDecoder)
        self.network, self.method = student.model, student.method

    def forward(
        self, tokens: Tensor, position: Tensor, attention_mask: Tensor, memory: list[Tensor], cache: list[Tensor]
    ) -> tuple[Tensor, ...]:
        known = {"memory": _in_pairs(memory), "cache": _in_pairs(cache), "mask": attention_mask.bool()[:, None, None]}
        output, after = self.network.step({**known, "position": position}, tokens)
        said = self.method.predict(output)
        measures = [said.total] + ([said.data, said.knowledge] if isinstance(said, SecondOrder) else [])
        return log_probs_of(said), *measures, *(tensor for pair in after["cache"] for tensor in pair)


def _names(prefix: str, tensors: Sequence[Tensor]) -> list[str]:
    """Of keys and values, in turn, layer by layer."""
    return [f"{prefix}_{'values' if place % 2 else 'keys'}_{place // 2}" for place in range(len(tensors))]


@dataclass(frozen=True)
class _State:
    """What the step graph is given back, row by row."""

    arrays: dict[str, np.ndarray]
    position: int

    def reorder(self, rows: Tensor) -> "_State":
        chosen = rows.numpy()
        return _State({name: array[chosen] for name, array in self.arrays.items()}, self.position)


class Steps:
    """The two graphs of a folder, run by onnxruntime."""

    def __init__(self, folder: str | Path, threads: int | None = None) -> None:
        folder = Path(folder)
        self.facts = json.loads((folder / "solera.json").read_text())
        self.encoder, self.step_graph = (Graph(folder / f"{name}.onnx", threads) for name in ("encoder", "step"))
        self.tokenizer: Tokenizer = load_tokenizer(folder, self.facts["tokenizer"])

    def begin(self, inputs: Mapping[str, Any]) -> _State:
        """The state before the first token."""
        given = {name: np.asarray(inputs[name], dtype=np.int64) for name in ("input_ids", "attention_mask")}
        memory = self.encoder(given)
        rows, heads, _, size = next(iter(memory.values())).shape
        empty = np.zeros((rows, heads, 0, size), np.float32)
        cache = {name: empty for name in self.step_graph.inputs if name.startswith("cache_")}
        return _State({"attention_mask": given["attention_mask"], **memory, **cache}, 0)

    def step(self, state: _State, tokens: Tensor) -> tuple[dict[str, np.ndarray], _State]:
        """What the graph says of the next token, by name, and the state that knows these tokens."""
        given = {"tokens": tokens.numpy(), "position": np.array(state.position), **state.arrays}
        said = self.step_graph(given)
        cache = {name.removeprefix("new_"): said.pop(name) for name in list(said) if name.startswith("new_")}
        return said, _State({**state.arrays, **cache}, state.position + 1)

    def _step(self, state: _State, tokens: Tensor) -> tuple[Categorical, _State]:
        said, state = self.step(state, tokens)
        return Categorical(torch.from_numpy(said["log_mean"])), state

    def decode(self, sentences: Sequence[str], beams: int = 5) -> Hypotheses:
        """The best hypotheses for each sentence."""
        pairs = Pairs(sentences, None, self.tokenizer)
        inputs = pairs.take(range(len(sentences))).inputs
        start, longest = torch.full((len(sentences),), self.tokenizer.start), 2 * int(pairs.lengths.max()) + 10
        return beam(self._step, self.begin(inputs), start, self.tokenizer.end, longest, beams, early=True)


def _exported(module: nn.Module, given: dict[str, Any], outputs: list[str], free: dict[int, str]) -> bytes:
    """A graph of these inputs, of which an axis of one of these sizes is free, by this name."""
    dims = {size: torch.export.Dim(name, min=int(name != "before")) for size, name in free.items()}

    def named(tensor: Tensor) -> tuple[int | str, ...]:
        return tuple(free.get(size, size) for size in tensor.shape)

    def axes(tensor: Tensor) -> dict[int, Any]:
        return {axis: dims[size] for axis, size in enumerate(tensor.shape) if size in dims}

    nests = given.values()
    shapes = tuple([axes(t) for t in nest] if isinstance(nest, list) else axes(nest) for nest in nests)
    names = [n for key, nest in given.items() for n in (_names(key, nest) if isinstance(nest, list) else [key])]
    flat = [tensor for nest in nests for tensor in (nest if isinstance(nest, list) else [nest])]
    with quietly(), torch.no_grad():
        program = torch.export.export(module.eval(), tuple(nests), dynamic_shapes=shapes, strict=False)
        return sealed(to_onnx(program, names, outputs, [named(t) for t in flat]).SerializeToString(deterministic=True))


@torch.no_grad()
def export_steps(student: Student, folder: str | Path) -> Path:
    """Writes both graphs and the tokenizer, compared with PyTorch over a few steps before they are kept."""
    require_onnx()
    folder, network, tokenizer = Path(folder), student.model, student.tokenizer
    if not isinstance(network, EncoderDecoder) or tokenizer is None:
        raise ValueError(
            f"graphs of steps are made of a Translator with its tokenizer, this student is a {type(network).__name__}: "
            "export a Hugging Face network with solera.serving.export_huggingface"
        )
    student = student.cpu().eval()
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(len(tokenizer), (BATCH, SOURCE), generator=draw)
    reading, writing = _Reading(network), _Writing(student)
    source = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    memory = list(reading(*source.values()))
    cache = [tensor[:, :, :1].expand(-1, -1, BEFORE, -1).contiguous() for tensor in memory]
    second = isinstance(student.method.predict(torch.zeros(1, 4)), SecondOrder)
    measures = ["total", "data", "knowledge"] if second else ["total"]
    outputs = ["log_mean", *measures, *(f"new_{name}" for name in _names("cache", cache))]
    given = {"tokens": ids[:, 0], "position": torch.tensor(BEFORE), "attention_mask": source["attention_mask"]}
    free = {BATCH: "batch", SOURCE: "source", BEFORE: "before"}
    graphs = {
        "encoder": _exported(reading, source, _names("memory", memory), free),
        "step": _exported(writing, {**given, "memory": memory, "cache": cache}, outputs, free),
    }
    for name, content in graphs.items():
        write_bytes(folder / f"{name}.onnx", content)
    facts = {"fingerprint": student.fingerprint, "tokenizer": tokenizer.save(folder), "outputs": outputs}
    write_bytes(folder / "solera.json", json.dumps(facts, indent=2).encode())
    _require_same(student, Steps(folder), ids)
    return folder


def _require_same(student: Student, steps: Steps, ids: Tensor) -> None:
    """Compares some steps, of other rows and lengths than the graphs were traced with."""
    network = student.model
    assert isinstance(network, EncoderDecoder)
    given = {"input_ids": ids[:2, :5], "attention_mask": torch.ones(2, 5, dtype=torch.long)}
    state, own = steps.begin(given), network.begin(given)
    for tokens in ids[:2, :4].T:
        said, state = steps.step(state, tokens)
        output, own = network.step(own, tokens)
        wanted = student.method.predict(output)
        for name, got in said.items():
            want = log_probs_of(wanted) if name == "log_mean" else getattr(wanted, name)
            away = ((torch.from_numpy(got) - want).abs() / want.abs().clamp(min=1)).max()
            if not float(away) <= TOLERANCE:
                raise ValueError(f"the step graph differs from PyTorch in {name} by {float(away):.1e}: do not use it")
