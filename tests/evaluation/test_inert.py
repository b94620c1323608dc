"""Files for people: no name in them runs, links or fetches anything, and nobody's file is lost."""

import base64
import csv
import hashlib
import json
import re

import pytest

from solera.core.disk import write_manifest
from solera.core.errors import DamagedFileError
from solera.evaluation import Evaluation, report
from solera.evaluation.columns_csv import quoted, unquoted
from solera.evaluation.evaluation import KIND, VERSION
from solera.evaluation.report_html import page
from tests.evaluation.contents import made_up
from tests.evaluation.made_up import class_answers, evaluated

FORMULAS = ("=cmd()", "+1", "-1", "@SUM(A1)", "\tx", "'quoted", "plain", "")


def renamed_models():
    models, inputs, labels = class_answers()
    names = dict(zip(models, ("=1+1", "ensemble", "@SUM(1)", "-x"), strict=True))
    return {names[name]: said for name, said in models.items()}, inputs, labels


@pytest.mark.parametrize("text", FORMULAS)
def test_a_name_comes_back_as_it_was(text):
    assert unquoted(quoted(text)) == text
    assert not quoted(text).startswith(("=", "+", "-", "@", "\t"))


def test_no_cell_of_a_table_is_a_formula(tmp_path):
    result = evaluated(renamed_models(), resamples=3)
    folder = result.save(tmp_path)
    for name in ("columns.csv", "resamples.csv"):
        for line in csv.reader((folder / name).read_text().splitlines()):
            for cell in line:
                assert not cell.startswith(("=", "+", "@", "\t")), (name, cell)
                assert not cell.startswith("-") or float(cell) <= 0
    again = Evaluation.load(folder)
    assert again.rows.keys() == result.rows.keys()
    assert again.draws.keys() == result.draws.keys()


def test_the_page_may_run_its_own_scripts_and_nothing_else():
    text = page(made_up())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#39;", "'")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert "unsafe" not in rules["script-src"]
    for script in re.findall(r"<script>(.*?)</script>", text, flags=re.S):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in rules["script-src"]


def test_an_evaluation_is_replaced_as_one_thing_and_files_of_others_stay(tmp_path):
    folder = evaluated(class_answers(0)).save(tmp_path / "evaluation")
    second = evaluated(class_answers(1))
    second.save(folder)
    assert sorted(file.name for file in folder.iterdir()) == ["columns.csv", "metrics.json", "resamples.csv"]
    assert Evaluation.load(folder).rows == second.rows
    for name in ("columns.csv", "metrics.json", "resamples.csv"):
        place = tmp_path / f"of others {name}"
        place.mkdir()
        (place / name).write_text("mine")
        with pytest.raises(ValueError, match=f"{name} is not from an evaluation of Solera's and would be lost"):
            second.save(place)
        assert (place / name).read_text() == "mine"


def test_a_report_leaves_the_json_of_others_alone(tmp_path):
    result = evaluated(class_answers())
    (tmp_path / "report.json").write_text('{"mine": 1}')
    with pytest.raises(ValueError, match=r"report\.json is not from a report and would be lost"):
        report(result, tmp_path / "report.html")
    assert (tmp_path / "report.json").read_text() == '{"mine": 1}'
    (tmp_path / "report.json").unlink()
    report(result, tmp_path / "report.html")
    report(result, tmp_path / "report.html")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["report.html", "report.json"]


HOSTILE = {
    "no task": lambda body: body.pop("task"),
    "a task of a text": lambda body: body.update(task="classification"),
    "an unknown task": lambda body: body.update(task={"name": "none"}),
    "a task with more": lambda body: body["task"].update(no=1),
    "kinds of numbers": lambda body: body["kinds"].update(total=3),
    "unknown kinds": lambda body: body["kinds"].update(total="float31"),
    "kinds of objects": lambda body: body["kinds"].update(total="O"),
    "no kinds": lambda body: body.update(kinds={}),
    "costs of a list": lambda body: body.update(costs=[]),
    "costs with more": lambda body: body.update(costs={"Dirichlet": {"no": 1}}),
    "a reference that is not there": lambda body: body.update(reference="nobody"),
    "students of a text": lambda body: body.update(students="Dirichlet"),
    "examples of texts": lambda body: body.update(examples=["x"]),
    "files elsewhere": lambda body: body["files"].update({"../secret": "0" * 64}),
    "no files": lambda body: body.pop("files"),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_evaluation_is_one_line_that_names_the_file(saved, change):
    body = json.loads((saved / "metrics.json").read_bytes())
    before = (saved / "metrics.json").read_bytes()
    body = {key: value for key, value in body.items() if key not in ("kind", "version", "sha256")}
    change(body)
    try:
        write_manifest(saved / "metrics.json", KIND, VERSION, body)
        with pytest.raises(DamagedFileError, match=str(saved)) as caught:
            Evaluation.load(saved)
    finally:
        (saved / "metrics.json").write_bytes(before)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return evaluated(class_answers()).save(tmp_path_factory.mktemp("evaluation"))
