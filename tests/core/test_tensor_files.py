"""Safetensors files: the same bytes for the same tensors, and no bit that can change unseen."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch

from solera.core.errors import DamagedFileError
from solera.core.tensor_files import (
    map_tensors,
    parse_tensors,
    read_sealed_tensors,
    tensor_parts,
    write_sealed_tensors,
    write_tensors,
)

TENSORS = {
    "weight": torch.arange(6.0).reshape(2, 3),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "empty": torch.zeros(0, 4),
    "flags": torch.tensor([True, False]),
    "transposed": torch.arange(6).reshape(2, 3).T,
}


def test_the_library_reads_what_is_written(tmp_path):
    write_tensors(tmp_path / "a", TENSORS, {"format": "pt"})
    found = safetensors.torch.load_file(tmp_path / "a")
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert torch.equal(found[name], tensor)
        assert found[name].dtype == tensor.dtype
    with safetensors.safe_open(tmp_path / "a", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_what_the_library_writes_is_read(tmp_path):
    content = bytearray(safetensors.torch.save({k: v.contiguous() for k, v in TENSORS.items()}, {"a": "b"}))
    found, metadata = parse_tensors(tmp_path, content)
    assert metadata == {"a": "b"}
    assert all(torch.equal(found[name], tensor) for name, tensor in TENSORS.items())


def test_the_same_content_is_the_same_bytes():
    metadata = {letter: letter for letter in "qwertzuiop"}
    turned = dict(reversed(TENSORS.items())), dict(reversed(metadata.items()))
    assert tensor_parts(TENSORS, metadata)[1] == tensor_parts(*turned)[1]


def test_every_flipped_bit_of_a_sealed_file_is_found(tmp_path):
    file = tmp_path / "checkpoint"
    write_sealed_tensors(file, {"weight": TENSORS["weight"], "half": TENSORS["half"]}, {"run": "x"})
    tensors, metadata = read_sealed_tensors(file)
    assert metadata == {"run": "x"}
    assert torch.equal(tensors["weight"], TENSORS["weight"])
    content = file.read_bytes()
    for place in range(0, 8 * len(content), 3):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        file.write_bytes(damaged)
        with pytest.raises(DamagedFileError, match="checkpoint"):
            read_sealed_tensors(file)
    for length in range(0, len(content), 7):
        file.write_bytes(content[:length])
        with pytest.raises(DamagedFileError, match="checkpoint"):
            read_sealed_tensors(file)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
HOSTILE = {
    "a huge shape": {"a": {**ENTRY, "shape": [1 << 40]}},
    "past the end": {"a": {**ENTRY, "shape": [1 << 40], "data_offsets": [0, 1 << 42]}},
    "negative": {"a": {**ENTRY, "data_offsets": [-8, 0]}},
    "backwards": {"a": {**ENTRY, "data_offsets": [8, 0]}},
    "an unknown kind": {"a": {**ENTRY, "dtype": "F31"}},
    "a shape of texts": {"a": {**ENTRY, "shape": ["2"]}},
    "many axes": {"a": {**ENTRY, "shape": [1] * 65 + [2]}},
    "zero by huge": {"a": {**ENTRY, "shape": [0, 1 << 62, 1 << 62], "data_offsets": [0, 8]}},
    "nothing by huge": {"a": {**ENTRY, "shape": [0, 1 << 62, 1 << 62], "data_offsets": [0, 0]}},
    "nothing by more": {"a": {**ENTRY, "shape": [0, 1 << 70], "data_offsets": [0, 0]}},
    "no entry": {"a": 3},
    "a list": [1],
    "metadata of numbers": {"__metadata__": {"a": 1}},
}


@pytest.mark.parametrize("header", HOSTILE.values(), ids=HOSTILE)
def test_a_header_is_not_believed(tmp_path, header):
    text = json.dumps(header).encode()
    content = bytearray(len(text).to_bytes(8, "little") + text + bytes(8))
    (tmp_path / "shard").write_bytes(content)
    with pytest.raises(DamagedFileError, match="shard is damaged"):
        map_tensors(tmp_path / "shard")
    with pytest.raises(DamagedFileError, match="shard is damaged"):
        parse_tensors(tmp_path / "shard", content)


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 8, (100).to_bytes(8, "little") + b"{}"])
def test_a_file_without_a_header_is_damaged(tmp_path, content):
    (tmp_path / "shard").write_bytes(content)
    with pytest.raises(DamagedFileError, match="shard is damaged"):
        map_tensors(tmp_path / "shard")


def test_what_is_mapped_is_what_was_checked(tmp_path):
    old, new = ({"a": torch.full((1000,), float(number))} for number in range(2))
    checksum = write_tensors(tmp_path / "shard", old)
    found = map_tensors(tmp_path / "shard", checksum)
    write_tensors(tmp_path / "shard", new)
    assert np.array_equal(found["a"], old["a"].numpy())
    with pytest.raises(DamagedFileError, match="shard is damaged: its sha256"):
        map_tensors(tmp_path / "shard", checksum)
