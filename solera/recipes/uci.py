"""The nine UCI regression sets: heteroscedastic ensembles into one Gaussian, M heads, or a Normal-Wishart (Hydra)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.core.checks import require_positive
from solera.core.seeds import stream
from solera.data import Batches
from solera.distributions import Prediction
from solera.ensembles import train_ensemble
from solera.evaluation import evaluate
from solera.methods import EnD, Hydra, Method, NormalWishart
from solera.nn import MLP
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import load_npz, require_files
from solera.recipes.page import COLOURS, judged_cell, origin, over_repeats, pyplot, save_figure, spread, table
from solera.teachers import Ensemble, capture
from solera.training import Student, Training, distill

# Table 4 of the Hydra paper: NLL of the ensemble, of knowledge distillation and of Hydra
PAPER = {
    "boston": (2.3780, 2.3893, 2.3805),
    "concrete": (3.0585, 3.1231, 3.0982),
    "energy": (1.2756, 1.5236, 1.4402),
    "kin8nm": (-1.2977, -1.2343, -1.2555),
    "naval": (-7.5983, -6.4340, -7.1987),
    "power": (2.8861, 2.8940, 2.8921),
    "protein": (2.8272, 2.8970, 2.8829),
    "wine": (0.9111, 0.9112, 0.9113),
    "yacht": (-0.1640, 0.3837, 0.3489),
}
STUDENTS: dict[str, Method] = {
    "EnD": EnD(family="gaussian"),
    "Hydra": Hydra(family="gaussian", head=2),
    "Normal-Wishart": NormalWishart(),
}
MODELS = ["one member", "ensemble", *STUDENTS]
CLAIMS = {
    "Hydra's below EnD's": ("Hydra", "EnD"),
    "the ensemble's below Hydra's": ("ensemble", "Hydra"),
    "Normal-Wishart's below EnD's": ("Normal-Wishart", "EnD"),
}
Results = dict[str, list[dict[str, Any]]]  # by set, a split each
EPOCHS = (40, 160, 400)  # what a set's ensemble may be trained for; a held-out tenth of its first split decides


@dataclass(frozen=True)
class Uci(Recipe):
    """The Hydra paper's regression table: nine UCI sets, standard splits, one hidden layer of 50 units (protein: 100).

    Beside the paper's: a Normal-Wishart student, RMSE, and whether knowledge was kept. `splits=20` is the whole
    protocol (protein has 5). An hour and a half on a core.
    """

    data: str = "../shared/data"
    sets: tuple[str, ...] = tuple(PAPER)
    splits: int = 5
    members: int = 10
    steps: int = 20000  # at most, for an ensemble; a student takes as many as its ensemble did, half of these at least

    def __post_init__(self) -> None:
        for name in ("splits", "members", "steps"):
            require_positive(name, getattr(self, name))
        if unknown := [name for name in self.sets if name not in PAPER]:
            raise ValueError(f"there is no UCI set {unknown[0]!r}: choose among {', '.join(PAPER)}")

    def run(self, work: Workspace) -> str:
        require_files(self.data, [f"regression/{name}.npz" for name in self.sets])
        pyplot()
        results: Results = {}
        for name in self.sets:
            arrays = load_npz(self.data, f"regression/{name}.npz")
            there = sum(key.startswith("train_") for key in arrays)
            epochs = work.remember(f"{name}-epochs", lambda name=name, arrays=arrays: self._epochs(name, arrays, work))
            results[name] = [
                work.remember(
                    f"{name}-{split}",
                    lambda name=name, split=split, arrays=arrays, epochs=epochs: self._one(
                        name, split, arrays, epochs, work
                    ),
                )
                for split in range(min(self.splits, there))
            ]
        draw(results, work)
        return page(self, results, work)

    def _network(self, name: str, x: Tensor, y: Tensor, outputs: int, head: tuple[int, ...] = ()) -> MLP:
        hidden = (100 if name == "protein" else 50, *head)
        return MLP.for_inputs(x, outputs, hidden, activation="softplus", targets=y)

    def _training(self, batches: Batches, epochs: int, least: int = 0) -> Training:
        """At most `steps` steps, and at least `least`."""
        epochs = max(min(epochs, self.steps // len(batches)), math.ceil(least / len(batches)), 1)
        return Training(epochs=epochs, lr=1e-2, seed=self.seed)

    def _ensemble(self, name: str, batches: Batches, epochs: int) -> Ensemble:
        x, y = batches.all.inputs, batches.all.target
        assert y is not None
        training = self._training(batches, epochs)
        return train_ensemble(lambda: self._network(name, x, y, 2), batches, self.members, training)

    def _epochs(self, name: str, arrays: dict[str, np.ndarray], work: Workspace) -> int:
        x, y = rows(arrays, "train_0")
        train, held = batched(x, y).split(0.1, self.seed)
        possible = [epochs for epochs in EPOCHS if epochs == EPOCHS[0] or epochs * len(train) <= self.steps]
        if len(possible) == 1:
            return possible[0]
        work.say(f"{name}: choosing among {possible} epochs on a held-out tenth of the first split's training rows")
        losses = [held_out_nll(self._ensemble(name, train, epochs), held) for epochs in possible]
        return possible[int(np.argmin(losses))]

    def _one(
        self, name: str, split: int, arrays: dict[str, np.ndarray], epochs: int, work: Workspace
    ) -> dict[str, Any]:
        work.say(f"{name}, split {split}: {self.members} members for {epochs} epochs, then {', '.join(STUDENTS)}")
        (x, y), (x_test, y_test) = rows(arrays, f"train_{split}"), rows(arrays, f"test_{split}")
        batches = batched(x, y)
        ensemble = self._ensemble(name, batches, epochs)
        said: dict[str, Prediction] = {
            "one member": Student(ensemble.models[0], EnD(family="gaussian")).predict(x_test),
            "ensemble": ensemble.predict(x_test),
        }
        teacher = capture(ensemble, batches, work.folder / "captured" / f"{name}-{split}")
        for label, method in STUDENTS.items():
            said[label] = self._student(name, teacher, batches, epochs, method).predict(x_test)
        result = evaluate({label: {"test": prediction} for label, prediction in said.items()}, x_test, y_test)
        found: dict[str, Any] = result.rows
        for label, sets in result.columns.items():
            if "knowledge" in sets["test"]:
                found[label]["knowledge"] = float(np.median(sets["test"]["knowledge"]))
        return found

    def _student(self, name: str, teacher: Any, batches: Batches, epochs: int, method: Method) -> Student:
        """Hydra grows from an EnD student of its own shape, as in the paper: heads of [10, 1] units on the body."""
        x, y = batches.all.inputs, batches.all.target
        assert y is not None
        training = self._training(batches, epochs, least=self.steps // 2)
        torch.manual_seed(stream(self.seed, "student"))
        network = self._network(name, x, y, method.outputs(1), head=(10,) if isinstance(method, Hydra) else ())
        if isinstance(method, Hydra):
            network = distill(teacher, network, batches, EnD(family="gaussian"), training).model
        return distill(teacher, network, batches, method, training)


def rows(arrays: dict[str, np.ndarray], part: str) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one part, in their own units."""
    index = arrays[part]
    return torch.tensor(arrays["x"][index], dtype=torch.float32), torch.tensor(arrays["y"][index], dtype=torch.float32)


def batched(x: Tensor, y: Tensor) -> Batches:
    """Batches of 64, of large sets 256."""
    return Batches(x, y, batch_size=64 if len(x) < 2000 else 256)


def held_out_nll(ensemble: Ensemble, held: Batches) -> float:
    """How well an ensemble does on rows it has not seen."""
    assert held.all.target is not None
    return -float(ensemble.predict(held.all.inputs).log_prob(held.all.target).mean())


def page(recipe: Uci, results: Results, work: Workspace) -> str:
    """What came out, the paper's table and ours, what held, and how."""

    def mean(name: str, model: str, metric: str) -> float:
        return float(np.mean([split[model][metric] for split in results[name]]))

    def row(name: str, metric: str, digits: int) -> list[str]:
        return [spread([split[model][metric] for split in results[name]], digits) for model in MODELS]

    nll = [[name, *row(name, "NLL", 3), *(f"{value:.3f}" for value in PAPER[name])] for name in results]
    rmse = [[name, *row(name, "RMSE", 4)] for name in results]
    kept = [
        [
            name,
            *(f"{mean(name, model, 'knowledge'):.3g}" for model in ("ensemble", "Hydra", "Normal-Wishart")),
            *(f"{mean(name, model, 'ρ knowledge'):.2f}" for model in ("Hydra", "Normal-Wishart")),
            *(f"{100 * mean(name, model, 'coverage 90 %'):.1f}" for model in MODELS[1:]),
        ]
        for name in results
    ]
    far = [name for name in results if mean(name, "ensemble", "NLL") > PAPER[name][0] + 0.2]
    heads, wishart = (
        f"{sum(low > 0 for low, _, _ in gaps)} of {len(results)} sets (by the mean on {sum(m > 0 for _, m, _ in gaps)})"
        for gaps in ([lowers(splits, *pair) for splits in results.values()] for pair in list(CLAIMS.values())[::2])
    )
    below = {
        model: [name for name in results if mean(name, model, "NLL") < mean(name, "one member", "NLL")]
        for model in STUDENTS
    }
    none = [name for name in results if not any(name in names for names in below.values())]
    return PAGE.format(
        recipe=recipe,
        members=", ".join(f"{model} on {len(names)}" for model, names in below.items()),
        none=f" (on {', '.join(none)} none is)" if none else "",
        heads=heads,
        wishart=wishart,
        nll=table(["set", *MODELS, "paper: ensemble", "EnD", "Hydra"], nll),
        claims=table(
            ["set", *CLAIMS], [[name, *(said(results[name], *p) for p in CLAIMS.values())] for name in results]
        ),
        far=f"everywhere but on {', '.join(far)}" if far else "on every set",
        rmse=table(["set", *MODELS], rmse),
        kept=table(
            [
                "set",
                *("ensemble", "Hydra", "Normal-Wishart"),
                *("ρ Hydra", "ρ Normal-Wishart"),
                *(f"90 % holds: {model}" for model in MODELS[1:]),
            ],
            kept,
        ),
        origin=origin(recipe, "uci", work),
    )


def lowers(splits: list[dict[str, Any]], one: str, other: str) -> tuple[float, float, float]:
    """How much lower a model's NLL is than another's on the same splits, with its 95 % interval."""
    return over_repeats([split[other]["NLL"] - split[one]["NLL"] for split in splits])


def said(splits: list[dict[str, Any]], one: str, other: str) -> str:
    """That, and whether it is sure."""
    return judged_cell(*lowers(splits, one, other), scale=1, digits=3)


def draw(results: Results, work: Workspace) -> None:
    """How far each model's NLL is from the ensemble's, in the order of the gap that EnD leaves."""
    figure, axes = pyplot().subplots(figsize=(8, 4.2), layout="constrained")
    for offset, model in zip((-0.24, -0.08, 0.08, 0.24), ["one member", *STUDENTS], strict=True):
        gaps = [[split[model]["NLL"] - split["ensemble"]["NLL"] for split in splits] for splits in results.values()]
        places = np.arange(len(gaps)) + offset
        axes.bar(places, [np.mean(gap) for gap in gaps], 0.16, label=model, color=COLOURS[model])
    axes.axhline(0, color="black", linewidth=1)
    axes.set_xticks(range(len(results)), list(results))
    axes.set(ylabel="NLL above the ensemble's, in nats", title="What is lost by keeping one model (0: the ensemble)")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, work.folder / "uci.png")


PAGE = """# UCI regression

How much of a committee of forecasters does one network keep? M heads on one body (Hydra) have a surely lower NLL than
one Gaussian (EnD) on {heads}, a Normal-Wishart on {wishart}.
Beside one ordinary member, by the mean, the NLL is lower with {members}{none}.

Test NLL, in the targets' own units:

{nll}

![NLL above the ensemble's](uci.png)

How much lower an NLL is than another, over the splits, with its 95 % interval (Student's t; splits share most of their
rows, so that true intervals are wider):

{claims}

Our ensembles come within 0.2 nats of the paper's NLL {far} (`steps={recipe.steps}`).

## How

{recipe.members} networks a set, each with mean and variance, distilled into one Gaussian (EnD), {recipe.members} heads
of [10, 1] units on one body (Hydra, grown from an EnD student) and a Normal-Wishart; {recipe.splits} of the standard
splits, mean ± sample standard deviation over them. Epochs of the ensembles: chosen for each set among 40, 160 and 400
on a held-out tenth of its first split's training rows. The paper's columns are over other splits and its own training,
so compare orders and gaps, not the third digit.

A Normal-Wishart explains with its knowledge whatever keeps its mean from the members' means: their spread, and its own
error. Where a network of 50 units, the paper's size, misses the members' means by more than these differ, its knowledge
is larger than theirs (the last table).

## Test RMSE

{rmse}

## Knowledge

Knowledge uncertainty (a variance) of the median test row, its rank correlation ρ with the ensemble's over the test
rows, and how often the 90 % interval holds the target. The median, since a few rows far from all others make a mean:
the members disagree there hundreds of times as much as elsewhere, and a Normal-Wishart's κ is extrapolated.

{kept}

{origin}
"""
