"""Arrays as people hold them: the same batches whatever they came as."""

import copy

import numpy as np
import pandas
import pytest
import torch

from solera import Batches, EnD, Student, Training, fit
from solera.core.errors import DamagedFileError
from solera.data import UNLABELLED, class_numbers
from solera.nn import MLP


def rows(examples=40, width=3):
    return np.random.default_rng(0).normal(size=(examples, width))


def test_numpy_frames_and_tensors_are_the_same():
    x, y = rows(), np.arange(40) % 3
    tensor = Batches(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
    frame = pandas.DataFrame(x, columns=["a", "b", "c"])
    for other in (Batches(x, y), Batches(frame, pandas.Series(y)), Batches(x.tolist(), y.tolist())):
        assert other.all.inputs.dtype == torch.float32
        assert other.fingerprint() == tensor.fingerprint()
    both = Batches({"a": x, "b": frame}, y)
    assert set(both.all.inputs) == {"a", "b"}


def test_a_column_that_holds_no_numbers_is_named():
    with pytest.raises(ValueError, match="column 'city' holds"):
        Batches(pandas.DataFrame({"age": [1.0, 2.0], "city": ["a", "b"]}))


def test_rows_of_several_lengths_are_no_array():
    with pytest.raises(ValueError, match=r"rows of several lengths or shapes .*Sequences"):
        Student(MLP(4, 3, (8,)), EnD()).predict([np.zeros(4), np.zeros(3)])


def test_labels_by_name():
    batches = Batches(rows(4), np.array(["dog", "cat", "dog", "ant"]))
    assert batches.names == ["ant", "cat", "dog"]
    assert batches.all.target.tolist() == [2, 1, 2, 0]
    given = Batches(rows(4), ["dog", "cat", "dog", "cat"], names=["dog", "cat"])
    assert given.all.target.tolist() == [0, 1, 0, 1]
    again = given.renumbered(["bee", "cat", "dog"])
    assert again.all.target.tolist() == [2, 1, 2, 1]
    assert again.names == ["bee", "cat", "dog"]
    with pytest.raises(ValueError, match="labels hold 'cow', which is none of the 2 classes dog, cat"):
        Batches(rows(1), ["cow"], names=["dog", "cat"])
    missing = Batches(rows(3), np.array(["dog", None, "cat"], dtype=object))
    assert missing.all.target.tolist() == [1, UNLABELLED, 0]


@pytest.mark.parametrize(
    ("target", "names", "wanted"),
    [
        ([1, 7, 3], ["1", "3", "7"], [0, 2, 1]),  # classes named by other numbers
        ([2, 0, 1], ["0", "1", "2"], [2, 0, 1]),
        ([1, 0, 1], ["cat", "dog"], [1, 0, 1]),  # words for names: these are numbers already
        ([1, 0, 1], None, [1, 0, 1]),
        ([1.0, 7.0, UNLABELLED], ["1", "7"], None),
    ],
)
def test_numbers_that_are_names_and_numbers_that_are_not(target, names, wanted):
    if wanted is None:
        with pytest.raises(ValueError, match="labels hold '-100'"):
            class_numbers(np.array(target), names)
        return
    assert class_numbers(np.array(target), names)[0].tolist() == wanted


def test_a_mapped_file_is_dealt_out_as_if_it_were_in_memory(tmp_path):
    x, y = rows(50).astype(np.float64), np.arange(50) % 3
    np.save(tmp_path / "x.npy", x)
    mapped, memory = Batches(np.load(tmp_path / "x.npy", mmap_mode="r"), y), Batches(x, y)
    assert mapped.mapped
    for one, other in zip(mapped.shuffled(3, 1), memory.shuffled(3, 1), strict=True):
        assert torch.equal(one.inputs, other.inputs)
        assert one.inputs.dtype == torch.float32
        assert torch.equal(one.target, other.target)
    rest, held = mapped.split(0.2)
    assert held.mapped
    assert torch.equal(held.all.index, memory.split(0.2)[1].all.index)
    assert torch.equal(next(iter(rest)).inputs.float(), next(iter(memory.split(0.2)[0])).inputs)
    before = mapped.fingerprint()
    x[17] += 1
    np.save(tmp_path / "x.npy", x)
    assert Batches(np.load(tmp_path / "x.npy", mmap_mode="r"), y).fingerprint() != before
    part = Batches(np.load(tmp_path / "x.npy", mmap_mode="r")[10:20])
    assert torch.equal(part.all.inputs.double(), torch.tensor(x[10:20]))


def test_batches_go_on_from_any_of_them():
    batches = Batches(rows(), batch_size=7)
    whole = [batch.index.tolist() for batch in batches.shuffled(1, 2)]
    assert [batch.index.tolist() for batch in batches.shuffled(1, 2, start=3)] == whole[3:]


def test_unlabelled_rows_are_passed_by_in_training():
    x = torch.randn(60, 3)
    y = (x[:, 0] > 0).long()
    hidden = y.clone()
    hidden[::2] = UNLABELLED
    torch.manual_seed(0)
    network = MLP(3, 2, (8,))
    other = copy.deepcopy(network)
    training = Training(epochs=2, schedule="constant", lr=1e-2)
    fit(network, Batches(x, hidden, batch_size=60), training)
    fit(other, Batches(x[1::2], y[1::2], batch_size=60), training)
    for one, two in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("cut", [np.s_[:], np.s_[7:40], np.s_[::3], np.s_[:, 2:5], np.s_[:, 1], np.s_[::2, ::2]])
def test_rows_read_from_a_file_are_those_of_the_map(tmp_path, mode, cut):
    raw = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float64, shape=(5000, 8))
    raw[:] = np.random.default_rng(0).normal(size=raw.shape)
    raw.flush()
    mapped = np.load(tmp_path / "x.npy", mmap_mode=mode)
    if mode != "r":
        mapped[9] = 5.0
    array = mapped[cut]
    batches = Batches({"a": array, "b": np.arange(len(array))}, batch_size=64)
    want = torch.tensor(np.array(array)).float()
    for batch in (*batches.shuffled(1), batches.take(slice(3, 30, 4)), *batches.split(0.3)[1]):
        assert torch.equal(batch.inputs["a"], want[batch.index])
        assert torch.equal(batch.inputs["b"], batch.index)


def test_a_file_cut_while_in_use_is_named(tmp_path):
    np.save(tmp_path / "x.npy", rows(1000).astype(np.float32))
    batches = Batches(np.load(tmp_path / "x.npy", mmap_mode="r"))
    with open(tmp_path / "x.npy", "r+b") as file:
        file.truncate(3000)
    with pytest.raises(DamagedFileError, match=r"x\.npy ends before row 239: it was cut while in use"):
        list(batches)
