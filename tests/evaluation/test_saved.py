"""An evaluation on disk: the same when read back, plain to others, and refused when it is not whole."""

import json

import numpy as np
import pandas
import pytest
import torch

from solera.core.errors import DamagedFileError
from solera.distributions import Categorical, Mixture
from solera.evaluation import Evaluation, evaluate
from solera.evaluation.report_data import content
from tests.evaluation.made_up import class_answers, evaluated, real_answers


def sequences():
    """Three tokens an example."""
    said = {
        "test": Mixture(Categorical(torch.randn(40, 3, 4, 5))),
        "far": Mixture(Categorical(torch.randn(20, 3, 4, 5))),
    }
    student = {name: Categorical(p.members.logits[..., 0, :]) for name, p in said.items()}
    x = {"test": torch.zeros(40, 3), "far": torch.zeros(20, 3)}
    return {"ensemble": said, "student": student}, x, torch.randint(5, (40, 3))


@pytest.mark.parametrize("answers", [class_answers, real_answers, lambda: real_answers(2), sequences])
def test_what_is_read_back_is_what_was_saved(tmp_path, answers):
    result = evaluated(answers(), resamples=5)
    again = Evaluation.load(result.save(tmp_path / "evaluation"))
    assert again.columns.keys() == result.columns.keys()
    for model, sets in result.columns.items():
        assert again.columns[model].keys() == sets.keys()
        for name, columns in sets.items():
            assert again.columns[model][name].keys() == columns.keys()
            for key, column in columns.items():
                read = again.columns[model][name][key]
                assert read.dtype == column.dtype
                assert np.array_equal(read, column), (model, name, key)
    assert np.array_equal(again.target, result.target)
    assert again.students == result.students
    assert content(again) == content(result)


def test_others_read_the_table(tmp_path):
    result = evaluated(class_answers(), resamples=5, class_names=["a", "b", "c", "d"])
    folder = result.save(tmp_path)
    table = pandas.read_csv(folder / "columns.csv")
    assert len(table) == 5 * 420  # the calibrated single, too
    own = table[(table.model == "Dirichlet") & (table.set == "test")]
    assert own.example.tolist() == list(range(300))
    assert own.correct.mean() == pytest.approx(result.rows["Dirichlet"]["accuracy"])
    assert ((own.predicted == own.target) == own.correct).all()
    assert table[table.model == "EnD²"].knowledge.isna().all()
    resamples = pandas.read_csv(folder / "resamples.csv")
    assert len(resamples) == 5 * 5
    metrics = json.loads((folder / "metrics.json").read_text())
    student = next(model for model in metrics["models"] if model["name"] == "Dirichlet")
    accuracy = result.interval("Dirichlet", "accuracy")
    assert student["metrics"]["accuracy"] == pytest.approx(
        {"value": accuracy.value, "low": accuracy.low, "high": accuracy.high}, rel=1e-4
    )
    assert student["difference"]["NLL"]["value"] == pytest.approx(
        result.difference("Dirichlet", "ensemble", "NLL").value, rel=1e-4
    )
    assert metrics["labels"] == ["a", "b", "c", "d"]


def test_infinite_numbers_survive(tmp_path):
    sure = {"test": Categorical(torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]))}
    result = evaluate({"student": sure}, torch.zeros(2, 1), torch.tensor([1, 0]))
    assert Evaluation.load(result.save(tmp_path)).rows["student"]["NLL"] == np.inf
    json.dumps(content(result), allow_nan=False)


def test_what_is_not_whole_is_refused_by_name(tmp_path):
    folder = evaluated(class_answers()).save(tmp_path / "evaluation")
    with pytest.raises(FileNotFoundError, match="holds no evaluation"):
        Evaluation.load(tmp_path)
    table = folder / "columns.csv"
    whole = table.read_bytes()
    table.write_bytes(whole.replace(b"0", b"1", 1))
    with pytest.raises(DamagedFileError, match=r"columns\.csv is damaged"):
        Evaluation.load(folder)
    table.unlink()
    with pytest.raises(DamagedFileError, match=r"columns\.csv is missing"):
        Evaluation.load(folder)
    manifest = (folder / "metrics.json").read_text()
    (folder / "metrics.json").write_text(manifest[:-40])
    with pytest.raises(DamagedFileError, match=r"metrics\.json is damaged"):
        Evaluation.load(folder)
    (folder / "metrics.json").write_text('{"accuracy": 1}')
    with pytest.raises(ValueError, match=r"holds no evaluation: its metrics\.json is not one that Solera wrote"):
        Evaluation.load(folder)
