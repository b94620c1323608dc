"""Calibration after training, on held-out data."""

from solera.calibration.temperature import calibrated_ece, calibrated_nll, fit_temperature

__all__ = ["calibrated_ece", "calibrated_nll", "fit_temperature"]
