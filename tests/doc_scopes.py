"""What a reader of each page of the documentation has at hand before its first block of code: real, and small."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import solera
from solera.nn import MLP
from tests.helpers import small_batches, small_ensemble

Scope = dict[str, Any]
SCOPES: dict[str, Callable[[], Scope]] = {}  # by page


def of(page: str) -> Callable[[Callable[[], Scope]], Callable[[], Scope]]:
    def keep(make: Callable[[], Scope]) -> Callable[[], Scope]:
        SCOPES[page] = make
        return make

    return keep


def network() -> MLP:
    return MLP(4, 3, (8,))


def distilled() -> tuple[solera.Ensemble, solera.Batches, solera.Student]:
    ensemble, batches = small_ensemble(), small_batches(examples=60)
    return (
        ensemble,
        batches,
        solera.distill(ensemble, network(), batches, solera.ProxyDirichlet(), solera.Training(epochs=3)),
    )


class Mine(nn.Module):
    """A network that Solera does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)


@of("export.md")
def _() -> Scope:
    x = torch.randn(60, 2)
    ensemble = small_ensemble(members=10, inputs=2)
    batches, short = solera.Batches(x), solera.Training(epochs=1)
    student = solera.distill(ensemble, MLP(2, 3, (8,)), batches, solera.ProxyDirichlet(), short)
    solera.distill(ensemble, Mine(), batches, solera.ProxyDirichlet(), short).save("mine")
    solera.distill(ensemble, Mine(), batches, solera.Hydra(), short).save("hydra")
    return {"solera": solera, "student": student, "Mine": Mine, "x_test": x}


@of("regression.md")
def _() -> Scope:
    from sklearn.ensemble import ExtraTreesRegressor

    rows, targets = np.random.rand(60, 2).astype(np.float32), np.random.rand(60)
    folds = np.arange(60) % 3
    models = [ExtraTreesRegressor(5).fit(rows[folds != f], targets[folds != f]) for f in range(3)]
    held_out = {"x_held_out": rows, "y_held_out": targets}
    out_of_fold = {"x_train": rows, "y_train": targets, "folds": folds}
    return {"models": models, **held_out, **out_of_fold, "forecasts": np.random.rand(3, 60)}


@of("report.md")
def _() -> Scope:
    ensemble, batches, student = distilled()
    x = batches.all.inputs
    models = {"one_member": ensemble.member(0), "ensemble": ensemble, "refit": student, "student": student}
    sets = {"x_other": x + 3, "x_night": x - 3, "y_night": batches.all.target}
    return {**models, "x_test": x, "y_test": batches.all.target, **sets}


@of("start-here.md")
def _() -> Scope:
    ensemble, batches, _ = distilled()
    models = dict(zip(("model_1", "model_2", "model_3"), ensemble.models, strict=True))
    data = {"inputs": batches.all.inputs, "labels": batches.all.target, "other_inputs": batches.all.inputs + 3}
    folds = {"models": small_ensemble(members=5).models, "folds": np.arange(60) % 5}
    return {**models, **data, **folds, "network": network()}


@of("training.md")
def _() -> Scope:
    ensemble, batches, _ = distilled()
    data = {"x": batches.all.inputs, "y": batches.all.target, "batches": batches, "method": solera.ProxyDirichlet()}
    return {"solera": solera, "ensemble": ensemble, "network": network(), **data}


@of("views.md")
def _() -> Scope:
    ensemble, batches, _ = distilled()
    known = {"inputs": batches.all.inputs, "batches": batches, "network": network(), "method": solera.ProxyDirichlet()}
    return {"solera": solera, "ensemble": ensemble, **known, "my_own": lambda inputs, draw: inputs + 0.01}


@of("speech.md")
def _() -> Scope:
    soundfile = pytest.importorskip("soundfile")
    for name in ("one.wav", "two.wav", "new.wav"):
        soundfile.write(name, 0.1 * np.random.randn(4000), 8000)
    said = ["seven three one", "four"]
    tokenizer = solera.Recordings(["one.wav", "two.wav"], said, rate=8000).tokenizer
    test = solera.Recordings(["one.wav", "two.wav"], said, tokenizer, rate=8000)
    from solera.nn import Recogniser
    from solera.tasks import Seq2Seq

    def make() -> Recogniser:
        return Recogniser(len(tokenizer), rate=8000)

    ensemble = solera.train_ensemble(make, test, 2, solera.Training(epochs=1), task=Seq2Seq())
    models = {"single": ensemble.member(0), "ensemble": ensemble}
    return {"test": test, "noise": [np.random.randn(4000).astype(np.float32)], "models": models}


@of("translation.md")
def _() -> Scope:
    lines = {"de": "Ein Hund läuft .", "en": "A dog runs .", "fr": "Un chien court ."}
    for name, line in lines.items():
        Path(f"train.{name}").write_text(f"{line}\n" * 12)
        Path(f"test.{name}").write_text(f"{line}\n" * 4)
    from solera.nn import Translator
    from solera.tasks import Seq2Seq

    pairs = solera.Pairs("train.de", "train.en")
    test = solera.Pairs("test.de", "test.en", pairs.tokenizer)

    def make() -> Translator:
        return Translator(len(pairs.tokenizer), width=32)

    ensemble = solera.train_ensemble(make, pairs, 2, solera.Training(epochs=1), task=Seq2Seq())
    return {"test": test, "models": {"single": ensemble.member(0), "ensemble": ensemble}}


@of("taggers-elsewhere.md")
def _() -> Scope:
    pytest.importorskip("spacy")
    from solera.data import Sentence, save_conll
    from solera.teachers.adapters import TokenClassifier
    from tests.teachers.test_taggers import pipeline
    from tests.words import SENTENCES, TAGS, bert, tagger_student, tokenizer

    tags = [["B-PER", "I-PER", "O", "B-LOC", "O"], ["B-LOC", "O"]]
    for name in ("train.conll", "somebody.conll"):
        save_conll(name, 5 * [Sentence(words, said) for words, said in zip(SENTENCES, tags, strict=False)])
    tagger_student().save("tagger")
    members = {"bert": bert(), "bert_tokenizer": tokenizer(), "roberta": bert(seed=1), "roberta_tokenizer": tokenizer()}
    student = solera.Student(TokenClassifier(bert()), solera.ProxyDirichlet(), class_names=TAGS)
    return {**members, "nlp": pipeline("tagger"), "transformer_student": student, "tokenizer": tokenizer()}
