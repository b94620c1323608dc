"""Blocks and reference networks, no training logic. Networks keep their `settings`: a student can be rebuilt."""

from solera.nn.convnet import ConvNet
from solera.nn.default import network_for
from solera.nn.heads import Heads, grow
from solera.nn.mlp import MLP
from solera.nn.standardize import Standardize
from solera.nn.units import Units

__all__ = ["MLP", "ConvNet", "Heads", "Standardize", "Units", "grow", "network_for"]
