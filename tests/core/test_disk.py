"""Files on a disk that fails, is shared, or was made by somebody else."""

import fcntl
import json
import os
import resource
import threading

import pytest

from solera.core import disk
from solera.core.disk import (
    PARTIAL,
    in_turn,
    inside,
    only_writer,
    read_bytes,
    read_manifest,
    remove_leftovers,
    require_room,
    write_bytes,
    write_manifest,
)
from solera.core.errors import DamagedFileError, InUseError, UnwritableError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def in_a_child(work) -> int:
    """Runs it in a process of its own and returns how that ended: as with a kill, nothing is tidied up."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_kill_in_mid_write_leaves_the_old_file_and_the_next_open_tidies_up(tmp_path, monkeypatch):
    file = tmp_path / "manifest.json"
    write_manifest(file, "thing", 1, {"a": 1})

    def killed():
        monkeypatch.setattr(disk.os, "replace", lambda *_: os._exit(9))
        write_manifest(file, "thing", 1, {"a": 2})

    assert in_a_child(killed) == 9
    assert len(names(tmp_path)) == 2
    assert read_manifest(file, "thing", 1)["a"] == 1
    assert names(tmp_path) == ["manifest.json"]


def test_the_files_of_a_living_writer_and_of_others_are_left_alone(tmp_path):
    mine, other = tmp_path / f".abc{PARTIAL}", tmp_path / ".manifest.json.123"
    mine.write_bytes(b"half"), other.write_bytes(b"a stranger's")
    with open(mine, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_leftovers(tmp_path)
        assert len(names(tmp_path)) == 2
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [other.name]


def test_threads_write_one_file_without_errors(tmp_path):
    wrong = []

    def write(letter):
        for _ in range(15):
            try:
                write_bytes(tmp_path / "file", letter * 1000)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(set((tmp_path / "file").read_bytes())) == 1
    assert names(tmp_path) == ["file"]


def test_a_full_disk_is_told_with_the_file_and_leaves_nothing(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(UnwritableError, match=r"weights cannot be written \(File too large\): make room"):
            write_bytes(tmp_path / "weights", bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(tmp_path) == []
    with pytest.raises(ValueError, match=r"takes 1,000,000,000,000,000,000 bytes, its disk has .* free: make room"):
        require_room(tmp_path, 10**18)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritableError, match=r"file/inside.* cannot be written \(Not a directory\)"):
        write_bytes(tmp_path / "file" / "inside" / "weights", b"")
    with pytest.raises(UnwritableError, match="file/inside cannot be written"), only_writer(tmp_path / "file/inside"):
        pass


def test_a_second_writer_is_refused_and_no_lock_is_left_behind(tmp_path):
    second = only_writer(tmp_path)
    with only_writer(tmp_path), pytest.raises(InUseError, match="is being written by another process"):
        second.__enter__()
    assert names(tmp_path) == []
    with only_writer(tmp_path):
        pass


def test_turns_are_taken_one_after_the_other(tmp_path):
    order = []

    def second():
        with in_turn(tmp_path):
            order.append("second")

    with in_turn(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["/etc/passwd", "../secret", "a/../../secret", "", ".", "a\0b"])
def test_a_manifest_names_files_of_its_own_folder_only(tmp_path, name):
    with pytest.raises(DamagedFileError, match="which is not in the folder"):
        inside(tmp_path, name)


def test_a_link_that_leads_out_and_a_pipe_are_refused(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(DamagedFileError, match="link to a file outside"):
        inside(tmp_path / "in", "link")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DamagedFileError, match="no regular file"):
        read_bytes(tmp_path / "pipe")


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "", "[]", "null", "3", '"text"', "{", '{"kind": "thing"', "\xff"],
)
def test_a_hostile_manifest_is_one_line(tmp_path, text):
    (tmp_path / "m.json").write_bytes(text.encode("latin1"))
    with pytest.raises(ValueError, match=r"m\.json") as caught:
        read_manifest(tmp_path / "m.json", "thing", 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("version", [None, "1", [], 1.5])
def test_a_manifest_of_no_version_is_refused(tmp_path, version):
    body = {"kind": "thing", "version": version}
    (tmp_path / "m.json").write_text(json.dumps({**body, "sha256": disk._digest(body)}))
    with pytest.raises(DamagedFileError, match="version must be a whole number"):
        read_manifest(tmp_path / "m.json", "thing", 1)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_lock_that_is_no_plain_file_is_refused_and_what_it_leads_to_stays(tmp_path, kind):
    victim = tmp_path / "victim"
    victim.write_text("thesis")
    lock = tmp_path / "run" / ".lock"
    lock.parent.mkdir()
    lock.symlink_to(victim) if kind == "link" else os.mkfifo(lock)
    with pytest.raises(UnwritableError, match=r"\.lock cannot be written"), only_writer(tmp_path / "run"):
        pass
    assert victim.read_text() == "thesis"
