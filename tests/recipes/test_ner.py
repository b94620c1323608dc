"""`solera run ner`: claims by their intervals, and, on a few real sentences, the whole way to the page."""

import numpy as np
import pytest

from solera.data import save_conll
from solera.recipes.base import Workspace
from solera.recipes.ner import Ner, Study
from solera.recipes.ner_page import SCORES, claim, page
from solera.recipes.ner_text import OUTSIDE, SAME, reworded
from solera.recipes.page import over_repeats
from tests.tasks.test_tagging import sentences


def found(*values):
    return {"A": [{"scores": {"F1": value}} for value in values]}


def test_a_claim_is_held_by_its_interval_by_its_mean_or_not_at_all():
    def above(limit):
        return lambda score: score("A", "F1") - limit

    sure = found(0.80, 0.81, 0.82)
    assert claim("x", sure, above(0.5)).startswith("- **Held**: x: +31.00 (+28.52 to +33.48)")
    assert claim("x", sure, above(0.8)).startswith("- **Held by the mean, not surely**")
    assert claim("x", sure, above(0.9)).startswith("- **Not held**")
    assert claim("x", found(0.9), above(0.5)).startswith("- **Held by the mean, not surely**: x: +40.00")


def test_intervals_are_students():
    """Against the table of Student's t: 4.303 standard errors for two degrees of freedom."""
    low, mean, high = over_repeats([1.0, 2.0, 3.0])
    assert mean == 2
    assert high - mean == pytest.approx(mean - low) == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert over_repeats([0.9]) == (-np.inf, 0.9, np.inf)  # one study says nothing of the spread


def test_types_of_other_sets_are_renamed_to_those_of_the_training_set():
    assert set(SAME.values()) == {"PER", "LOC", "ORG", "MISC"}


def test_the_page_has_every_model_and_says_how_many_studies_it_is_of(tmp_path):
    recipe = Ner(studies=3)
    sets = ["tweets", "news"]
    curve = {"reliability": [[0.1, 0.9], [0.2, 0.8]], "precision and recall": [[0.1, 0.9], [1.0, 0.8]]}
    scores = dict.fromkeys(SCORES, 0.5) | {f"F1 on {name}": 0.4 for name in sets}
    scores |= {"tweets total": 0.8, "tweets knowledge": 0.7, "news total": 0.5, "news knowledge": 0.51}
    rows = {name: [{"scores": scores, "figures": curve, "temperature": 1.1}] * 2 for name in recipe.models}
    text = page(recipe, rows, sets, Workspace(tmp_path, {}))
    assert all(f"| {name} |" in text for name in recipe.models)
    assert "2 studies of 3" in text
    assert "**Nothing to keep**: news: the ensemble's own AUROC is 51.0" in text
    assert "tweets: by total" in text
    assert (tmp_path / "ner.png").stat().st_size > 10_000


@pytest.fixture
def data(tmp_path):
    """Small files in the places of the real ones."""
    names = ["wikineural_de.val", "wikineural_de.test", *OUTSIDE["de"].values()]
    for number, name in enumerate(names):
        count = 60 if name == "wikineural_de.val" else 12
        save_conll(tmp_path / "ner" / f"{name}.conll.gz", sentences(count, seed=number))
    (tmp_path / "words").mkdir()
    listed = np.frombuffer(b"Ann\nRome", np.uint8)
    np.savez(tmp_path / "words" / "clusters_de.npz", words=listed, cluster=np.array([3, 5], np.uint32))
    return tmp_path


def test_a_study_from_files_to_scores(data, tmp_path):
    recipe = Ner(data=str(data), language="de", members=2, epochs=1, student_epochs=1)
    study = Study(recipe, tmp_path / "run", 0)
    assert study.ensemble("mixed").members == 2
    study.distil("5 IID")
    row = study.judged("5 IID → IID + labels")
    assert {"F1 on MobIE", "GermEval knowledge", "BS+"} <= set(row["scores"])
    assert "GermEval knowledge" not in study.judged("CRF")["scores"]  # one member has none
    assert study.text.held.index.tolist() == list(range(54, 60))  # the last tenth, a block
    assert study.text.train.index.tolist() == list(range(54))
    assert study.judged("5 IID → IID + labels, T")["temperature"] > 0


def test_copies_have_words_of_others_in_some_places_and_no_labels():
    known = sentences(200, seed=3)
    copies = reworded(known, seed=0)
    assert [len(copy.tokens) for copy in copies] == [len(sentence.tokens) for sentence in known]
    assert all(copy.tags is None for copy in copies)
    pairs = [pair for c, s in zip(copies, known, strict=True) for pair in zip(c.tokens, s.tokens, strict=True)]
    assert 0.1 < np.mean([one != other for one, other in pairs]) <= 0.35  # some are exchanged for the same word
    assert {one for one, _ in pairs} <= {other for _, other in pairs}
    assert reworded(known, seed=0) == copies != reworded(known, seed=1)
