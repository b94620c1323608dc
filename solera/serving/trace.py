"""A student as torch.export sees it: tensors in, named tensors out, for any number of examples."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.data import map_tensors
from solera.data.sequences import padded
from solera.nn import Standardize, Table, Tagger
from solera.serving.graph_outputs import Answers
from solera.training.student import Student

MOST = 1024  # examples that a comparison looks at


def prepared(inputs: Any) -> Any:
    """Tensors on the CPU, float32 instead of float64; at most 1,024 examples, evenly from all."""

    def one(value: Any) -> Tensor:
        if value.ndim < 1 or len(value) == 0:
            raise ValueError("there is nothing to compare with: example_inputs are empty, pass some real inputs")
        some = value[:: -(-len(value) // MOST)]
        tensor = torch.as_tensor(np.array(some) if isinstance(some, np.ndarray) else some).cpu().contiguous()
        return tensor.float() if tensor.dtype == torch.float64 else tensor

    if isinstance(inputs, np.ndarray):
        return one(inputs)
    if isinstance(inputs, Mapping):
        return {key: one(value) for key, value in inputs.items()}
    return map_tensors(one, inputs)


def tagger_in(student: Student) -> Tagger | None:
    """The tagger of words that a student's network is, or stands on."""
    return next((part for part in student.model.modules() if isinstance(part, Tagger)), None)


def tagger_inputs(student: Student, sentences: Sequence[Any]) -> Tensor:
    """Sentences as the student's tagger takes them, at most 64 of them: padded, for they are compared together."""
    network = tagger_in(student)
    if network is None:
        raise ValueError(f"this student's {type(student.model).__name__} reads no words: pass arrays, .npy")
    return padded(network.words(list(sentences)[:64]), 0)[0]


def _sentences(count: int) -> list[list[str]]:
    """Sentences of 1 to 24 made-up words."""
    random = np.random.default_rng(0)
    letters = np.array(list("abcdeilnorstuABCMPT019-.é"))
    return [
        ["".join(random.choice(letters, random.integers(1, 9))) for _ in range(1 + number % 24)]
        for number in range(count)
    ]


def random_inputs(student: Student, examples: int = 64) -> Any:
    """Numbers such as the student might be given, where nobody has real ones: normal, in the units of its inputs.

    A tagger of words gets made-up ones.
    """
    given, network = student.preprocessing.inputs, tagger_in(student)
    if network is not None:
        return tagger_inputs(student, _sentences(examples))
    if any(i.shape is None or not i.dtype.startswith("float") for i in given):
        raise ValueError(
            f"this student takes {[(i.name, i.shape, i.dtype) for i in given]}, for which no numbers can be made up: "
            "pass real inputs (solera export STUDENT FILE --inputs x.npy)"
        )
    random = torch.Generator().manual_seed(0)
    drawn = [torch.randn([examples, *map(int, i.shape or ())], generator=random) for i in given]
    for layer in student.model.modules():
        if isinstance(layer, Table):
            return layer.made_up(examples, random)
        if isinstance(layer, Standardize) and len(drawn) == 1 and drawn[0][0].numel() == len(layer.mean):
            rows = drawn[0].flatten(1) * layer.scale.cpu() + layer.mean.cpu()
            return rows.reshape(drawn[0].shape)
    return drawn[0] if len(drawn) == 1 else {i.name: x for i, x in zip(given, drawn, strict=True)}


@contextmanager
def quietly() -> Iterator[None]:
    """The exporters speak of packages that are not installed, of their own deprecations, and of tutorials."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def trace(answers: Answers, tensors: list[Tensor], tokens: bool) -> torch.export.ExportedProgram:
    """For any number of examples and, if the network allows it, of tokens.

    Traced with two examples, for torch would take a batch of one for a fixed size.

    What torch cannot prove for every number (that a view is contiguous, say) it may check at run time instead.
    """
    short, errors = [t[:2] for t in tensors], []
    batch, token = torch.export.Dim("batch", min=1), torch.export.Dim("tokens", min=1)
    for axes in ([{0: batch, 1: token}] if tokens else []) + [{0: batch}]:
        for unproven in (False, True):
            try:
                return torch.export.export(
                    answers,
                    tuple(short),
                    dynamic_shapes=(tuple(axes for _ in short),),
                    prefer_deferred_runtime_asserts_over_guards=unproven,
                )
            except Exception as error:  # torch.export has many kinds, none with a common parent
                errors.append(error)
    reason = " ".join(str(errors[-1]).strip().splitlines()[:2])
    raise ValueError(
        f"torch.export cannot trace this {type(answers.student.model).__name__} for any number of examples ({reason}): "
        "its forward must not depend on the values or the number of the examples (tensor.shape[0], not len(tensor))"
    ) from errors[-1]


def _sizes(program: torch.export.ExportedProgram) -> list[tuple[Any, ...]]:
    """The shapes of the inputs; a dynamic axis is not an int."""
    kinds = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"}
    return [tuple(node.meta["val"].shape) for node in program.graph.nodes if node.name in kinds]


def axes_of(program: torch.export.ExportedProgram) -> list[tuple[str | int, ...]]:
    """The axes of each input: a size, or the name of one that may have any."""
    names = ("batch", "tokens")
    return [tuple(s if isinstance(s, int) else names[i] for i, s in enumerate(shape)) for shape in _sizes(program)]
