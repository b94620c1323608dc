"""A manifest and the files that it vouches for, replaced as one thing.

New files are written beside the old ones, as `.NAME.CHECKSUM.solera-next`. Then the manifest takes its name, by one
rename: from that moment on the new files count. Then they take their names. Whoever reads takes every file by the
checksum in the manifest, under either name, so that a kill at any moment leaves the old version or the new one, whole.
"""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from solera.core.disk import (
    Content,
    in_turn,
    inside,
    read_checked,
    read_json,
    read_manifest,
    remove_leftovers,
    sync_folder,
    write_bytes,
    write_manifest,
)
from solera.core.errors import DamagedFileError
from solera.core.schema import require_form

NEXT = ".solera-next"


def _beside(path: Path, checksum: str) -> Path:
    """Where a file waits for its manifest."""
    return path.with_name(f".{path.name}.{checksum[:16]}{NEXT}")


def _places(folder: Path, files: Iterable[str]) -> set[Path]:
    """The folder, and those in it that hold some of its files."""
    return {folder, *(inside(folder, name).parent for name in files)}


def _waiting(folder: Path, files: Iterable[str]) -> list[Path]:
    """All files that wait for their names, or were left waiting."""
    return [path for place in _places(folder, files) for path in place.glob(f".*{NEXT}")]


def _settle(folder: Path, files: Mapping[str, str]) -> None:
    """Gives waiting files that count their names, and removes those that a kill left behind. Only in turn."""
    with suppress(OSError):  # a read-only disk: readers find the files under either name
        for name, checksum in files.items():
            path = inside(folder, name)
            if _beside(path, checksum).is_file():
                _beside(path, checksum).replace(path)
                sync_folder(path.parent)
        for left in _waiting(folder, files):
            left.unlink()
        for place in _places(folder, files):
            remove_leftovers(place)


def write_version(
    manifest: Path,
    kind: str,
    version: int,
    content: Mapping[str, Any],
    files: Mapping[str, Iterable[Content]],
    kept: Mapping[str, str] | None = None,
) -> None:
    """Replaces the manifest and its files at once; call it while it is your turn (`in_turn`).

    `files` are the new ones, each in parts; `kept` are the checksums of those that stay as they are. The manifest gets
    the checksums of all as `files`.
    """
    folder, before = manifest.parent, _files_of(manifest)
    sums = dict(kept or {})
    for name, parts in files.items():
        parts, digest = list(parts), hashlib.sha256()
        for part in parts:
            digest.update(part)
        sums[name] = digest.hexdigest()
        write_bytes(_beside(inside(folder, name), sums[name]), *parts)
    write_manifest(manifest, kind, version, {**content, "files": sums})
    _settle(folder, sums)
    for name in before.keys() - sums.keys():  # files of the version before that this one has not
        if _is_own(inside(folder, name), before[name]):
            inside(folder, name).unlink()


def _is_own(path: Path, checksum: str) -> bool:
    """Whether a file is the one that a manifest vouches for; anybody may have put another name there."""
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == checksum


def _files_of(manifest: Path) -> dict[str, str]:
    """The files of the version that is there, as far as it can be read."""
    if not manifest.is_file():
        return {}
    try:
        files = read_json(manifest).get("files", {})
        require_form(manifest, files, {str: str}, "files")
    except ValueError:
        return {}
    return files


def read_version(
    manifest: Path, kind: str, version: int, unchecked: Iterable[str] = ()
) -> tuple[dict[str, Any], dict[str, bytearray]]:
    """A manifest and what its files hold, of one version, whoever replaces it meanwhile.

    `unchecked` files may have been edited since: they are left out.
    """
    folder = manifest.parent
    try:
        found = _read(manifest, kind, version, set(unchecked))
    except DamagedFileError:
        with in_turn(folder, reading=True):  # perhaps it was just being replaced
            found = _read(manifest, kind, version, set(unchecked))
    if _waiting(folder, found[0].get("files", {})):
        with suppress(OSError), in_turn(folder, wait=False):  # OSError: somebody writes there, or nobody may
            _settle(folder, _files_of(manifest))
    return found


def _read(manifest: Path, kind: str, version: int, unchecked: set[str]) -> tuple[dict[str, Any], dict[str, bytearray]]:
    body, folder = read_manifest(manifest, kind, version), manifest.parent
    require_form(manifest, body, {"files?": {str: str}})
    sums = body.get("files", {})
    paths = {name: inside(folder, name) for name in sums}
    _require_one_name_each(manifest, paths)
    return body, {name: _part(paths[name], sums[name]) for name in sums if name not in unchecked}


def _require_one_name_each(manifest: Path, paths: Mapping[str, Path]) -> None:
    """One file under many names would be read as often."""
    known: set[Path] = set()
    for name, path in paths.items():
        if path.resolve() in known or name != path.relative_to(manifest.parent).as_posix():
            raise DamagedFileError(f"{manifest} names the file {name!r}: give each file once, by its plain name")
        known.add(path.resolve())


def _part(path: Path, checksum: str) -> bytearray:
    """A file by its checksum: under its own name, or where it waits for that."""
    try:
        return read_checked(path, checksum)
    except DamagedFileError:
        waiting = _beside(path, checksum)
        if not waiting.is_file():
            raise
        return read_checked(waiting, checksum)


def require_own(manifest: Path, kind: str, names: Iterable[str], known: Iterable[str] = ()) -> None:
    """Refuses to write over files of others: those under a name of ours that no manifest of ours vouches for.

    `known` are ours without a manifest.
    """
    folder, ours = manifest.parent, set(known)
    if manifest.exists():
        try:
            own = read_json(manifest).get("kind") == kind
        except ValueError:
            own = False
        if not own:
            raise _strange(manifest, kind)
        ours = set(_files_of(manifest)) or set(names)  # an earlier Solera's has no list
    for name in names:
        if name not in ours and (folder / name).exists():
            raise _strange(folder / name, kind)


def _strange(path: Path, kind: str) -> ValueError:
    article = "an" if kind[0] in "aeiou" else "a"
    return ValueError(
        f"{path} is not from {article} {kind} of Solera's and would be lost: choose another folder, or move it away"
    )
