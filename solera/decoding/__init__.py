"""From step-by-step predictions to whole sequences: greedy, beam search, sampling, and CTC's best path."""

from solera.decoding.base import Hypotheses, Step, log_probs_of, reorder, together
from solera.decoding.beam import beam
from solera.decoding.ctc import ctc
from solera.decoding.greedy import greedy
from solera.decoding.sample import sample

__all__ = ["Hypotheses", "Step", "beam", "ctc", "greedy", "log_probs_of", "reorder", "sample", "together"]
