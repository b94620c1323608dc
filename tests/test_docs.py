"""The code blocks of the documentation, run as they stand."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from solera import methods
from solera.tasks import infer
from tests.doc_scopes import SCOPES

DOCS = Path(__file__).parents[1] / "docs"
NEEDS = {"Lightning": "pytorch_lightning", "Hugging Face Trainer": "accelerate"}
PARTS = ["When to choose it", "The equation", "Example", "Limits", "Results"]


def blocks(page):
    """(title of the section, code) for every block of Python."""
    for section in re.split(r"^## ", (DOCS / page).read_text(), flags=re.M):
        for code in re.findall(r"^```python\n(.*?)^```", section, flags=re.M | re.S):
            yield section.splitlines()[0], code


@pytest.mark.parametrize(("title", "code"), [pytest.param(*b, id=b[0]) for b in blocks("your-own-loop.md")])
def test_losses_in_somebody_elses_loop(title, code, tmp_path, monkeypatch):
    if title in NEEDS:
        pytest.importorskip(NEEDS[title])
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(compile(code, title, "exec"), scope)
    if title == "Plain PyTorch":
        assert (
            scope["loss"].item()
            < scope["proxy_dirichlet_loss"](scope["MLP"](4, 3)(scope["x"]), scope["members"]).mean()
        )
    else:
        assert scope["trainer"].state.global_step == 4 if title != "Lightning" else scope["trainer"].global_step == 8
    assert len([line for line in code.splitlines() if line.strip()]) < 25


def test_tagging_from_a_file_to_entities(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope = {}
    code = next(code for _, code in blocks("tagging.md"))
    exec(compile(code, "tagging.md", "exec"), scope)
    assert "Bob Smith PER 0 9" in capsys.readouterr().out
    assert scope["result"].rows["student"]["F1"] == 1


def method_pages():
    """The page of every public method is called as its module is."""
    kinds = [getattr(methods, name) for name in methods.__all__]
    kinds = [kind for kind in kinds if isinstance(kind, type) and kind is not methods.Method]
    return [kind.__module__.split(".")[-1].replace("_", "-") for kind in kinds]


@pytest.mark.parametrize("page", method_pages())
def test_every_method_has_a_page_with_the_same_parts(page):
    text = (DOCS / "methods" / f"{page}.md").read_text()
    titles = [title for title in re.findall(r"^## (.*)$", text, re.M) if title in PARTS]
    assert titles == PARTS
    assert f"methods/{page}.md" in (DOCS.parent / "mkdocs.yml").read_text()
    assert "](../results/" in text.split("## Results")[1]
    assert len([code for _, code in blocks(f"methods/{page}.md")]) == 1


def test_the_default_method_comes_first():
    listed = re.findall(r"methods/(\S+)\.md", (DOCS.parent / "mkdocs.yml").read_text())
    assert listed[0] == "proxy-dirichlet"
    assert set(listed) == {*method_pages(), "perturbations"}


@pytest.mark.parametrize("page", [*method_pages(), "perturbations"])
def test_the_example_of_a_method_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope = {}
    (code,) = [code for _, code in blocks(f"methods/{page}.md")]
    exec(compile(code, page, "exec"), scope)
    printed = capsys.readouterr().out
    if "# familiar, unfamiliar" in code:
        familiar, unfamiliar = json.loads(printed.splitlines()[-1])
        assert unfamiliar > 3 * familiar
    if "said" in scope and hasattr(scope["said"], "knowledge"):
        assert scope["said"].knowledge.min() > 0


def test_scikit_learn_from_a_vote_to_a_student(tmp_path, monkeypatch, short_rounds, capsys):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for title, code in blocks("scikit-learn.md"):
        exec(compile(code, title, "exec"), scope)
    assert scope["model"].student_.preprocessing.categories["job"] == ["cook", "nurse", "pilot"]
    student, ensemble = map(float, capsys.readouterr().out.splitlines()[0].split())
    assert student > 0.85
    assert ensemble > 0.85
    assert scope["said"].knowledge.shape == scope["said"].total.shape == (45,)
    assert (tmp_path / "members" / "model.safetensors").exists()


def run_page(page, scope):
    for title, code in blocks(page):
        shorter = code.replace("epochs=60,", "epochs=6,")  # it shows that the code runs, not how good the student is
        exec(compile(shorter, f"{page}, {title}", "exec"), scope)
    return scope


# pages with a test of their own
ELSEWHERE = {"your-own-loop.md", "tagging.md", "scikit-learn.md", "serve.md", "adding-a-task.md"}


@pytest.mark.parametrize("page", sorted(SCOPES))
def test_every_block_of_a_page_runs(page, tmp_path, monkeypatch, short_rounds):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    run_page(page, SCOPES[page]())


def test_no_page_with_code_is_left_out():
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if "\n```python\n" in path.read_text()}
    assert {page for page in pages if not page.startswith("methods/")} == SCOPES.keys() | ELSEWHERE


def test_a_new_task_is_found_by_its_name(monkeypatch):
    monkeypatch.setattr(infer, "TASKS", {})
    assert run_page("adding-a-task.md", {})["Ordinal"] is infer.TASKS["ordinal"]


def test_the_site_is_built_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Dirichlet.knowledge" in (tmp_path / "site" / "api" / "distributions" / "index.html").read_text()


def test_the_overview_of_results_is_of_the_pages_as_they_are():
    tool = runpy.run_path(str(DOCS.parent / "tools" / "results_index.py"))
    there = {page.name for page in (DOCS / "results").glob("*.md")} - {"index.md"}
    assert {page.name for page in tool["pages"]()} == there
    assert (DOCS / "results" / "index.md").read_text() == tool["index"](), "run python tools/results_index.py"
