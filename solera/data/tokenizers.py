"""Text as numbers: tokenizers of Hugging Face, models of sentencepiece, or a joint byte-pair encoding of our own."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from solera.core.disk import Content, write_bytes
from solera.core.errors import DamagedFileError, MismatchError

PAD, START, END = "<pad>", "<s>", "</s>"


class Tokenizer(ABC):
    """Lines of text to token numbers and back. A target begins after `start` and comes to its `end`."""

    start: int
    end: int
    pad: int

    @abstractmethod
    def __len__(self) -> int:
        """How many tokens there are."""

    @abstractmethod
    def sources(self, lines: Sequence[str]) -> list[list[int]]:
        """As an encoder reads them, special tokens included."""

    @abstractmethod
    def targets(self, lines: Sequence[str]) -> list[list[int]]:
        """As a decoder writes them: the end is the last token, the start is none."""

    @abstractmethod
    def decode(self, tokens: Sequence[int]) -> str:
        """The text of a target, without special tokens."""

    @abstractmethod
    def content(self) -> bytes:
        """All that decides what a text becomes."""

    @property
    def fingerprint(self) -> str:
        """Changes when the tokenizer does."""
        special = f"{type(self).__name__} {self.start} {self.end} {self.pad} {len(self)}"
        return hashlib.sha256(self.content() + special.encode()).hexdigest()[:16]

    @abstractmethod
    def files(self) -> tuple[str, dict[str, bytes]]:
        """The name that `as_tokenizer` reads, a file or a folder, and all files by their names."""

    def entry(self) -> dict[str, Any]:
        """What `load_tokenizer` needs to know of it."""
        return {"file": self.files()[0], "start": self.start, "fingerprint": self.fingerprint}

    def save(self, folder: Path) -> dict[str, Any]:
        """Into the folder; returns what `load_tokenizer` needs to know of it."""
        for name, content in self.files()[1].items():
            write_bytes(folder / name, content)
        return self.entry()

    def piece(self, tokens: Sequence[int], place: int) -> str:
        """What one token adds to the text of those before it; nothing, if it is special or half a character."""
        before, now = self.decode(tokens[:place]), self.decode(tokens[: place + 1])
        return now[len(before) :] if now.startswith(before) else ""

    def words(self, tokens: Sequence[int]) -> list[tuple[str, list[int]]]:
        """The words of a target, and the places of each one's tokens; special tokens belong to none."""
        found: list[tuple[str, list[int]]] = []
        before = ""
        for place in range(len(tokens)):
            now = self.decode(tokens[: place + 1])
            piece = now[len(before) :] if now.startswith(before) else ""
            if piece.strip() and (not found or piece[0].isspace() or before.endswith(" ")):
                found.append((piece.strip(), [place]))
            elif found and (piece or now != before):
                found[-1] = (now[len(before) - len(found[-1][0]) :].strip(), [*found[-1][1], place])
            before = now
        return found


class _Fast(Tokenizer):
    """A `tokenizers.Tokenizer` whose special tokens have the usual names, such as `train_bpe` makes."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        found = {name: tokenizer.token_to_id(name) for name in (PAD, START, END)}
        if missing := [name for name, number in found.items() if number is None]:
            raise ValueError(
                f"this tokenizer has no token {missing[0]!r}: add special tokens {PAD}, {START} and {END}, or pass a "
                "transformers tokenizer, which names its own"
            )
        self.pad, self.start, self.end = found[PAD], found[START], found[END]

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def sources(self, lines: Sequence[str]) -> list[list[int]]:
        try:
            encoded = self.tokenizer.encode_batch(list(lines), add_special_tokens=False)
        except Exception as error:  # of `tokenizers`, which has no other kind
            raise ValueError(
                f"a line has a word that the tokenizer does not know: train it on all words ({error})"
            ) from error
        return [[*line.ids, self.end] for line in encoded]

    targets = sources

    def decode(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True).strip()

    def content(self) -> bytes:
        return _plain(self.tokenizer.to_str())

    def files(self) -> tuple[str, dict[str, bytes]]:
        return "tokenizer.json", {"tokenizer.json": self.tokenizer.to_str().encode()}


class _SentencePiece(Tokenizer):
    """A sentencepiece model; without a padding token of its own it pads with its unknown one."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.end = model.eos_id()
        if self.end < 0:
            raise ValueError("this sentencepiece model has no end of sentence: train it with an eos_id")
        self.pad = model.pad_id() if model.pad_id() >= 0 else max(model.unk_id(), 0)
        self.start = model.bos_id() if model.bos_id() >= 0 else self.pad

    def __len__(self) -> int:
        return self.model.get_piece_size()

    def sources(self, lines: Sequence[str]) -> list[list[int]]:
        return [[*ids, self.end] for ids in self.model.encode(list(lines))]

    targets = sources

    def decode(self, tokens: Sequence[int]) -> str:
        special = {self.pad, self.start, self.end}
        return self.model.decode([token for token in tokens if token not in special])

    def content(self) -> bytes:
        return self.model.serialized_model_proto()

    def files(self) -> tuple[str, dict[str, bytes]]:
        return "tokenizer.model", {"tokenizer.model": self.content()}


class _HuggingFace(Tokenizer):
    """A `transformers` tokenizer; sources get the special tokens that it gives them."""

    def __init__(self, tokenizer: Any, start: int | None) -> None:
        self.tokenizer = tokenizer
        if tokenizer.eos_token_id is None:
            raise ValueError(f"{type(tokenizer).__name__} has no end of sequence: set its eos_token")
        self.end = tokenizer.eos_token_id
        self.pad = self.end if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        self.start = self.pad if start is None else start

    def __len__(self) -> int:
        return len(self.tokenizer)

    def sources(self, lines: Sequence[str]) -> list[list[int]]:
        return self.tokenizer(list(lines))["input_ids"]

    def targets(self, lines: Sequence[str]) -> list[list[int]]:
        encoded = self.tokenizer(text_target=list(lines), add_special_tokens=False)["input_ids"]
        return [[*ids, self.end] for ids in encoded]

    def decode(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True).strip()

    def content(self) -> bytes:
        fast = getattr(self.tokenizer, "backend_tokenizer", None)
        if fast is not None:
            return _plain(fast.to_str())
        return json.dumps(sorted(self.tokenizer.get_vocab().items())).encode()

    def files(self) -> tuple[str, dict[str, bytes]]:
        with TemporaryDirectory() as folder:
            self.tokenizer.save_pretrained(folder)
            found = sorted(path for path in Path(folder).rglob("*") if path.is_file())
            return "tokenizer", {f"tokenizer/{path.relative_to(folder)}": path.read_bytes() for path in found}


def _plain(text: str) -> bytes:
    """A tokenizer's JSON without what the last call left in it."""
    found = json.loads(text)
    return json.dumps({key: value for key, value in found.items() if key not in ("padding", "truncation")}).encode()


def _from_file(path: Path) -> Any:
    if not path.exists():
        raise FileNotFoundError(f"there is no tokenizer {path}: pass a tokenizer.json or a sentencepiece .model")
    try:
        if path.is_dir():
            import transformers

            return transformers.AutoTokenizer.from_pretrained(path)
        if path.suffix == ".model":
            import sentencepiece

            return sentencepiece.SentencePieceProcessor(model_file=str(path))
        import tokenizers

        return tokenizers.Tokenizer.from_file(str(path))
    except ImportError as error:
        raise ImportError("tokenizers are read by libraries of the extra: pip install 'solera[translation]'") from error


def as_tokenizer(given: Any, start: int | None = None) -> Tokenizer:
    """A Hugging Face tokenizer (of `transformers` or `tokenizers`), a sentencepiece model, or a file of one of them.

    `start` is the decoder's first token, where the tokenizer does not know it: `model.config.decoder_start_token_id` of
    a Hugging Face model (of those that say nothing, padding is the usual one).
    """
    if isinstance(given, Tokenizer):
        return given
    found = _from_file(Path(given)) if isinstance(given, str | Path) else given
    if hasattr(found, "serialized_model_proto"):
        made: Tokenizer = _SentencePiece(found)
    elif hasattr(found, "encode_batch"):
        made = _Fast(found)
    elif hasattr(found, "eos_token_id"):
        return _HuggingFace(found, start)
    else:
        raise TypeError(
            f"a {type(given).__name__} is no tokenizer: pass one of transformers, tokenizers or sentencepiece, the "
            "path of a tokenizer.json or .model, or None to train one"
        )
    made.start = made.start if start is None else start
    return made


def load_tokenizer(folder: Path, entry: dict[str, Any]) -> Tokenizer:
    """What `Tokenizer.save` wrote; another one in its place is refused."""
    found = as_tokenizer(folder / entry["file"], entry["start"])
    if found.fingerprint != entry["fingerprint"]:
        raise MismatchError(f"{folder / entry['file']} is not the tokenizer that was saved there: restore it")
    return found


def tokenizer_of(files: Mapping[str, Content], entry: dict[str, Any], folder: Path) -> Tokenizer:
    """The same of bytes that were read, and checked, before; `folder` is where they came from."""
    own = {name: content for name, content in files.items() if Path(name).parts[0] == entry["file"]}
    if not own:
        raise DamagedFileError(f"{folder / entry['file']} is missing: restore it")
    with TemporaryDirectory() as place:  # the libraries read files only
        for name, content in own.items():
            path = Path(place) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        found = as_tokenizer(Path(place) / entry["file"], entry["start"])
    if found.fingerprint != entry["fingerprint"]:
        raise MismatchError(f"{folder / entry['file']} is not the tokenizer that was saved there: restore it")
    return found


def train_bpe(lines: Iterable[str], size: int = 4000, lowercase: bool = False) -> Tokenizer:
    """A byte-pair encoding of these lines, source and target together. It knows every byte, so every character."""
    try:
        import tokenizers
        from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
    except ImportError as error:
        raise ImportError("a tokenizer is trained by `tokenizers`: pip install 'solera[translation]'") from error
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if size <= len(alphabet) + 3:
        raise ValueError(f"a vocabulary must hold every byte and three special tokens: size={size} is below 260")
    made = tokenizers.Tokenizer(models.BPE())
    made.normalizer = normalizers.Sequence([normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[PAD, START, END], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(lines, trainer)
    return _Fast(made)


def train_words(lines: Iterable[str]) -> Tokenizer:
    """A token for each word of these lines, between spaces: for small vocabularies. Other words are refused."""
    try:
        import tokenizers
        from tokenizers import models, pre_tokenizers, trainers
    except ImportError as error:
        raise ImportError("a tokenizer is trained by `tokenizers`: pip install 'solera[speech]'") from error
    made = tokenizers.Tokenizer(models.WordLevel())
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = sorted({word for line in lines for word in line.split()})
    made.train_from_iterator(words, trainers.WordLevelTrainer(special_tokens=[PAD, START, END], show_progress=False))
    return _Fast(made)
