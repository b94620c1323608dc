"""The manifest of a transfer set, and how those of several processes become one.

Each process of several writes `manifest-RANK.json`, about its own shards. When all are complete the first process adds
them to `manifest.json` and removes them: a process whose part is gone knows that it counts. Parts that a dead run left
behind are added before the next begins, so none of them can be taken for a part of the new run.
"""

from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from solera.core.disk import write_manifest
from solera.core.errors import MismatchError
from solera.core.processes import await_process, forget_processes
from solera.teachers.codecs import Codec, name_of
from solera.teachers.transfer_set import KIND, VERSION, read_own_manifest, require_same_members

MANIFEST = "manifest.json"
Manifest = dict[str, Any]


def part_name(rank: int | str) -> str:
    """The manifest of one of several processes."""
    return f"manifest-{rank}.json"


def settings_of(codec: Codec) -> dict[str, Any]:
    """A codec as a manifest has it."""
    return {"name": name_of(codec), **asdict(codec)}  # type: ignore[call-overload]


def nothing(path: Path) -> ValueError:
    """For whoever captured no example at all."""
    return ValueError(f"there is nothing to capture into {path}: the batches are empty")


def _read(file: Path, asked: Manifest) -> Manifest:
    """A manifest, once it is sure to belong to what is asked for now."""
    path, found = file.parent, read_own_manifest(file)
    if found["codec"] != asked["codec"]:
        raise MismatchError(
            f"{path} was begun with codec {found['codec']}, not {asked['codec']}: choose another folder"
        )
    if found["labels"] not in (None, asked["labels"]):
        raise MismatchError(
            f"{path} was begun with the class names {found['labels']}, not {asked['labels']}: choose another folder"
        )
    if found.get("vocabulary") != asked.get("vocabulary"):
        raise MismatchError(
            f"{path} was begun with the tokens of tokenizer {found.get('vocabulary')}, not of "
            f"{asked.get('vocabulary')}: choose another folder"
        )
    require_same_members(path, found["members"], asked["members"])
    kept = {key: value for key, value in found.items() if key not in ("kind", "version")}
    return {**kept, "labels": asked["labels"], "complete": False}


def opened(path: Path, asked: Manifest) -> Manifest:
    """The manifest that an earlier capture left, or a new one."""
    if (path / MANIFEST).exists():
        return _read(path / MANIFEST, asked)
    return {**asked, "solera": version("solera"), "shards": [], "complete": False}


def _joined(whole: Manifest, parts: list[Manifest]) -> Manifest:
    """With the shards of the parts, those that it has already but once; what only a part knows (classes) added."""
    for part in parts:
        there = {entry["file"] for entry in whole["shards"]}
        new = [entry for entry in part["shards"] if entry["file"] not in there]
        whole = {**part, **whole, "shards": whole["shards"] + new}
    return whole


def gather_leftovers(path: Path, asked: Manifest) -> None:
    """Adds the parts of a run that died to the manifest: what they wrote is not lost, nor can it be joined twice."""
    files = sorted(path.glob(part_name("*")))
    whole = opened(path, asked)
    found = _joined(whole, [_read(file, asked) for file in files])
    if len(found["shards"]) > len(whole["shards"]):
        write_manifest(path / MANIFEST, KIND, VERSION, found)
    for file in files:
        file.unlink()


def _complete(file: Path) -> bool:
    return file.exists() and read_own_manifest(file)["complete"]


def join(path: Path, whole: Manifest, rank: int, world: int) -> None:
    """The first process waits for the others' parts and makes one manifest of all; they wait until theirs is in it."""
    if rank:
        await_process(0, path, lambda: not (path / part_name(rank)).exists())
        return
    files = [path / part_name(number) for number in range(world)]
    for number, file in enumerate(files):
        await_process(number, path, lambda file=file: _complete(file))
    found = _joined(whole, [read_own_manifest(file) for file in files])
    if not found["shards"]:
        raise nothing(path)
    kept = {key: value for key, value in found.items() if key not in ("kind", "version")}
    write_manifest(path / MANIFEST, KIND, VERSION, {**kept, "complete": True})
    forget_processes(path)  # before the parts: whoever finds its own gone may begin the next run at once
    for file in files:
        file.unlink()
