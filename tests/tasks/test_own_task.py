"""A task of one's own, defined outside the package, goes the whole way without a change anywhere else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from solera import Batches, ProxyDirichlet, Training, capture, distill, evaluate, report, train_ensemble
from solera.data import Batch
from solera.distributions.base import Prediction
from solera.evaluation import Evaluation, verdict
from solera.evaluation.report_data import content
from solera.nn import MLP
from solera.serving import export
from solera.serving.graph import Graph
from solera.tasks import Columns, ErrorKind, Figure, Margin, Row, Score, Task, mean_of, register, uncertainties
from solera.testing import check_task


@register
@dataclass(frozen=True)
class Ordinal(Task):
    """Grades from 0 to K − 1: being off by two is worse than being off by one. Learned with a ranked likelihood."""

    sharpness: float = 1.0

    name: ClassVar[str] = "ordinal"
    family: ClassVar[str] = "categorical"
    table: ClassVar[tuple[Score, ...]] = (
        Score("mean grade error", -1, "How many grades it is off, on average."),
        Score("NLL", -1, "How surprised it is by the truth."),
        Score("spread", 0, "How many grades its predictions span."),
        Score("grades apart", -1, "How many grades its prediction is from the ensemble's."),
    )
    margins: ClassVar[tuple[Margin, ...]] = (
        Margin("accuracy", "mean grade error", 0.2),
        Margin("calibration", "NLL", 0.2),
    )
    shifted: ClassVar[tuple[str, ...]] = ("mean grade error",)
    beside: ClassVar[tuple[str, ...]] = ("apart",)
    errors: ClassVar[ErrorKind] = ErrorKind("grades off", percent=False, wanted=(0.1, 0.5))
    question: ClassVar[str] = "How far off is it?"

    def check_target(self, batch: Batch, size: int) -> None:
        if not ((batch.target >= 0) & (batch.target < size)).all():
            raise ValueError("a grade is out of range")

    def outputs(self, target, size: int) -> int:
        return size

    def labelled(self, batch: Batch, axes=None):
        return torch.ones_like(batch.target, dtype=torch.bool)

    def filled(self, target):
        return target

    def label_loss(self, network, prediction, batch, smoothing=0.0):
        """The likelihood, and the expected distance in grades: neighbours are better than strangers."""
        grades = torch.arange(prediction.mean.shape[-1], device=batch.target.device)
        distance = (grades - batch.target.unsqueeze(-1)).abs()
        return -prediction.log_prob(batch.target) + self.sharpness * (prediction.mean * distance).sum(-1)

    def columns(self, prediction: Prediction, batch: Batch):
        grades = torch.arange(prediction.mean.shape[-1]).to(prediction.mean)
        found = {"grade": prediction.mean @ grades, **uncertainties(prediction)}
        if batch.target is not None:
            off = (found["grade"] - batch.target).abs()
            found |= {"off": off, "surprise": -prediction.log_prob(batch.target)}
        return found

    def compare(self, prediction: Prediction, reference: Prediction):
        grades = torch.arange(prediction.mean.shape[-1]).to(prediction.mean)
        return {"apart": ((prediction.mean - reference.mean) @ grades).abs()}

    def likeness(self, columns: Columns) -> Row:
        return {"grades apart": mean_of(columns, "apart")}

    def error(self, columns: Columns) -> np.ndarray:
        return columns["off"]

    def scores(self, columns: Columns) -> Row:
        return {
            "mean grade error": mean_of(columns, "off"),
            "NLL": mean_of(columns, "surprise"),
            "spread": float(np.ptp(columns["grade"])),
        }

    def overconfident(self, columns: Columns) -> bool:
        return mean_of(columns, "off") > 2

    def figures(self, columns: Columns, target: np.ndarray) -> list[Figure]:
        share, edges = np.histogram(columns["off"], bins=8, range=(0, 4))
        about = ("Grades off", "Further left is better.")
        return [Figure("off", *about, "bars", edges, share / share.sum(), ("grades off", "share"), "%{y:.1%}")]

    def answers(self, prediction: Prediction, names: Sequence[str] | None) -> list[dict[str, Any]]:
        return [{"top": [[str(k), float(p)] for k, p in enumerate(one)]} for one in prediction.mean]


def grades(examples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(examples, 4, generator=random)
    noise = 0.3 * torch.randn(examples, generator=random)
    return x, (x[:, 0] + 0.5 * x[:, 1] + noise + 2).round().clamp(0, 4).long()


def test_ordinal_keeps_the_contract():
    x, y = grades(60, 0)
    check_task(Ordinal(), Batch(x, torch.arange(60), y), 5)


def test_train_capture_distil_evaluate_report_export(tmp_path):
    task, (x, y) = Ordinal(sharpness=0.5), grades(500, 0)
    training = Training(epochs=12, lr=1e-2)
    ensemble = train_ensemble(lambda: MLP(4, 5, (16,)), Batches(x, y), 3, training, task=task)
    plain = train_ensemble(lambda: MLP(4, 5, (16,)), Batches(x, y), 3, training)
    assert not torch.equal(ensemble.predict(x).mean, plain.predict(x).mean)  # its label loss was learned with
    kept = capture(ensemble, Batches(x, y), tmp_path / "kept", task=task)
    mixed = Training(epochs=25, lr=1e-2, label_weight=0.2)
    student = distill(kept, MLP(4, 5, (16,)), Batches(x, y), ProxyDirichlet(), mixed, task=task)

    x_test, y_test = grades(300, 1)
    far, y_far = 3 * grades(100, 2)[0], grades(100, 2)[1]
    models = {"single": ensemble.member(0), "ensemble": ensemble, "student": student}
    sets = {"far": (far, y_far)}
    result = evaluate(models, x_test, y_test, task=task, unfamiliar=sets, resamples=20)
    row = result.rows["student"]
    assert row["mean grade error"] < 0.6
    away = (student.predict(far).mean @ torch.arange(5.0) - y_far).abs().mean()
    assert row["mean grade error on far"] == pytest.approx(away.item(), rel=1e-4)
    assert set(row) >= {"NLL", "spread", "OOD far knowledge", "ρ knowledge"}
    assert result.fidelity["student"]["grades apart"] < 0.5

    again = Evaluation.load(result.save(tmp_path / "evaluation"))
    assert again.task == task
    assert again.rows["student"]["mean grade error"] == row["mean grade error"]
    assert set(verdict(again, "student").states) == {"accuracy", "calibration", "knowledge"}
    found = content(again)
    assert found["error"]["name"] == "grades off"
    assert found["curves"]["student"]["figures"]["off"]["kind"] == "bars"
    page = report(again, tmp_path / "report.html").read_text()
    assert "How far off is it?" in page
    assert "mean grade error" in page
    export(student, tmp_path / "student.onnx", x_test)
    said = Graph(tmp_path / "student.onnx")(x_test.numpy())
    np.testing.assert_allclose(said["mean"], student.predict(x_test).mean, atol=1e-5)
