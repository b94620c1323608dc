"""Teachers that are not torch modules."""

from solera.teachers.adapters.arrays import Predictions

__all__ = ["Predictions"]
