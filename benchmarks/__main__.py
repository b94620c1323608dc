"""Runs every benchmark, or the named ones, and prints Markdown tables: `python -m benchmarks [name...]`.

A benchmark is a module of this package with a function `main()` that prints its tables.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

import benchmarks


def available() -> dict[str, Callable[[], None]]:
    """Every module beside this one that has a `main()`."""
    names = [module.name for module in iter_modules(benchmarks.__path__) if module.name != "__main__"]
    modules = {name: import_module(f"benchmarks.{name}") for name in names}
    return {name: module.main for name, module in modules.items() if hasattr(module, "main")}


def main(names: list[str]) -> None:
    mains = available()
    if unknown := [name for name in names if name not in mains]:
        sys.exit(f"no benchmark called {', '.join(unknown)}: choose from {', '.join(mains)}")
    for name in names or mains:
        print(f"## {name}\n", flush=True)
        mains[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
