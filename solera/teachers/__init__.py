"""Who answers for the ensemble: live models, or a memory of them."""

from solera.teachers.base import Teacher
from solera.teachers.capture import capture
from solera.teachers.codecs import Dense
from solera.teachers.ensemble import Ensemble
from solera.teachers.transfer_set import TransferSet

__all__ = ["Dense", "Ensemble", "Teacher", "TransferSet", "capture"]
