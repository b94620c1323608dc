"""Arrays in files of strangers: no memory is taken for what is not there."""

import io
import resource
import zipfile

import numpy as np
import pytest

from solera.core.array_files import read_npy, read_npz
from solera.core.errors import DamagedFileError
from solera.teachers.adapters.files import read


def header(shape, dtype="<f4") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


HOSTILE = {
    "empty": b"",
    "a magic only": b"\x93NUMPY",
    "text": b"hello",
    "a huge shape": header((1 << 40,)) + bytes(8),
    "zero by huge": header((0, 1 << 62, 1 << 62)) + bytes(8),
    "65 axes": header((1,) * 65) + bytes(4),
    "cut short": header((4,)) + bytes(8),
    "objects": header((1,), "|O") + bytes(8),
    "a deep header": b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 9000,
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_npy_is_one_line(tmp_path, content):
    file = tmp_path / "x.npy"
    file.write_bytes(content)
    before = peak()
    for read_it in (read_npy, read):
        with pytest.raises(
            DamagedFileError, match=r"x\.npy is not a \.npy file of numbers .*: save it again"
        ) as caught:
            read_it(file)
        assert "\n" not in str(caught.value)
    assert peak() - before < 100 << 20


def test_an_archive_that_unpacks_to_a_thousand_times_its_size_is_refused_before_it_is_unpacked(tmp_path):
    file = tmp_path / "x.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as entry:
        entry.write(header((300 << 18,)))
        for _ in range(300):
            entry.write(bytes(1 << 20))
    assert file.stat().st_size < 1 << 20
    before = peak()
    with pytest.raises(DamagedFileError, match=r"x\.npz holds 314,572,928 bytes in a file of .*: save it uncompressed"):
        read(file)
    assert peak() - before < 50 << 20


def test_an_honest_archive_is_read(tmp_path):
    values = np.random.default_rng(0).random((50, 3, 4))
    np.savez_compressed(tmp_path / "x.npz", a=values, b=values[:2])
    assert np.array_equal(read(tmp_path / "x.npz", "a").values, values)
    with pytest.raises(ValueError, match="say which"):
        read_npz(tmp_path / "x.npz")
    content = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedFileError, match=r"x\.npz is not a \.npz file"):
        read(tmp_path / "x.npz", "a")


def test_a_parquet_of_few_bytes_and_many_rows_is_refused_before_it_is_read(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    file = tmp_path / "x.parquet"
    chunk = pa.table({name: np.zeros(1_000_000) for name in "abcde"})
    with parquet.ParquetWriter(file, chunk.schema) as writer:
        for _ in range(5):
            writer.write_table(chunk)
    assert file.stat().st_size < 1 << 20
    with pytest.raises(DamagedFileError, match=r"x\.parquet holds 200,000,000 bytes in a file of"):
        read(file)


def test_a_parquet_with_an_index_of_its_own_length_is_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for index in ({"kind": "range", "name": None, "start": 0, "stop": 1 << 40, "step": 1}, {"name": 3}, 7):
        about = f'{{"index_columns": [{str(index).replace(chr(39), chr(34)).replace("None", "null")}]}}'
        table = pa.table({"a": np.zeros(4)}).replace_schema_metadata({"pandas": about})
        parquet.write_table(table, tmp_path / "x.parquet")
        with pytest.raises(DamagedFileError, match=r"x\.parquet: index_columns"):
            read(tmp_path / "x.parquet")
