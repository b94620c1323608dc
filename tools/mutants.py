"""Breaks the code by hand-chosen mutants, one at a time, and says which of them the tests notice.

Run: make mutants, or python tools/mutants.py --only training --only data

tools/mutants/PACKAGE.toml lists a package's mutants: the file, the text to replace (found exactly once, or nothing is
run), what it becomes, the tests that must fail, and why anybody should care. Each is applied in a temporary copy of
the tree. All the named tests of a package must pass on the unbroken copy first.
"""

import argparse
import io
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "tools" / "mutants"
COPIED = ("solera", "tests", "pyproject.toml", "README.md")
PASSED, FAILED, TIMED_OUT = 0, 1, -1  # the first two are pytest's
SLOW_IMPORTS = (  # of others: paid for once, before the first test; nothing of this project is among them
    *("torch", "torch._dynamo", "torch.utils.data", "pytest", "hypothesis", "jaxtyping", "beartype"),
    *("scipy.stats", "sklearn.metrics", "mpmath"),
)


@dataclass(frozen=True)
class Mutant:
    """A small, plausible mistake, and the tests that ought to notice it."""

    package: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str

    def fault(self) -> str | None:
        """What is wrong with the entry itself, if anything is."""
        path = ROOT / self.file
        found = path.read_text().count(self.old) if path.is_file() else 0
        if found != 1:
            return f"{self.file}: the old text is found {found} times, not once: {self.old!r}"
        missing = [test for test in self.tests if not (ROOT / test.partition("::")[0]).is_file()]
        if self.old == self.new or not self.tests or missing:
            return f"{self.file}: a mutant changes something and names tests that exist: {self.why} {missing}"
        return None


def read_mutants(packages: Sequence[str]) -> list[Mutant]:
    """The mutants of these packages; an entry that does not fit the code any more ends the run."""
    mutants = []
    for package in packages:
        entries = tomllib.loads((LISTS / f"{package}.toml").read_text())["mutant"]
        mutants += [Mutant(package, **{**entry, "tests": tuple(entry["tests"])}) for entry in entries]
    faults = [fault for fault in (mutant.fault() for mutant in mutants) if fault]
    if faults:
        sys.exit("mutants: mend these entries first:\n  " + "\n  ".join(faults))
    return mutants


def _pytest(tree: Path, tests: Sequence[str], seconds: int, log: Path) -> None:
    """Runs in a process of its own, whose working directory and imports are those of the copied tree."""
    import jaxtyping
    import pytest

    # Shapes are not checked here: that is half the time, and a mutant must be noticed by what the tests assert.
    jaxtyping.install_import_hook = lambda *_: None
    os.chdir(tree)
    sys.path.insert(0, str(tree))
    os.environ["PYTHONPATH"] = str(tree)  # for processes that the tests start
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", f"--timeout={seconds}", *tests])
    log.write_text(said.getvalue())
    os._exit(int(code))


def run_tests(tree: Path, tests: Sequence[str], seconds: int, log: Path) -> int:
    """pytest's exit code, or TIMED_OUT. Forked, so that the slow imports are paid for once."""
    log.write_text("")
    process = multiprocessing.get_context("fork").Process(target=_pytest, args=(tree, tests, seconds, log))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        return TIMED_OUT
    return process.exitcode or 0


def copy_tree(folder: Path) -> Path:
    """What the tests need, with compiled files and their times, so that only what changes is compiled again."""
    tree = folder / "tree"
    tree.mkdir()
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, tree / name)
    return tree


def require_passing(tree: Path, mutants: Sequence[Mutant], seconds: int, log: Path) -> None:
    """A test that fails anyway notices nothing."""
    for package in dict.fromkeys(mutant.package for mutant in mutants):
        tests = sorted({test for mutant in mutants if mutant.package == package for test in mutant.tests})
        print(f"mutants: {package}: {len(tests)} selections of tests on the unbroken code", flush=True)
        code = run_tests(tree, tests, 5 * seconds, log)
        if code != PASSED:
            sys.exit(f"mutants: the tests of {package} do not pass on the unbroken code ({code}):\n{log.read_text()}")


def is_killed(tree: Path, mutant: Mutant, seconds: int, log: Path) -> bool:
    """Whether the tests notice the mutant; the tree is as it was afterwards."""
    path, original = tree / mutant.file, ROOT / mutant.file
    path.write_text(original.read_text().replace(mutant.old, mutant.new))
    try:
        code = run_tests(tree, mutant.tests, seconds, log)
    finally:
        shutil.copy2(original, path)
    if code not in (PASSED, FAILED, TIMED_OUT):
        sys.exit(f"mutants: the tests of {mutant.file} did not run ({code}), {mutant.why}:\n{log.read_text()}")
    return code != PASSED


def table(mutants: Sequence[Mutant], killed: Sequence[bool]) -> str:
    """Killed and survived, by package, and the share killed."""
    lines = [f"{'package':<16}{'killed':>8}{'survived':>10}"]
    for package in dict.fromkeys(mutant.package for mutant in mutants):
        mine = [dead for mutant, dead in zip(mutants, killed, strict=True) if mutant.package == package]
        lines.append(f"{package:<16}{sum(mine):>8}{len(mine) - sum(mine):>10}")
    share = f"{sum(killed) / len(killed):.0%} of {len(killed)}"
    return "\n".join([*lines, f"{'together':<16}{sum(killed):>8}{len(killed) - sum(killed):>10}   {share} killed"])


def main() -> None:
    """Applies each mutant, prints what became of it, and fails if one survived."""
    packages = sorted(path.stem for path in LISTS.glob("*.toml"))
    parser = argparse.ArgumentParser(description="Which hand-made mistakes do the tests notice?")
    parser.add_argument("--only", action="append", choices=packages, metavar="PACKAGE", help=", ".join(packages))
    parser.add_argument("--timeout", type=int, default=120, help="seconds for the tests of one mutant")
    options = parser.parse_args()
    mutants = read_mutants(options.only or packages)
    os.environ["OMP_NUM_THREADS"] = "1"
    for module in SLOW_IMPORTS:
        import_module(module)
    killed: list[bool] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree, log = copy_tree(Path(folder)), Path(folder) / "log"
        require_passing(tree, mutants, options.timeout, log)
        for number, mutant in enumerate(mutants, 1):
            start = time.monotonic()
            killed.append(is_killed(tree, mutant, options.timeout, log))
            word, took = "killed" if killed[-1] else "SURVIVED", time.monotonic() - start
            print(f"[{number}/{len(mutants)}] {word} {took:.0f} s  {mutant.file}: {mutant.why}", flush=True)
    print(table(mutants, killed))
    sys.exit(0 if all(killed) else 1)


if __name__ == "__main__":
    main()
