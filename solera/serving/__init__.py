"""Take a student away: one graph that carries its uncertainty inside."""

from solera.serving.export import Exported, Graph, Quantized, export, quantize
from solera.serving.trace import random_inputs

__all__ = ["Exported", "Graph", "Quantized", "export", "quantize", "random_inputs"]
