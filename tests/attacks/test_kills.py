"""Killed at hundreds of moments, everything Solera writes is the old version or the new one, and ends in the same bits.

`SOLERA_KILLS` is the number of kills of each kind of work, 30 of each by default.
"""

import os
import random

import pytest

from solera import Student
from solera.core.progress import quiet
from tests.attacks.work import WORK, files, killed, save

pytestmark = pytest.mark.timeout(7200)  # `make attacks` on a busy machine
KILLS = int(os.environ.get("SOLERA_KILLS", "30"))
VOLATILE = ("metrics.json", "report.json", "report.html")  # hold the time of day


def same(found: dict, wanted: dict) -> None:
    """The same names, none astray, and the same bytes."""
    assert found.keys() == wanted.keys()
    for name, content in wanted.items():
        assert name.endswith(VOLATILE) or found[name] == content, name


@pytest.mark.parametrize("kind", WORK)
@pytest.mark.parametrize("kills", [3, pytest.param(KILLS, marks=pytest.mark.long)])
def test_killed_work_goes_on_and_ends_in_the_same_bits(tmp_path, kind, kills):
    work, draw = WORK[kind], random.Random(0)
    with quiet():
        work(tmp_path / "whole")
        wanted, most, done = files(tmp_path / "whole"), 8, 0
        place = tmp_path / "killed"
        while done < kills:
            ended = killed(work, place, draw.randint(1, most))
            assert ended in (0, -9)
            done += ended != 0
            most = max(8, 2 * most if ended else most // 2) if ended else most
            if ended == 0:  # it got to its end: what is there is whole; begin again
                same(files(place), wanted)
                place = tmp_path / f"killed {done}"
                most = 400
        work(place)
        same(files(place), wanted)


@pytest.mark.long
def test_a_student_saved_over_another_is_one_of_them_after_every_kill(tmp_path):
    import torch

    from solera.methods import EnD
    from solera.nn import MLP

    torch.manual_seed(0)
    old = Student(MLP(4, 3, (8,)), EnD(), list("abc"))
    old.save(tmp_path)
    clean = set(files(tmp_path))
    found = set()
    for moment in range(1, 2 * KILLS):
        old.save(tmp_path)
        ended = killed(save, tmp_path, moment)
        assert ended in (0, -9)
        one = Student.load(tmp_path)
        assert (one.class_names == list("abc")) == (one.fingerprint == old.fingerprint)
        assert set(files(tmp_path)) == clean
        found.add(one.fingerprint)
        if ended == 0:
            break
    assert len(found) == 2
