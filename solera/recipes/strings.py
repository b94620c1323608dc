"""Strings of spoken digits, put together from single recordings, and what makes them unfamiliar."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solera.recipes.data import load_npz

DIGITS, YES_NO = "speech/fsdd_8k.npz", "speech/yesno_8k.npz"
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 8000
GAP = 0.3  # seconds of silence before a digit, at most
GAIN = 10.0  # decibels by which a digit is louder or softer, at most

Waves = list[np.ndarray]


def load_waves(folder: str, name: str) -> tuple[Waves, dict[str, np.ndarray]]:
    """Recordings in [−1, 1] and what is known of them: one signal of two bytes a sample, high and low ones apart."""
    arrays = load_npz(folder, name)
    signal = (arrays["hi"].astype(np.uint16) << 8 | arrays["lo"]).view(np.int16).astype(np.float32) / 32768
    return np.split(signal, arrays["offset"][1:-1]), arrays


def noisy(waves: Sequence[np.ndarray], decibels: float, seed: int) -> Waves:
    """With white noise, so many decibels below each one's own mean power."""
    draw = np.random.default_rng(seed)
    scale = [np.sqrt(np.mean(wave**2)) * 10 ** (-decibels / 20) for wave in waves]
    return [(w + s * draw.normal(size=len(w))).astype(np.float32) for w, s in zip(waves, scale, strict=True)]


@dataclass(frozen=True)
class Spoken:
    """The Free Spoken Digit Dataset in the folder `data`."""

    data: str

    @cached_property
    def _loaded(self) -> tuple[Waves, dict[str, np.ndarray]]:
        return load_waves(self.data, DIGITS)

    @property
    def speakers(self) -> list[str]:
        """By number."""
        return self._loaded[1]["speakers"].tolist()

    def strings(self, count: int, speakers: Sequence[int], takes: range, seed: int) -> tuple[Waves, list[str]]:
        """Three to six digits of one speaker each, louder or softer at random, with random gaps; and their words."""
        waves, known = self._loaded
        draw = np.random.default_rng(seed)
        audio, text = [], []
        there = (known["take"] >= takes.start) & (known["take"] < takes.stop)
        own = {speaker: np.flatnonzero(there & (known["speaker"] == speaker)) for speaker in speakers}
        for _ in range(count):
            chosen = draw.choice(own[speakers[int(draw.integers(len(speakers)))]], draw.integers(3, 7))
            parts = []
            for number in chosen:
                gain = np.float32(10 ** (draw.uniform(-GAIN, GAIN) / 20))
                parts += [np.zeros(draw.integers(int(GAP * RATE)), np.float32), gain * waves[number]]
            audio.append(np.concatenate(parts))
            text.append(" ".join(WORDS[known["digit"][number]] for number in chosen))
        return audio, text

    def yes_no(self) -> Waves:
        """Another language's two words, four at a time: halves of the recordings of eight."""
        return [half for wave in load_waves(self.data, YES_NO)[0] for half in np.array_split(wave, 2)]
