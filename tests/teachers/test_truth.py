"""What a transfer set says is what that teacher said about these inputs, or it is refused."""

import json

import numpy as np
import pytest
import torch

from solera.core.disk import write_manifest
from solera.core.errors import DamagedFileError, DivergedError, MismatchError
from solera.core.tensor_files import map_tensors, write_tensors
from solera.data import Batch, Batches
from solera.distributions import Categorical, Mixture
from solera.nn import MLP
from solera.teachers import Ensemble, TopKCodec, TransferSet, capture, verify
from solera.teachers.adapters import Forecasts, Function, Predictions
from solera.teachers.transfer_set import KIND, VERSION

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))


def ensemble(seed: int = 0) -> Ensemble:
    torch.manual_seed(seed)
    return Ensemble([MLP(4, 3, (8,)) for _ in range(2)])


def counting(calls: list) -> Ensemble:
    def answer(inputs):
        calls.append(len(inputs))
        return inputs[:, :3]

    return Ensemble([Function(answer, probabilities=False, version="1")])


def test_double_indices_are_refused_before_anything_is_asked_or_written(tmp_path):
    calls: list[int] = []
    for given in (
        [Batch(X[:4], torch.arange(4)), Batch(X[4:8], torch.arange(3, 7))],
        [Batch(X[:4], torch.tensor([0, 1, 2, 1]))],
        Batches(X[:4], index=torch.tensor([5, 6, 7, 5])),
    ):
        with pytest.raises(MismatchError, match=r"example [135] comes twice"):
            capture(counting(calls), given, tmp_path / "set")
    assert calls == []
    assert not (tmp_path / "set").exists()


def test_a_stream_is_stopped_at_the_first_double_index(tmp_path):
    stream = (Batch(X[k : k + 4], torch.arange(4) + k - int(k == 36)) for k in range(0, 40, 4))
    with pytest.raises(MismatchError, match="example 35 comes twice"):
        capture(ensemble(), stream, tmp_path, shard_bytes=64)
    held = json.loads((tmp_path / "manifest.json").read_bytes())
    assert sum(entry["examples"] for entry in held["shards"]) == 36
    assert capture(ensemble(), Batches(X, batch_size=4), tmp_path, shard_bytes=64)._ids.tolist() == list(range(40))


def test_a_teacher_that_changes_its_inputs_is_found(tmp_path):
    def careless(inputs):
        return inputs.mul_(2)[:, :3]

    with pytest.raises(MismatchError, match="input of example 0 changed while the teacher answered"):
        capture(Ensemble([Function(careless, probabilities=False, version="1")]), Batches(X.clone()), tmp_path)
    assert not (tmp_path / "manifest.json").exists()


def test_an_answer_that_is_no_number_is_refused_by_its_row(tmp_path):
    def turns(inputs):
        return torch.where((inputs == X[33]).all(1, keepdim=True), torch.nan, inputs[:, :3])

    with pytest.raises((DivergedError, ValueError), match="33"):
        capture(Ensemble([Function(turns, probabilities=False, version="1")]), Batches(X, batch_size=8), tmp_path)


def test_another_teacher_under_the_same_name_fails_loudly(tmp_path):
    def one(inputs):
        return 3 * inputs[:, :3]

    def other(inputs):
        return -3 * inputs[:, :3]

    named, impostor = (Ensemble([Function(f, probabilities=False, version="1")]) for f in (one, other))
    assert named.fingerprints == impostor.fingerprints
    for codec in ("dense", "mean", "top_k"):
        kept = capture(named, Batches(X), tmp_path / codec, codec)
        assert verify(kept, named, Batches(X)) < 1e-3
        with pytest.raises(MismatchError, match="it is another teacher under the same fingerprints"):
            verify(kept, impostor, Batches(X))
    with pytest.raises(MismatchError, match="captured from another ensemble"):
        verify(kept, ensemble(), Batches(X)) if kept.members == 2 else verify(
            kept, Ensemble([MLP(4, 3, (8,))]), Batches(X)
        )


def test_files_of_others_under_the_name_of_a_shard_are_not_touched(tmp_path):
    (tmp_path / "shard-00000.safetensors").write_text("mine")
    with pytest.raises(ValueError, match=r"shard-00000\.safetensors is not from a capture of Solera's"):
        capture(ensemble(), Batches(X), tmp_path)
    assert (tmp_path / "shard-00000.safetensors").read_text() == "mine"


def changed(folder, change) -> None:
    body = json.loads((folder / "manifest.json").read_bytes())
    body = {key: value for key, value in body.items() if key not in ("kind", "version", "sha256")}
    change(body)
    write_manifest(folder / "manifest.json", KIND, VERSION, body)


HOSTILE = {
    "an absolute shard": lambda body: body["shards"][0].update(file="/etc/passwd"),
    "a shard elsewhere": lambda body: body["shards"][0].update(file="../secret"),
    "a shard of a number": lambda body: body["shards"][0].update(file=3),
    "a shard without a checksum": lambda body: body["shards"][0].pop("sha256"),
    "no shards": lambda body: body.update(shards=[]),
    "shards of null": lambda body: body.update(shards=None),
    "the manifest as a shard": lambda body: body["shards"][0].update(file="manifest.json"),
    "members of a number": lambda body: body.update(members=3),
    "members of numbers": lambda body: body.update(members=[3]),
    "no codec": lambda body: body.pop("codec"),
    "an unknown codec": lambda body: body["codec"].update(name="none"),
    "a codec with more": lambda body: body["codec"].update(no=1),
    "a codec of a text": lambda body: body.update(codec="dense"),
    "labels of a text": lambda body: body.update(labels="abc"),
    "classes of a text": lambda body: body.update(classes="three"),
    "no classes": lambda body: body.pop("classes"),
    "no tokens": lambda body: body.pop("tokens"),
    "complete as a text": lambda body: body.update(complete="yes"),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest_is_one_line_that_names_the_file(tmp_path, change):
    (tmp_path / "secret").write_text("s")
    folder = tmp_path / "set"
    capture(ensemble(), Batches(X), folder)
    changed(folder, change)
    with pytest.raises(DamagedFileError) as caught:
        TransferSet(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "delete" not in str(caught.value)


def test_a_shard_whose_columns_do_not_belong_together_is_refused(tmp_path):
    capture(ensemble(), Batches(X), tmp_path)
    entry = json.loads((tmp_path / "manifest.json").read_bytes())["shards"][0]
    whole = {name: torch.from_numpy(np.array(a)) for name, a in map_tensors(tmp_path / entry["file"]).items()}
    for name, wrong in (
        ("members", whole["members"][:-1]),
        ("lengths", whole["lengths"] + 1),
        ("lengths", -whole["lengths"]),
        ("index", whole["index"][:-1]),
        ("index", whole["index"].float()),
        ("fingerprints", None),
    ):
        columns = {key: value for key, value in {**whole, name: wrong}.items() if value is not None}
        checksum = write_tensors(tmp_path / entry["file"], columns)
        changed(tmp_path, lambda body, checksum=checksum: body["shards"][0].update(sha256=checksum))
        with pytest.raises(DamagedFileError, match=r"shard-00000"):
            TransferSet(tmp_path)


def test_verify_compares_something_and_takes_no_answer_for_agreement(tmp_path):
    batches = Batches(torch.randn(40, 2))
    teacher = Ensemble([MLP(2, 3) for _ in range(2)])
    kept = capture(teacher, batches, tmp_path)
    with pytest.raises(ValueError, match="nothing to compare"):
        verify(kept, teacher, [])

    class Silent:
        members, live, fingerprints = teacher.members, True, teacher.fingerprints

        def check(self, batch):
            pass

        def __call__(self, batch):
            return Mixture(Categorical(torch.full((len(batch), 2, 3), torch.nan)))

    with pytest.raises(MismatchError, match="are not finite"):
        verify(kept, Silent(), batches)


def test_one_class_is_nothing_to_capture(tmp_path):
    with pytest.raises(ValueError, match="at least two classes, got 1"):
        capture(Ensemble([MLP(2, 1), MLP(2, 1)]), Batches(torch.randn(8, 2)), tmp_path)


def test_complex_predictions_are_refused(tmp_path):
    np.save(tmp_path / "c.npy", np.ones((64, 2), complex))
    for given in (tmp_path / "c.npy", np.ones((64, 2), complex)):
        with pytest.raises(ValueError, match="must hold real numbers, got complex128"):
            Forecasts(given, noise=1.0)
    with pytest.raises(ValueError, match="must hold real numbers"):
        Predictions(np.ones((4, 2, 3), complex))


def resigned(folder, change) -> None:
    """A shard of a stranger who can compute a checksum, too."""
    entry = json.loads((folder / "manifest.json").read_bytes())["shards"][0]
    columns = {name: torch.from_numpy(np.array(a)) for name, a in map_tensors(folder / entry["file"]).items()}
    change(columns)
    checksum = write_tensors(folder / entry["file"], columns)
    changed(folder, lambda body: body["shards"][0].update(sha256=checksum))


UNPROMISED = {
    "no members": lambda columns: columns.pop("members"),
    "a column more": lambda columns: columns.update(mean=columns["members"][:, 0]),
    "an axis too few": lambda columns: columns.update(members=columns["members"][:, 0]),
    "a class too few": lambda columns: columns.update(members=columns["members"][..., :2].contiguous()),
    "whole numbers": lambda columns: columns.update(members=columns["members"].to(torch.int8)),
    "no member": lambda columns: columns.update(members=columns["members"][:, :0]),
    "weights of more members": lambda columns: columns.update(weights=torch.ones(40, 3)),
    "examples of two rows": lambda columns: columns["lengths"][:2].copy_(torch.tensor([2, 0])),
    "lengths beyond 64 bits": lambda columns: columns["lengths"][:3].copy_(torch.tensor([2**63 - 1, 2**63 - 1, 5])),
}


@pytest.mark.parametrize("change", UNPROMISED.values(), ids=UNPROMISED)
def test_a_shard_that_its_codec_did_not_write_is_refused(tmp_path, change):
    capture(ensemble(), Batches(X), tmp_path)
    resigned(tmp_path, change)
    with pytest.raises(DamagedFileError, match=r"shard-00000"):
        TransferSet(tmp_path)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_an_answer_of_a_shard_that_is_no_number_is_told_by_its_example(tmp_path, wrong):
    capture(ensemble(), Batches(X), tmp_path)
    resigned(tmp_path, lambda columns: columns["members"][7].fill_(wrong))
    remembered = TransferSet(tmp_path)
    remembered(Batch(X[:7], index=torch.arange(7)))
    with pytest.raises(DamagedFileError, match="column 'members' of example 7 is no number"):
        remembered(Batch(X, index=torch.arange(len(X))))


@pytest.mark.parametrize("keep", [2, 64])
@pytest.mark.parametrize("classes", [10**12, 1 << 70, 2, 1, 0, -1])
def test_top_k_of_other_classes_than_the_shards_have_is_refused(tmp_path, keep, classes):
    capture(ensemble(), Batches(X), tmp_path, TopKCodec(keep))
    assert TransferSet(tmp_path).classes == 3
    changed(tmp_path, lambda body: body.update(classes=classes))
    with pytest.raises(DamagedFileError, match=r"shard-00000|manifest.json: classes are"):
        TransferSet(tmp_path)
