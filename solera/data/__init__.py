"""What flows through the training loop, however people hold it."""

from solera.data.arrays import as_array, as_inputs
from solera.data.as_batches import as_batches, fingerprint_of, one_epoch, shuffling
from solera.data.audio import Recordings, read_audio, resample
from solera.data.auto_views import default_views
from solera.data.batch import (
    UNLABELLED,
    Batch,
    ManyBatches,
    Shuffling,
    map_tensors,
    require_finite_inputs,
    require_sound,
    tensors_in,
)
from solera.data.chunks import chunked
from solera.data.conll import Sentence, load_conll, save_conll
from solera.data.loaders import Loader, Read, read_pair
from solera.data.memory import Batches
from solera.data.names import Names, as_names, class_numbers, whole_classes
from solera.data.pairs import CausalPairs, Pairs
from solera.data.sequences import Sequences
from solera.data.tag_scheme import Span
from solera.data.tags import Tags
from solera.data.tokenizers import Tokenizer, as_tokenizer, train_bpe, train_words
from solera.data.view import View
from solera.data.views import Augment, Augmented, Views

__all__ = [
    "UNLABELLED",
    "Augment",
    "Augmented",
    "Batch",
    "Batches",
    "CausalPairs",
    "Loader",
    "ManyBatches",
    "Names",
    "Pairs",
    "Read",
    "Recordings",
    "Sentence",
    "Sequences",
    "Shuffling",
    "Span",
    "Tags",
    "Tokenizer",
    "View",
    "Views",
    "as_array",
    "as_batches",
    "as_inputs",
    "as_names",
    "as_tokenizer",
    "chunked",
    "class_numbers",
    "default_views",
    "fingerprint_of",
    "load_conll",
    "map_tensors",
    "one_epoch",
    "read_audio",
    "read_pair",
    "require_finite_inputs",
    "require_sound",
    "resample",
    "save_conll",
    "shuffling",
    "tensors_in",
    "train_bpe",
    "train_words",
    "whole_classes",
]
