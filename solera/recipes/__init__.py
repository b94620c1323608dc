"""The papers, at laptop scale: one file per experiment, found by its name."""

import ast
import importlib
import pkgutil
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


def summary(name: str) -> str:
    """The first line of a recipe's docstring, read without importing it: its data and torch take seconds."""
    tree = ast.parse((Path(__file__).parent / f"{name.replace('-', '_')}.py").read_text())
    wanted = _class_name(name)
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.lower() == wanted)
    return (ast.get_docstring(found) or "").split("\n\n")[0]


def names() -> list[str]:
    """Every recipe there is."""
    parts = (
        "base",
        "data",
        "endd_page",
        "images",
        "laws_page",
        "ner_page",
        "page",
        "speech_page",
        "strings",
        "translation_page",
    )
    found = [m.name for m in pkgutil.iter_modules(__path__) if m.name not in parts]
    return sorted(name.replace("_", "-") for name in found)
