"""`solera data`: every file that a study reads is listed, with where it comes from, and is known by its content."""

import re
from dataclasses import fields
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from solera.cli.main import app
from solera.recipes import find, names
from solera.recipes.data_sets import SETS, checksums, state, states
from tests.recipes.test_many_classes import DATA, needs_data

ROOT = Path(__file__).parents[2]


def test_every_file_belongs_to_one_set_and_every_study_is_there():
    assert sorted(path for one in SETS for path in one.paths) == sorted(checksums())
    told = {study for one in SETS for study in one.studies.split(", ")}
    reading = {n for n in names() if find(n).study and "data" in {f.name for f in fields(find(n))}}
    assert told == reading


def test_the_page_has_every_set():
    page = (ROOT / "docs" / "data-sets.md").read_text()
    for one in SETS:
        assert f"| {one.name} | `{one.files}` | {one.holds} | {one.source} | {one.studies} |" in page


def test_a_file_is_whole_missing_or_another(tmp_path, monkeypatch):
    path = "tabular/letter.npz"
    assert state(tmp_path, path) == "missing"
    (tmp_path / "tabular").mkdir()
    (tmp_path / path).write_text("other")
    assert state(tmp_path, path) == "other"
    monkeypatch.setitem(checksums(), path, sha256(b"other").hexdigest())
    assert state(tmp_path, path) == "whole"
    said = CliRunner().invoke(app, ["data", str(tmp_path)]).stdout
    assert "there  Letter, for headline, tabular" in said
    assert re.search(r"missing  Satellite.*\n +from Debian package r-cran-mlbench", said)
    assert f"solera: {len(SETS) - 1} data sets are not whole" in said


def test_a_folder_that_is_not_there_is_named():
    assert "there is no folder nowhere" in str(CliRunner().invoke(app, ["data", "nowhere"]).exception)


@pytest.mark.data
@needs_data
def test_the_data_beside_the_project_are_the_ones_the_studies_were_made_with():
    wrong = {one.name: found for one, found in states(DATA) if found["missing"] or found["other"]}
    assert not wrong
