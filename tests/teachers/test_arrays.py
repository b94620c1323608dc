import tracemalloc

import numpy as np
import pandas
import pytest
import torch

from solera import Batch
from solera.core.errors import DamagedFileError, MismatchError
from solera.teachers.adapters import Predictions
from solera.teachers.adapters.files import read
from solera.testing import check_teacher


def probabilities(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).softmax(-1).numpy()


@pytest.mark.parametrize("form", ["probabilities", "log-probabilities", "members first", "tensor", "float64"])
def test_every_form_says_the_same(form):
    values = probabilities(20, 3, 4)
    given = {
        "probabilities": values,
        "log-probabilities": np.log(values),
        "members first": values.swapaxes(0, 1),
        "tensor": torch.from_numpy(values),
        "float64": values.astype(np.float64),
    }[form]
    teacher = Predictions(given, examples=20)
    batch = Batch(torch.zeros(5, 1), torch.tensor([3, 1, 19, 0, 7]))
    check_teacher(teacher, batch)
    torch.testing.assert_close(teacher(batch).members.mean, torch.from_numpy(values[[3, 1, 19, 0, 7]]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v * 2, "example 0, member 0 sums to 2"),
        (lambda v: np.log(v) + 3, "neither probabilities nor log-probabilities: example 0, member"),
        (lambda v: np.where(np.arange(20)[:, None, None] == 6, np.nan, v), "NaN for example 6, member 0"),
        (lambda v: v[0], "three axes"),
        (lambda v: v[:15], "there are 20 inputs"),
    ],
)
def test_anything_else_is_refused_with_the_row(change, message):
    with pytest.raises(ValueError, match=message):
        Predictions(change(probabilities(20, 3, 4)), examples=20)


def test_a_zero_probability_stays_finite():
    values = np.zeros((2, 3, 4))
    values[..., 1] = 1
    values[0, 0] = [1, 0, 0, 0]
    targets = Predictions(values)(Batch(torch.zeros(2, 1), torch.arange(2)))
    assert targets.rmi.isfinite().all()
    assert targets.knowledge[0] > 0.5
    assert targets.knowledge[1] < 1e-12


def test_log_probabilities_keep_their_tails():
    """A live ensemble knows of probabilities below 10⁻¹², and so may a remembered one."""
    logits = torch.tensor([[[0.0, -40.0, -60.0], [-45.0, 0.0, 1.0]]], dtype=torch.double)
    targets = Predictions(logits.log_softmax(-1))(Batch(torch.zeros(1, 1), torch.arange(1)))
    torch.testing.assert_close(targets.members.log_probs, logits.log_softmax(-1).float())
    with np.errstate(divide="ignore"):
        certain = Predictions(np.log(np.array([[[1.0, 0.0], [0.5, 0.5]]])))
    assert certain.logits.isfinite().all()
    assert torch.equal(certain.logits, Predictions(np.array([[[1.0, 0.0], [0.5, 0.5]]])).logits)


# files

VALUES = probabilities(20, 3, 4)
NAMES = ["ant", "bee", "cat", "dog"]


def save(folder, kind):
    """The same predictions in every form that can be read."""
    frames = [pandas.DataFrame(VALUES[:, m], columns=NAMES) for m in range(3)]
    if kind == "npy":
        np.save(folder / "all.npy", VALUES)
        return folder / "all.npy"
    if kind == "npz":
        np.savez(folder / "all.npz", VALUES.swapaxes(0, 1))
        return str(folder / "all.npz")
    if kind == "whole parquet":
        frame = pandas.concat([f.assign(example=range(20), member=m) for m, f in enumerate(frames)])
        frame.sample(frac=1, random_state=0).to_parquet(folder / "all.parquet", index=False)
        return folder / "all.parquet"
    if kind == "arrays":
        return list(VALUES.swapaxes(0, 1))
    paths = []
    for number, frame in enumerate(frames):
        paths.append(folder / f"{number}.{kind.split()[0]}")
        if kind == "npy list":
            np.save(paths[-1], VALUES[:, number])
        elif kind == "npz list":
            np.savez(paths[-1], probs=VALUES[:, number], labels=np.zeros(20))
        else:
            frame[np.roll(NAMES, number)].to_parquet(paths[-1])
    return paths


@pytest.mark.parametrize(
    "kind", ["npy", "npz", "whole parquet", "arrays", "npy list", "npz list", "parquet list", "mixed list"]
)
def test_every_file_says_the_same(tmp_path, kind):
    if kind == "mixed list":
        paths = [save(tmp_path, "npy list")[0], save(tmp_path, "parquet list")[1], torch.from_numpy(VALUES[:, 2])]
        teacher = Predictions(paths)
    else:
        teacher = Predictions(save(tmp_path, kind), examples=20, key="probs" if kind == "npz list" else None)
    if kind == "mixed list":  # the file with names has them in another order, and decides it
        assert teacher.class_names == ["dog", "ant", "bee", "cat"]
        return
    assert teacher.class_names == (NAMES if "parquet" in kind else None)
    batch = Batch(torch.zeros(20, 1), torch.arange(20))
    check_teacher(teacher, batch)
    torch.testing.assert_close(teacher(batch).members.mean, torch.from_numpy(VALUES))
    assert teacher.fingerprints == Predictions(VALUES).fingerprints


def test_labels_order_the_columns_of_a_file_and_name_those_of_an_array(tmp_path):
    wanted = ["dog", "cat", "bee", "ant"]
    turned = Predictions(save(tmp_path, "parquet list"), class_names=wanted)
    torch.testing.assert_close(turned.logits, Predictions(VALUES).logits.flip(-1))
    assert turned.class_names == Predictions(VALUES, class_names=wanted).class_names == wanted
    with pytest.raises(ValueError, match="4 classes, but 2 names"):
        Predictions(VALUES, class_names=["a", "b"])
    with pytest.raises(ValueError, match=r"member 0 has \['ant', .*\], class_names has \['ant', 'bee', 'cat', 'eel'\]"):
        Predictions(save(tmp_path, "whole parquet"), class_names=["ant", "bee", "cat", "eel"])
    pandas.DataFrame(VALUES[:, 0], columns=["ant", "bee", "cat", "eel"]).to_parquet(tmp_path / "eel.parquet")
    with pytest.raises(ValueError, match=r"member 1 has \['ant', .* 'eel'\], member 0 has \['ant', .* 'dog'\]"):
        Predictions([tmp_path / "0.parquet", tmp_path / "eel.parquet"])
    pandas.DataFrame(probabilities(20, 2), columns=["ant", "bee"]).to_parquet(tmp_path / "fewer.parquet")
    fewer = Predictions([tmp_path / "0.parquet", tmp_path / "fewer.parquet"])  # member 1 never saw a cat or a dog
    assert fewer.class_names == ["ant", "bee", "cat", "dog"]
    assert (fewer.logits[:, 1, 2:] < -10).all()  # what a probability of 0 is read as
    torch.testing.assert_close(fewer.logits[:, 1].exp().sum(-1), torch.ones(20))


def parquet(folder, frame, **settings):
    frame.to_parquet(folder / "it.parquet", **settings)
    return folder / "it.parquet"


def long(**columns):
    return pandas.DataFrame({"a": 0.25, "b": 0.75, **columns}, index=range(4))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"member": [0, 1, 0, 1]}, "has a `member` column but no `example`"),
        ({"member": [0, 1, 0, 1], "example": [0, 0, 1, 0]}, "has 2 rows for example 0, member 1"),
        ({"member": [0, 1, 0, 2], "example": [0, 0, 1, 1]}, "has 0 rows for example 0, member 2"),
        ({"member": [0, 1, 2, 0], "example": [0, 0, 0, 1]}, "has 0 rows for example 1, member 1"),
        ({"example": [1, 2, 3, 4]}, "must number the examples from 0, in whole numbers; it goes from 1 to 4"),
        ({"example": [0, 1, 2, 2]}, "has 2 rows for example 2"),
        ({"example": [0.5, 1, 2, 3]}, "must number the examples from 0, in whole numbers"),
        ({"text": list("abcd")}, r"must hold numbers, column 'text' holds (large_)?string"),
    ],
)
def test_a_table_that_is_not_whole_is_refused(tmp_path, columns, message):
    with pytest.raises(ValueError, match=message):
        Predictions([parquet(tmp_path, long(**columns))])


def test_files_that_will_not_do_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.npy is not there"):
        Predictions(tmp_path / "nowhere.npy")
    (tmp_path / "values.csv").write_text("0.5,0.5")
    with pytest.raises(ValueError, match=r"read from .npy, .npz and .parquet files, not from .*values.csv"):
        Predictions(tmp_path / "values.csv")
    np.savez(tmp_path / "two.npz", probs=VALUES, logits=VALUES)
    with pytest.raises(ValueError, match=r"holds the arrays \['probs', 'logits'\], say which: key="):
        Predictions(tmp_path / "two.npz")
    with pytest.raises(ValueError, match=r"holds the arrays \['probs', 'logits'\], not 'probabilities'"):
        Predictions(tmp_path / "two.npz", key="probabilities")
    np.save(tmp_path / "objects.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    for name in ("objects.npy", "broken.npz", "broken.npy", "broken.parquet"):
        if name.startswith("broken"):
            (tmp_path / name).write_bytes(b"PAR1 not really")
        with pytest.raises(DamagedFileError, match=name):
            Predictions(tmp_path / name)
    np.save(tmp_path / "one.npy", VALUES[:, 0])
    with pytest.raises(ValueError, match=r"one.npy holds one member's predictions \(20, 4\): pass a list"):
        Predictions(tmp_path / "one.npy")
    with pytest.raises(ValueError, match=r"member 0 has \(20, 4\), member 1 has \(19, 4\)"):
        Predictions([tmp_path / "one.npy", VALUES[1:, 1]])
    with pytest.raises(ValueError, match=r"member 1 has shape \(20, 3, 4\)"):
        Predictions([tmp_path / "one.npy", VALUES])
    with pytest.raises(ValueError, match="there are 30 inputs, but every member answers for 20 examples"):
        Predictions([tmp_path / "one.npy"], examples=30)
    for frame in (long().iloc[[2, 0, 1, 3]], long().iloc[::-1]):
        with pytest.raises(ValueError, match="unnamed index of a data frame"):
            Predictions([parquet(tmp_path, frame)])
    with pytest.raises(ValueError, match="has no column for a class"):
        Predictions([parquet(tmp_path, long(example=range(4))[["example"]])])


def test_promised_examples_and_members_take_no_memory(tmp_path):
    """Of n rows each may say that it is the last example, of the last member: n² places."""
    rows = 40_000
    column = np.zeros(rows, np.int64)
    column[-1] = rows - 1
    frame = pandas.DataFrame({"a": np.float32(0.5), "b": np.float32(0.5), "example": column, "member": column})
    path = parquet(tmp_path, frame)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"it.parquet has 39999 rows for example 0, member 0"):
        Predictions([path])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 100 * 8 * rows


def test_narrow_columns_beside_a_wide_one_are_counted_as_they_are_stacked(tmp_path, monkeypatch):
    monkeypatch.setattr("solera.core.array_files.UNPACKED", 100_000)
    narrow = pandas.DataFrame({f"c{number}": np.zeros(1000, np.int8) for number in range(50)})
    assert read(parquet(tmp_path, narrow)).values.nbytes == 50_000
    with pytest.raises(DamagedFileError, match=r"it.parquet holds 408,000 bytes"):
        read(parquet(tmp_path, narrow.assign(wide=0.5)))


def test_a_named_index_is_a_column(tmp_path):
    expected = Predictions(VALUES[:, :1]).logits
    frame = pandas.DataFrame(VALUES[:, 0], columns=NAMES, index=pandas.Index(range(20), name="example"))
    for turned in (frame, frame.iloc[::-1], frame.sample(frac=1, random_state=0)):
        torch.testing.assert_close(Predictions([parquet(tmp_path, turned)]).logits, expected)


def test_an_example_without_a_prediction_is_refused():
    with pytest.raises(MismatchError, match="predictions for 20 examples, none for 20"):
        Predictions(VALUES)(Batch(torch.zeros(1, 1), torch.tensor([20])))
