"""A live ensemble."""

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from solera.core.disk import fingerprint
from solera.core.fused import at_least_single
from solera.core.hardware import warn_of_slow_bfloat16
from solera.core.renamed import RenamedAttribute, renamed_arguments
from solera.data import Batch, as_inputs, map_tensors, tensors_in
from solera.data.names import Names, as_names
from solera.distributions.categorical import Categorical
from solera.distributions.families import Family, family_named
from solera.distributions.gaussian import Gaussian
from solera.distributions.mixture import Mixture
from solera.nn.call import call, laid_out
from solera.nn.side_by_side import SideBySide
from solera.teachers.adapters import Adapter, Function, Predictions, Regressor, adapt, is_model
from solera.teachers.adapters.noise import as_noise, with_noise, with_variance
from solera.teachers.adapters.probabilities import require_logits
from solera.teachers.base import Teacher, as_saw, member_weights, stack_members, with_mask
from solera.teachers.class_order import ABSENT, align, in_order


def joined(parts: Sequence[Categorical | Gaussian]) -> Any:
    """Predictions of several batches as one."""
    columns = [vars(part).values() for part in parts]
    return type(parts[0])(*(torch.cat(column) for column in zip(*columns, strict=True)))


def _adapted(models: Iterable[Any]) -> list[nn.Module]:
    if isinstance(models, str) or not isinstance(models, (Sequence, nn.ModuleList)):
        raise TypeError(f"an ensemble takes a list of models, got a {type(models).__name__}: put it into a list")
    if not len(models):
        raise ValueError("an ensemble needs at least one model, got none")
    adapted = []
    for number, model in enumerate(models):
        try:
            adapted.append(adapt(model))
        except TypeError as error:
            raise TypeError(f"member {number}: {error}") from error
    return adapted


def _class_names(model: nn.Module) -> list[str] | None:
    """The names of a member's columns, where it carries a list of them as `class_names` or `classes`."""
    found = getattr(model, "class_names", getattr(model, "classes", None))
    return as_names(found) if isinstance(found, (list, tuple)) else None


AskedIn = Literal["32-true", "bf16-mixed"]


def _has_weights(model: nn.Module) -> bool:
    """Whether it is torch that computes its answers: not scikit-learn, ONNX or a function."""
    return next(model.parameters(), None) is not None


def _fingerprint(model: nn.Module, order: list[int] | None, precision: AskedIn) -> str:
    """A member's own; columns in another order, or answers with fewer digits, make it another member."""
    if isinstance(model, Adapter):
        own = model.fingerprint
    else:
        own = fingerprint(dict(model.state_dict()), type(model).__name__)
    for change in (order, precision if precision == "bf16-mixed" and _has_weights(model) else None):
        own = own if change is None else hashlib.sha256(f"{own}{change}".encode()).hexdigest()[:16]
    return own


class Ensemble(nn.Module):
    """Several models that answer the same question, of any kinds that `adapters.adapt` knows, mixed as you like.

    Small fully connected networks of one architecture are asked as one computation (see `solera.nn.side_by_side`).
    Torch modules and functions give logits `[*batch, K]`. Members that carry class names have their columns put into
    the order of `class_names`, or else of the first member with names; members without names must have it
    already.

    Of the Gaussian family, members give means and then log-variances of continuous targets, `[*batch, 2D]`. With
    `noise`, the data variance of each of the D dimensions, a member may give its D means alone, as scikit-learn's
    regressors do (`solera.committee` estimates it).

    `saw[i, m]` is true where member m was trained on example i, the example with that index in the batches
    (`saw_from_folds` makes it from folds): there it does not count. Examples past its end, and all inputs of `predict`,
    are new to every member, so batches of test data must not have the indices of training examples.

    `precision="bf16-mixed"` asks torch classifiers under autocast: faster where the hardware multiplies bfloat16
    (`torch.cpu.get_capabilities()`, most GPUs), with logits good to two or three digits. That is enough for the mean
    of the probabilities; a small knowledge uncertainty drowns in it.
    """

    live = True

    labels = RenamedAttribute("class_names")

    @renamed_arguments(labels="class_names")
    def __init__(
        self,
        models: Iterable[Any],
        saw: Any = None,
        class_names: Names | None = None,
        family: Family = "categorical",
        noise: Any = None,
        precision: AskedIn = "32-true",
    ) -> None:
        super().__init__()
        adapted = _adapted(models)
        if precision not in get_args(AskedIn):
            raise ValueError(f"precision must be '32-true' or 'bf16-mixed', got {precision!r}")
        if precision == "bf16-mixed" and family == "gaussian":
            raise ValueError(
                "precision='bf16-mixed' keeps two or three digits, too few for continuous targets: leave it out"
            )
        self.precision: AskedIn = precision
        self.family: Family = family
        self.noise = as_noise(noise)
        family_named(family)
        if family == "categorical" and (noise is not None or any(isinstance(m, Regressor) for m in adapted)):
            raise ValueError(
                "regressors and noise belong to continuous targets: pass family='gaussian', or let "
                "solera.committee(models, inputs, targets) estimate the noise, too"
            )
        self.models = nn.ModuleList(adapted).eval().requires_grad_(False)
        own = not any(isinstance(model, Adapter) for model in adapted)
        self._side_by_side = SideBySide(adapted) if own else None
        self.class_names, self._orders = align([_class_names(model) for model in adapted], class_names)
        self.saw = as_saw(saw, len(adapted))
        # their answers are taken for logits because nobody said otherwise: the first ones are looked at
        self._assumed = {
            number
            for number, (given, model) in enumerate(zip(models, adapted, strict=True))
            if family == "categorical"
            and not isinstance(given, Adapter)
            and (model is given or isinstance(model, Function))
        }

    @property
    def members(self) -> int:
        return len(self.models)

    @property
    def fingerprints(self) -> list[str]:
        each = zip(self.models, self._orders, strict=True)
        own = [_fingerprint(model, order, self.precision) for model, order in each]
        return with_noise(with_mask(own, self.saw), self.noise)

    def member(self, number: int) -> "Ensemble":
        """One of the models as an ensemble of its own."""
        return Ensemble(
            [self.models[number]],
            class_names=self.class_names,
            family=self.family,
            noise=self.noise,
            precision=self.precision,
        )

    def _autocast(self, model: nn.Module, inputs: Any) -> AbstractContextManager[Any]:
        """The context in which a member is asked."""
        if self.precision == "32-true" or not _has_weights(model):
            return nullcontext()
        where = tensors_in(inputs)[0].device.type
        if where == "cpu":
            warn_of_slow_bfloat16(self.precision, "leave Ensemble(precision=...) out")
        return torch.autocast(where, torch.bfloat16)

    def check(self, batch: Batch) -> None:
        """A live teacher answers for anything but an example that every member was trained on."""
        member_weights(self.saw, batch.index)

    def ask(self, number: int, inputs: Any) -> Float[Tensor, "*batch outputs"]:
        """One member's logits, in the order of the class names; or its means and log-variances."""
        model = self.models[number]
        with self._autocast(model, inputs):
            answer = model(inputs) if isinstance(model, Adapter) else call(model, laid_out(model, inputs))
        return self._checked(number, answer)

    def _checked(self, number: int, answer: Any) -> Float[Tensor, "*batch outputs"]:
        model, order = self.models[number], self._orders[number]
        who = f"member {number} ({type(model).__name__})"
        if not isinstance(answer, Tensor) or not answer.is_floating_point():
            wanted = "logits" if self.family == "categorical" else "means and log-variances"
            raise TypeError(f"{who} must answer with a tensor of {wanted}, got a {type(answer).__name__}")
        if self.precision == "bf16-mixed":
            answer = at_least_single(answer)
        if self.family == "gaussian":
            return with_variance(answer, self.noise, who)
        known = len(self.class_names or []) if order is None else sum(place != ABSENT for place in order)
        if self.class_names is not None and answer.shape[-1] != known:
            raise ValueError(
                f"{who} answers {tuple(answer.shape)}, but there are {len(self.class_names)} names: {self.class_names}"
            )
        if number in self._assumed:
            require_logits(answer, who)
            self._assumed.discard(number)
        return answer if order is None else in_order(answer, order)

    def said(self, inputs: Any) -> Any:
        """What every member says, as a `Categorical` or `Gaussian` with member axis −2, whatever it was trained on."""
        together = None
        if self._side_by_side is not None and isinstance(inputs, Tensor):
            with self._autocast(self.models[0], inputs):
                together = self._side_by_side(inputs)
        if together is None:
            answers = [self.ask(number, inputs) for number in range(self.members)]
        else:
            answers = [self._checked(number, answer) for number, answer in enumerate(together.unbind(-2))]
        return family_named(self.family).from_output(stack_members(answers))

    def forward(self, batch: Batch) -> Mixture:
        weights = member_weights(self.saw, batch.index)
        said = self.said(batch.inputs)
        if weights is not None:
            mean = said.mean
            weights = weights.reshape(len(weights), *[1] * (mean.ndim - 3), self.members)
            weights = weights.to(mean).expand(mean.shape[:-1])
        return Mixture(said, weights)

    @torch.no_grad()
    def predict(self, inputs: Any, batch_size: int = 1024) -> Mixture:
        """Every member's answer about these inputs, as one mixture."""
        inputs = as_inputs(inputs)
        size = len(tensors_in(inputs)[0])
        parts = []
        for start in range(0, size, batch_size):
            rows = slice(start, start + batch_size)
            parts.append(self.said(map_tensors(lambda t: t[rows], inputs)))  # noqa: B023
        return Mixture(joined(parts))


def as_teacher(given: Any, examples: int | None = None) -> Teacher:
    """A teacher as it is, a list of models as an `Ensemble`, anything else (arrays, files) as `Predictions`."""
    if isinstance(given, Teacher):
        return given
    if isinstance(given, (list, tuple)) and given and any(is_model(model) for model in given):
        return Ensemble(given)
    if is_model(given):
        raise TypeError(
            f"a single {type(given).__name__} is no ensemble: pass a list of models, or [it] to distil it alone"
        )
    return Predictions(given, examples)
