"""What a recipe is: an experiment whose fields are its settings, run in a folder that remembers how far it came."""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from solera.core.disk import read_json, write_bytes
from solera.core.errors import MismatchError

SETTINGS = "settings.json"
PAGE, SO_FAR = "results.md", "so-far.md"  # the finished page, and that of the parts that are finished


def _results(folder: Path) -> set[str]:
    """What a folder has, in files at any depth, but for the settings and locks of a run."""

    def counts(file: Path) -> bool:
        return file.is_file() and file.name != SETTINGS and not file.name.startswith(".lock")

    return {entry.name for entry in folder.iterdir() if any(map(counts, chain([entry], entry.rglob("*"))))}


def require_same_settings(folder: Path, settings: dict[str, Any]) -> None:
    """For a folder that holds a run: the settings of that run, wherever the data sets (`data`) lie."""
    known, settings = read_json(folder / SETTINGS), json.loads(json.dumps(settings))
    changed = [k for k in {**known, **settings} if k != "data" and known.get(k) != settings.get(k)]
    if changed:
        what = ", ".join(f"{k} was {known.get(k)!r}, now {settings.get(k)!r}" for k in changed)
        raise MismatchError(f"{folder} holds a run with other settings ({what}): choose another --out")


class Workspace:
    """The folder of one run. Finished steps are kept there; the same command goes on after the last of them.

    It goes on with the same settings alone (`require_same_settings`).
    """

    def __init__(self, folder: str | Path, settings: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / SETTINGS
        self._found, self._begins = _results(self.folder), not file.exists()
        if file.exists() and self._found:
            require_same_settings(self.folder, settings)
        write_bytes(file, json.dumps(settings, indent=1).encode())

    def take_back(self) -> None:
        """After a failure: the settings of a run that kept no result must not bind the next one."""
        if self._begins and _results(self.folder) == self._found:
            (self.folder / SETTINGS).unlink(missing_ok=True)

    def remember(self, name: str, compute: Callable[[], Any]) -> Any:
        """The JSON result of a step: read if it is there, otherwise computed and written."""
        file = self.folder / f"{name}.json"
        if not file.exists():
            write_bytes(file, json.dumps(compute(), indent=1).encode())
        return json.loads(file.read_text())

    def say(self, text: str) -> None:
        """One line about what is being done."""
        print(f"solera: {text}", file=sys.stderr, flush=True)

    def write(self, name: str, text: str) -> Path:
        """A finished page."""
        write_bytes(self.folder / name, text.encode())
        return self.folder / name


@dataclass(frozen=True)
class Recipe(ABC):
    """One experiment. The class's docstring is its help, its fields are what `field=value` changes."""

    study: ClassVar[bool] = True  # False: it works on files that a person brings, `solera run all` leaves it out
    seed: int = 0

    @abstractmethod
    def run(self, work: Workspace) -> str:
        """Runs it, resumably, and returns its results as a Markdown page."""


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """The fields and their values."""
    return {"recipe": type(recipe).__name__, **asdict(recipe)}
