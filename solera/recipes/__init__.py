"""The papers, at laptop scale: one file per experiment, found by its name."""

import importlib
import pkgutil

from solera.recipes.base import Recipe


def find(name: str) -> type[Recipe]:
    """The recipe called `name` on the command line, such as `gradient-ratio` for recipes/gradient_ratio.py."""
    module = importlib.import_module(f"solera.recipes.{name.replace('-', '_')}")
    wanted = name.replace("-", "").lower()
    return next(
        v for k, v in vars(module).items() if k.lower() == wanted and isinstance(v, type) and issubclass(v, Recipe)
    )


def names() -> list[str]:
    """Every recipe there is."""
    parts = ("base", "data", "endd_page", "images", "page")
    found = [m.name for m in pkgutil.iter_modules(__path__) if m.name not in parts]
    return sorted(name.replace("_", "-") for name in found)
