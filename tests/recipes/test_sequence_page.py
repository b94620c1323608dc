"""What the pages of `translation` and `speech` say of the skill that a student kept."""

import numpy as np
import pytest

from solera.evaluation import Evaluation
from solera.recipes.page import judged_cell
from solera.recipes.sequence_page import skill_kept, told_as_wanted
from solera.tasks import Translation


def evaluation(own, theirs, spread=0.01):
    """AUROCs of a student and its ensemble, by knowledge alone, and draws about them."""
    steps = spread * np.linspace(-1, 1, 41)
    rows = {name: {"OOD French knowledge": value} for name, value in (("SEnD²", own), ("ensemble", theirs))}
    draws = {name: {"OOD French knowledge": row["OOD French knowledge"] + steps} for name, row in rows.items()}
    return Evaluation(Translation(), rows, {}, draws=draws)


def test_skill_is_above_chance_and_judged_by_its_paired_interval():
    by_knowledge, by_rmi = skill_kept(evaluation(0.88, 0.90), ["French"]).splitlines()[2:]
    steps = 0.01 * np.linspace(-1, 1, 41)
    low, high = np.quantile((0.38 + steps) / (0.40 + steps), [0.025, 0.975])
    assert by_knowledge == f"| knowledge | **Held** 95.0 ({100 * low:.1f} to {100 * high:.1f}) |"
    assert by_rmi == "| RMI | – |"


@pytest.mark.parametrize(
    ("own", "word"), [(0.79, "Not held"), (0.8201, "Held by the mean, not surely"), (0.86, "Held")]
)
def test_four_fifths_of_it_must_be_sure(own, word):
    assert f"| knowledge | **{word}** " in skill_kept(evaluation(own, 0.90, spread=0.05), ["French"])


def test_an_ensemble_without_skill_has_none_to_keep():
    assert "| knowledge | – |" in skill_kept(evaluation(0.6, 0.5), ["French"])
    assert "| knowledge | – |" in skill_kept(evaluation(0.6, 0.9), ["news"])


def test_each_model_is_held_to_what_was_wanted_of_it():
    found = evaluation(0.88, 0.90)
    _, _, total, knowledge, _ = told_as_wanted(
        found, [("ensemble", "French", 0.895), ("SEnD²", "French", 0.8)]
    ).splitlines()
    assert total == "| total | – | – |"
    first, second = knowledge.removeprefix("| knowledge | ").removesuffix(" |").split(" | ")
    assert first.startswith("**Held by the mean, not surely** 90.0 (89.1 to 91.0)")
    assert second.startswith("**Held** 88.0 (87.1 to 88.9)")


def test_a_cell_has_the_word_and_the_numbers():
    assert judged_cell(-0.001, 0.002, 0.005, -0.003) == "**Held** +0.2 (-0.1 to +0.5)"
    assert judged_cell(-0.5, 0.25, 1, 0, 1, 2) == "**Held by the mean, not surely** +0.25 (-0.50 to +1.00)"
