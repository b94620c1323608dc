"""Take a student away: one graph that carries its uncertainty inside, or a service that answers."""

from solera.serving.export import Exported, export
from solera.serving.graph import Graph
from solera.serving.huggingface import export_huggingface
from solera.serving.quantize import Quantized, halve, quantize
from solera.serving.serve import serve
from solera.serving.settings import Settings
from solera.serving.steps import Steps, export_steps
from solera.serving.trace import random_inputs

__all__ = [
    "Exported",
    "Graph",
    "Quantized",
    "Settings",
    "Steps",
    "export",
    "export_huggingface",
    "export_steps",
    "halve",
    "quantize",
    "random_inputs",
    "serve",
]
