"""Distil an ensemble into one student that is as accurate, 1/M of the cost, and still knows what it does not know."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solera.calibration import calibrate
    from solera.data import Batch, Batches, Pairs, Recordings, Sequences
    from solera.ensembles import DropoutEnsemble, train_bags, train_ensemble, train_folds, train_snapshots
    from solera.evaluation import evaluate, report
    from solera.methods import (
        AEKD,
        BatchEnsemble,
        DirichletMixture,
        EnD,
        EnD2,
        Hydra,
        LatentBE,
        LogisticNormal,
        NormalWishart,
        PriorNetwork,
        ProxyDirichlet,
    )
    from solera.teachers import Ensemble, Labels, TransferSet, capture, committee
    from solera.training import DistilledClassifier as DistilledClassifier
    from solera.training import DistilledRegressor as DistilledRegressor
    from solera.training import Distiller, Student, Training, distill, fit, transcribe, translate

# Loaded on first use, so that `solera --help` need not wait for torch.
_HOMES = {
    "calibration": ("calibrate",),
    "data": ("Batch", "Batches", "Pairs", "Recordings", "Sequences"),
    "ensembles": ("DropoutEnsemble", "train_bags", "train_ensemble", "train_folds", "train_snapshots"),
    "evaluation": ("evaluate", "report"),
    "methods": (
        "AEKD",
        "BatchEnsemble",
        "DirichletMixture",
        "EnD",
        "EnD2",
        "Hydra",
        "LatentBE",
        "LogisticNormal",
        "NormalWishart",
        "PriorNetwork",
        "ProxyDirichlet",
    ),
    "teachers": ("Ensemble", "Labels", "TransferSet", "capture", "committee"),
    "training": (
        "DistilledClassifier",
        "DistilledRegressor",
        "Distiller",
        "Student",
        "Training",
        "distill",
        "fit",
        "transcribe",
        "translate",
    ),
}

# not among these: DistilledClassifier and DistilledRegressor, for `from solera import *` needs no scikit-learn
__all__ = [
    "AEKD",
    "Batch",
    "BatchEnsemble",
    "Batches",
    "DirichletMixture",
    "Distiller",
    "DropoutEnsemble",
    "EnD",
    "EnD2",
    "Ensemble",
    "Hydra",
    "Labels",
    "LatentBE",
    "LogisticNormal",
    "NormalWishart",
    "Pairs",
    "PriorNetwork",
    "ProxyDirichlet",
    "Recordings",
    "Sequences",
    "Student",
    "Training",
    "TransferSet",
    "calibrate",
    "capture",
    "committee",
    "distill",
    "evaluate",
    "fit",
    "report",
    "train_bags",
    "train_ensemble",
    "train_folds",
    "train_snapshots",
    "transcribe",
    "translate",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"solera.{home}"), name)
    raise AttributeError(f"module 'solera' has no attribute {name!r}")
