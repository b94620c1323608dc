"""One network and what its outputs mean: the thing a user takes home."""

from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import solera.methods
import solera.nn
from solera.core.batch import map_tensors, tensors_in
from solera.core.disk import read_manifest, require_checksum, write_manifest, write_tensors
from solera.distributions.base import Prediction
from solera.methods.base import Method

KIND, VERSION = "student", 1


class Student(nn.Module):
    """A plain network with its method; `predict` gives mean, total and, for most methods, data and knowledge."""

    def __init__(self, model: nn.Module, method: Method, labels: list[str] | None = None) -> None:
        super().__init__()
        self.model, self.method, self.labels = model, method, labels

    def forward(self, inputs: Any) -> Prediction:
        return self.method.predict(self.model(inputs))

    @torch.no_grad()
    def predict(self, inputs: Any, batch_size: int = 1024) -> Prediction:
        """What the student says about these inputs (tensors or arrays, first axis the examples)."""
        self.eval()
        inputs = torch.as_tensor(inputs) if isinstance(inputs, np.ndarray) else inputs
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        outputs: list[Tensor] = []
        for start in range(0, len(tensors_in(inputs)[0]), batch_size):
            part = map_tensors(lambda t: t[start : start + batch_size].to(device), inputs)  # noqa: B023
            outputs.append(self.model(part))
        if not outputs:
            raise ValueError("there is nothing to predict: inputs are empty")
        return self.method.predict(torch.cat(outputs))

    def save(self, path: str | Path) -> Path:
        """`model.safetensors` and `config.json` in the folder `path`; weights first, so a config vouches for both."""
        path = Path(path)
        tensors = {k: v.detach().cpu().clone() for k, v in self.model.state_dict().items()}
        checksum = write_tensors(path / "model.safetensors", tensors)
        network: dict[str, Any] = {"name": type(self.model).__name__}
        if network["name"] in solera.nn.__all__ and hasattr(self.model, "settings"):
            network["settings"] = self.model.settings
        content = {
            "solera": version("solera"),
            "method": {"name": type(self.method).__name__, "settings": asdict(self.method)},
            "network": network,
            "labels": self.labels,
            "weights": {"file": "model.safetensors", "sha256": checksum},
        }
        write_manifest(path / "config.json", KIND, VERSION, content)
        return path

    @classmethod
    def load(cls, path: str | Path, model: nn.Module | None = None) -> "Student":
        """Reads a student back. A network of your own class is not stored: pass a fresh instance as `model`."""
        path = Path(path)
        config = read_manifest(path / "config.json", KIND, VERSION)
        require_checksum(path / "model.safetensors", config["weights"]["sha256"])
        network = config["network"]
        if model is None:
            if "settings" not in network:
                raise ValueError(
                    f"{path} holds the weights of a {network['name']}, which is not one of Solera's networks: "
                    f"pass an instance, Student.load(path, model={network['name']}(...))"
                )
            model = getattr(solera.nn, network["name"])(**network["settings"])
        method = config["method"]
        if method["name"] not in solera.methods.__all__:
            raise ValueError(f"{path} uses the method {method['name']}, which this Solera does not have: upgrade it")
        assert model is not None
        model.load_state_dict(load_file(path / "model.safetensors"))
        return cls(model, getattr(solera.methods, method["name"])(**method["settings"]), config["labels"]).eval()
