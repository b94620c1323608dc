"""How to make teachers."""

from solera.ensembles.averaging import average_weights, train_averaged, update_batch_norm
from solera.ensembles.deep import train_ensemble
from solera.ensembles.dropout import DropoutEnsemble
from solera.ensembles.folds import bag_rows, fold_ids, train_bags, train_folds
from solera.ensembles.snapshot import train_snapshots

__all__ = [
    "DropoutEnsemble",
    "average_weights",
    "bag_rows",
    "fold_ids",
    "train_averaged",
    "train_bags",
    "train_ensemble",
    "train_folds",
    "train_snapshots",
    "update_batch_norm",
]
