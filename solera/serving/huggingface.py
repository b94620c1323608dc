"""A student that is a transformer as a folder of Hugging Face's, for code that has never heard of Solera.

Its logits are ln α of the student's Dirichlet: their softmax is its mean, their logsumexp ln α₀. Where those are the
network's own outputs (α = e^z, as an unfitted ProxyDirichlet or EnD² student predicts, or plain classes), the folder
holds a stock model. Elsewhere (a fitted map, α = e^z + 1) a few lines of Python in the folder make them, and the model
has a type of its own, so that no library can load it and pass over them: it asks for trust_remote_code=True.
"""

import importlib.util
import json
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from solera.core.disk import write_bytes
from solera.distributions.base import Prediction
from solera.distributions.categorical import Categorical
from solera.distributions.dirichlet import Dirichlet
from solera.serving.writers import export_writer, writes
from solera.teachers.adapters.huggingface import Classifier
from solera.training.student import Student

CODE = "modeling_solera.py"
TOLERANCE = 1e-5
MAP = ("mean_temperature", "mean_offset", "precision_slope", "precision_shift")
IDENTITY = {"offset": 0.0, **dict(zip(MAP, (1.0, 0.0, 1.0, 0.0), strict=True))}


@dataclass(frozen=True)
class Kind:
    """What Hugging Face calls a kind of model: the class that loads it, and the pipeline's task."""

    loader: str
    task: str


KINDS = {  # how the names of classes end
    "ForTokenClassification": Kind("AutoModelForTokenClassification", "token-classification"),
    "ForSequenceClassification": Kind("AutoModelForSequenceClassification", "text-classification"),
}


def _transformer(student: Student) -> tuple[Any, Kind]:
    """The transformer inside, and what kind it is."""
    network: Any = student.model.model if isinstance(student.model, Classifier) else student.model
    names = [base.__name__ for base in type(network).__mro__]
    kind = next((kind for end, kind in KINDS.items() if names[0].endswith(end)), None)
    if "PreTrainedModel" not in names or kind is None:
        wanted = ", ".join(f"...{end}" for end in KINDS)
        raise ValueError(
            f"this student's network is a {names[0]}, Hugging Face's pipelines load {wanted}: "
            "distil into one of these, or take the student away with solera.serving.export"
        )
    return network, kind


def _meaning(student: Student) -> dict[str, float]:
    """What `log_concentration` must make of the outputs."""
    said, settings = student.method.predict(torch.zeros(1, 3)), asdict(student.method)
    if isinstance(said, Dirichlet):
        if set(MAP) <= settings.keys() and not settings.get("as_published"):
            return {"offset": 0.0, **{name: float(settings[name]) for name in MAP}}
        return {**IDENTITY, "offset": 1.0}
    if isinstance(said, Categorical):
        return IDENTITY
    raise ValueError(
        f"a {type(student.method).__name__} student says several distributions at once, one row of logits cannot hold "
        "them: distil with ProxyDirichlet or EnD2, or take it away with solera.serving.export"
    )


def _require_ours(folder: Path) -> None:
    """Refuses to write over files of others."""
    if folder.exists() and any(folder.iterdir()) and not (folder / "solera.json").is_file():
        raise ValueError(f"{folder} holds files that are not from export_huggingface: choose another folder")


def _code(network: nn.Module) -> str:
    """The Python of the folder, for this class of network."""
    text = (Path(__file__).with_name("assets") / CODE).read_text()
    own, config = type(network).__name__, type(network.config).__name__  # type: ignore[union-attr]
    text = text.replace("BertForTokenClassification", own).replace("BertConfig", config)
    return text.replace("solera_bert", f"solera_{network.config.model_type}")  # type: ignore[union-attr]


def _configured(folder: Path, **changes: Any) -> None:
    """The folder's config.json with these entries: the model in memory stays as it is."""
    config = json.loads((folder / "config.json").read_text())
    write_bytes(folder / "config.json", (json.dumps({**config, **changes}, indent=2) + "\n").encode())


def _with_code(folder: Path, network: Any, kind: Kind, meaning: dict[str, float]) -> None:
    """A type of its own, loaded by the Python beside it."""
    own, module = type(network).__name__, CODE.removesuffix(".py")
    _configured(
        folder,
        model_type=f"solera_{network.config.model_type}",
        auto_map={"AutoConfig": f"{module}.SoleraConfig", kind.loader: f"{module}.{own}"},
        solera=meaning,
    )
    write_bytes(folder / CODE, _code(network).encode())


def _loaded(folder: Path, network: nn.Module) -> Any:
    """The model of this folder, as its reader will have it."""
    kind: Any = type(network)
    if (folder / CODE).is_file():
        spec = importlib.util.spec_from_file_location("modeling_solera", folder / CODE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        kind = getattr(module, type(network).__name__)
    return kind.from_pretrained(folder).eval()


@torch.no_grad()
def _require_same(folder: Path, student: Student, network: Any) -> None:
    """Compares the folder's logits with the student, on made-up pieces."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(network.config.vocab_size, (4, 9), generator=draw)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    logits = _loaded(folder, network)(**inputs).logits.double()
    own = next(network.parameters()).device
    said: Prediction = student.predict({key: value.to(own) for key, value in inputs.items()})
    away = float((logits.softmax(-1) - said.mean.cpu()).abs().max())
    if isinstance(said, Dirichlet):
        precise = said.log_precision.cpu()
        away = max(away, float(((logits.logsumexp(-1) - precise).abs() / precise.abs().clamp(min=1)).max()))
    if not away <= TOLERANCE:
        raise ValueError(
            f"the folder's probabilities or precisions differ from the student's by {away:.1e}, more than "
            f"{TOLERANCE:.0e}, and it was not written: this {type(network).__name__} is not what its class says"
        )


def _card(student: Student, kind: Kind, remote: bool, known: bool) -> str:
    trust = ", trust_remote_code=True" if remote else ""
    lines = [
        "---\nlibrary_name: transformers\npipeline_tag: " + kind.task + "\ntags:\n- solera\n- uncertainty\n---",
        f"# {type(student.method).__name__} student",
        "Distilled from an ensemble with Solera. `softmax(logits)` are its probabilities"
        + ("; `logsumexp(logits)` is ln α₀ of its Dirichlet: small where the input is unfamiliar." if known else "."),
        f'```python\nfrom transformers import pipeline\nask = pipeline("{kind.task}", model=FOLDER{trust})\n```',
    ]
    return "\n\n".join(lines) + "\n"


def export_huggingface(student: Student, folder: str | Path, tokenizer: Any = None) -> Path:
    """Writes a transformer student, with its tokenizer, as a folder that `transformers.pipeline` loads.

    Its logits have the student's mean as their softmax and, of a Dirichlet student, ln α₀ as their logsumexp; they are
    compared with the student before the folder takes its name. One that writes text (a Translator, a seq2seq or causal
    transformer) becomes a model whose `generate` decodes by its mean: see `solera.serving.writers`.
    `pipeline(task, model=folder)`, with trust_remote_code=True where the student was fitted.
    """
    folder = Path(folder)
    _require_ours(folder)
    if writes(student):
        return export_writer(student, folder)
    network, kind = _transformer(student)
    meaning = _meaning(student)
    remote = meaning != IDENTITY
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        made = Path(name) / folder.name
        network.save_pretrained(made)
        if student.class_names is not None:
            numbers = {label: number for number, label in enumerate(student.class_names)}
            _configured(made, id2label={str(number): label for label, number in numbers.items()}, label2id=numbers)
        if tokenizer is not None:
            tokenizer.save_pretrained(made)
        if remote:
            _with_code(made, network, kind, meaning)
        _require_same(made, student, network)
        known = isinstance(student.method.predict(torch.zeros(1, 3)), Dirichlet)
        write_bytes(made / "README.md", _card(student, kind, remote, known).encode())
        facts = {"fingerprint": student.fingerprint, "method": type(student.method).__name__, **meaning}
        write_bytes(made / "solera.json", (json.dumps(facts, indent=2) + "\n").encode())
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)
    return folder
