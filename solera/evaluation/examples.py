"""A few examples to look at: the most uncertain ones of every kind and set, and some typical ones, with all answers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from solera.data import Batch, ManyBatches, map_tensors, tensors_in
from solera.distributions.base import Prediction
from solera.evaluation.json_values import plain
from solera.evaluation.measure import MEASURES, Sets
from solera.evaluation.stream import Elements, rows_of, source_of
from solera.evaluation.thumbnails import Range, shown, value_range
from solera.tasks import Task

MOST, TYPICAL = 36, 2
Chosen = dict[tuple[str, int], str]  # (set, example) -> why


def by_example(column: np.ndarray, elements: Elements) -> np.ndarray:
    """The mean over each example's elements."""
    starts = elements.starts
    return np.add.reduceat(column.astype(np.float64), starts[:-1]) / np.diff(starts)


def choose(every: Mapping[str, Sets], elements: Mapping[str, Elements], students: Sequence[str]) -> Chosen:
    """The most uncertain by each measure on each set for each student in turn, 36 at most, and two typical of each set.

    Typical: of about the median total uncertainty of the first student.
    """
    who = list(students) or list(every)
    ids = {name: facts.example[facts.starts[:-1]] for name, facts in elements.items()}
    orders = {
        (measure, model, name): np.argsort(-by_example(columns[measure], elements[name]), kind="stable")[:MOST]
        for measure in ("knowledge", "total", "data")
        for model in who
        for name, columns in every[model].items()
        if measure in columns
    }
    found: Chosen = {}
    for rank in range(MOST):
        for (measure, _, name), order in orders.items():
            if rank < len(order) and len(found) < MOST:
                found.setdefault((name, int(ids[name][order[rank]])), f"most {measure}")
    for name, columns in every[who[0]].items():
        total = by_example(columns["total"], elements[name])
        middle = np.argsort(np.abs(total - np.median(total)), kind="stable")
        for row in middle[:TYPICAL]:
            found.setdefault((name, int(ids[name][row])), "typical")
    return found


def _looked_up(batches: ManyBatches, wanted: set[int]) -> dict[int, tuple[int, Batch]]:
    """The chosen examples of a set, as they come by once more, and the position of each."""
    found: dict[int, tuple[int, Batch]] = {}
    position = 0
    for batch in batches:
        for row, example in enumerate(batch.index.tolist()):
            if example in wanted:
                found.setdefault(example, (position + row, batch.take(slice(row, row + 1))))
        position += len(batch)
        if len(found) == len(wanted):
            break
    return found


def answer_of(columns: Mapping[str, np.ndarray], place: slice, said: Mapping[str, Any], counted: int) -> dict[str, Any]:
    """What a model said of one example, with its uncertainties; of a sequence those of every token, too."""
    spread = {name: float(columns[name][place].mean()) if name in columns else None for name in MEASURES}
    nothing = {"top": None, "mean": None, "low": None, "high": None}
    if "tokens" not in said:
        return {**nothing, **said, **spread}
    each = [
        {**token, **{name: columns[name][place][number] for name in MEASURES if name in columns}}
        for number, token in enumerate(said["tokens"][:counted])
    ]
    return {**nothing, "tokens": each, **spread}


def examples(
    models: Mapping[str, Any],
    sets: Mapping[str, ManyBatches],
    elements: Mapping[str, Elements],
    every: Mapping[str, Sets],
    students: Sequence[str],
    task: Task,
    class_names: Sequence[str] | None,
    features: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """The chosen examples, as JSON values: every model is asked about them once more."""
    chosen = choose(every, elements, students)
    looked_up = {name: _looked_up(sets[name], {e for where, e in chosen if where == name}) for name in sets}
    span = _span(sets["test"])
    found = []
    for (name, example), why in chosen.items():
        if example not in looked_up[name]:
            continue  # an iterable that deals out other examples the second time
        position, batch = looked_up[name][example]
        texts = getattr(sets[name], "text", lambda _: None)
        facts = elements[name]
        starts = facts.starts
        number = int(np.searchsorted(facts.example[starts[:-1]], example))
        place = slice(int(starts[number]), int(starts[number + 1]))
        counted = place.stop - place.start
        tokens = None if facts.token is None else counted
        answers = {}
        for model, own in every.items():
            if name in own:
                with torch.no_grad():
                    whole = source_of(model, models[model])(name, batch, position)
                    (said,) = task.answers(whole if tokens is None else _first_tokens(whole, counted), class_names)
                answers[model] = answer_of(own[name], place, said, counted)
        truth = None if facts.target is None else facts.target[place]
        if truth is not None and facts.token is None:
            truth = truth[0]
        found.append(
            plain(
                {
                    "set": name,
                    "row": example,
                    "label": None if truth is None else task.label(truth, class_names),
                    "why": why,
                    "shown": _shown(
                        batch, span, features, counted if facts.token is not None else None, texts(example)
                    ),
                    "answers": answers,
                }
            )
        )
    return found


def _first_tokens(prediction: Prediction, count: int) -> Prediction:
    """Without what is said about padding."""
    return rows_of(prediction, (slice(None), slice(0, count)))


def _span(batches: ManyBatches) -> Range:
    """What black and white are, by the first batch of the test set."""
    ranges = [value_range(tensor) for tensor in tensors_in(next(iter(batches)).inputs) if tensor.numel()]
    return ranges[0]


def _shown(
    batch: Batch, span: Range, features: Sequence[str] | None, tokens: int | None, text: Sequence[str] | None
) -> dict[str, Any]:
    """One input as a person can look at it; of several tensors, their shapes."""
    if text is not None:
        return {"tokens": list(text)}
    inputs = map_tensors(lambda tensor: tensor[0], batch.inputs)
    tensors = tensors_in(inputs)
    if len(tensors) > 1:
        shapes = inputs.items() if isinstance(inputs, dict) else enumerate(tensors)
        return {"text": ", ".join(f"{key} {list(tensors_in(value)[0].shape)}" for key, value in shapes)}
    if tokens is not None:
        numbers = tensors[0][:tokens]
        words = numbers.tolist() if numbers.ndim == 1 else range(1, tokens + 1)
        return {"tokens": [str(word) for word in words]}
    return shown(tensors[0], span, features)
