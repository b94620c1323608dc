"""Made-up contents of a report, by hand and at random: what a page must be able to show."""

import numpy as np

from solera.evaluation.json_values import plain
from solera.evaluation.png import data_uri

MODELS = ("ensemble", "EnD", "EnD²", "Hydra")
MEASURES = ("total", "data", "knowledge")
HELP = {
    "accuracy": (1, "%", "How often the most probable class is the right one."),
    "NLL": (-1, "", "Minus the mean logarithm of the probability given to the truth."),
    "ECE": (-1, "%", "How far confidence is from accuracy, on average."),
    "Brier": (-1, "", "The mean squared distance of the probabilities from the truth."),
    "PRR": (1, "%", "How well total uncertainty finds the mistakes: 100 is an oracle, 0 is chance."),
    "OOD letters knowledge": (1, "%", "How well knowledge tells letters from the test set."),
    "OOD noise knowledge": (1, "%", "How well knowledge tells noise from the test set."),
    "RMSE": (-1, "", "The root of the mean squared error."),
    "coverage 90 %": (0, "%", "The share of targets within the 90 % interval."),
}

HOSTILE = "<img src=x onerror=alert(1)> & \"friends' </script>\u2028"


def _measures(model: str) -> tuple[str, ...]:
    return ("total",) if model == "EnD" else MEASURES


def _interval(value: float, wide: float) -> dict[str, float]:
    return {"value": round(value, 5), "low": round(value - wide, 5), "high": round(value + wide, 5)}


def _models(generator: np.random.Generator, names: tuple[str, ...], metrics: list[str]) -> list[dict]:
    made = []
    for i, name in enumerate(names):
        values = {m: 0.9 - 0.02 * i if HELP[m][1] == "%" else 0.3 + 0.03 * i for m in metrics}
        student = name != "ensemble"
        made.append(
            {
                "name": name,
                "role": "student" if student else "reference",
                "metrics": {m: _interval(v + generator.normal() / 200, 0.006) for m, v in values.items()},
                "difference": {m: _interval(0.004 * HELP[m][0] * (1 - i), 0.003) for m in metrics} if student else {},
                "fidelity": {
                    "agreement": {"value": 0.97 - 0.01 * i},
                    "KL from the ensemble": {"value": 0.013 * (1 + i)},
                    "ρ knowledge": {"value": None if name == "EnD" else 0.93 - 0.05 * i},
                },
                "speed": {
                    batch: {"p50": 2.1 / (1 + 9 * student), "p95": 2.6, "p99": 3.9, "throughput": 5210.0 * (1 + i)}
                    for batch in ("1", "64")
                },
                "parameters": 12_810 * (1 if student else 10),
                "bytes": 52_000 * (1 if student else 10),
            }
        )
    return made


def _curves(generator: np.random.Generator, model: str, sets: list[str], classes: bool) -> dict:
    rejected, base = np.linspace(0, 1, 101), 0.08 if classes else 2.5
    strength = 2 + MODELS.index(model)
    found: dict = {
        "rejection": {
            m: {"rejected": list(rejected), "error": [*base * (1 - rejected[:-1]) ** (strength - i / 2), None]}
            for i, m in enumerate(_measures(model))
        },
        "oracle": {"rejected": list(rejected), "error": [*base * (1 - rejected[:-1]) ** 12, None]},
        "roc": {},
        "histogram": {},
    }
    edges = np.linspace(0, 2.3, 41)
    for i, m in enumerate(_measures(model)):
        drawn = {s: generator.gamma(1 + 2 * k + i / 2, 0.25, 2000).clip(0, 2.29) for k, s in enumerate(["test", *sets])}
        shares = {s: list(np.histogram(x, edges)[0] / len(x)) for s, x in drawn.items()}
        found["histogram"][m] = {"edges": list(edges), "sets": shares}
        for s in sets:
            cuts = np.quantile(drawn["test"], np.linspace(1, 0, 120))
            rates = {"false": list(np.linspace(0, 1, 120)), "true": [float((drawn[s] > c).mean()) for c in cuts]}
            found["roc"].setdefault(s, {})[m] = {**rates, "auroc": float(np.mean(rates["true"]))}
    if classes:
        confidence = np.linspace(0.35, 0.97, 10)
        accuracy = confidence - 0.02 * strength * (1 - confidence) + generator.normal(0, 0.01, 10)
        share = np.exp(5 * confidence) / np.exp(5 * confidence).sum()
        drawn = [_figure("reliability", "line", confidence, accuracy, share=list(share))]
    else:
        level, target = np.linspace(0.05, 0.95, 19), generator.normal(20, 8, 600)
        pit = generator.dirichlet(np.full(20, 60.0))
        drawn = [
            _figure("coverage", "line", level, level ** (1 + strength / 20)),
            _figure("pit", "bars", np.linspace(0, 1, 21), pit, percent=[False, True], guide="even"),
            _figure("truth", "points", target, target + generator.normal(0, 2, 600), percent=[False, False]),
        ]
    return found | {"figures": {figure["name"]: figure for figure in drawn}}


def _figure(name: str, kind: str, x: np.ndarray, y: np.ndarray, **others) -> dict:
    made = {"name": name, "kind": kind, "x": list(x), "y": list(y), "title": name.capitalize(), "share": None}
    made |= {"caption": f"What {name} shows.", "axes": [f"{name} x", f"{name} y"], "hover": "%{x}, %{y}"}
    return {**made, "percent": [True, True], "guide": "diagonal", **others}


def _examples(generator: np.random.Generator, labels: list[str] | None, sets: list[str], count: int) -> list[dict]:
    made = []
    for i in range(count):
        answers = {}
        for name in MODELS:
            data, knowledge = generator.gamma(2, 0.3), generator.gamma(1, 0.2)
            split = {"data": None, "knowledge": None} if name == "EnD" else {"data": data, "knowledge": knowledge}
            answers[name] = {"total": data + knowledge, **split}
            if labels:
                probabilities = np.sort(generator.dirichlet(np.full(len(labels), 0.5)))[::-1][:5]
                classes = [labels[k] for k in generator.permutation(len(labels))[:5]]
                answers[name] |= {"top": [[c, float(p)] for c, p in zip(classes, probabilities, strict=True)]}
                answers[name] |= {"mean": None, "low": None, "high": None}
            else:
                mean, wide = generator.normal(20, 2), generator.gamma(4, 1)
                answers[name] |= {"top": None, "mean": mean, "low": mean - wide, "high": mean + wide}
        if labels:
            # a disc with noise: something an eye can tell
            grid = np.hypot(*np.meshgrid(np.linspace(-1, 1, 12), np.linspace(-1, 1, 12)))
            pixels = (255 * (grid < generator.uniform(0.4, 0.9))).astype(np.uint8) // 2
            pixels += generator.integers(0, 100, (12, 12), dtype=np.uint8)
            shown: dict = {"image": data_uri(pixels)}
        else:
            shown = {"row": [[f"column {k}", round(float(generator.normal()), 3)] for k in range(8)]}
        made.append(
            {
                "set": ["test", *sets][i % (1 + len(sets))],
                "row": int(generator.integers(1000)),
                "label": (labels[i % len(labels)] if labels else 19.5) if i % 3 else None,
                "why": ("most total", "most knowledge", "typical")[3 * i // count],
                "shown": shown,
                "answers": answers,
            }
        )
    return made


def _scatter(generator: np.random.Generator, sets: list[str], points: int) -> dict:
    made: dict = {}
    for name in MODELS[1:]:
        for m in _measures(name):
            reference = generator.gamma(0.6, 0.3, points) + 1e-4
            model = reference * np.exp(generator.normal(0, 0.4, points))
            numbers = {"model": model.round(5).tolist(), "reference": reference.round(5).tolist()}
            numbers |= {"set": generator.integers(0, 1 + len(sets), points).tolist(), "row": list(range(points))}
            made.setdefault(name, {})[m] = numbers
    return made


def _verdict(name: str) -> dict:
    deploy = name != "EnD"
    knowledge = {"EnD": "lost", "EnD²": "unclear", "Hydra": "kept"}[name]
    states = {"accuracy": "kept" if deploy else "lost", "calibration": "kept", "rejection": "kept"}
    states["knowledge"] = knowledge
    sentences = ["Deploy the student." if deploy else "Do not deploy this student: accuracy was lost."]
    sentences.append("Accuracy is told: −0.12 (−0.60 to +0.31) points from the ensemble.")
    use = name if deploy else "ensemble"
    return {"student": name, "deploy": deploy, "use": use, "states": states, "sentences": sentences}


def threshold(model: str, measure: str) -> float:
    """Another one for each model and measure, to see which table is shown."""
    return 1.25 + 10 * MODELS.index(model) + MEASURES.index(measure)


def _thresholds(model: str) -> dict:
    shares = np.arange(0, 0.55, 0.05).round(2)
    lines = [
        {"rejected": r, "coverage": 1 - r, "error": 0.08 * (1 - r), "low": 0.06 * (1 - r), "high": 0.1} for r in shares
    ]
    return {m: [{**line, "threshold": threshold(model, m)} for line in lines] for m in _measures(model)}


def _wanted(sets: list[str]) -> dict:
    reached = {"threshold": 0.61, "coverage": 0.8, "error": 0.01, "low": 0.0, "high": 0.02}
    error = [
        {"wanted": 0.01, "measure": "total", **reached},
        {"wanted": 0.0001, "measure": "total", "threshold": None, "coverage": None},
    ]
    alarms = [{"set": s, "wanted": 0.05, "measure": "knowledge", "threshold": 0.0421, "caught": 0.81} for s in sets]
    return {"error": error, "false alarms": alarms}


def made_up(task: str = "classification", *, unfamiliar: bool = True, points: int = 300, examples: int = 18) -> dict:
    """A content with an ensemble and three students, one of which has only a total."""
    generator, classes = np.random.default_rng(0), task == "classification"
    labels = [f"digit {i}" for i in range(10)] if classes else None
    sets = ["letters", "noise"] if unfamiliar else []
    score = ["accuracy", "NLL", "ECE", "Brier", "PRR"] if classes else ["RMSE", "NLL", "coverage 90 %", "PRR"]
    metrics = [*score, *(f"OOD {s} knowledge" for s in sets)]
    made = {
        "schema": 2,
        "title": "Digits, distilled three ways" if classes else "Houses, distilled three ways",
        "made": "solera 0.1.0, torch 2.7.1, 16 November 2025",
        "task": task,
        "question": "Is it right as often as it says?",
        "error": {"name": "error" if classes else "squared error", "percent": classes, "units": "inputs"},
        "reference": "ensemble",
        "labels": labels,
        "verdicts": [_verdict(name) for name in MODELS[1:]],
        "metrics": {m: dict(zip(("better", "unit", "help"), HELP[m], strict=True)) for m in metrics},
        "models": _models(generator, MODELS, metrics),
        "sets": [{"name": s, "examples": 1797, "labelled": s == "test"} for s in ["test", *sets]],
        "curves": {name: _curves(generator, name, sets, classes) for name in MODELS},
        "scatter": _scatter(generator, sets, points),
        "examples": _examples(generator, labels, sets, examples),
        "thresholds": {name: _thresholds(name) for name in MODELS},
        "wanted": {name: _wanted(sets) for name in MODELS},
    }
    return plain(made)


def least() -> dict:
    """The least that a content can have: one model, no reference, no verdict, no unfamiliar set, no example."""
    full = made_up(unfamiliar=False)
    model = {**full["models"][1], "difference": {}, "fidelity": {}, "speed": None, "parameters": None, "bytes": None}
    curves = {"EnD": {k: v for k, v in full["curves"]["EnD"].items() if k not in ("roc", "histogram")}}
    kept = ("schema", "title", "made", "task", "question", "error", "labels", "metrics", "sets")
    return {k: full[k] for k in kept} | {"reference": None, "verdicts": [], "models": [model], "curves": curves}


def renamed(value, old: str, new: str):
    """The same content with another name for something, as a key or as a value."""
    if isinstance(value, dict):
        return {new if key == old else key: renamed(entry, old, new) for key, entry in value.items()}
    if isinstance(value, list):
        return [renamed(entry, old, new) for entry in value]
    return new if value == old else value


def hostile() -> dict:
    """Every name that a user can give, chosen by somebody who means ill."""
    content = {**made_up(), "title": HOSTILE, "made": HOSTILE}
    for name in ("EnD²", "letters", "digit 3", "most total", "accuracy"):
        content = renamed(content, name, f"{HOSTILE} {name}")
    content["verdicts"][0]["sentences"] = [HOSTILE]
    content["examples"][0] |= {"shown": {"text": HOSTILE}, "label": HOSTILE}
    content["examples"][1] |= {"shown": {"row": [[HOSTILE, HOSTILE]]}}
    return content
