"""Texts with some words exchanged: which, for what, and what stays."""

import pytest
import torch

from solera import Batches
from solera.core.seeds import generator
from solera.data import UNLABELLED, Augmented, Views
from solera.data.augment import InTurn, OneOf, Plain
from solera.data.text_views import Reword

TEXTS = torch.randint(1, 50, (200, 12), generator=generator(0))
TEXTS[::3, 8:] = 0  # padding


def test_words_are_exchanged_by_their_frequency_and_padding_stays():
    table = torch.tensor([[0, 7, 7, 7, 9, 0]])
    seen = Reword(table, share=0.25)(TEXTS, generator(1))
    assert torch.equal(seen == 0, TEXTS == 0)
    new = seen[(seen != TEXTS)]
    assert set(new.tolist()) == {7, 9}
    assert float((new == 7).float().mean()) == pytest.approx(0.75, abs=0.05)
    assert len(new) / int((TEXTS != 0).sum()) == pytest.approx(0.25, abs=0.03)


def test_separators_stay_too_and_the_generator_alone_decides():
    view = Reword(TEXTS, share=0.9, kept=(0, 1, 2))
    first, again, other = (view(TEXTS, generator(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    special = TEXTS < 3
    assert torch.equal(first[special], TEXTS[special])
    assert int(first[~special].min()) > 2


def test_of_a_tokenizers_answer_the_ids_are_changed_and_the_label_no_longer_counts():
    mask = (TEXTS > 0).long()
    batches = Batches({"input_ids": TEXTS, "attention_mask": mask}, torch.arange(200) % 3, batch_size=50)
    for shown in (Augmented(batches, Reword(TEXTS)).shuffled(0), Views(batches, Reword(TEXTS), 2)):
        for batch in shown:
            plain = TEXTS[batch.index // (2 if isinstance(shown, Views) else 1)]
            assert torch.equal(batch.inputs["attention_mask"], (plain > 0).long())
            changed = (batch.inputs["input_ids"] != plain).any(1)
            assert int(changed.sum()) > 0
            assert torch.equal(batch.target == UNLABELLED, changed)


def test_one_of_several_and_one_after_another():
    half = OneOf(Plain(), Reword(TEXTS, 0.5))(TEXTS, generator(2))
    assert 0.3 < float((half != TEXTS).any(1).float().mean()) < 0.7
    twice = InTurn(Reword(TEXTS, 0.5), Reword(TEXTS, 0.5))(TEXTS, generator(2))
    assert float((twice != TEXTS)[TEXTS > 0].float().mean()) == pytest.approx(0.75 * 48 / 49, abs=0.05)


def test_errors():
    with pytest.raises(ValueError, match=r"Reword changes token ids, the inputs are torch.float32"):
        Reword(TEXTS)(torch.randn(3, 4), generator(0))
    with pytest.raises(ValueError, match="the table holds the kept ids"):
        Reword(torch.zeros(3, 4, dtype=torch.long))
