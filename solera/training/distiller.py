"""Distillation in one call, on arrays: `Distiller(model, method).fit(ensemble, x).predict(x)`."""

import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from solera.core.seeds import stream
from solera.data import (
    Augment,
    Batches,
    as_array,
    as_inputs,
    class_numbers,
    map_tensors,
    require_finite_inputs,
    tensors_in,
    whole_classes,
)
from solera.distributions.base import Prediction, Targets
from solera.methods.base import Method
from solera.methods.normal_wishart import NormalWishart
from solera.methods.proxy_dirichlet import ProxyDirichlet
from solera.nn.default import network_for
from solera.tasks import Task
from solera.teachers.base import Teacher
from solera.teachers.committee import committee, without_variance
from solera.teachers.ensemble import as_teacher
from solera.training.distill import distill
from solera.training.settings import PATIENT, Training
from solera.training.student import Student
from solera.training.views import asked_once, expensive, views_for


class Distiller:
    """Distils on arrays in memory. Holds out a part of the examples, to know how long to train.

    Without a `model`, rows get a standardising MLP and images a small convnet. Without a `method`, classes get
    `ProxyDirichlet` and continuous targets `NormalWishart`. Without a `training`, it goes on as long as held-out
    examples say that it helps, and with labels it chooses their share in the loss: see `solera.distill`.

    `views` are what student and live ensemble are shown of every example: "auto" is the default for this kind of input
    (`solera.data.default_views`), None the examples as they are, or pass any function (inputs, generator) → inputs.
    Members that are no torch modules are asked once, about a few seeded views of every example, and remembered.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        method: Method | None = None,
        training: Training | None = None,
        *,
        task: Task | None = None,
        batch_size: int = 128,
        validation_fraction: float = 0.1,
        views: str | Augment | None = "auto",
        folder: str | Path | None = None,
    ) -> None:
        self.model, self.method, self.training, self.task = model, method, training or PATIENT, task
        self.batch_size, self.validation_fraction, self.folder = batch_size, validation_fraction, folder
        self.views: str | Augment | None = views  # "auto", None or a function

    def fit(
        self,
        ensemble: Any,
        inputs: Any,
        labels: Any = None,
        auxiliary: Any = None,
        *,
        unlabelled: Any = None,
        validation: Any = None,
    ) -> "Distiller":
        """`ensemble`: a teacher, a list of models, or its members' predictions `(examples, members, classes)`.

        Labels are needed where `training.label_weight` mixes them in, and for regressors without a variance (a list of
        them, or their forecasts `(examples, members)`), to estimate the noise from: such examples must be new to the
        members, otherwise pass `validation`, or `solera.committee(...)`. `unlabelled` are more inputs of the same kind,
        `auxiliary` ones come from elsewhere. `validation`, inputs or (inputs, labels), are held out in the place of a
        part of the examples: best such as no member was trained on, for members differ less on what they have learned,
        and the size of the student's uncertainty is fitted there. `unlabelled`, `auxiliary` and
        `validation` need models that can be asked, not an array of predictions.
        """
        x, extra = floats(inputs), None if auxiliary is None else floats(auxiliary)
        new, new_labels = validation if isinstance(validation, tuple) else (validation, None)
        new = None if new is None else floats(new)
        target = None if labels is None else as_array(labels)
        no_variance = target is not None and without_variance(ensemble)
        if no_variance:
            teacher = committee(ensemble, *((x, target) if new_labels is None else (new, as_array(new_labels))))
        else:
            teacher = as_teacher(ensemble, len(tensors_in(x)[0]))
        for name, given in {"auxiliary": auxiliary, "unlabelled": unlabelled, "validation": new}.items():
            if given is not None and not teacher.live:
                raise ValueError(
                    f"an array of predictions cannot answer for {name} inputs: pass the models, or leave {name} out"
                )
        with torch.no_grad():
            said = teacher(Batches(x).take(slice(0, 256)))
        continuous = said.family == "gaussian"
        y, names = numbered(target, None if no_variance else getattr(teacher, "class_names", None), continuous)
        batches, held = Batches(x, y, batch_size=self.batch_size), None
        if unlabelled is not None:
            batches = batches.with_unlabelled(floats(unlabelled))
        own = batches.examples
        if extra is not None:
            batches = batches.with_unlabelled(extra, elsewhere=True)
        if new is not None:
            y, index = (
                numbered(new_labels, names, continuous)[0],
                batches.examples + torch.arange(len(tensors_in(new)[0])),
            )
            held = Batches(new, y, batch_size=self.batch_size, index=index)
        elif self.validation_fraction:
            batches, held = batches.split(self.validation_fraction, self.training.seed)
        for part in (batches, held):
            if part is not None:
                require_finite_inputs(part.all)  # here, so that the error names the example and not a view of it
        method = self.method or default_method(said)
        model = copy.deepcopy(self.model)
        if model is None:
            outputs = method.outputs(said.mean.shape[-1])
            torch.manual_seed(stream(self.training.seed, "student"))
            model = network_for(batches.all.inputs, outputs, said.mean if continuous else None)
        self.student_: Student = self._taught(teacher, model, method, batches, held, own)
        if names is not None and self.student_.class_names is None:  # the predictions had none
            self.student_.class_names = names
        if features := [str(name) for name in getattr(inputs, "columns", ())]:  # of a data frame
            self.student_.preprocessing = replace(self.student_.preprocessing, features=features)
        return self

    def _taught(
        self, teacher: Teacher, model: nn.Module, method: Method, batches: Batches, held: Batches | None, own: int
    ) -> Student:
        """The student; members that answer slowly are asked before it starts.

        Auxiliary inputs, from number `own` on, are seen in views too; the reference table of views is of the others.
        """
        known = batches.all.index < own
        augment = views_for(teacher, self.views, map_tensors(lambda tensor: tensor[known], batches.all.inputs), method)
        teach = partial(distill, model=model, method=method, training=self.training, task=self.task, folder=self.folder)
        if not expensive(teacher):
            return teach(teacher, data=batches, validation=held, views=augment)
        folder = None if self.folder is None else Path(self.folder) / "captured"
        with asked_once(teacher, batches, held, augment, self.training.seed, folder) as (memory, seen, kept):
            return teach(memory, data=seen, validation=kept)

    def predict(self, inputs: Any) -> Prediction:
        """The student's prediction: `.mean`, `.total` and, for most methods, `.data` and `.knowledge`."""
        if not hasattr(self, "student_"):
            raise RuntimeError("this Distiller has no student yet: call fit(ensemble, inputs) first")
        return self.student_.predict(inputs if hasattr(inputs, "columns") else floats(inputs))

    def predict_proba(self, inputs: Any) -> np.ndarray:
        """Class probabilities, as scikit-learn gives them."""
        return self.predict(inputs).mean.cpu().numpy()


def default_method(said: Targets) -> Method:
    """What keeps the whole decomposition, by what a teacher says of some inputs.

    A member that rules out a class (it was never shown it) has no finite reverse mutual information (RMI), by
    which the precision is matched otherwise: then mutual information matches it, and a KL of the means is added.
    """
    if said.family == "gaussian":
        return NormalWishart()
    return ProxyDirichlet() if bool(said.rmi.isfinite().all()) else ProxyDirichlet(match="mi", mean_weight=1.0)


def numbered(labels: Any, names: list[str] | None, continuous: bool) -> tuple[Tensor | None, list[str] | None]:
    """Labels as class numbers, or as continuous targets, and the classes' names."""
    if labels is None:
        return None, names
    y, names = class_numbers(as_array(labels), names)
    return (y if continuous else whole_classes(y)), names


def floats(inputs: Any) -> Any:
    """Array-likes as tensors, float64 as float32: what a network of default precision takes."""
    return map_tensors(lambda t: t.float() if t.dtype == torch.float64 else t, as_inputs(inputs))
