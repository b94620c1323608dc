"""Sequences of many lengths: padded little, dealt out alike, remembered under any padding."""

import numpy as np
import pytest
import torch
from torch import nn

from solera import EnD, Ensemble, Student, Training, TransferSet, capture, distill, evaluate, train_ensemble
from solera.data import Batch, Sequences
from solera.teachers.base import row_fingerprints


def texts(count=60, seed=0):
    random = np.random.default_rng(seed)
    lengths = random.integers(2, 25, count)
    return [random.integers(1, 9, n) for n in lengths], [random.integers(0, 3, n) for n in lengths]


def test_every_sequence_once_within_the_budget_and_little_padding():
    inputs, target = texts(600)
    batches = Sequences(inputs, target, tokens=256)
    assert batches.padding_share < 0.1
    for dealt in (list(batches), list(batches.shuffled(1, 0)), list(batches.shuffled(1, 1))):
        assert len(dealt) == len(batches)
        assert sorted(torch.cat([b.index for b in dealt]).tolist()) == list(range(600))
        for batch in dealt:
            assert batch.inputs.numel() <= 256
            for row, index in enumerate(batch.index.tolist()):
                length = len(inputs[index])
                assert batch.inputs[row, :length].tolist() == inputs[index].tolist()
                assert batch.target[row, :length].tolist() == target[index].tolist()
                assert batch.weight[row].tolist() == [1.0] * length + [0.0] * (batch.inputs.shape[1] - length)
                assert not batch.masks[row, length:].any()
    first, second = (torch.cat([b.index for b in batches.shuffled(1, epoch)]) for epoch in (0, 1))
    assert not torch.equal(first, second)
    assert torch.equal(first, torch.cat([b.index for b in batches.shuffled(1, 0)]))
    later = [b.index.tolist() for b in batches.shuffled(1, 0, start=2)]
    assert later == [b.index.tolist() for b in batches.shuffled(1, 0)][2:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: ([*x[:2], []], y), "sequence 2 is empty"),
        (lambda x, y: (x, [*y[:1], y[1][:1], *y[2:]]), "sequence 1 has .* tokens and 1 targets"),
        (lambda x, y: ([np.ones(3000, int), *x[1:]], [np.ones(3000, int), *y[1:]]), "sequence 0 has 3000 tokens"),
        (lambda x, y: (x, y[:2]), "lists of one length"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    inputs, target = texts(3)
    with pytest.raises(ValueError, match=message):
        Sequences(*change(inputs, target))


def test_dicts_padded_each_by_its_own_number():
    batch = Sequences(
        {"input_ids": [[5, 6, 7], [8]], "attention_mask": [[1, 1, 1], [1]]}, [1, 0], padding={"input_ids": 99}
    ).take([0, 1])
    assert batch.inputs["input_ids"].tolist() == [[5, 6, 7], [8, 99, 99]]
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.weight is None
    assert batch.target.tolist() == [1, 0]


def test_fingerprints_do_not_depend_on_the_padding_of_source_or_target():
    def pair(padding, width):
        source, target = Sequences(([[5, 6, 7], [8]], [[1, 2], [3]]), padding=padding).take([0, 1]).inputs, None
        del target
        extra = torch.full((2, width), padding)
        mask = torch.tensor([[True] * 3, [True, False, False]])
        wide = torch.cat([mask, torch.zeros(2, width, dtype=torch.bool)], 1)
        narrow = torch.tensor([[True, True], [True, False]])
        inputs = (torch.cat([source[0], extra], 1), source[1])
        # the weight has the shape of a source of three tokens: it says nothing about that
        return row_fingerprints(Batch(inputs, torch.arange(2), weight=torch.ones(2, 2), masks=(wide, narrow)))

    assert (pair(0, 0) == pair(99, 0)).all()
    assert (pair(99, 0) == pair(99, 4)).all()
    alike = Batch((torch.ones(2, 3), torch.ones(2, 3)), torch.arange(2), weight=torch.tensor([[1.0, 0, 0]] * 2))
    other = Batch((torch.ones(2, 3), 2 * torch.ones(2, 3)), torch.arange(2), weight=torch.tensor([[1.0, 0, 0]] * 2))
    third = Batch((torch.ones(2, 3), torch.tensor([[1.0, 2, 2]] * 2)), torch.arange(2), weight=alike.weight)
    assert (row_fingerprints(alike) != row_fingerprints(other)).all()
    assert (row_fingerprints(alike) != row_fingerprints(third)).all()  # once hidden behind the weight of the target


class Tagger(nn.Module):
    """Looks at a token and its neighbours."""

    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.out = nn.Embedding(9, 8), nn.Conv1d(8, 8, 3, padding=1), nn.Linear(8, 3)

    def forward(self, tokens):
        return self.out(self.mix(self.embed(tokens).mT).mT.relu())


def test_tags_learned_remembered_distilled_and_measured(tmp_path):
    inputs, _ = texts(80)
    target = [x % 3 for x in inputs]
    batches = Sequences(inputs, target, tokens=200)
    ensemble = train_ensemble(Tagger, batches, 2, Training(epochs=15, lr=2e-2))
    kept = capture(ensemble, batches, tmp_path / "kept", "mean")
    assert TransferSet(tmp_path / "kept").manifest["tokens"]
    other = Sequences(inputs, target, tokens=90, padding=3)  # other batches, other padding: the same sequences
    student = distill(kept, Tagger(), other, EnD(), Training(epochs=15, lr=2e-2))
    assert student.preprocessing.inputs[0].shape == ["tokens"]
    result = evaluate({"ensemble": ensemble, "student": student}, batches, resamples=10)
    assert result.rows["student"]["accuracy"] > 0.9
    assert len(result.columns["student"]["test"]["total"]) == sum(map(len, inputs))
    assert result.sizes["test"] == 80
    whole = torch.cat([student.predict(torch.tensor(x)[None]).mean[0].argmax(-1) for x in inputs])
    right = (whole == torch.cat([torch.tensor(y) for y in target])).float().mean()
    assert result.rows["student"]["accuracy"] == pytest.approx(right.item(), abs=0.02)  # padding at edges of a conv


def test_lists_of_sequences_need_no_class():
    inputs, target = texts(20)
    ensemble = Ensemble([Tagger(), Tagger()])
    student = Student(Tagger(), EnD())
    result = evaluate({"ensemble": ensemble, "student": student}, inputs, target)
    assert len(result.columns["student"]["test"]["total"]) == sum(map(len, inputs))
