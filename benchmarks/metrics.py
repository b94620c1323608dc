"""Metrics against torchmetrics and scikit-learn: time and agreement on a million elements, with and without ties.

Each package gets the types it asks for (tensors and int64 labels, or arrays), made beforehand. ECE has 15 bins. At a
bin's edge the packages differ by definition: ours are (low, high], torchmetrics' [low, high). So tied confidences lie
in the middle of a hundredth, where no edge is. torchmetrics adds up multiclass ECE in float32, whatever comes in; the
column "float64" is its binary form on the float64 confidences, and shows which of the two is off.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score
from torch import Tensor
from torchmetrics.functional.classification import (
    binary_auroc,
    binary_average_precision,
    binary_calibration_error,
    multiclass_calibration_error,
)

from benchmarks.ratios import compare_samples
from benchmarks.timing import measure, ratio, table
from solera.metrics import aupr, auroc, brier, ece
from solera.metrics.calibration import confidence_ece
from solera.metrics.rows import top_class

COUNT, CLASSES, BINS = 10**6, 10, 15
OURS, TORCHMETRICS, SCIKIT_LEARN, FLOAT64 = "ours", "torchmetrics", "scikit-learn", "float64"
HEADER = ["metric, N = 10⁶", "scores", "ours, ms", *(f"{name} ÷ ours" for name in (TORCHMETRICS, SCIKIT_LEARN))]
HEADER += [f"difference from {name}" for name in (TORCHMETRICS, SCIKIT_LEARN, f"torchmetrics in {FLOAT64}")]

Cases = dict[str, Callable[[], float | Tensor]]


def compare(metric: str, scores: str, cases: Cases, referee: float = math.nan) -> list[object]:
    """One row: our time, the others' ÷ ours, and how far apart the results are."""
    values = {name: float(run()) for name, run in cases.items()} | {FLOAT64: referee}
    samples = measure(cases, rounds=5)
    if TORCHMETRICS in cases:
        goal = 2.0 if metric.startswith("ECE") else None
        title = f"{metric}, {scores}: {'time' if goal is None else 'speed'} ÷ torchmetrics'"
        compare_samples(title, samples, OURS, TORCHMETRICS, at_least=goal)
    others = (TORCHMETRICS, SCIKIT_LEARN)
    times = [f"{ratio(samples, name, OURS):.1f}" if name in cases else "—" for name in others]
    apart = [abs(values.get(name, math.nan) - values[OURS]) for name in (*others, FLOAT64)]
    cells = ["—" if math.isnan(difference) else f"{difference:.0e}" for difference in apart]
    return [metric, scores, f"{1000 * sorted(samples[OURS])[2]:.0f}", *times, *cells]


def detection(scores: str, score: NDArray, positive: NDArray[np.bool_]) -> list[list[object]]:
    """AUROC and average precision."""
    tensors = torch.from_numpy(score), torch.from_numpy(positive.astype(np.int64))
    return [
        compare(
            name,
            scores,
            {
                OURS: partial(ours, score, positive),
                TORCHMETRICS: partial(theirs, *tensors, thresholds=None),
                SCIKIT_LEARN: partial(learn, positive, score),
            },
        )
        for name, ours, theirs, learn in (
            ("AUROC", auroc, binary_auroc, roc_auc_score),
            ("AUPR", aupr, binary_average_precision, average_precision_score),
        )
    ]


def calibration(scores: str, confidence: NDArray, correct: NDArray[np.bool_]) -> list[object]:
    """ECE from confidences alone."""
    labels, settings = torch.from_numpy(correct.astype(np.int64)), {"n_bins": BINS, "norm": "l1"}
    cases: Cases = {
        OURS: partial(confidence_ece, confidence, correct, BINS),
        TORCHMETRICS: partial(binary_calibration_error, torch.from_numpy(confidence), labels, **settings),
    }
    in_float64 = binary_calibration_error(torch.from_numpy(confidence.astype(np.float64)), labels, **settings)
    return compare("ECE of confidences", scores, cases, float(in_float64))


def classes(scores: str, probs: NDArray, y: NDArray[np.int64]) -> list[list[object]]:
    """ECE and Brier score of class probabilities."""
    tensors, settings = (torch.from_numpy(probs), torch.from_numpy(y)), {"n_bins": BINS, "norm": "l1"}
    confidence, correct = (torch.from_numpy(column) for column in top_class(probs, y))
    calibrated: Cases = {
        OURS: partial(ece, probs, y, BINS),
        TORCHMETRICS: partial(multiclass_calibration_error, *tensors, num_classes=CLASSES, **settings),
    }
    squares: Cases = {
        OURS: partial(brier, probs, y),
        SCIKIT_LEARN: partial(brier_score_loss, y, probs, labels=range(CLASSES)),
    }
    in_float64 = float(binary_calibration_error(confidence, correct.long(), **settings))
    return [
        compare(f"ECE, {CLASSES} classes", scores, calibrated, in_float64),
        compare(f"Brier, {CLASSES} classes", scores, squares),
    ]


def main() -> None:
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    positive = generator.random(COUNT) < 0.3
    probability = 1 / (1 + np.exp(-generator.normal(size=COUNT) - positive))
    hundredths = (np.floor(100 * probability) + 0.5) / 100
    probs = generator.dirichlet(np.full(CLASSES, 0.5), size=COUNT)
    y = np.where(generator.random(COUNT) < 0.7, probs.argmax(-1), generator.integers(0, CLASSES, size=COUNT))
    rows: list[list[object]] = []
    for dtype in (np.float32, np.float64):
        name = np.dtype(dtype).name
        rows += detection(name, probability.astype(dtype), positive)
        rows += detection(f"{name}, 2 digits", probability.round(2).astype(dtype), positive)
        rows.append(calibration(name, probability.astype(dtype), positive))
        rows.append(calibration(f"{name}, 2 digits", hundredths.astype(dtype), positive))
        rows += classes(name, probs.astype(dtype), y)
    print(table(HEADER, sorted(rows, key=lambda row: str(row[0]))) + "\n", flush=True)
