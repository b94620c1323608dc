"""Recordings: arrays and sound files, and what is wrong with some."""

import numpy as np
import pytest
import scipy.signal
import soundfile
import torch

from solera.data import Recordings, read_audio, resample, train_words

RATE, WORDS = 8000, train_words(["one two three"])


def tone(seconds=0.2, rate=RATE, pitch=440.0):
    return (0.5 * np.sin(2 * np.pi * pitch * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def test_arrays_and_files_are_the_same_recordings(tmp_path):
    wave = (tone() * 32767).astype(np.int16)
    for name in ("a.wav", "a.flac"):
        soundfile.write(tmp_path / name, wave, RATE, subtype="PCM_16")
    found = Recordings([wave, tmp_path / "a.wav", str(tmp_path / "a.flac"), wave / 32768], ["one", "two", "one", "one"])
    batch = found.take(range(4))
    for row in range(1, 4):
        torch.testing.assert_close(batch.inputs["audio"][row], batch.inputs["audio"][0], rtol=0, atol=0)
    assert batch.inputs["samples"].tolist() == [[1600]] * 4
    assert found.source[1].endswith("a.wav")


def test_those_of_about_one_length_stand_together():
    waves = [tone(0.1 * (1 + n % 5)) for n in range(20)]
    found = Recordings(waves, ["one two"] * 20, seconds=1.0)
    batches = list(found)
    assert sorted(int(i) for b in batches for i in b.index) == list(range(20))
    assert all(b.inputs["audio"].numel() <= RATE for b in batches)
    assert found.padding_share < 0.1
    for batch in batches:
        for row, number in enumerate(batch.index.tolist()):
            length = int(batch.inputs["samples"][row])
            np.testing.assert_array_equal(batch.inputs["audio"][row, :length], waves[number])
            assert not batch.inputs["audio"][row, length:].any()
    some = found.of(torch.tensor([3, 7]))
    assert isinstance(some, Recordings)
    assert some.index.tolist() == [3, 7]
    assert some.without_targets().take([0]).target is None
    assert found.fingerprint() != Recordings([0.9 * w for w in waves], ["one two"] * 20, seconds=1.0).fingerprint()


@pytest.mark.parametrize(("rate", "wanted", "samples"), [(16000, 8000, 801), (8000, 16000, 800), (8000, 8000, 50)])
def test_resampling_is_that_of_scipy(rate, wanted, samples):
    wave = np.random.default_rng(0).normal(size=samples).astype(np.float32)
    ours = resample(wave, rate, wanted)
    np.testing.assert_allclose(ours, scipy.signal.resample(wave, len(ours)), atol=1e-5)


def test_what_is_wrong_with_an_array_is_said():
    with pytest.raises(ValueError, match=r"recording 1 has shape \(2, 800\).*one channel"):
        Recordings([tone(), np.zeros((2, 800))], ["one", "two"])
    with pytest.raises(ValueError, match="recording 0 is empty"):
        Recordings([np.zeros(0)], ["one"])
    with pytest.raises(ValueError, match="recording 0 has samples that are NaN"):
        Recordings([np.array([0.0, np.nan])], ["one"])
    with pytest.raises(ValueError, match="unsigned"):
        Recordings([np.zeros(9, np.uint8)], ["one"])
    with pytest.raises(ValueError, match=r"recording 0 has 2.0 seconds, a batch holds 1.*seconds=2"):
        Recordings([tone(2)], ["one"], seconds=1)
    with pytest.raises(ValueError, match="2 recordings and 1 texts"):
        Recordings([tone(), tone()], ["one"])
    with pytest.raises(ValueError, match="need a tokenizer"):
        Recordings([tone()])
    with pytest.raises(ValueError, match="does not know"):
        Recordings([tone()], ["four"], WORDS)
    with pytest.raises(ValueError, match="no recordings"):
        Recordings([], [])
    with pytest.raises(TypeError, match=r"pass \['a.wav'\]"):
        Recordings("a.wav")


def test_what_is_wrong_with_a_file_is_said(tmp_path):
    soundfile.write(tmp_path / "stereo.wav", np.stack([tone(), tone()], 1), RATE)
    with pytest.raises(ValueError, match=r"stereo.wav has shape \(1600, 2\)"):
        read_audio(tmp_path / "stereo.wav", RATE)
    soundfile.write(tmp_path / "fast.wav", tone(rate=16000), 16000)
    with pytest.raises(ValueError, match=r"fast.wav has 16000 samples a second.*resample\(wave, 16000, 8000\)"):
        read_audio(tmp_path / "fast.wav", RATE)
    soundfile.write(tmp_path / "whole.wav", tone(), RATE)
    whole = (tmp_path / "whole.wav").read_bytes()
    for kept, said in ((len(whole) // 2, "bytes of its sound are missing"), (30, "before any sound")):
        (tmp_path / "cut.wav").write_bytes(whole[:kept])
        with pytest.raises(ValueError, match=f"cut.wav is truncated.*{said}"):
            read_audio(tmp_path / "cut.wav", RATE)
    (tmp_path / "no.wav").write_text("this is no sound")
    with pytest.raises(ValueError, match=r"no\.wav is no sound file"):
        read_audio(tmp_path / "no.wav", RATE)
    with pytest.raises(FileNotFoundError, match=r"none\.wav"):
        read_audio(tmp_path / "none.wav", RATE)
