"""Translate: decode an ensemble, a student or one model over many sentences; resumable after a kill."""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from solera.core.disk import fingerprint, inside, only_writer, read_checked, read_manifest, write_manifest
from solera.core.errors import MismatchError
from solera.core.progress import progress
from solera.core.schema import require_form
from solera.core.seeds import generator
from solera.core.tensor_files import parse_tensors, write_tensors
from solera.data import Pairs, Tokenizer
from solera.data.pairs import read_lines
from solera.decoding import Hypotheses, Step, beam, greedy, sample, together
from solera.distributions.base import Prediction
from solera.distributions.categorical import Categorical
from solera.distributions.decoded import by_summary, sequence_measures
from solera.distributions.sequence import SequencePrediction, aggregate
from solera.nn.call import call
from solera.nn.stepwise import stepwise
from solera.teachers.ensemble import Ensemble
from solera.training.student import Student
from solera.training.translated import Translated, TranslatedPairs

AVERAGES, OVER = ("probs", "log_probs"), ("best", "beams", "samples")
KIND, VERSION, MANIFEST = "translation", 1, "manifest.json"
PART = 16  # batches that are written together: what a kill may cost


@dataclass(frozen=True)
class _Settings:
    beams: int
    length_penalty: float
    longest: int | None
    average: Literal["probs", "log_probs"]
    over: Literal["best", "beams", "samples"]
    samples: int
    seed: int

    @property
    def known(self) -> dict[str, Any]:
        """By which a run is known: what only sampling reads changes no other run."""
        unread = () if self.over == "samples" else ("samples", "seed")
        return {name: value for name, value in asdict(self).items() if name not in unread}


@dataclass(frozen=True)
class _Asked:
    """A model as it is decoded: its first state, its steps, what it says of given targets, and who it is."""

    begin: Callable[[Any], Any]
    step: Step
    forced: Callable[[Any], Prediction]
    fingerprints: list[str]


def _steps(network: nn.Module, predict: Callable[[Tensor], Prediction]) -> tuple[Callable[[Any], Any], Step]:
    own = stepwise(network)

    def step(state: Any, tokens: Tensor) -> tuple[Prediction, Any]:
        output, state = own.step(state, tokens)
        return predict(output), state

    return own.begin, step


def _asked(model: Any, average: Literal["probs", "log_probs"]) -> _Asked:
    if isinstance(model, Student):
        network = model.model.eval()
        forced = lambda inputs: model.method.predict(call(network, inputs))  # noqa: E731
        return _Asked(*_steps(network, model.method.predict), forced, [model.fingerprint])
    if isinstance(model, Ensemble):
        if model.precision != "32-true":
            raise ValueError(f"translators decode in float32, not with precision={model.precision!r}: leave it out")
        begins, steps = zip(*(_steps(member, Categorical) for member in model.models), strict=True)
        forced = model.predict if len(steps) > 1 else lambda inputs: Categorical(model.ask(0, inputs))
        step = together(steps, average)
        return _Asked(lambda inputs: tuple(begin(inputs) for begin in begins), step, forced, model.fingerprints)
    if isinstance(model, nn.Module):
        own = fingerprint(dict(model.state_dict()), type(model).__name__)
        model.eval()
        return _Asked(*_steps(model, Categorical), lambda inputs: Categorical(call(model, inputs)), [own])
    raise TypeError(f"a {type(model).__name__} cannot translate: pass an Ensemble, a Student or a torch module")


def _hypotheses(asked: _Asked, pairs: Pairs, settings: _Settings, drawn: bool = False) -> Hypotheses:
    """The best ones for every source of these pairs, or samples of the model's distribution."""
    inputs = pairs.without_targets().take(range(pairs.examples)).inputs
    longest = settings.longest or pairs.longest
    start, end = torch.full((pairs.examples,), pairs.tokenizer.start), pairs.tokenizer.end
    state = asked.begin(inputs)
    if drawn:
        chance = generator(settings.seed, "samples", *pairs.index.tolist())
        return sample(asked.step, state, start, end, longest, settings.samples, generator=chance)
    if settings.beams == 1:
        return greedy(asked.step, state, start, end, longest)
    return beam(asked.step, state, start, end, longest, settings.beams, settings.length_penalty, early=True)


def _forced(asked: _Asked, pairs: Pairs) -> SequencePrediction:
    """What the model says of these pairs' targets, step by step."""
    batch = pairs.take(range(pairs.examples))
    assert batch.target is not None
    assert batch.weight is not None
    return SequencePrediction(asked.forced(batch.inputs), batch.target, batch.weight)  # type: ignore[arg-type]


def _written(asked: _Asked, pairs: Pairs, settings: _Settings) -> dict[str, Tensor]:
    """The translations of one batch: their tokens, end to end, and what is known about them."""
    found = _hypotheses(asked, pairs, settings)
    best = [tokens[mask].tolist() for tokens, mask in zip(found.tokens[:, 0], found.mask[:, 0], strict=True)]
    said = _forced(asked, pairs.with_targets(best))
    measures = sequence_measures(said)
    if settings.over == "beams" and settings.beams > 1:
        measures = _over(asked, pairs, found)
    if settings.over == "samples":  # drawing has weighted them
        measures = _over(asked, pairs, _hypotheses(asked, pairs, settings, drawn=True), math.inf)
    short, counted = by_summary(said), said.mask.bool()  # type: ignore[union-attr]
    each = {"total": short.token_total} | ({"knowledge": short.token_knowledge} if "knowledge" in measures else {})
    return {
        "tokens": torch.tensor([token for one in best for token in one]),
        "lengths": torch.tensor([len(one) for one in best]),
        "index": pairs.index,
        "log_probs": found.log_probs[:, 0],
        **{f"measure/{name}": values.double() for name, values in measures.items()},
        **{f"token/{name}": values[counted].float() for name, values in each.items()},
    }


def _over(asked: _Asked, pairs: Pairs, found: Hypotheses, temperature: float = 1.0) -> dict[str, Tensor]:
    """Each measure over several hypotheses, weighted by their tempered probabilities."""
    exists = found.log_probs.isfinite()
    rows, columns = exists.nonzero().T
    targets = [found.tokens[row, b][found.mask[row, b]].tolist() for row, b in zip(rows, columns, strict=True)]
    each = sequence_measures(_forced(asked, pairs.of(rows).with_targets(targets)))
    result = {}
    for name, values in each.items():
        table = values.new_zeros(exists.shape)
        table[rows, columns] = values
        result[name] = aggregate(table, found.log_probs, temperature)
    return result


def _batches(pairs: Pairs) -> Iterator[Pairs]:
    place = {int(number): row for row, number in enumerate(pairs.index)}
    for batch in pairs:
        yield pairs.of(torch.tensor([place[int(number)] for number in batch.index]))


class _Parts:
    """What has been written so far: in the folder, if there is one, or in memory."""

    def __init__(self, folder: Path | None, run: str) -> None:
        self.folder, self.run, self.waiting = folder, run, []
        self.files: list[dict[str, Any]] = []
        self.kept: list[dict[str, Tensor]] = []
        if folder is not None and (folder / MANIFEST).exists():
            found = read_manifest(folder / MANIFEST, KIND, VERSION)
            form = {"run": str, "files": [{"file": str, "sha256": str, "batches": int}]}
            require_form(folder / MANIFEST, found, form)
            if found["run"] != run:
                raise MismatchError(
                    f"{folder} holds another translation: its model, sentences, tokenizer or settings differ: choose "
                    "another folder, or delete it to start again"
                )
            self.files = found["files"]
            for entry in self.files:
                path = inside(folder, entry["file"])
                self.kept.append(parse_tensors(path, read_checked(path, entry["sha256"]))[0])

    @property
    def batches(self) -> int:
        """How many batches need not be asked about again."""
        return sum(entry["batches"] for entry in self.files)

    def add(self, part: dict[str, Tensor]) -> None:
        self.waiting.append(part)
        if len(self.waiting) == PART:
            self.flush()

    def flush(self) -> None:
        if not self.waiting:
            return
        joined = {name: torch.cat([part[name] for part in self.waiting]) for name in self.waiting[0]}
        self.kept.append(joined)
        if self.folder is not None:
            file = f"part-{len(self.files):05d}.safetensors"
            checksum = write_tensors(self.folder / file, joined)
            self.files.append({"file": file, "sha256": checksum, "batches": len(self.waiting)})
            write_manifest(self.folder / MANIFEST, KIND, VERSION, {"run": self.run, "files": self.files})
        self.waiting = []

    def joined(self) -> dict[str, Tensor]:
        self.flush()
        return {name: torch.cat([part[name] for part in self.kept]) for name in self.kept[0]}


def _assembled(pairs: Pairs, found: dict[str, Tensor], fingerprints: list[str]) -> TranslatedPairs:
    """Everything in the order of the pairs."""
    place = {int(number): row for row, number in enumerate(found["index"])}
    order = torch.tensor([place[int(number)] for number in pairs.index])
    lengths = found["lengths"].tolist()

    def ragged(values: Tensor) -> list[Tensor]:
        parts = values.split(lengths)
        return [parts[row] for row in order]

    def under(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): values for name, values in found.items() if name.startswith(prefix)}

    return TranslatedPairs.made(
        pairs,
        [tokens.tolist() for tokens in ragged(found["tokens"])],
        found["log_probs"][order],
        {name: values[order] for name, values in under("measure/").items()},
        {name: ragged(values) for name, values in under("token/").items()},
        fingerprints,
    )


@torch.no_grad()
def _translate_pairs(model: Any, pairs: Pairs, settings: _Settings, folder: Path | None) -> TranslatedPairs:
    asked = _asked(model, settings.average)
    identity = (asked.fingerprints, pairs.without_targets().fingerprint(), pairs.tokens, settings.known)
    run = hashlib.sha256(repr(identity).encode()).hexdigest()
    parts = _Parts(folder, run)
    with progress("translate", len(pairs)) as advance:
        for number, batch in enumerate(_batches(pairs)):
            if number >= parts.batches + len(parts.waiting):
                parts.add(_written(asked, batch, settings))
            advance("")
    return _assembled(pairs, parts.joined(), asked.fingerprints)


def translate(
    model: Any,
    data: Any,
    beams: int = 5,
    *,
    tokenizer: Tokenizer | None = None,
    length_penalty: float = 1.0,
    longest: int | None = None,
    average: Literal["probs", "log_probs"] = "probs",
    over: Literal["best", "beams", "samples"] = "best",
    samples: int = 10,
    seed: int = 0,
    folder: str | Path | None = None,
    tokens: int = 1536,
) -> Any:
    """What an ensemble, a student or one model writes for each source, with its uncertainty, by beam search.

    Of `Pairs` new ones come back, with these outputs as their targets: capture and distil on them. Of sentences (a
    list, or a text file) a list of `Translated`s; they need the `tokenizer`, unless the student has its own. An empty
    sentence is answered by an empty one.

    An ensemble averages its members' probabilities at every step, or their logarithms (`average`). A hypothesis has at
    most `longest` tokens (default: twice the source's and ten). Uncertainty is that of the best hypothesis, or
    (`over="beams"`) of the n-best list, weighted by probability, or (`over="samples"`) the mean over so many
    `samples` of the model's own distribution (Monte Carlo, drawn by `seed`). With a `folder`, a killed call goes on
    from there and ends in the same bits. Batches have at most `tokens` tokens, those of pairs as many as these deal
    out.
    """
    settings = _Settings(beams, length_penalty, longest, average, over, samples, seed)
    for name, count in (("beams", beams), ("samples", samples)):
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    for name, given, known in (("average", average, AVERAGES), ("over", over, OVER)):
        if given not in known:
            raise ValueError(f"{name} must be {' or '.join(map(repr, known))}, got {given!r}")
    if isinstance(data, Pairs):
        if folder is None:
            return _translate_pairs(model, data, settings, None)
        with only_writer(Path(folder)):
            return _translate_pairs(model, data, settings, Path(folder))
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise ValueError("sentences need a tokenizer: pass tokenizer=..., or Pairs, which have one")
    lines = read_lines(data)
    spoken = [number for number, line in enumerate(lines) if line.strip()]
    found = [Translated(line, "") for line in lines]
    if spoken:
        pairs = Pairs([lines[number] for number in spoken], None, tokenizer, tokens=tokens)
        said = translate(
            model, pairs, beams, length_penalty=length_penalty, longest=longest, average=average, over=over,
            samples=samples, seed=seed, folder=folder,
        )  # fmt: skip
        for row, number in enumerate(spoken):
            found[number] = said[row]
    return found
