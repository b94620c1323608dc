"""BLEU and chrF by sacreBLEU, from statistics of single sentences: so they can be had of any part of a corpus."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Statistics = NDArray[np.int64]  # [N, C]: counts of matching and of all n-grams, and lengths; they add up


def _sacrebleu() -> Any:
    try:
        import sacrebleu.metrics
    except ImportError:
        raise ImportError("BLEU and chrF are computed by sacrebleu: pip install 'solera[translation]'") from None
    return sacrebleu.metrics


def _bleu(lowercase: bool) -> Any:
    return _sacrebleu().BLEU(lowercase=lowercase, force=True)  # force: references that end in " ." are as they are


def _chrf(lowercase: bool) -> Any:
    return _sacrebleu().CHRF(lowercase=lowercase)


def _statistics(metric: Any, written: Sequence[str], wanted: Sequence[str]) -> Statistics:
    if len(written) != len(wanted):
        raise ValueError(f"there are {len(written)} translations and {len(wanted)} references: give one each")
    return np.array(metric._extract_corpus_statistics(list(written), [list(wanted)]), dtype=np.int64)


def bleu_statistics(written: Sequence[str], wanted: Sequence[str], lowercase: bool = False) -> Statistics:
    """Of each sentence: its length, its reference's, and for n = 1 … 4 the n-grams that match and all of them."""
    return _statistics(_bleu(lowercase), written, wanted)


def chrf_statistics(written: Sequence[str], wanted: Sequence[str], lowercase: bool = False) -> Statistics:
    """Of each sentence, for n = 1 … 6: character n-grams of it, of its reference, and of both."""
    return _statistics(_chrf(lowercase), written, wanted)


def bleu(statistics: Statistics) -> float:
    """BLEU of these sentences together, from 0 to 1."""
    return _bleu(False)._compute_score_from_stats(statistics.sum(0).tolist()).score / 100


def chrf(statistics: Statistics) -> float:
    """chrF of these sentences together, from 0 to 1."""
    return _chrf(False)._compute_score_from_stats(statistics.sum(0).tolist()).score / 100


def sentence_bleu(statistics: Statistics) -> NDArray[np.float64]:
    """BLEU of each sentence by itself, from 0 to 1, smoothed, over the orders of n-gram that it is long enough for."""
    metric = _sacrebleu().BLEU(effective_order=True)
    scores = [metric._compute_score_from_stats(row.tolist()).score / 100 for row in statistics]
    return np.minimum(scores, 1.0)  # exp(mean of ln 1) may be 1 + 4e-16


def signatures(lowercase: bool = False) -> dict[str, str]:
    """What sacreBLEU says about how these numbers are made, by metric."""
    found = {}
    for name, metric in (("BLEU", _bleu(lowercase)), ("chrF", _chrf(lowercase))):
        metric.corpus_score(["a"], [["a"]])  # the number of references is part of it, and known only now
        found[name] = metric.get_signature().format()
    return found
