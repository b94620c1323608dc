"""Blocks and reference networks, no training logic. A network keeps its `settings`, so that a student can be rebuilt."""

from solera.nn.convnet import ConvNet
from solera.nn.mlp import MLP

__all__ = ["MLP", "ConvNet"]
