"""The recipe `speech` on a few made-up recordings, and the strings that it is about."""

import numpy as np
import pytest

from solera.recipes.base import Workspace, settings_of
from solera.recipes.speech import Speech, Study
from solera.recipes.strings import DIGITS, WORDS, YES_NO, Spoken, load_waves, noisy


def pack(path, waves, **known):
    signal = np.concatenate(waves).astype(np.int16).view(np.uint16)
    offset = np.cumsum([0, *map(len, waves)])
    np.savez(path, hi=(signal >> 8).astype(np.uint8), lo=(signal & 255).astype(np.uint8), offset=offset, **known)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "speech").mkdir()
    draw, speakers = np.random.default_rng(0), ["ann", "bob", "eve"]
    rows = [(s, t, d) for s in range(3) for t in (0, 5, 10) for d in range(10)]
    waves = [1000 * np.sin(0.1 * (d + 1) * (1 + 0.05 * s) * np.arange(400 + 20 * t)) for s, t, d in rows]
    speaker, take, digit = (np.array(column, np.uint8) for column in zip(*rows, strict=True))
    pack(folder / DIGITS, waves, speaker=speaker, take=take, digit=digit, speakers=np.array(speakers))
    pack(folder / YES_NO, [1000 * draw.normal(size=1600) for _ in range(3)], words=np.zeros((3, 8), np.uint8))
    return folder


def test_every_part_is_made_once_and_the_page_says_what_held(data, tmp_path):
    recipe = Speech(
        data=str(data), members=2, epochs=1, student_epochs=1, strings=10, width=8, seconds=5, beams=1, test=5,
        others=3, resamples=2,
    )  # fmt: skip
    page = recipe.run(Workspace(tmp_path / "run", settings_of(recipe)))
    for part in ("| SEnD² |", "(7.1)", "new speaker (test-other)", "noise 30 dB", "eld", "speech.png", "is eve"):
        assert part in page
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*.safetensors")}
    again = Study(recipe, Workspace(tmp_path / "run", settings_of(recipe)))
    assert list(again.models()) == ["single", "ensemble", "EnD", "SEnD²"]
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*.safetensors")} == times


def test_strings_are_of_one_speaker_and_of_the_takes_asked_for(data):
    waves, known = load_waves(str(data), DIGITS)
    assert len(waves) == 90
    audio, text = Spoken(str(data)).strings(20, [1], range(5, 10), 0)
    own = {len(waves[n]) for n in np.flatnonzero((known["speaker"] == 1) & (known["take"] == 5))}
    for wave, words in zip(audio, text, strict=True):
        assert 3 <= len(words.split()) <= 6
        assert set(words.split()) <= set(WORDS)
        sound = sum(len(words.split()) * [*own])
        assert sound - len(words.split()) * 3 <= (wave != 0).sum() <= sound  # every digit of the right take, and gaps
    assert Spoken(str(data)).strings(20, [1], range(5, 10), 0)[1] == text


def test_noise_is_as_loud_as_it_is_said_to_be():
    waves = [np.sin(np.arange(50_000, dtype=np.float32)), np.zeros(10, np.float32)]
    loud, silent = noisy(waves, 20, 0)
    assert 10 * np.log10(np.mean(waves[0] ** 2) / np.mean((loud - waves[0]) ** 2)) == pytest.approx(20, abs=0.1)
    assert not silent.any()
