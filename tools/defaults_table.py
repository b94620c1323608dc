"""What the defaults bring: the table of docs/training.md. Run `python tools/defaults_table.py [set...]`.

Sets of scikit-learn's own and made-up ones, which no recipe uses. Members and students learn on one half of the rows;
the numbers are for the other half, and for inputs of a kind that nobody was shown.
"""

import sys

import numpy as np
import torch
from lightgbm import LGBMClassifier
from sklearn.datasets import load_digits, make_friedman1
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.metrics import roc_auc_score

import solera
from solera.core.progress import quiet
from solera.nn import MLP, ConvNet

MEMBERS, SEEDS = 8, (0, 1, 2)
FIXED = solera.Training(epochs=30)


def digits(seed: int) -> tuple:
    """Eight classes to learn and to test on, and two that nobody is shown."""
    x, y = load_digits(return_X_y=True)
    x, known = (x / 16).astype(np.float32), np.flatnonzero(y < 8)
    order = np.random.default_rng(seed).permutation(known)
    half = len(order) // 2
    return x[order[:half]], y[order[:half]], x[order[half:]], y[order[half:]], x[y >= 8]


def friedman(seed: int) -> tuple:
    """1,500 rows of five features with noise of 1, and rows off their range."""
    x, y = make_friedman1(3000, n_features=5, noise=1.0, random_state=seed)
    x, y = x.astype(np.float32), y.astype(np.float32)[:, None]
    far = np.random.default_rng(seed).uniform(1, 3, (1500, 5)).astype(np.float32)
    return x[:1500], y[:1500], x[1500:], y[1500:], far


def networks(x: np.ndarray, y: np.ndarray, seed: int) -> solera.Ensemble:
    training = solera.Training(epochs=40, lr=3e-3, seed=seed)
    if x.ndim == 4:
        return solera.train_ensemble(
            lambda: ConvNet(x.shape[1:], 8, channels=(16, 32)), solera.Batches(x, y), members=MEMBERS, training=training
        )
    if y.ndim == 2:
        tensors = torch.tensor(x), torch.tensor(y)
        return solera.train_ensemble(
            lambda: MLP.for_inputs(tensors[0], 2, hidden=(64, 64), targets=tensors[1]),
            solera.Batches(*tensors),
            members=MEMBERS,
            training=training,
        )
    return solera.train_ensemble(
        lambda: MLP(x.shape[1], 8, (64, 64)), solera.Batches(x, y), members=MEMBERS, training=training
    )


def boosted(x: np.ndarray, y: np.ndarray, seed: int) -> solera.Ensemble:
    members = []
    for number in range(MEMBERS):
        rows = np.random.default_rng(100 * seed + number).integers(0, len(x), len(x))
        model = LGBMClassifier(n_estimators=60, num_leaves=15, min_child_samples=5, n_jobs=1, verbose=-1, seed=number)
        members.append(model.fit(x[rows], y[rows]))
    return solera.Ensemble(members)


def forests(x: np.ndarray, y: np.ndarray, seed: int):
    """Regressors without a variance, each fitted without a fifth of the rows, by which the noise is estimated."""
    folds = np.arange(len(x)) % 5
    members = [ExtraTreesRegressor(20, random_state=seed).fit(x[folds != f], y[folds != f, 0]) for f in range(5)]
    return solera.committee(members, x, y[:, 0], solera.teachers.saw_from_folds(torch.tensor(folds), 5))


SETS = {
    "digits, networks": (digits, networks),
    "digits, LightGBM": (digits, boosted),
    "digit images, convnets": (
        lambda seed: tuple(a.reshape(-1, 1, 8, 8) if a.ndim == 2 else a for a in digits(seed)),
        networks,
    ),
    "Friedman, networks": (friedman, networks),
    "Friedman, extra trees": (friedman, forests),
}


def row(model, x: np.ndarray, y: np.ndarray, far: np.ndarray) -> list[float]:
    """Accuracy or RMSE, NLL, and AUROC by total and by knowledge."""
    said, unseen = model.predict(torch.tensor(x)), model.predict(torch.tensor(far))
    target = torch.tensor(y)
    nll = -float(said.log_prob(target).mean())
    right = float((said.mean.argmax(-1) == target).float().mean()) if y.ndim == 1 else None
    first = 100 * right if right is not None else float((said.mean - target).square().mean().sqrt())
    found = [first, nll]
    for measure in ("total", "knowledge"):
        if hasattr(said, measure):
            scores = torch.cat([getattr(said, measure), getattr(unseen, measure)]).numpy()
            found.append(100 * roc_auc_score(np.arange(len(scores)) >= len(x), scores))
        else:
            found.append(float("nan"))
    return found


def shown(values: list[float]) -> str:
    """The mean over seeds and its standard error."""
    mean, spread = np.mean(values), np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    digits = 1 if abs(mean) >= 10 else 3
    return "–" if np.isnan(mean) else f"{mean:.{digits}f} ± {spread:.{digits}f}"


def measured(name: str, seed: int) -> dict[str, list[float]]:
    """One row of numbers for every model."""
    load, make = SETS[name]
    x, y, x_test, y_test, far = load(seed)
    ensemble = make(x, y, seed)
    rows = {"the ensemble": row(ensemble, x_test, y_test, far)}
    if hasattr(ensemble, "member"):
        rows["one member"] = [*row(ensemble.member(0), x_test, y_test, far)[:3], float("nan")]
    for title, training, labels in (
        ("student, 30 epochs", FIXED, None),
        ("**student**", None, None),
        ("**student, with labels**", None, y),
    ):
        student = solera.Distiller(training=training).fit(ensemble, x, labels).student_
        rows[title] = row(student, x_test, y_test, far)
        print(name, seed, title, rows[title], dict(student.notes.fit), file=sys.stderr, flush=True)
    return rows


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    print("| data, members | model | accuracy or RMSE | NLL | AUROC by total | by knowledge |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in names or SETS:
        with quiet():
            seeds = [measured(name, seed) for seed in SEEDS]
        for title in seeds[0]:
            columns = zip(*(rows[title] for rows in seeds), strict=True)
            print(f"| {name} | {title} | {' | '.join(shown(list(values)) for values in columns)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
