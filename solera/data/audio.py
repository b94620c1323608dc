"""Recordings of speech, and what was said in each."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.data.arrays import as_array
from solera.data.batch import Batch
from solera.data.pairs import Pairs, read_lines
from solera.data.tokenizers import as_tokenizer, train_words

UNKNOWN = 0xFFFFFFFF  # the size that a stream writes into its header
PACE = 10  # tokens in a second that nobody speaks


def resample(audio: Any, rate: int, wanted: int) -> Tensor:
    """The same sound with `wanted` samples a second, by Fourier transform; what is too high for them is lost."""
    wave = _one_channel(audio, "the audio").double()
    length = max(1, round(len(wave) * wanted / rate))
    spectrum = torch.fft.rfft(wave)[: min(len(wave), length) // 2 + 1]
    if min(len(wave), length) % 2 == 0 and length != len(wave):
        spectrum[-1] *= 2 if length < len(wave) else 0.5  # the last frequency stands for itself and its mirror image
    return (torch.fft.irfft(spectrum, n=length) * (length / len(wave))).float()


def _one_channel(audio: Any, name: str) -> Tensor:
    """Numbers in [−1, 1], one after another."""
    array = as_array(audio)
    if array.ndim != 1:
        raise ValueError(
            f"{name} has shape {array.shape}, a recording has one channel: pass that of stereo, or their mean "
            "(audio.mean(0), or audio.mean(1) of soundfile's)"
        )
    if not array.size:
        raise ValueError(f"{name} is empty: leave it out")
    if array.dtype.kind == "u":
        raise ValueError(f"{name} has unsigned numbers ({array.dtype}): pass floating-point ones in [−1, 1], or int16")
    scale = -float(np.iinfo(array.dtype).min) if array.dtype.kind == "i" else 1.0
    wave = torch.from_numpy(np.ascontiguousarray(array / scale, dtype=np.float32))
    if not bool(wave.isfinite().all()):
        raise ValueError(f"{name} has samples that are NaN or infinite: mend it, or leave it out")
    return wave


def _require_whole(path: Path) -> None:
    """Refuses a wav file that ends before its header says: libsndfile reads what there is, and says nothing."""
    with path.open("rb") as file:
        if file.read(4) != b"RIFF":
            return
        place, size = 12, path.stat().st_size
        while place + 8 <= size:
            file.seek(place)
            name, length = struct.unpack("<4sI", file.read(8))
            if name == b"data":
                if length != UNKNOWN and place + 8 + length > size:
                    missing = place + 8 + length - size
                    raise ValueError(f"{path} is truncated, {missing} bytes of its sound are missing: copy it again")
                return
            place += 8 + length + length % 2
    raise ValueError(f"{path} is truncated, it ends before any sound: copy it again")


def read_audio(path: str | Path, rate: int) -> Tensor:
    """A sound file of one channel and this many samples a second (wav, flac, ogg: whatever libsndfile reads)."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: pass a sound file, or an array of samples")
    try:
        import soundfile
    except ImportError:
        raise ImportError("sound files are read by soundfile: pip install 'solera[speech]'") from None
    _require_whole(path)
    try:
        wave, found = soundfile.read(path, dtype="float32", always_2d=False)
    except soundfile.LibsndfileError as error:
        raise ValueError(f"{path} is no sound file that can be read ({error}): convert it to wav") from error
    if found != rate:
        raise ValueError(
            f"{path} has {found} samples a second, wanted are {rate}: pass solera.data.resample(wave, {found}, {rate}) "
            "of what soundfile.read gives"
        )
    return _one_channel(wave, str(path))


class Recordings(Pairs):
    """Recordings and what was said in each, dealt out in batches of at most `seconds` of sound, padding included.

    `audio` is a list of arrays of samples (floating-point in [−1, 1], or int16), of sound files, or of both; all have
    `rate` samples a second (`resample` helps). `text` is a list of lines, or a text file; without it they are
    recordings to be transcribed. Without a `tokenizer` every word of the text is a token. Inputs: `audio`, `samples`
    and, with a text, `decoder_input_ids`.
    """

    def __init__(
        self,
        audio: Sequence[Any],
        text: Any = None,
        tokenizer: Any = None,
        *,
        rate: int = 8000,
        seconds: float = 60.0,
        start: int | None = None,
        index: Tensor | None = None,
    ) -> None:
        if isinstance(audio, str | Path):
            raise TypeError(f"recordings are a list, got one path: pass [{str(audio)!r}]")
        self.rate = rate
        self.source = [str(one) if isinstance(one, str | Path) else f"recording {n}" for n, one in enumerate(audio)]
        if not self.source:
            raise ValueError("there are no recordings: pass at least one")
        waves = [
            read_audio(one, rate) if isinstance(one, str | Path) else _one_channel(one, name)
            for one, name in zip(audio, self.source, strict=True)
        ]
        for name, wave in zip(self.source, waves, strict=True):
            if len(wave) > seconds * rate:
                raise ValueError(
                    f"{name} has {len(wave) / rate:.1f} seconds, a batch holds {seconds:g}: cut it, or pass "
                    f"seconds={-(-len(wave) // rate)}"
                )
        self.target_text = None if text is None else read_lines(text)
        if self.target_text is not None and len(self.target_text) != len(waves):
            raise ValueError(f"there are {len(waves)} recordings and {len(self.target_text)} texts: give one each")
        if tokenizer is None and self.target_text is None:
            raise ValueError("recordings without text need a tokenizer: pass that of the training set")
        self.tokenizer = as_tokenizer(train_words(self.target_text or []) if tokenizer is None else tokenizer, start)
        written = None if self.target_text is None else self.tokenizer.targets(self.target_text)
        self._fill(waves, written, int(seconds * rate), index)

    def _bare(self) -> "Recordings":
        other = Recordings.__new__(Recordings)
        other.tokenizer, other.rate = self.tokenizer, self.rate
        return other

    def _laid_out(self, sources: list[Any], targets: list[Any] | None) -> tuple[dict[str, Any], list[Any] | None]:
        inputs = {"audio": sources, "samples": [[len(wave)] for wave in sources]}
        if targets is not None:
            inputs["decoder_input_ids"] = [[self.tokenizer.start, *target[:-1]] for target in targets]
        return inputs, targets

    @property
    def longest(self) -> int:
        """Ten tokens for each second of the longest recording, and ten."""
        return PACE * -(-int(self.lengths.max()) // self.rate) + 10

    def has_source(self, row: int, batch: Batch, place: int) -> bool:
        """Whether a batch has this row's recording at this place."""
        return torch.equal(batch.inputs["audio"][place, : int(batch.inputs["samples"][place])], self._sources[row])
