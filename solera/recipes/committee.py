"""Query by committee with one network: a student's knowledge uncertainty picks the rows to label, as its ensemble's."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from solera.core.batch import Batches
from solera.core.checks import require_positive
from solera.core.progress import quiet
from solera.core.seeds import generator, stream
from solera.ensembles import train_ensemble
from solera.evaluation.evaluate import Predictor
from solera.methods import EnD, Hydra, Method, NormalWishart
from solera.metrics import rank_correlation, rmse
from solera.nn import MLP
from solera.recipes.base import Recipe, Workspace
from solera.recipes.data import load_npz, require_files
from solera.recipes.page import origin, pyplot, save_figure, spread, table, verdict
from solera.recipes.uci import PAPER, rows
from solera.teachers import Ensemble
from solera.training import Student, Training, distill

STUDENTS: dict[str, Method] = {
    "Normal-Wishart": NormalWishart(initial_temperature=1.0),
    "Hydra": Hydra(family="gaussian", head=1),
}
STRATEGIES = ("random", "committee", *STUDENTS)
MANY = 50_000  # rows of a larger pool, to be scored on the clock
Round = dict[str, float]
Curves = dict[str, list[list[Round]]]  # strategy -> repeat -> round
Split = tuple[Tensor, Tensor, Tensor, Tensor]  # training inputs and targets, test inputs and targets


@dataclass(frozen=True)
class Committee(Recipe):
    """Active learning on a UCI regression set: who picks the next rows to label, a committee, its student, or chance?

    Every round trains a committee on the labelled rows; students are distilled on the whole pool, labels or not. About
    ten minutes on two busy cores.
    """

    data: str = "../shared/data"
    name: str = "yacht"
    members: int = 10
    start: int = 20  # rows labelled before the first round
    batch: int = 10  # rows labelled in a round
    rounds: int = 6
    repeats: int = 5  # each on a split of its own, with first rows and initial weights of its own
    epochs: int = 60
    student_epochs: int = 100

    def __post_init__(self) -> None:
        for name in ("start", "batch", "rounds", "epochs", "student_epochs"):
            require_positive(name, getattr(self, name))
        for name in ("members", "repeats"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name} must be at least 2, got {getattr(self, name)}: one has no spread")
        if self.name not in PAPER:
            raise ValueError(f"there is no UCI set {self.name!r}: choose among {', '.join(PAPER)}")

    def run(self, work: Workspace) -> str:
        require_files(self.data, [f"regression/{self.name}.npz"])
        pyplot()
        splits = self._splits()
        if self.start + self.batch * self.rounds >= len(splits[0][0]):
            raise ValueError(
                f"{self.name} has {len(splits[0][0])} rows to label, too few for {self.start} and {self.rounds} rounds "
                f"of {self.batch}: lower start, rounds or batch"
            )
        curves: Curves = {strategy: [] for strategy in STRATEGIES}
        for repeat, split in enumerate(splits):
            for strategy in STRATEGIES:
                work.say(f"repeat {repeat + 1} of {self.repeats}: rows picked by {strategy}")
                step = lambda r=repeat, s=strategy, d=split: self._curve(r, s, d)  # noqa: E731
                with quiet():
                    curves[strategy].append(work.remember(f"{repeat}-{strategy}", step))
        work.say("scoring the pool on the clock")
        times = work.remember("times", lambda: self._times(splits[0]))
        draw(self, curves, work)
        return page(self, curves, times, work)

    def _splits(self) -> list[Split]:
        """One split per repeat. The first of all is where settings were tried, so repeats begin after it."""
        arrays = load_npz(self.data, f"regression/{self.name}.npz")
        there = sum(key.startswith("train_") for key in arrays)
        chosen = [(1 + self.seed + repeat) % there for repeat in range(self.repeats)]
        return [(*rows(arrays, f"train_{split}"), *rows(arrays, f"test_{split}")) for split in chosen]

    def _committee(self, x: Tensor, y: Tensor, labelled: Tensor, *names: int) -> Ensemble:
        """Inputs are standardised by the whole pool, targets by the labels there are."""
        return train_ensemble(
            lambda: MLP.for_inputs(x, 2, (50, 50), targets=y[labelled]),
            Batches(x[labelled], y[labelled], batch_size=20),
            self.members,
            Training(epochs=self.epochs, lr=1e-2, weight_decay=1.0, seed=stream(self.seed, "committee", *names)),
        )

    def _student(self, name: str, committee: Ensemble, x: Tensor, y: Tensor, *names: int) -> Student:
        """Distilled on every row of the pool; no label is read. Hydra grows from an EnD student of half the epochs."""
        method, pool, seed = STUDENTS[name], Batches(x, batch_size=128), stream(self.seed, "student", *names)
        torch.manual_seed(seed)
        network = MLP.for_inputs(x, method.outputs(1), (50, 50), targets=y)
        if isinstance(method, Hydra):
            first = Training(epochs=(self.student_epochs + 1) // 2, lr=1e-2, seed=seed)
            network = distill(committee, network, pool, EnD(family="gaussian"), first).model
        return distill(committee, network, pool, method, Training(epochs=self.student_epochs, lr=1e-2, seed=seed))

    def _curve(self, repeat: int, strategy: str, split: Split) -> list[Round]:
        """One learning curve: the committee on the test rows after every round, whoever picked the rows."""
        x, y, x_test, y_test = split
        labelled = torch.randperm(len(x), generator=generator(self.seed, "start", repeat))[: self.start]
        curve: list[Round] = []
        for number in range(self.rounds + 1):
            committee = self._committee(x, y, labelled, repeat, number)
            curve.append({"rows": len(labelled), **scores(committee, x_test, y_test)})
            if number == self.rounds:
                break
            rest = (~torch.isin(torch.arange(len(x)), labelled)).nonzero().squeeze(1)
            theirs = committee.predict(x[rest]).knowledge
            worth = torch.ones_like(theirs) if strategy == "random" else theirs
            if strategy in STUDENTS:
                start = time.perf_counter()
                student = self._student(strategy, committee, x, y[labelled], repeat, number)
                curve[-1]["seconds"] = time.perf_counter() - start
                worth = student.predict(x[rest]).knowledge  # type: ignore[attr-defined]
                curve[-1]["ρ"] = rank_correlation(theirs, worth)
                curve[-1] |= {f"student {key}": value for key, value in scores(student, x_test, y_test).items()}
            draws = generator(self.seed, "draw", repeat, number)  # the same luck for every strategy
            labelled = torch.cat([labelled, rest[torch.multinomial(worth, self.batch, generator=draws)]])
        return curve

    def _times(self, split: Split, turns: int = 15) -> dict[str, list[float]]:
        """Median milliseconds to score the pool, and one of MANY rows; everybody takes turns, so noise hits all."""
        x, y, _, _ = split
        committee = self._committee(x, y, torch.arange(self.start))
        models = {name: self._student(name, committee, x, y[: self.start]) for name in STUDENTS}
        taken: dict[str, list[list[float]]] = {name: [[], []] for name in ("committee", *STUDENTS)}
        for size, pool in enumerate((x, x.repeat(-(-MANY // len(x)), 1)[:MANY])):
            for _ in range(turns):
                for name in taken:
                    model, start = models.get(name, committee), time.perf_counter()
                    _ = model.predict(pool).knowledge  # type: ignore[attr-defined]
                    taken[name][size].append(1000 * (time.perf_counter() - start))
        return {name: [float(np.median(some)) for some in both] for name, both in taken.items()}


def scores(model: Predictor, x: Tensor, y: Tensor) -> Round:
    """RMSE and NLL in the target's units."""
    said = model.predict(x)
    return {"RMSE": rmse(said.mean.squeeze(-1), y), "NLL": -float(said.log_prob(y).mean())}


def values(curves: list[list[Round]], key: str) -> np.ndarray:
    """[repeats, rounds]; of what students say, which is not asked after the last round, one less."""
    return np.array([[each[key] for each in curve if key in each] for curve in curves])


def paired(curves: Curves, key: str, one: str, other: str) -> tuple[float, float]:
    """How much higher the area under a curve is (its mean after the first round), and the standard error."""
    gaps = (values(curves[one], key) - values(curves[other], key))[:, 1:].mean(1)
    return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps)))


def draw(recipe: Committee, curves: Curves, work: Workspace) -> None:
    """RMSE against labelled rows; the same as a difference from chance, repeat by repeat; NLL."""
    plt = pyplot()
    figure, panels = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    sizes = values(curves["random"], "rows")[0]
    for name, colour in zip(STRATEGIES, ("0.5", "black", "tab:blue", "tab:orange"), strict=True):
        error, nll = values(curves[name], "RMSE"), values(curves[name], "NLL")
        for panel, some in zip(panels, (error, error - values(curves["random"], "RMSE"), nll), strict=True):
            middle, band = some.mean(0), some.std(0, ddof=1) / np.sqrt(len(some))
            panel.plot(sizes, middle, color=colour, marker="o", markersize=3, label=name)
            panel.fill_between(sizes, middle - band, middle + band, color=colour, alpha=0.15, linewidth=0)
    panels[0].set(title=f"{recipe.name}: test error of the committee", ylabel="RMSE")
    panels[1].set(title="the same, minus that of random rows", ylabel="difference of RMSE (below 0: better)")
    panels[2].set(title="negative log-likelihood", ylabel="NLL in nats")
    for panel in panels:
        panel.set(xlabel="labelled rows", xticks=sizes)
    panels[0].legend(frameon=False, title="rows picked by")
    save_figure(figure, work.folder / "committee.png")
    plt.close(figure)


def verdicts(recipe: Committee, curves: Curves, times: dict[str, list[float]]) -> list[str]:
    """Each student against the committee, everybody against chance, and the clock."""
    claims, level = [], float(values(curves["committee"], "RMSE")[:, 1:].mean())
    for name in STUDENTS:
        gap, error = paired(curves, "RMSE", name, "committee")
        claim = (
            f"{name}'s knowledge picks rows as well as the committee's, surely not 5 % worse (two standard errors): "
            f"area under the RMSE curve {gap:+.3f} ± {error:.3f}, {100 * gap / level:+.1f} %, at worst "
            f"{100 * (gap + 2 * error) / level:+.1f} %"
        )
        claims.append(verdict(claim, gap + 2 * error <= 0.05 * level))
    for name in STRATEGIES[1:]:
        gap, error = paired(curves, "RMSE", name, "random")
        claims.append(verdict(f"{name} beats chance: {gap:+.3f} ± {error:.3f} RMSE", gap + 2 * error < 0))
    for name in STUDENTS:
        share = [own / theirs for own, theirs in zip(times[name], times["committee"], strict=True)]
        claim = f"{name} scores a pool in 1/{recipe.members} of the committee's time (at most half as much again): "
        claim += f"{share[0]:.2f} of it for the pool, {share[1]:.2f} for {MANY:,} rows"
        claims.append(verdict(claim, max(share) <= 1.5 / recipe.members))
    return claims


def page(recipe: Committee, curves: Curves, times: dict[str, list[float]], work: Workspace) -> str:
    """The curves as a table, what students copy and cost, and what held."""
    sizes, shown = values(curves["random"], "rows")[0], (0, recipe.rounds // 2, recipe.rounds)

    def gap(key: str, one: str, other: str) -> str:
        return "–" if one == other else "{:+.3f} ± {:.3f}".format(*paired(curves, key, one, other))

    def student(name: str, key: str) -> str:
        return f"{values(curves[name], key)[:, : recipe.rounds].mean():.2f}" if name in STUDENTS else "–"

    def at(name: str, key: str) -> list[str]:
        return [spread(values(curves[name], key)[:, n].tolist()) for n in shown]

    pairs = (("RMSE", "random"), ("RMSE", "committee"), ("NLL", "random"))
    errors = [
        [name, *at(name, "RMSE"), *at(name, "NLL"), *(gap(key, name, other) for key, other in pairs)]
        for name in STRATEGIES
    ]
    kept = ("ρ", "student RMSE", "RMSE", "seconds")
    copies = [[name, *(student(name, each) for each in kept), *(f"{t:.2f}" for t in times[name])] for name in times]
    spent = {name: float(values(curves[name], "seconds").mean()) for name in STUDENTS}
    pays = {n: 1000 * MANY * spent[n] / max(times["committee"][1] - times[n][1], 1e-9) for n in STUDENTS}
    columns = [f"{key}, {sizes[n]:.0f} rows" for key in ("RMSE", "NLL") for n in shown]
    columns += ["RMSE area − random's", "− committee's", "NLL area − random's"]
    costs = ["ρ knowledge", "its own RMSE", "its teacher's", "seconds to distil", "ms, pool", f"ms, {MANY:,} rows"]
    return PAGE.format(
        recipe=recipe,
        last=f"{sizes[-1]:.0f}",
        errors=table(["rows picked by", *columns], errors),
        copies=table(["model", *costs], copies),
        pays=", ".join(f"{rows:,.0f} rows for {name}" for name, rows in pays.items()),
        claims="\n".join(verdicts(recipe, curves, times)),
        origin=origin(recipe, "committee", work),
    )


PAGE = """\
TODO
{recipe.name} {last}

{errors}

{claims}

![Learning curves](committee.png)

{copies}

{pays}

{origin}
"""
