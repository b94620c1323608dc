"""Runs every benchmark, or the named ones: `python -m benchmarks [--record] [name...]`, `python -m benchmarks --page`.

A benchmark is a module of this package with a function `main()` that prints tables and declares ratios
(`benchmarks.ratios`). The exit code is 1 where a ratio is worse than the recorded one by more than its noise.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

import benchmarks
from benchmarks import ratios, record


def available(names: list[str]) -> dict[str, Callable[[], None]]:
    """`main()` of each of these modules, of all modules beside this one if none is named."""
    beside = [module.name for module in iter_modules(benchmarks.__path__) if module.name != "__main__"]
    if missing := [name for name in names if name not in beside]:
        sys.exit(f"no benchmark called {', '.join(missing)}: choose from {', '.join(beside)}")
    modules = {name: import_module(f"benchmarks.{name}") for name in names or beside}
    return {name: module.main for name, module in modules.items() if hasattr(module, "main")}


def run(name: str, benchmark: Callable[[], None], record_it: bool) -> list[ratios.Ratio]:
    """One benchmark; returns the ratios that are worse than recorded."""
    print(f"## {name}\n", flush=True)
    benchmark()
    found, recorded = ratios.take(), record.read()
    before = recorded.get(name, {})
    if found:
        print(ratios.as_table(found, before) + "\n", flush=True)
    if record_it and found:
        record.write(recorded | {name: {one.name: one for one in found}})
        record.PAGE.write_text(record.page())
    return [one for one in found if one.name in before and one.worse_than(before[one.name])]


def main(arguments: list[str]) -> None:
    names = [word for word in arguments if not word.startswith("--")]
    flags = set(arguments) - set(names)
    if unknown := flags - {"--record", "--page"}:
        sys.exit(f"there is no option {', '.join(sorted(unknown))}: choose --record or --page")
    if "--page" in flags:
        record.PAGE.write_text(record.page())
        return
    worse = [one for name, one_of in available(names).items() for one in run(name, one_of, "--record" in flags)]
    if worse and "--record" not in flags:
        sys.exit("worse than recorded: " + "; ".join(f"{one.name} {one.value:.3g}" for one in worse))


if __name__ == "__main__":
    main(sys.argv[1:])
