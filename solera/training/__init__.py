"""Fit members, distil students."""

from solera.training.distill import distill
from solera.training.distiller import Distiller
from solera.training.fit import fit
from solera.training.settings import Training
from solera.training.student import Student
from solera.training.transcribe import transcribe
from solera.training.translate import translate

__all__ = ["Distiller", "Student", "Training", "distill", "fit", "transcribe", "translate"]
