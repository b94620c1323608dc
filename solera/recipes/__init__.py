"""The papers, at laptop scale: one file per experiment, found by its name."""

import ast
import importlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from solera.recipes.base import Recipe


def _class_name(name: str) -> str:
    """Of the recipe `gradient-ratio`, in small letters: the class in recipes/gradient_ratio.py that has it is meant."""
    return name.replace("-", "").lower()


def find(name: str) -> "type[Recipe]":
    """The recipe called `name` on the command line, such as `gradient-ratio` for recipes/gradient_ratio.py."""
    from solera.recipes.base import Recipe

    module = importlib.import_module(f"solera.recipes.{name.replace('-', '_')}")
    wanted = _class_name(name)
    return next(
        v for k, v in vars(module).items() if k.lower() == wanted and isinstance(v, type) and issubclass(v, Recipe)
    )


@cache
def _recipes() -> dict[str, str]:
    """By name, the first line of the docstring: of every module here with a class of its own name.

    Read without importing them: their data and torch take seconds.
    """
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        name = path.stem.replace("_", "-")
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name.lower() == _class_name(name):
                found[name] = (ast.get_docstring(node) or "").split("\n\n")[0]
    return found


def summary(name: str) -> str:
    """The first line of a recipe's docstring."""
    return _recipes()[name]


def names() -> list[str]:
    """Every recipe there is."""
    return list(_recipes())
