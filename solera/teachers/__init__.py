"""Who answers for the ensemble: live models, or a memory of them."""

from solera.teachers.base import Teacher, saw_from_folds
from solera.teachers.capture import capture, verify
from solera.teachers.codecs import DenseCodec, MeanCodec, TopKCodec
from solera.teachers.committee import committee
from solera.teachers.ensemble import Ensemble
from solera.teachers.labels import Labels
from solera.teachers.one_by_one import OneByOne
from solera.teachers.taggers import Taggers
from solera.teachers.transfer_set import TransferSet

__all__ = [
    "DenseCodec",
    "Ensemble",
    "Labels",
    "MeanCodec",
    "OneByOne",
    "Taggers",
    "Teacher",
    "TopKCodec",
    "TransferSet",
    "capture",
    "committee",
    "saw_from_folds",
    "verify",
]
