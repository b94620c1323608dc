"""The promise on the first line of the README, measured: eight problems, and the student that defaults give."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from solera.core.checks import require_positive
from solera.core.seeds import stream
from solera.evaluation import evaluate
from solera.recipes.base import SO_FAR, Recipe, Workspace
from solera.recipes.data import require_files
from solera.recipes.headline_page import draw, page
from solera.recipes.page import pyplot
from solera.recipes.problems import FILES, PROBLEMS, Problem, distilled

METRICS = {"categorical": ("accuracy", "NLL", "ECE"), "gaussian": ("RMSE", "NLL")}


@dataclass(frozen=True)
class Headline(Recipe):
    """Eight problems, their ensembles, and the student that a `Distiller` makes by its defaults: is it worth deploying?

    Rows, images and continuous targets; accuracy or RMSE, NLL, ECE, detection of unfamiliar inputs, the size and the
    ranking of the uncertainty, and the cost, each beside one member, the same calibrated, and the whole ensemble. About
    an hour on one core.
    """

    data: str = "../shared/data"
    sets: tuple[str, ...] = tuple(PROBLEMS)
    studies: int = 3  # members and students anew, on the same examples
    resamples: int = 200
    judged_on: str = "test"  # or "validation": settings are chosen on a fifth of the known examples

    def __post_init__(self) -> None:
        for name in ("studies", "resamples"):
            require_positive(name, getattr(self, name))
        if unknown := [name for name in self.sets if name not in PROBLEMS]:
            raise ValueError(f"there is no set {unknown[0]!r}: choose among {', '.join(PROBLEMS)}")
        if self.judged_on not in ("test", "validation"):
            raise ValueError(f"judged_on must be 'test' or 'validation', got {self.judged_on!r}")

    def run(self, work: Workspace) -> str:
        for name in self.sets:
            require_files(self.data, FILES[name])
        pyplot()
        found: dict[str, list[dict[str, Any]]] = {}
        for name in self.sets:
            problem = PROBLEMS[name](self.data)
            problem = problem if self.judged_on == "test" else problem.held_out()
            found[name] = [
                work.remember(f"{name}-{number}", partial(self._study, name, problem, number, work))
                for number in range(self.studies)
            ]
            work.write(SO_FAR, page(self, found, work))
        draw(found, work)
        return page(self, found, work)

    def _study(self, name: str, problem: Problem, number: int, work: Workspace) -> dict[str, Any]:
        """Members, student, and all that the table says of them."""
        work.say(f"{name}, study {number + 1} of {self.studies}: {len(problem.x)} known examples, training the members")
        seed, place = stream(self.seed, name, number), work.folder / f"{name}-{number}"
        ensemble = problem.teach(problem, seed)
        work.say(f"{name}, study {number + 1}: distilling")
        student = distilled(problem, ensemble, seed, place)
        models = {"single": ensemble.member(0), "ensemble": ensemble, "student": student}
        x, y = problem.test
        judged = evaluate(models, x, y, unfamiliar=problem.unfamiliar, resamples=self.resamples)
        columns = judged.columns["student"], judged.columns["ensemble"]
        kept = {
            f"{measure} on {where}": float(columns[0][where][measure].mean() / columns[1][where][measure].mean())
            for where in columns[0]
            for measure in ("total", "knowledge")
        }
        wanted = METRICS[judged.task.family]
        return {
            "rows": judged.rows,
            "kept": kept,
            "fit": dict(student.notes.fit),
            "method": type(student.method).__name__,
            "draws": {model: {m: judged.draws[model][m].tolist() for m in wanted} for model in judged.rows},
        }
