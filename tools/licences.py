"""`make licences`: every package of the lock with its licence, as a list for people and as an SBOM for machines.

Reads what the installed packages say of themselves; asks nobody. The SBOM is CycloneDX 1.6, with the hashes locked.
"""

import json
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.M)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_CLASSIFIER = "License :: OSI Approved :: "


def locked(text: str) -> dict[str, tuple[str, list[str]]]:
    """Versions and hashes by the names of packages, as the lock has them."""
    found = {}
    for entry in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.M):
        if match := _REQUIREMENT.match(entry):
            found[match[1]] = (match[2], _HASH.findall(entry))
    return found


def licence_of(package: Distribution) -> str:
    """The expression, else the classifiers, else the first line of the text; nothing where it says nothing."""
    about = package.metadata
    if expression := about.get("License-Expression"):
        return expression
    names = [c.removeprefix(_CLASSIFIER) for c in about.get_all("Classifier") or [] if c.startswith(_CLASSIFIER)]
    if names:
        return " OR ".join(names)
    text = (about.get("License") or "").strip()
    return text.splitlines()[0][:80] if text else ""


def packages(lock: str) -> list[dict[str, Any]]:
    """All of the lock, by name; a package that is not installed here has no licence."""
    found = []
    for name, (version, hashes) in sorted(locked(lock).items()):
        try:
            licence = licence_of(distribution(name))
        except PackageNotFoundError:
            licence = ""
        found.append({"name": name, "version": version, "licence": licence, "hashes": hashes})
    return found


def sbom(found: list[dict[str, Any]]) -> dict[str, Any]:
    """CycloneDX 1.6; without a date or a random number, so that the same lock gives the same file."""
    components = []
    for package in found:
        entry = {
            "type": "library",
            "name": package["name"],
            "version": package["version"],
            "purl": f"pkg:pypi/{package['name'].lower().replace('_', '-')}@{package['version']}",
        }
        entry["bom-ref"] = entry["purl"]
        if package["hashes"]:
            # of a package's several files: any one of them may be what is installed
            entry["properties"] = [{"name": "lock:sha256", "value": digest} for digest in package["hashes"]]
        if package["licence"]:
            entry["licenses"] = [{"license": {"name": package["licence"]}}]
        components.append(entry)
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}


def listed(found: list[dict[str, Any]]) -> str:
    """A table in Markdown."""
    lines = [f"| {p['name']} | {p['version']} | {p['licence'] or 'not stated'} |" for p in found]
    return "\n".join(["# Licences", "", "| package | version | licence |", "|---|---|---|", *lines, ""])


def main(folder: str, *locks: str) -> None:
    found = packages("".join(Path(lock).read_text() for lock in locks))
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    (place / "licences.md").write_text(listed(found))
    (place / "sbom.json").write_text(json.dumps(sbom(found), indent=1) + "\n")
    unknown = [package["name"] for package in found if not package["licence"]]
    print(f"{len(found)} packages: {place / 'licences.md'}, {place / 'sbom.json'}")
    if unknown:
        print(f"no licence is stated by {', '.join(unknown)}: look at their sources")


if __name__ == "__main__":
    main(*sys.argv[1:])
