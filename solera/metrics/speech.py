"""Word error rate by jiwer, from counts of single sentences: so it can be had of any part of a set."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]  # [N, 4]: substitutions, deletions, insertions, and words of the reference; they add up


def word_errors(written: Sequence[str], wanted: Sequence[str]) -> Counts:
    """The fewest substitutions, deletions and insertions that make each text of its reference, and its words."""
    try:
        import jiwer
    except ImportError:
        raise ImportError("word errors are counted by jiwer: pip install 'solera[speech]'") from None
    if len(written) != len(wanted):
        raise ValueError(f"there are {len(written)} texts and {len(wanted)} references: give one each")
    each = [jiwer.process_words(reference, text) for text, reference in zip(written, wanted, strict=True)]
    counts = [(o.substitutions, o.deletions, o.insertions, o.hits + o.substitutions + o.deletions) for o in each]
    return np.array(counts, dtype=np.int64).reshape(-1, 4)


def wer(counts: Counts) -> float:
    """The word error rate of these texts together: errors as a share of the references' words; it may exceed 1."""
    *errors, words = counts.sum(0)
    return float(sum(errors) / words)
