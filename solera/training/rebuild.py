"""What config.json says of a student's network, so that it can be built again."""

from typing import Any

from torch import nn

import solera.nn
from solera.methods.base import Method


def _made_by(model: nn.Module, method: Method) -> tuple[str, str]:
    """The name of the user's own class, and the Python expression that builds the whole network again."""
    if isinstance(model, solera.nn.Heads):
        name, inner = _made_by(model._inner[0], method)
        head = getattr(method, "head", 1)
        return name, f"solera.nn.grow({inner}, {model.members}{'' if head == 1 else f', head={head!r}'})"
    if isinstance(model, solera.nn.Subnetworks):
        name, inner = _made_by(model.network, method)
        norms = "" if model.norms == "shared" else f", norms={model.norms!r}"
        return name, f"solera.nn.branch({inner}, {model.members}{norms})"
    return type(model).__name__, f"{type(model).__name__}(...)"


def described(model: nn.Module, method: Method) -> dict[str, Any]:
    """A network in config.json: Solera's own by name and settings, any other by what must be passed to `load`."""
    name = type(model).__name__
    if type(model) is getattr(solera.nn, name, None) and hasattr(model, "settings"):
        return {"name": name, "settings": model.settings}
    own, made_by = _made_by(model, method)
    return {"name": name, "class": own, "made_by": made_by}
