"""Calibration after training, on held-out data."""

from solera.calibration.second_order import calibrate
from solera.calibration.smoothing import Smoothing, fit_smoothing
from solera.calibration.temperature import calibrated_ece, calibrated_nll, fit_temperature
from solera.training.size import Kept, kept

__all__ = [
    "Kept",
    "Smoothing",
    "calibrate",
    "calibrated_ece",
    "calibrated_nll",
    "fit_smoothing",
    "fit_temperature",
    "kept",
]
