"""Fit members, distil students."""

from typing import TYPE_CHECKING, Any

from solera.training.distill import distill
from solera.training.distiller import Distiller
from solera.training.fit import fit
from solera.training.settings import Training
from solera.training.student import Student
from solera.training.transcribe import transcribe
from solera.training.translate import translate

if TYPE_CHECKING:
    from solera.training.estimators import DistilledClassifier as DistilledClassifier
    from solera.training.estimators import DistilledRegressor as DistilledRegressor

# not among these: the estimators, which need scikit-learn
__all__ = ["Distiller", "Student", "Training", "distill", "fit", "transcribe", "translate"]


def __getattr__(name: str) -> Any:
    if name in ("DistilledClassifier", "DistilledRegressor"):
        from solera.training import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'solera.training' has no attribute {name!r}")
