"""One network and what its outputs mean: the thing a user takes home."""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import solera.methods
from solera.core.checks import require_finite, require_finite_weights
from solera.core.disk import fingerprint, in_turn, make_folder
from solera.core.errors import DivergedError
from solera.core.folders import write_version
from solera.core.renamed import RenamedAttribute, renamed_arguments
from solera.core.schema import reading
from solera.core.tensor_files import parse_tensors, tensor_parts
from solera.data import Tokenizer, as_inputs, map_tensors, tensors_in
from solera.data.table import Columns, in_order, is_frame
from solera.data.tokenizers import tokenizer_of
from solera.distributions.base import Prediction, measures_of
from solera.methods.base import Method
from solera.nn.build import network_of
from solera.nn.call import call, laid_out
from solera.tasks.mentions import Entity
from solera.training.card import (
    CARD,
    CONFIG,
    KIND,
    VERSION,
    WEIGHTS,
    Notes,
    Preprocessing,
    model_card,
    read_student_files,
    require_own_folder,
)
from solera.training.entities import Reading, read
from solera.training.hub import MESSAGE, downloaded, uploaded
from solera.training.rebuild import described

if TYPE_CHECKING:
    from solera.training.translated import Translated


def _require_numbers_of_torch(method: Method) -> None:
    """JSON has whole numbers of any size, a tensor takes those of 64 bits."""
    for setting in fields(method):
        value = getattr(method, setting.name)
        if setting.type is float and isinstance(value, int) and abs(value) >= 1 << 63:
            raise ValueError(f"{setting.name} is a whole number of more than 64 bits")


class Student(nn.Module):
    """A plain network with its method; `predict` gives mean, total and, for most methods, data and knowledge.

    `class_names` name the classes (or targets), a tokenizer makes text of tokens and back.
    `preprocessing` says what goes in, `notes` where it came from: both are for the folder that `save` writes,
    and for whoever gets it.
    """

    labels = RenamedAttribute("class_names")

    @renamed_arguments(labels="class_names")
    def __init__(
        self,
        model: nn.Module,
        method: Method,
        class_names: list[str] | None = None,
        preprocessing: Preprocessing | None = None,
        notes: Notes | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        super().__init__()
        self.model, self.method, self.class_names, self.tokenizer = model, method, class_names, tokenizer
        self.preprocessing = Preprocessing.of_network(model) if preprocessing is None else preprocessing
        self.notes = notes or Notes()

    @property
    def fingerprint(self) -> str:
        """Of its weights and its method."""
        return fingerprint(self.model.state_dict(), repr(self.method))

    def forward(self, inputs: Any) -> Prediction:
        return self.method.predict(call(self.model, inputs))

    @torch.no_grad()
    def predict(self, inputs: Any, batch_size: int = 1024) -> Prediction:
        """What the student says about these inputs: an array-like, or a dict of them, first axis the examples.

        It answers on the device that its weights are on (`student.to("cuda")`), and the answer stays there.
        """
        self.eval()
        inputs = as_inputs(self.encode(inputs))
        self._check(inputs)
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        outputs: list[Tensor] = []
        for start in range(0, len(tensors_in(inputs)[0]), batch_size):
            part = map_tensors(lambda t: t[start : start + batch_size].to(device), inputs)  # noqa: B023
            outputs.append(call(self.model, laid_out(self.model, part)))
        if not outputs:
            raise ValueError("there is nothing to predict: inputs are empty")
        said = self.method.predict(torch.cat(outputs))
        mean, total = said.mean, said.total  # once: they are worked out whenever they are asked for
        if self.class_names is not None and len(self.class_names) != mean.shape[-1]:
            raise ValueError(
                f"this student answers {mean.shape[-1]} classes and has {len(self.class_names)} class names: set "
                "student.class_names, one for each, in the order of its outputs"
            )
        self._require_finite(mean, total)
        return said

    def _require_finite(self, mean: Tensor, total: Tensor) -> None:
        """Refuses, by row, an answer that is no number: finite inputs may overflow a network, weights may be NaN.

        An uncertainty may be infinite (the variance of a Student-t of few degrees), a mean may not.
        """
        rows, size = len(mean), mean.sum()
        if bool(size.isfinite()) and not bool(torch.isnan(size + total.sum())):
            return
        fine = mean.reshape(rows, -1).isfinite().all(1) & ~total.reshape(rows, -1).isnan().any(1)
        if not bool(fine.all()):
            raise DivergedError(
                f"the student's answer about example {int((~fine).int().argmax())} is not finite: look for extreme "
                "values in that row, and whether the student's weights are finite"
            )

    def translate(self, sentences: Sequence[str] | str | Path, beams: int = 5) -> "list[Translated]":
        """What it writes for each sentence, by beam search, with the uncertainty of every token and of the whole.

        `solera.translate` has more settings.
        """
        from solera.training.translate import translate

        return translate(self, sentences, beams)

    def transcribe(self, recordings: Sequence[Any], beams: int = 5) -> "list[Translated]":
        """What it hears in each recording, an array of samples or a sound file, with its uncertainty.

        `solera.transcribe` has more settings.
        """
        from solera.training.transcribe import transcribe

        return transcribe(self, recordings, beams)

    def entities(self, text: str | Sequence[str]) -> list[Entity]:
        """The entities of a text, or of the tokens of one: text, type, start, end, confidence and uncertainties."""
        return read(self, text).entities

    def read(self, text: str | Sequence[str]) -> Reading:
        """A text's words, tags and entities, and how uncertain the student is of the text as a whole."""
        return read(self, text)

    def encode(self, inputs: Any) -> Any:
        """Inputs as the network takes them: a data frame's columns in their order, its words and gaps as numbers.

        Anything but a data frame is returned as it is.
        """
        inputs = in_order(inputs, self.preprocessing.features)
        if not is_frame(inputs) or not self.preprocessing.encodes:
            return inputs
        names = self.preprocessing.features or [str(name) for name in inputs.columns]
        return Columns(names, self.preprocessing.categories).encode(inputs)

    def _check(self, inputs: Any) -> None:
        """Refuses numbers that are not finite, by row, and rows of another width than it was distilled on."""
        given = tensors_in(inputs)
        for tensor in given:
            require_finite("inputs", tensor, torch.arange(len(tensor)))
        known = self.preprocessing.inputs
        for tensor, wanted in zip(given, known, strict=False) if len(given) == len(known) else []:
            shape = wanted.shape
            if shape is None or len(shape) != 1 or not tensor.is_floating_point() or not isinstance(shape[0], int):
                continue
            if tensor.ndim < 2 or math.prod(tensor.shape[1:]) != shape[0]:  # images flattened to rows are rows
                raise ValueError(
                    f"this student takes {wanted.name} of shape {('examples', *shape)}, got {tuple(tensor.shape)}: "
                    "pass the same features in the same order as it was distilled on"
                )

    def save(self, path: str | Path) -> Path:
        """`model.safetensors`, `README.md` and `config.json` in the folder `path`: what huggingface_hub expects of one.

        The config vouches for the weights and the tokenizer; the README, a model card, is yours to edit. An earlier
        student in the folder is replaced as one thing: a kill leaves the old one or the new one, and threads or
        processes that save there do so in turn. Files of others are not replaced, that is a ValueError.
        """
        path = Path(path)
        tensors = {k: v.detach().cpu() for k, v in self.model.state_dict().items()}
        require_finite_weights(
            tensors, f"the student is not saved to {path}", "train it again, at a lower learning rate"
        )
        weights, checksum = tensor_parts(tensors, {"format": "pt"})
        words = {} if self.tokenizer is None else self.tokenizer.files()[1]
        content = {
            "solera": version("solera"),
            "torch": torch.__version__,
            "method": {"name": type(self.method).__name__, "settings": asdict(self.method)},
            "network": described(self.model, self.method),
            "labels": self.class_names,
            "tokenizer": None if self.tokenizer is None else self.tokenizer.entry(),
            "family": getattr(self.method, "family", "categorical"),
            "outputs": self._outputs,
            "preprocessing": self.preprocessing.entry(self.class_names),
            "notes": self.notes.entry(),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "fingerprint": self.fingerprint,
            "weights": {"file": WEIGHTS, "sha256": checksum},
        }
        files = {WEIGHTS: weights, CARD: [model_card(content).encode()], **{name: [b] for name, b in words.items()}}
        make_folder(path)
        with in_turn(path):
            require_own_folder(path, files)
            write_version(path / CONFIG, KIND, VERSION, content, files)
        return path

    @property
    def _outputs(self) -> tuple[str, ...]:
        """What its predictions say: a fact of the method alone, asked of it with an output of one example."""
        return measures_of(self.method.predict(torch.zeros(1, 1, self.method.outputs(2))))

    @classmethod
    def load(cls, path: str | Path, model: nn.Module | None = None) -> "Student":
        """Reads a student back. A network of your own class is not stored: pass a fresh instance as `model`."""
        path = Path(path)
        config, files = read_student_files(path)
        network, method = config["network"], config["method"]
        made_by = network.get("made_by", f"{network['name']}(...)")
        weights, _ = parse_tensors(path / WEIGHTS, files[WEIGHTS])
        if model is None:
            if "settings" not in network:
                raise ValueError(
                    f"{path} holds the weights of a {network.get('class', network['name'])}, which is not one of "
                    f"Solera's networks: pass an instance, Student.load(path, model={made_by})"
                )
            model = network_of(path / CONFIG, network, weights)
        if method["name"] not in solera.methods.__all__:
            raise ValueError(f"{path} uses the method {method['name']}, which this Solera does not have: upgrade it")
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            first = str(error).strip().splitlines()[1:2]
            raise ValueError(
                f"the weights in {path} are not those of this {type(model).__name__} ({' '.join(first).strip()}): pass "
                f"a network such as was saved, Student.load(path, model={made_by})"
            ) from error
        require_finite_weights(
            weights, f"{path} holds no student that answers", "get it again from where it was trained"
        )
        with reading(path / CONFIG, "method"):
            own = getattr(solera.methods, method["name"])(**method["settings"])
            _require_numbers_of_torch(own)
        with reading(path / CONFIG, "preprocessing"):
            given = config.get("preprocessing")
            preprocessing = None if given is None else Preprocessing.read(given)
        with reading(path / CONFIG, "notes"):
            notes = Notes(**config.get("notes", {}))
        entry = config.get("tokenizer")
        tokenizer = None if entry is None else tokenizer_of(files, entry, path)
        return cls(model, own, config["labels"], preprocessing, notes, tokenizer).eval()

    def save_pretrained(self, save_directory: str | Path) -> Path:
        """`save`, by the name that huggingface_hub has for it."""
        return self.save(save_directory)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        model: nn.Module | None = None,
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
    ) -> "Student":
        """`load` from a folder or, where there is none, from that repository on the Hugging Face Hub."""
        if Path(name_or_path).is_dir():
            return cls.load(name_or_path, model)
        with downloaded(str(name_or_path), revision, token, local_files_only) as folder:
            return cls.load(folder, model)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        commit_message: str = MESSAGE,
    ) -> str:
        """`save` into a repository on the Hugging Face Hub, made where there is none; returns the commit's address."""
        with tempfile.TemporaryDirectory() as place:
            return uploaded(self.save(Path(place) / "student"), repo_id, private, token, revision, commit_message)
