"""Blocks and reference networks, no training logic. Networks keep their `settings`: a student can be rebuilt."""

from solera.nn.convnet import ConvNet
from solera.nn.mlp import MLP

__all__ = ["MLP", "ConvNet"]
