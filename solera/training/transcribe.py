"""Transcribe: what an ensemble, a student or one model hears in recordings."""

from pathlib import Path
from typing import Any, Literal

from torch import nn

from solera.data import Recordings, Tokenizer
from solera.training.translate import translate


def _rate(model: Any) -> int | None:
    """How many samples a second a model was made for, as far as it knows."""
    for part in model.modules() if isinstance(model, nn.Module) else getattr(model, "models", [])[:1]:
        found = getattr(part, "rate", None)
        if isinstance(found, int):
            return found
    return None


def transcribe(
    model: Any,
    data: Any,
    beams: int = 5,
    *,
    tokenizer: Tokenizer | None = None,
    rate: int | None = None,
    length_penalty: float = 1.0,
    longest: int | None = None,
    average: Literal["probs", "log_probs"] = "probs",
    over: Literal["best", "beams", "samples"] = "best",
    samples: int = 10,
    seed: int = 0,
    folder: str | Path | None = None,
    seconds: float = 60.0,
) -> Any:
    """What a model hears in each recording, with its uncertainty: `translate` for audio, its settings included.

    Of `Recordings` new ones come back, with what was heard as their targets; of a list of arrays or sound files a list
    of `Translated`s, which need the `tokenizer` unless the student has its own. Arrays have `rate` samples a second:
    the network's own, if nothing is said. A hypothesis has at most ten tokens a second, and ten.
    """
    wanted = _rate(model)
    if isinstance(data, Recordings):
        recordings = data
    else:
        tokenizer = tokenizer or getattr(model, "tokenizer", None)
        if tokenizer is None:
            raise ValueError("recordings need a tokenizer: pass tokenizer=..., or Recordings, which have one")
        if (rate or wanted) is None:
            raise ValueError("this model does not say how many samples a second it hears: pass rate=...")
        recordings = Recordings(data, None, tokenizer, rate=rate or wanted or 0, seconds=seconds)
    if wanted is not None and recordings.rate != wanted:
        raise ValueError(
            f"the recordings have {recordings.rate} samples a second, this model hears {wanted}: pass "
            f"solera.data.resample(wave, {recordings.rate}, {wanted}) of each"
        )
    said = translate(
        model, recordings, beams, length_penalty=length_penalty, longest=longest, average=average, over=over,
        samples=samples, seed=seed, folder=folder,
    )  # fmt: skip
    return said if recordings is data else [said[row] for row in range(said.examples)]
