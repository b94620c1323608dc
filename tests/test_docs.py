"""The code blocks of the documentation, run as they stand."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
NEEDS = {"Lightning": "pytorch_lightning", "Hugging Face Trainer": "accelerate"}


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


@pytest.mark.parametrize("page", ["dirichlet-mixture", "logistic-normal"])
def test_the_example_of_a_richer_law_runs(page, capsys):
    scope = {}
    (code,) = [code for _, code in blocks(f"methods/{page}.md")]
    exec(compile(code, page, "exec"), scope)
    assert scope["said"].knowledge.min() > 0
    assert "tensor" in capsys.readouterr().out


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
