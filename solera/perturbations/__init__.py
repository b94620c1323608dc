"""Inputs moved a little, to where the members of a live ensemble differ: there is more to learn from them."""

from solera.perturbations.base import Perturbation
from solera.perturbations.diversity import TDiv, TDivSDiv, diversity
from solera.perturbations.gaussian import GaussianNoise
from solera.perturbations.ods import ODS, ConfODS

__all__ = ["ODS", "ConfODS", "GaussianNoise", "Perturbation", "TDiv", "TDivSDiv", "diversity"]
