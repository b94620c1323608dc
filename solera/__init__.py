"""Distil an ensemble into one student that is as accurate, 1/M of the cost, and still knows what it does not know."""

from solera.core.batch import Batch, Batches
from solera.ensembles import train_ensemble
from solera.evaluation import evaluate
from solera.methods import EnD, EnD2, ProxyDirichlet
from solera.teachers import Ensemble, TransferSet, capture
from solera.training import Distiller, Student, Training, distill, fit

__all__ = [
    "Batch",
    "Batches",
    "Distiller",
    "EnD",
    "EnD2",
    "Ensemble",
    "ProxyDirichlet",
    "Student",
    "Training",
    "TransferSet",
    "capture",
    "distill",
    "evaluate",
    "fit",
    "train_ensemble",
]
