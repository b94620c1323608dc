"""Data sets of others: torch's and Hugging Face's, with any collate function, workers and iterables."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SubsetRandomSampler, TensorDataset

from solera import Batches, EnD, Training, capture, distill, evaluate, fit, train_ensemble
from solera.data import Batch, Loader, as_batches
from solera.nn import MLP

X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


class Mapped(Dataset):
    """Examples as dicts; remembers what was read."""

    def __init__(self):
        self.read = []

    def __len__(self):
        return 50

    def __getitem__(self, place):
        self.read.append(place)
        return {"x": X[place], "label": int(Y[place])}


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(X, Y, strict=True)


def as_dict(examples):
    x, y = zip(*examples, strict=True)
    return {"inputs": torch.stack(x), "labels": torch.stack(y)}


def dealt(batches, epoch=0):
    found = list(batches.shuffled(5, epoch))
    index = torch.cat([batch.index for batch in found])
    return index, torch.cat([batch.inputs for batch in found]), torch.cat([batch.target for batch in found])


@pytest.mark.parametrize(
    "data",
    [
        TensorDataset(X, Y),
        Mapped(),
        DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True),
        DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True, collate_fn=as_dict),
        DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True, num_workers=2),
        DataLoader(TensorDataset(X, Y), batch_sampler=torch.utils.data.BatchSampler(RandomSampler(Y), 8, False)),
        DataLoader(TensorDataset(X, Y), batch_size=8),
    ],
    ids=["dataset", "dicts", "loader", "own collate", "workers", "own sampler", "in order"],
)
def test_every_example_once_with_its_index(data):
    batches = as_batches(data, batch_size=8)
    assert len(batches) == 7
    index, inputs, target = dealt(batches)
    assert sorted(index.tolist()) == list(range(50))
    assert torch.equal(inputs, X[index])
    assert torch.equal(target, Y[index])
    assert torch.equal(index, dealt(batches)[0])  # the seed decides
    later = torch.cat([batch.index for batch in batches.shuffled(5, 0, start=4)])
    assert torch.equal(later, index[32:])
    if not isinstance(data, DataLoader) or not isinstance(data.sampler, torch.utils.data.SequentialSampler):
        assert not torch.equal(index, dealt(batches, 1)[0])
    assert torch.equal(torch.cat([batch.index for batch in batches]), torch.arange(50))


def test_hugging_face_data_sets():
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"input_ids": [[1, 2], [3], [4, 5, 6]], "label": [0, 1, 0]})
    batch = next(iter(as_batches(made, batch_size=3)))
    assert batch.inputs["input_ids"].tolist() == [[1, 2, 0], [3, 0, 0], [4, 5, 6]]
    assert batch.target.tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="field 'text' of the data set holds 'hello'"):
        next(iter(as_batches(datasets.Dataset.from_dict({"text": ["hello"], "label": [0]}))))
    stream = made.to_iterable_dataset()
    with pytest.raises(ValueError, match=r"does not say how long it is: pass Loader\(data, steps=1000\)"):
        as_batches(stream)
    found = list(Loader(stream, batch_size=2, steps=3))
    assert [len(batch) for batch in found] == [2, 1, 2]


def test_an_iterable_starts_again_until_the_epoch_is_full():
    batches = Loader(DataLoader(Stream(), batch_size=20), steps=4)
    found = list(batches.shuffled(0, 0))
    assert [len(batch) for batch in found] == [20, 20, 10, 20]
    assert torch.equal(found[3].inputs, X[:20])
    assert torch.equal(torch.cat([b.index for b in found]), torch.arange(70))
    assert torch.equal(next(iter(batches.shuffled(0, 0, start=2))).inputs, X[40:])


def test_nothing_is_read_before_it_is_needed():
    data = Mapped()
    batches = as_batches(data, batch_size=8)
    assert data.read == []
    next(batches.shuffled(0, 0))
    assert len(data.read) == 8
    data.read.clear()
    next(batches.shuffled(0, 0, start=5))
    assert len(data.read) == 8  # not those before


def test_the_whole_way_with_a_loader(tmp_path):
    loader = DataLoader(TensorDataset(X, Y), batch_size=10, shuffle=True)
    training = Training(epochs=8, lr=2e-2)
    ensemble = train_ensemble(lambda: MLP(3, 2, (8,)), loader, 2, training)
    kept = capture(ensemble, loader, tmp_path / "kept")
    assert len(kept) == 50
    student = distill(kept, MLP(3, 2, (8,)), loader, EnD(), training, validation=Batches(X, Y))
    held = DataLoader(TensorDataset(X, Y), batch_size=16)
    result = evaluate({"ensemble": ensemble, "student": student}, held)
    plain = evaluate({"ensemble": ensemble, "student": student}, X, Y)
    assert result.rows["student"]["NLL"] == pytest.approx(plain.rows["student"]["NLL"], rel=1e-5)
    assert result.rows["student"]["accuracy"] > 0.8


def test_a_bad_example_is_named_as_it_comes():
    spoilt = X.clone()
    spoilt[43, 1] = float("nan")
    with pytest.raises(ValueError, match=r"inputs hold nan in example 43, at \[1\]"):
        fit(MLP(3, 2), TensorDataset(spoilt, Y), Training(epochs=2))
    with pytest.raises(ValueError, match="got 7 in example 43"):
        fit(MLP(3, 2), Batches(X, torch.where(torch.arange(50) == 43, 7, Y), batch_size=8), Training(epochs=2))


def test_a_run_knows_its_data_whatever_holds_them(tmp_path):
    from solera.core.errors import MismatchError

    kinds = {
        "list": lambda x: [Batch(x[:25], torch.arange(25), Y[:25]), Batch(x[25:], torch.arange(25, 50), Y[25:])],
        "dataset": lambda x: TensorDataset(x, Y),
        "array": lambda x: Batches(x, Y),
    }
    for name, kind in kinds.items():
        torch.manual_seed(0)
        network = MLP(3, 2)
        start = {key: value.clone() for key, value in network.state_dict().items()}
        fit(network, kind(X), Training(epochs=1), folder=tmp_path / name)
        network.load_state_dict(start)
        fit(network, kind(X), Training(epochs=1), folder=tmp_path / name)
        network.load_state_dict(start)
        with pytest.raises(MismatchError, match="belongs to another training"):
            fit(network, kind(X + 1), Training(epochs=1), folder=tmp_path / name)


def test_targets_beside_data_that_bring_their_own_are_refused():
    with pytest.raises(ValueError, match="targets are given beside the data set"):
        as_batches(TensorDataset(X, Y), Y)
    assert np.array_equal(as_batches(X.numpy(), Y.numpy()).all.target, Y)


def places(loader):
    return torch.cat([batch.index for batch in Loader(loader)]).tolist()


def test_the_examples_of_a_loader_are_those_that_its_sampler_picks():
    data = TensorDataset(torch.randn(30, 2), torch.arange(30) % 3)
    some = [3, 5, 8, 20, 29]
    assert places(DataLoader(data, batch_size=2, sampler=SubsetRandomSampler(some))) == some
    assert places(DataLoader(data, batch_sampler=[[20, 3], [8, 5, 3]])) == [3, 5, 8, 20]
    assert places(DataLoader(data, batch_size=7, drop_last=True)) == list(range(28))
    assert places(DataLoader(data, batch_size=7, shuffle=True, drop_last=True)) == list(range(30))
    assert len(next(iter(Loader(DataLoader(data, batch_sampler=[[0, 1, 2], [4, 5]]))))) == 3


def test_batches_made_by_the_data_set_tuples_of_one_and_triples():
    ready = [(torch.randn(4, 2), torch.arange(4)), (torch.randn(3, 2), torch.arange(3))]
    read = list(Loader(DataLoader(ready, batch_size=None)))
    assert [len(batch) for batch in read] == [4, 3]
    assert torch.equal(read[1].target, torch.arange(3))
    (alone,) = Loader(TensorDataset(torch.randn(5, 2)), batch_size=8)
    assert alone.inputs.shape == (5, 2)
    triple = TensorDataset(torch.randn(5, 2), torch.ones(5, 2), torch.arange(5))
    with pytest.raises(ValueError, match=r"the third holds torch\.int64"):
        next(iter(Loader(triple)))


def test_every_example_of_a_set_in_memory_counts_in_its_fingerprint():
    x, y = torch.randn(500, 2), torch.arange(500) % 3
    before = Loader(TensorDataset(x, y)).fingerprint()
    x = x.clone()
    x[77] += 1
    assert Loader(TensorDataset(x, y)).fingerprint() != before
