"""What is written beside a student's weights: what goes in and comes out, where it came from, and its model card."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from solera.core.disk import in_turn, read_checked, read_manifest
from solera.core.folders import read_version, require_own, write_version
from solera.core.schema import require_form
from solera.data import tensors_in
from solera.data.table import MISSING

KIND, VERSION = "student", 1
WEIGHTS, CARD, CONFIG = "model.safetensors", "README.md", "config.json"  # a student's files
_TOP = "---\nlibrary_name: solera\n"  # how a card begins
LIMITS = (
    "It knows nothing of inputs unlike those it was distilled on: there its answers, and its uncertainties too, are "
    "guesses. Large knowledge uncertainty says that an input is unfamiliar; small knowledge uncertainty does not prove "
    "that it is familiar. Where the ensemble was wrong, the student learned to be."
)
NO_KNOWLEDGE = "It gives the total uncertainty only, not its split into data and knowledge."
MEANINGS = {
    "mean": ("the probability of each class", "the expected value of each target"),
    "total": ("all the uncertainty, entropy in nats", "all the uncertainty, variance summed over the targets"),
    "data": ("what would remain had everything been seen: the input is ambiguous",) * 2,
    "knowledge": ("what more data would remove: its like has not been seen",) * 2,
}


@dataclass(frozen=True)
class Input:
    """A tensor that goes in; the shape is that of one example, None if not known, "tokens" where there may be any."""

    name: str = "inputs"
    shape: Sequence[int | str] | None = None
    dtype: str = "float32"


@dataclass(frozen=True)
class Preprocessing:
    """What a student takes, for whoever serves it. Shifts and scales are layers of the network, not here.

    `features` names every number of a row; `units` says what features and targets are measured in, by their names.
    `categories` are the words of those features that hold words: a row has a word's place among them, −1 for a missing
    or unknown one. `missing` is the number that stands for a missing one; None: none may be missing.
    """

    inputs: Sequence[Input] = (Input(),)
    features: Sequence[str] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missing: float | None = None

    def __post_init__(self) -> None:
        shape = self.inputs[0].shape if self.inputs else None
        if self.features and shape is not None and len(self.features) != shape[-1]:
            raise ValueError(
                f"there are {len(self.features)} names of features for rows of {shape[-1]}: name each once"
            )
        if strange := sorted(set(self.categories) - set(self.features)):
            raise ValueError(f"categories are given for {strange[0]!r}, which is no feature: name it in features, too")
        if self.missing not in (None, MISSING):
            raise ValueError(
                f"missing is {self.missing}, not {MISSING} as networks know a missing number: pass that, or None"
            )

    @property
    def encodes(self) -> bool:
        """Whether rows may hold words or missing numbers, which are encoded first (`solera.data.table`)."""
        return bool(self.categories) or self.missing is not None

    @classmethod
    def of(
        cls,
        inputs: Any,
        features: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
        sequences: bool = False,
    ) -> "Preprocessing":
        """For inputs such as these: a batch of them, as the network takes it; of sequences of any length."""
        tensors = tensors_in(inputs)
        names = input_names(inputs)

        def shape(tensor: Tensor) -> list[int | str]:
            return ["tokens", *tensor.shape[2:]] if sequences else list(tensor.shape[1:])

        found = [Input(n, shape(t), str(t.dtype).removeprefix("torch.")) for n, t in zip(names, tensors, strict=True)]
        return cls(found, list(features), dict(units or {}))

    @classmethod
    def of_network(cls, network: nn.Module) -> "Preprocessing":
        """As far as one of Solera's networks knows it by itself."""
        settings: Any = getattr(network, "settings", {})
        while "network" in settings:
            settings = settings["network"]["settings"]
        if "shape" in settings:
            return cls([Input(shape=list(settings["shape"]))])
        return cls([Input(shape=[settings["inputs"]])]) if "inputs" in settings else cls()

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> "Preprocessing":
        """From a student's config.json."""
        words, missing = entry.get("categories", {}), entry.get("missing")
        return cls([Input(**given) for given in entry["inputs"]], entry["features"], entry["units"], words, missing)

    def entry(self, class_names: Sequence[str] | None) -> dict[str, Any]:
        """For config.json and the metadata of an exported graph; of words and gaps only where there may be some."""
        given = asdict(self)
        if not self.encodes:
            given = {key: value for key, value in given.items() if key not in ("categories", "missing")}
        return {**given, "labels": class_names}


@dataclass(frozen=True)
class Notes:
    """Where a student came from and how it did, as far as known: for its card.

    `teachers` are their fingerprints; `fit` (what the training came to), `metrics` and `thresholds` are numbers by
    name, such as {"knowledge, rejects 5 %": 0.31}.
    """

    data: str = ""
    teachers: Sequence[str] = ()
    fit: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("fit", "metrics", "thresholds"):  # an infinite one is a text in JSON
            object.__setattr__(self, key, {name: float(value) for name, value in getattr(self, key).items()})

    def entry(self) -> dict[str, Any]:
        """For config.json: what is infinite, as the text `inf`."""
        numbers = {key: _as_json(getattr(self, key)) for key in ("fit", "metrics", "thresholds")}
        return {"data": self.data, "teachers": list(self.teachers), **numbers}


def _as_json(numbers: Mapping[str, float]) -> dict[str, float | str]:
    return {name: value if math.isfinite(value) else str(value) for name, value in numbers.items()}


def input_names(inputs: Any) -> list[str]:
    """`inputs` for a tensor, the keys of a dict of tensors, else numbered."""
    tensors = tensors_in(inputs)
    if isinstance(inputs, dict) and len(inputs) == len(tensors):
        return [str(key) for key in inputs]
    return ["inputs"] if len(tensors) == 1 else [f"inputs_{number}" for number in range(len(tensors))]


def _kind(config: Mapping[str, Any]) -> str:
    """What Hugging Face calls the task, where it can be told."""
    shape = config["preprocessing"]["inputs"][0]["shape"] if config["preprocessing"]["inputs"] else None
    what = "regression" if config["family"] == "gaussian" else "classification"
    if shape is None or len(shape) not in (1, 3) or (len(shape) == 3 and what == "regression"):
        return ""
    return f"pipeline_tag: {'tabular' if len(shape) == 1 else 'image'}-{what}\n"


def _numbers(title: str, numbers: Mapping[str, float], missing: str) -> str:
    lines = [f"| {name} | {float(value):.6g} |" for name, value in numbers.items()]
    return f"## {title}\n\n" + ("\n".join(["| | |", "|---|---:|", *lines]) if lines else missing)


def _measured(notes: Mapping[str, Any]) -> list[str]:
    """The two sections that an evaluation fills in."""
    return [
        _numbers("Metrics", notes["metrics"], "Not recorded: `solera evaluate` measures them."),
        _numbers("Thresholds", notes["thresholds"], "Not recorded: `solera evaluate` finds them."),
    ]


def _names(names: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(str(name) for name in names[:most])
    return shown + (f", … ({len(names)} in all)" if len(names) > most else "")


def _what_goes_in(given: Mapping[str, Any]) -> str:
    lines = [
        f"- `{i['name']}`: {i['dtype']}, {'shape not recorded' if i['shape'] is None else ['examples', *i['shape']]}"
        for i in given["inputs"]
    ]
    units = [f"{name} in {unit}" for name, unit in given["units"].items()]
    lines += [f"- features of a row: {_names(given['features'])}"] if given["features"] else []
    lines += [f"- words of {name}: {_names(words)}" for name, words in given.get("categories", {}).items()]
    if given.get("missing") is not None:
        lines += [
            f"- a missing number is {given['missing']:.8g}, an unknown or missing word −1, a word its place in its "
            "list (from 0): `student.encode(frame)` makes such rows of a data frame"
        ]
    return "\n".join(["## What goes in\n", *lines, *([f"- units: {_names(units)}"] if units else [])])


def _what_comes_out(config: Mapping[str, Any]) -> str:
    real, labels = config["family"] == "gaussian", config["labels"]
    lines = [f"- `{name}`: {MEANINGS[name][real]}" for name in config["outputs"]]
    lines += [f"- {'targets' if real else 'classes'}: {_names(labels) if labels else 'names not recorded'}"]
    return "\n".join(["## What comes out\n", *lines])


def _how_it_was_made(config: Mapping[str, Any]) -> str:
    method, network, notes = config["method"], config["network"], config["notes"]
    settings = ", ".join(f"{key}={value!r}" for key, value in method["settings"].items())
    lines = [
        f"- method: {method['name']}({settings})",
        f"- network: {network['made_by'] if 'made_by' in network else (network['name'], network['settings'])}",
        f"- data: {notes['data'] or 'not recorded'}",
        f"- teachers (fingerprints): {_names(notes['teachers']) or 'not recorded'}",
        f"- solera {config['solera']}, torch {config['torch']}",
        f"- fingerprint of the student: {config['fingerprint']}",
        f"- sha256 of model.safetensors: {config['weights']['sha256']}",
    ]
    return "\n".join(["## How it was made\n", *lines])


def model_card(config: Mapping[str, Any]) -> str:
    """README.md of a student's folder, made of its config.json; the block on top is what huggingface_hub reads."""
    method, network, notes = config["method"]["name"], config["network"], config["notes"]
    ensemble = f"an ensemble of {len(notes['teachers'])} models" if notes["teachers"] else "an ensemble"
    passed = f", model={network['made_by']}" if "made_by" in network else ""
    tags = "\n".join(f"- {tag}" for tag in ("solera", "ensemble-distillation", "uncertainty", method.lower()))
    sections = [
        f"{_TOP}{_kind(config)}tags:\n{tags}\n---",
        f"# {method} student",
        f"One {network.get('class', network['name'])} of {config['parameters']:,} parameters that stands in for "
        f"{ensemble}: it was distilled with Solera's {method} to give the ensemble's prediction and its uncertainty.",
        f"```python\nimport solera\nstudent = solera.Student.load(FOLDER{passed})\n"
        "said = student.predict(inputs)  # said.mean, said.total, ...\n```",
        _what_goes_in(config["preprocessing"]),
        _what_comes_out(config),
        _how_it_was_made(config),
        _numbers("How it follows the ensemble", notes["fit"], "Not recorded."),
        *_measured(notes),
        "## Limits\n\n" + LIMITS + ("" if "knowledge" in config["outputs"] else " " + NO_KNOWLEDGE),
    ]
    return "\n\n".join(sections) + "\n"


FORM = {  # of config.json, as far as it is read
    "method": {"name": str, "settings": dict},
    "network": {"name": str, "settings?": dict, "class?": str, "made_by?": str},
    "labels": (None, [(str, float)]),
    "weights": {"file": str, "sha256": str},
    "tokenizer?": (None, {"file": str, "start": int, "fingerprint": str}),
    "preprocessing?": {
        "inputs": [{"name": str, "shape": (None, [(int, str)]), "dtype": str}],
        "features": [str],
        "units": {str: str},
        "categories?": {str: [str]},
        "missing?": (None, float),
    },
    "notes?": {
        "data?": str,
        "teachers?": [str],
        **{f"{name}?": {str: (float, str)} for name in ("fit", "metrics", "thresholds")},
    },
}


def read_student_files(folder: Path) -> tuple[dict[str, Any], dict[str, bytearray]]:
    """The config of a student and what the files that it vouches for hold, all of one version."""
    config, files = read_version(folder / CONFIG, KIND, VERSION, unchecked=[CARD])
    require_form(folder / CONFIG, config, FORM)
    if WEIGHTS not in files:  # an earlier Solera listed the weights alone
        files[WEIGHTS] = read_checked(folder / WEIGHTS, config["weights"]["sha256"])
    return config, files


def require_own_folder(folder: Path, files: Iterable[str] = (WEIGHTS, CARD)) -> None:
    """Refuses to write over somebody else's files; an earlier student, or what is left of one, may be replaced."""
    card = folder / CARD
    left = not (folder / CONFIG).exists() and card.is_file() and card.read_bytes().startswith(_TOP.encode())
    require_own(folder / CONFIG, KIND, files, (CARD, WEIGHTS) if left else ())


def record(folder: str | Path, metrics: Mapping[str, float], thresholds: Mapping[str, float]) -> None:
    """Writes how a student did into its folder: the notes in config.json, and two sections of README.md.

    The rest of the card, which its owner may have edited, stays as it is.
    """
    folder = Path(folder)
    with in_turn(folder):
        config = read_manifest(folder / CONFIG, KIND, VERSION)
        notes = Notes(**{**config.get("notes", {}), "metrics": metrics, "thresholds": thresholds}).entry()
        card, files = folder / CARD, {}
        if card.is_file():
            text = card.read_text()
            for section in _measured(notes):
                title = section.splitlines()[0]
                text = re.sub(rf"^{title}\n.*?(?=^## |\Z)", lambda _, s=section: f"{s}\n\n", text, flags=re.M | re.S)
            files[CARD] = [(text.rstrip("\n") + "\n").encode()]
        kept = {key: value for key, value in config.items() if key not in ("kind", "version", "files")}
        same = config.get("files") or {WEIGHTS: config["weights"]["sha256"]}
        write_version(folder / CONFIG, KIND, config["version"], {**kept, "notes": notes}, files, same)
