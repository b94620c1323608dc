"""What views bring: the table of docs/views.md. Run `python tools/views_table.py rows`, `images`, `continuous`, `text`.

Then a seed (0) and, to compare some views alone, their names. Sets of scikit-learn's own, and the docstrings of
installed packages as texts. Members and students learn on 60 % of the examples of the known classes; the numbers are
for the other 40 % (validation) and for the classes nobody was shown.
"""

import ast
import re
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_wine,
    make_classification,
    make_friedman1,
    make_friedman2,
)
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import solera
from solera.core.progress import quiet
from solera.data.augment import Blend, Crop, Gibbs, InTurn, Jitter, Munge, Noise, OneOf, Plain, Resample, Reword, Shift
from solera.nn import MLP
from solera.training import views as training_views

MEMBERS = 8


def sets() -> dict:
    """Rows, classes, and which classes are unfamiliar."""
    made = make_classification(
        3000, 16, n_informative=10, n_redundant=3, n_classes=6, n_clusters_per_class=2, class_sep=1.5, random_state=0
    )
    return {
        "digits": (*load_digits(return_X_y=True), (8, 9)),
        "made up": (*made, (4, 5)),
        "wine": (*load_wine(return_X_y=True), (2,)),
        "cancer": (*load_breast_cancer(return_X_y=True), ()),
    }


def bags(make, x: np.ndarray, y: np.ndarray, seed: int) -> list:
    """Members, each trained on a sample of the rows with replacement."""
    members = []
    for number in range(MEMBERS):
        rows = np.random.default_rng(100 * seed + number).integers(0, len(x), len(x))
        members.append(make(number).fit(x[rows], y[rows]))
    return members


def boosted(number: int):
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=60, num_leaves=15, min_child_samples=5, n_jobs=1, verbose=-1, seed=number)


def network(number: int):
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), MLPClassifier((64, 64), max_iter=150, random_state=number))


def row_views(x: torch.Tensor) -> dict:
    mixed = OneOf(Plain(), Resample(x, 0.15), Resample(x, 0.3), Resample(x, 0.6))
    return {
        "none": None,
        "blend": Blend(x),
        "jitter 0.1": Jitter(x, 0.1),
        "jitter 0.5": Jitter(x, 0.5),
        "resample 0.15": Resample(x, 0.15),
        "resample 0.3": Resample(x, 0.3),
        "resample 0.6": Resample(x, 0.6),
        "gibbs 0.3": Gibbs(x, 0.3),
        "half gibbs 0.6": OneOf(Plain(), Gibbs(x, 0.6)),
        "munge": Munge(x),
        "half munge": OneOf(Plain(), Munge(x)),
        "half resample 0.3": OneOf(Plain(), Resample(x, 0.3)),
        "mixed": mixed,
        "mixed + blend": OneOf(Plain(), Resample(x, 0.15), Resample(x, 0.3), Resample(x, 0.6), Blend(x)),
        "mixed, jitter 0.1": InTurn(mixed, Jitter(x, 0.1)),
        "mixed, 16 seeded": mixed,
    }


def image_views(x: torch.Tensor) -> dict:
    return {
        "none": None,
        "shift 1": Shift(1),
        "crop 1": Crop(1),
        "blend": Blend(x),
        "noise": Noise(0.2),
        "shift 1 or plain": OneOf(Plain(), Shift(1)),
        "shift 1 or blend": OneOf(Plain(), Shift(1), Blend(x)),
        "shift 1, blend, noise": OneOf(Plain(), Shift(1), Blend(x), Noise(0.2)),
    }


def text_views(x: torch.Tensor) -> dict:
    table = {"none": None}
    for share in (0.05, 0.15, 0.3):
        table[f"reword {share}"] = Reword(x, share)
        table[f"half reword {share}"] = OneOf(Plain(), Reword(x, share))
    return table


def far_views(x: torch.Tensor) -> dict:
    half = (Plain(), Resample(x, 0.3))
    return {
        "none": None,
        "half": OneOf(*half),
        "half, jitter 2 in 1 of 5": OneOf(*half, *half, Jitter(x, 2.0)),
        "half, jitter 3 in 1 of 5": OneOf(*half, *half, Jitter(x, 3.0)),
    }


def scores(prediction, far, y: torch.Tensor) -> list[float]:
    """Accuracy in %, or RMSE, NLL, and the AUROC in % of the unfamiliar inputs by total and by knowledge."""
    if y.is_floating_point():
        first = float((prediction.mean - y).square().mean().sqrt())
    else:
        first = 100 * float((prediction.mean.argmax(-1) == y).float().mean())
    found = [first, -float(prediction.log_prob(y).mean())]
    for name in ("total", "knowledge"):
        if far is None:
            found.append(float("nan"))
            continue
        near, away = (getattr(p, name).double().numpy() for p in (prediction, far))
        truth = np.r_[np.zeros(len(near)), np.ones(len(away))]
        found.append(100 * roc_auc_score(truth, np.r_[near, away]))
    return found


def show(*what, numbers: list[float]) -> None:
    accuracy, nll, total, knowledge = numbers
    line = " | ".join(map(str, what))
    print(f"| {line} | {accuracy:.1f} | {nll:.3f} | {total:.1f} / {knowledge:.1f} |", flush=True)


def compare(name: str, kind: str, teacher, table: dict, x, y, held, far, seed: int, make=None, **settings) -> None:
    """One line per view."""
    inputs, labels = held
    for words, model in (("the ensemble", teacher), ("one member", teacher.member(0))):
        found = scores(model.predict(inputs), None if far is None else model.predict(far), labels)
        show(name, kind, seed, words, numbers=found)
    for words, view in table.items():
        if sys.argv[3:] and words not in sys.argv[3:]:
            continue
        training_views.SEEDED = 16 if "16 seeded" in words else 4
        labels_too = None if y.ndim == 2 else y
        training = solera.Training(**{"epochs": 100, "seed": seed, **settings})
        distiller = solera.Distiller(make and make(), training=training, views=view).fit(teacher, x, labels_too)
        found = scores(distiller.predict(inputs), None if far is None else distiller.predict(far), labels)
        show(name, kind, seed, words, numbers=found)


def rows(seed: int) -> None:
    for name, (x, y, unfamiliar) in sets().items():
        x, away = x.astype(np.float32), np.isin(y, unfamiliar)
        far = torch.from_numpy(x[away]) if len(unfamiliar) else None
        mine, held, label, answer = train_test_split(x[~away], y[~away], test_size=0.4, random_state=seed)
        for kind, make in (("LightGBM", boosted), ("networks", network)):
            teacher = solera.Ensemble(bags(make, mine, label, seed))
            held_out = (torch.from_numpy(held), torch.from_numpy(answer))
            compare(name, kind, teacher, row_views(torch.from_numpy(mine)), mine, label, held_out, far, seed)


def images(seed: int) -> None:
    from solera.nn.default import network_for

    x, y = load_digits(return_X_y=True)
    x, away = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8), y > 7
    mine, held, label, answer = train_test_split(x[~away], y[~away], test_size=0.4, random_state=seed)
    x, held, far, y, answer = map(torch.from_numpy, (mine, held, x[away], label, answer))
    members = solera.train_bags(
        lambda: network_for(x, 8), solera.Batches(x, y), MEMBERS, solera.Training(epochs=60, lr=3e-3, seed=seed)
    )
    compare("digits", "convnets", members, image_views(x), x, y, (held, answer), far, seed)


def continuous(seed: int) -> None:
    """Friedman's functions; unfamiliar are held-out rows with every number moved by 3 to 5 standard deviations."""
    made = {"Friedman 1": make_friedman1(3000, 5, noise=1.0, random_state=seed)}
    made["Friedman 2"] = make_friedman2(3000, noise=100.0, random_state=seed)
    for name, arrays in made.items():
        x, y = (torch.tensor(array, dtype=torch.float32) for array in arrays)
        (x, held), (y, answer) = x.split(1500), y.unsqueeze(1).split(1500)
        draw = torch.Generator().manual_seed(seed)
        sizes = 3 + 2 * torch.rand(held.shape, generator=draw)
        signs = torch.rand(held.shape, generator=draw).sub(0.5).sign()
        members = solera.train_ensemble(
            lambda x=x, y=y: MLP.for_inputs(x, 2, (64, 64), targets=y),
            solera.Batches(x, y),
            MEMBERS,
            solera.Training(epochs=40, lr=3e-3, seed=seed),
        )
        far = held + sizes * signs * x.std(0)
        compare(name, "networks", members, far_views(x), x, y, (held, answer), far, seed)


KNOWN, STRANGE = ("scipy", "sklearn", "torch", "pandas", "numpy", "matplotlib"), ("sympy", "networkx")
WORDS, VOCABULARY, TEXTS = 40, 4000, 600  # of a text, of all, and how many of a package


class TextNetwork(torch.nn.Module):
    """Which package a docstring comes from: the largest answer of each filter of three words."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, 32, padding_idx=0)
        self.filters, self.classify = torch.nn.Conv1d(32, 64, 3, padding=1), torch.nn.Linear(64, outputs)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.classify(self.filters(self.embed(tokens).mT).relu().amax(-1))


def docstrings(package: str, random: np.random.Generator) -> list[list[str]]:
    """Words of some of a package's docstrings, those that name a package left out."""
    found = set()
    for file in sorted(Path(find_spec(package).origin).parent.rglob("*.py")):
        if "test" not in str(file):
            documented = (ast.FunctionDef, ast.ClassDef)
            nodes = [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, documented)]
            found |= {text for node in nodes if (text := ast.get_docstring(node))}
    names = {*KNOWN, *STRANGE, "np", "pd", "plt", "scikit", "dataframe", "tensor"}
    texts = [[w for w in re.findall("[a-z]+", text.lower()) if w not in names][:WORDS] for text in sorted(found)]
    texts = [text for text in texts if len(text) >= 15]
    return [texts[n] for n in random.permutation(len(texts))[:TEXTS]]


def text(seed: int) -> None:
    """Docstrings by their package, words by their frequency; those of two more packages are unfamiliar."""
    random = np.random.default_rng(seed)
    texts = {package: docstrings(package, random) for package in (*KNOWN, *STRANGE)}
    counts = Counter(word for package in KNOWN for words in texts[package] for word in words)
    numbers = {word: n + 2 for n, (word, _) in enumerate(counts.most_common(VOCABULARY - 2))}  # 0: padding, 1: others

    def ids(packages: tuple[str, ...]) -> torch.Tensor:
        every = [words for package in packages for words in texts[package]]
        return torch.tensor([[numbers.get(w, 1) for w in words] + [0] * (WORDS - len(words)) for words in every])

    def make() -> TextNetwork:
        return TextNetwork(len(KNOWN))

    x, y = ids(KNOWN), torch.arange(len(KNOWN)).repeat_interleave(TEXTS)
    x, held, y, answer = train_test_split(x, y, test_size=0.4, random_state=seed)
    members = solera.train_bags(make, solera.Batches(x, y), MEMBERS, solera.Training(epochs=30, lr=3e-3, seed=seed))
    far = ids(STRANGE)
    compare("docstrings", "convnets", members, text_views(x), x, y, (held, answer), far, seed, make, epochs=40, lr=3e-3)


if __name__ == "__main__":
    with quiet():
        {"rows": rows, "images": images, "continuous": continuous, "text": text}[sys.argv[1]](
            int(sys.argv[2]) if len(sys.argv) > 2 else 0
        )
