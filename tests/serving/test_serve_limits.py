"""What one request may ask, counted before it is read: rows, tokens, bytes, axes, nesting, hosts, log lines."""

import io
import json
import logging
import struct
import time
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solera.serving.budget import FREE, Budget
from solera.serving.limits import Limits
from solera.serving.logs import Bucket, JSONLines, Limited
from solera.serving.nested import VALUES, brackets, from_text, json_of
from solera.serving.npy import array_of, arrays_of
from solera.serving.refused import RefusedError, short
from solera.serving.settings import Settings, host_name
from solera.training.card import Input

LIMITS = Limits(bytes=10**6, rows=50, tokens=100)
ROW = [Input("inputs", [3])]


def refused(status, function, *arguments):
    with pytest.raises(RefusedError) as found:
        function(*arguments)
    assert found.value.status == status, found.value.reason
    return found.value.reason


def header(text, numbers=b""):
    """A .npy file whose header holds this text."""
    text = text.encode() + b" " * (64 - (len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + numbers


def claimed(shape, dtype="<f4", numbers=b""):
    return header(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}", numbers)


@pytest.mark.parametrize(
    "shape", [(1,) * 65, (1,) * 33, (0, 2**62, 2**62), (2**62, 2**62, 0), (-1,), (-1, -4), (2**63,), (10**30,)]
)
def test_headers_that_no_array_can_have_are_refused(shape):
    for numbers in (b"", b"\0" * 4):
        refused(422, array_of, claimed(shape, numbers=numbers), "inputs")


@pytest.mark.parametrize(
    "content",
    [
        claimed((3,), numbers=b"\0" * 8),
        claimed((1 << 39,)),
        claimed("(1.5,)"),
        claimed("[3]"),
        claimed("None"),
        header("[" * 5000),
        header("(" * 200 + ")" * 200),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}"),
        b"\x93NUMPY\x03\x00" + struct.pack("<I", 2**31) + b"{}",
        b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b"{}",
    ],
)
def test_headers_that_lie_are_refused(content):
    assert "send" in refused(400, array_of, content, "inputs")


@pytest.mark.parametrize("dtype", ["|O", "|V8", "<M8[s]", "|S5", "<U3", "<c8", "|b1"])
def test_numbers_of_other_kinds_are_refused(dtype):
    with pytest.raises(RefusedError):
        array_of(claimed((1,), dtype, b"\0" * 20), "inputs")


def zipped(files, kind=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_rows_of_a_packed_file_are_counted_before_it_is_unpacked(monkeypatch):
    bomb = zipped({"inputs.npy": npy(np.zeros((80_000, 3), np.float32))})
    assert len(bomb) < 2000
    monkeypatch.setattr(zipfile.ZipFile, "read", None)
    assert "80000 rows" in refused(413, arrays_of, bomb, ROW, LIMITS)


def test_packed_files_that_would_cost_much_are_refused_before_they_are_opened(monkeypatch):
    large = zipped({"inputs.npy": b"\0" * 2_000_000})
    assert "unpacks to 2000000 bytes" in refused(413, arrays_of, large, ROW, LIMITS)
    good = npy(np.zeros((2, 3), np.float32))
    refused(400, arrays_of, zipped({"inputs.npy": good}, zipfile.ZIP_LZMA), ROW, LIMITS)
    refused(400, arrays_of, zipped({"inputs.npy": good}, zipfile.ZIP_BZIP2), ROW, LIMITS)
    refused(422, arrays_of, zipped({"other.npy": good}), ROW, LIMITS)
    assert arrays_of(zipped({"inputs.npy": good}), ROW, LIMITS)["inputs"].shape == (2, 3)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    many = b"PK\x01\x02" * 100_000
    assert "more than 64 files" in refused(400, arrays_of, many, ROW, LIMITS)


@settings(deadline=None, max_examples=80)
@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 60))
def test_damaged_packed_files_are_refused_and_nothing_else_happens(noise, at, cut):
    whole = zipped({"inputs.npy": npy(np.zeros((2, 3), np.float32))})
    for content in (noise, whole[:at] + noise + whole[at + cut :], whole[: max(0, len(whole) - cut)] + noise):
        try:
            found = arrays_of(content, ROW, LIMITS)["inputs"].dtype.kind
        except RefusedError as error:
            found = error.status
        assert found in (400, 413, 422, *"fiu")


def test_the_brackets_of_a_shape():
    assert brackets([]) == b""
    assert brackets([2, 3]) == b"[[,,],[,,]]"


@settings(deadline=None, max_examples=80)
@given(st.lists(st.integers(1, 4), max_size=3), st.integers(1, 6), st.sampled_from([None, 1, 3]), st.data())
def test_text_is_read_as_json_reads_it(shape, rows, indent, data):
    size = rows * int(np.prod(shape, dtype=int))
    finite = st.floats(-1e30, 1e30) | st.integers(-(10**9), 10**9)
    values = np.array(data.draw(st.lists(finite, min_size=size, max_size=size)), dtype=object).reshape(rows, *shape)
    body = json.dumps({"inputs": values.tolist(), "threshold": 0.5}, indent=indent).encode()
    array, others = from_text(body, shape, LIMITS)
    np.testing.assert_array_equal(array, values.astype(float))
    assert others["threshold"] == 0.5
    if shape:
        one, _ = from_text(json.dumps({"inputs": values[0].tolist()}).encode(), shape, LIMITS)
        np.testing.assert_array_equal(one, values[:1].astype(float))


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs": [[1, 2, 3], [1, 2]]}',
        b'{"inputs": [[1, 2, 3], [1, , 3]]}',
        b'{"inputs": [[1, 2, 3 4]]}',
        b'{"inputs": [[1, 2, 01]]}',
        b'{"inputs": [[1, 2, 1.]]}',
        b'{"inputs": [[1, 2, +1]]}',
        b'{"inputs": [[1, 2, 3],]}',
        b'{"inputs": [[1, 2, 3]}',
        b'{"inputs": [[1, 2, 3]]',
        b'{"inputs": [1, 2, 3]]}',
        b'{"inputs": [[1, 2, 3]], "inputs": 4}',
        b'{"inputs": [[1, 2, "3"]]}',
        b'{"inputs": [[1, 2, NaN]]}',
        b'{"inputs": [["1, 2", 3]]}',
        b'{"input": [[1, 2, 3]]}',
        b'[{"inputs": [[1, 2, 3]]}]',
        b"",
    ],
)
def test_what_is_not_an_array_in_text_is_left_to_json(body):
    assert from_text(body, [3], LIMITS) is None


def test_rows_in_text_are_counted_before_a_number_is_read(monkeypatch):
    body = json.dumps({"inputs": [[1, 2, 3]] * 51}).encode()
    monkeypatch.setattr(json, "loads", None)
    assert "51 rows" in refused(413, from_text, body, [3], LIMITS)


@pytest.mark.parametrize(
    "body",
    [b"[" * VALUES * 2, b"[],[]," * VALUES, b'{"a":' * VALUES * 2, b"1," * VALUES * 2, b'{"inputs":' + b"[" * 999999],
)
def test_deep_and_wide_json_is_refused_before_it_is_read(body, monkeypatch):
    monkeypatch.setattr(json, "loads", None)
    assert "numbers, lists and objects" in refused(413, json_of, body, "send less")


def test_nesting_that_python_cannot_follow_is_no_json():
    refused(400, json_of, b"[" * 100_000, "send less")
    refused(400, json_of, b"[" * 100_000 + b"]" * 100_000, "send less")


def test_tokens_and_rows_are_counted_by_the_shape():
    LIMITS.check_shape((50, 2), ["tokens"], "inputs")
    assert "52 tokens" not in refused(413, LIMITS.check_shape, (51, 1), ["tokens"], "inputs")
    assert "102 tokens" in refused(413, LIMITS.check_shape, (2, 51, 4), ["tokens", 4], "inputs")
    assert "characters" in refused(413, LIMITS.check_characters, 6401, "text")


def test_a_reason_shows_the_beginning_of_a_large_value_only():
    class Counted:
        shown = 0

        def __repr__(self):
            Counted.shown += 1
            return "x"

    assert len(short([Counted() for _ in range(10**4)])) == 60
    assert Counted.shown <= 100


def test_large_requests_share_a_budget_and_small_ones_are_free():
    budget = Budget(10 * FREE)
    with budget.lease() as first, budget.lease() as second:
        first.hold(6 * FREE)
        first.hold(8 * FREE)
        second.hold(FREE)
        assert budget.held == 8 * FREE
        refused(503, second.hold, 3 * FREE)
        refused(413, second.hold, 11 * FREE)
        first.hold(FREE)
        second.hold(10 * FREE)
    assert budget.held == 0


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost:8000", "localhost"),
        ("LOCALHOST", "localhost"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]:8000", "::1"),
        ("evil.example.:1", "evil.example"),
        ("a b:x", ""),
        ("", ""),
    ],
)
def test_the_name_in_a_host_header(header, name):
    assert host_name(header) == name


def test_only_addresses_and_known_names_are_answered():
    plain, named, all_of_them = Settings(), Settings(hosts=["model.example"]), Settings(hosts=["*"])
    for host in ("localhost:1", "127.0.0.1", "[::1]:8000", "192.168.1.7:8000"):
        assert plain.allows(host)
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "[evil]", "evil@localhost"):
        assert not plain.allows(host)
        assert all_of_them.allows(host)
    assert named.allows("Model.Example:8000")
    assert not named.allows("other.example")


def test_a_bucket_bounds_lines_and_tells_how_many_were_dropped(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    bucket = Bucket(3, 1.0)
    assert [bucket.takes() for _ in range(5)] == [True] * 3 + [False] * 2
    now[0] = 1.0
    assert [bucket.takes() for _ in range(2)] == [True, False]
    assert (bucket.missing(), bucket.missing()) == (3, 0)


def test_every_line_is_json_and_a_flood_of_them_is_not_written():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JSONLines())
    handler.addFilter(Limited())
    logger = logging.Logger("a flood")
    logger.addHandler(handler)
    for number in range(1000):
        try:
            raise OSError("x" * 10_000)
        except OSError:
            logger.exception("line\n%d \x1b[31m", number)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert 20 <= len(lines) <= 40
    assert all(line["level"] == "error" and len(line["error"]) <= 4000 for line in lines)
