"""What is installed is what was looked at: every package has hashes, a version and a licence."""

import json
import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements.lock", "requirements-torch.lock", "requirements-uv.lock")
LICENCES = runpy.run_path(str(ROOT / "tools" / "licences.py"))
SPLIT = runpy.run_path(str(ROOT / "tools" / "lock.py"))["split"]


def test_every_package_of_the_locks_has_a_version_and_hashes():
    found = LICENCES["locked"]("".join((ROOT / name).read_text() for name in LOCKS))
    assert len(found) > 100
    assert all(hashes for _, hashes in found.values())
    assert {"torch", "uv", "hatchling", "editables", "numpy"} <= found.keys()
    chosen = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.in").read_text(), flags=re.M))
    assert {name: found[name][0] for name in chosen if name in found} == {n: v for n, v in chosen.items() if n in found}


def test_torch_stands_alone_with_the_hashes_of_all_its_builds():
    a, b, c = ("--hash=sha256:" + letter * 64 for letter in "abc")
    entry = f"torch==2.0+cpu \\\n    {b}\n    # via\n    #   -c .lock-constraints\n"
    resolved = f"attrs==1 \\\n    {a}\n{entry}torchx==1 \\\n    {a}\n"
    rest, torch = SPLIT(resolved, f"torch==2.0 \\\n    {c}\n")
    assert rest == f"attrs==1 \\\n    {a}\ntorchx==1 \\\n    {a}\n"
    assert torch == f"torch==2.0 \\\n    {b} \\\n    {c}\n"


def test_the_bill_of_materials_names_every_package(tmp_path, capsys):
    LICENCES["main"](str(tmp_path), *(str(ROOT / name) for name in LOCKS))
    bill = json.loads((tmp_path / "sbom.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    numpy = next(entry for entry in bill["components"] if entry["name"] == "numpy")
    assert numpy["purl"] == f"pkg:pypi/numpy@{numpy['version']}"
    assert "BSD" in numpy["licenses"][0]["license"]["name"]
    listed = (tmp_path / "licences.md").read_text()
    assert all(f"| {entry['name']} | {entry['version']} |" in listed for entry in bill["components"])
