"""How to make teachers."""

from solera.ensembles.deep import train_ensemble

__all__ = ["train_ensemble"]
