"""The uncertainty of a whole sequence: one hypothesis y_1 … y_L, teacher-forced, its end of sequence included.

Each step has a prediction; the measures of a sequence are means over its tokens (rates, in nats per token), or come
from the scores ln p(y_t) of its own tokens alone. Members are combined in one of two ways:

    product of expectations     p̄(y_t) = Σ_m w_m p_m(y_t | y_<t), the same weights at every step
    expectation of products     w_m(t) ∝ w_m·Π_{s<t} p_m(y_s): who foresaw the prefix counts for more, in p̄ and in every
                                measure alike, or knowledge could be negative; Σ_t ln p̄(y_t) = ln Σ_m w_m P_m(y)
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from solera.core.checks import require_labels
from solera.distributions.base import SecondOrder
from solera.distributions.categorical import Categorical
from solera.distributions.dirichlet import Dirichlet
from solera.distributions.mixture import Mixture
from solera.distributions.scores import dirichlet_score_rmi, prefix_weights
from solera.distributions.summary import Mean, TopK

Steps = Mixture | Dirichlet | Mean | TopK | Categorical


def aggregate(
    values: Float[Tensor, "*batch B"],
    log_probs: Float[Tensor, "*batch B"],
    temperature: float = 1.0,
    best: int | None = None,
) -> Float[Tensor, "*batch"]:
    """Σ_b w_b·value_b over an n-best list, w = softmax_b(ln P(y_b)/T) over its first `best` hypotheses.

    `log_probs` are those of whole sequences, not divided by their lengths; −∞ is no hypothesis. Samples that were drawn
    from the model have been weighted by drawing them: `temperature=math.inf` gives their mean (Monte Carlo).
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}: choose a value above 0, or math.inf")
    if values.shape != log_probs.shape or not values.shape[-1]:
        raise ValueError(
            f"values of shape {tuple(values.shape)} and log_probs of shape {tuple(log_probs.shape)} must be alike, "
            "with one hypothesis at least: give one log-probability for each value"
        )
    if best is not None and best < 1:
        raise ValueError(f"best must be at least 1 hypothesis, got {best}")
    values, log_probs = values[..., :best], log_probs[..., :best].double()
    tempered = torch.where(log_probs == -torch.inf, log_probs, log_probs / temperature)
    weights = tempered.masked_fill((tempered == -torch.inf).all(-1, keepdim=True), 0.0).softmax(-1)
    return (weights * values.double().masked_fill(weights == 0, 0.0)).sum(-1).to(values.dtype)


@dataclass(frozen=True)
class SequencePrediction:
    """What is known about one hypothesis: per token `[*batch, T]`, as means over the tokens that count `[*batch]`.

    `steps` are an ensemble's (Mixture), a student's (Dirichlet), one model's (Categorical), or what a transfer set kept
    of an ensemble (Mean, TopK). `mask` is true (or 1) where a token counts; what stands elsewhere is not read, be it
    NaN, and its measures are 0. A sequence without tokens has measures of 0.
    """

    steps: Steps
    tokens: Int[Tensor, "*batch T"]
    mask: Shaped[Tensor, "*batch T"] | None = None
    combine: Literal["product", "expectation"] = "product"

    def __post_init__(self) -> None:
        steps, kind = self.steps, type(self.steps).__name__
        if self.combine not in ("product", "expectation"):
            raise ValueError(f"combine must be 'product' or 'expectation', got {self.combine!r}")
        if not isinstance(steps, Steps) or (isinstance(steps, Mixture) and steps.family != "categorical"):
            raise ValueError(
                f"a sequence of tokens needs categorical predictions, got {kind}: pass a Mixture of Categorical, a "
                "Dirichlet, a Categorical, or the Mean or TopK that a transfer set kept"
            )
        if self.combine == "expectation" and isinstance(steps, Mean | TopK | Dirichlet):
            raise ValueError(
                f"combine='expectation' weighs each member by the prefix, and {kind} steps have no members: capture "
                "with codec='dense' and pass the Mixture, or use combine='product'"
            )
        batch, classes = _shape_of(steps)
        if self.tokens.shape != batch or not self.tokens.ndim:
            raise ValueError(
                f"tokens of shape {tuple(self.tokens.shape)} do not fit steps of shape {tuple(batch)}: give one token "
                "for each step"
            )
        if self.mask is not None and self.mask.shape != self.tokens.shape:
            raise ValueError(
                f"mask of shape {tuple(self.mask.shape)} does not fit tokens of {tuple(self.tokens.shape)}"
            )
        require_labels("tokens", self._tokens, classes)

    @cached_property
    def _counted(self) -> Bool[Tensor, "*batch T"]:
        return torch.ones_like(self.tokens, dtype=torch.bool) if self.mask is None else self.mask.bool()

    @cached_property
    def _tokens(self) -> Int[Tensor, "*batch T"]:
        return self.tokens.masked_fill(~self._counted, 0)  # padding is often −100

    @cached_property
    def length(self) -> Int[Tensor, "*batch"]:
        """L: how many tokens count."""
        return self._counted.sum(-1)

    @cached_property
    def _readable(self) -> Mixture[Categorical] | Dirichlet | Mean | TopK:
        """The steps as second-order predictions, even where nothing counts."""
        steps, padding = self.steps, ~self._counted
        if isinstance(steps, Categorical):
            steps = Mixture(Categorical(steps.logits.unsqueeze(-2)))
        if self.mask is None or isinstance(steps, Mean | TopK):
            return steps
        if isinstance(steps, Dirichlet):
            return steps.masked(padding)
        logits = steps.members.logits.masked_fill(padding[..., None, None], 0.0)
        weights = steps.weights
        if weights is not None:
            weights = weights.masked_fill(padding.unsqueeze(-1), 1 / weights.shape[-1])
        return Mixture(Categorical(logits), weights)

    @cached_property
    def _member_log_probs(self) -> Float[Tensor, "*batch T M"]:
        """ln p_m(y_t) in float64; even where nothing counts and for members that must not speak."""
        steps = self._readable
        if not isinstance(steps, Mixture):
            raise ValueError(
                f"{type(steps).__name__} steps are a summary of the ensemble without its members' scores: capture with "
                "codec='dense' for score_data and score_rmi, or use rmi, which was kept"
            )
        members = steps.members if steps.weights is None else steps.members.heard(steps.weights)
        return members.log_prob(self._tokens.unsqueeze(-1).expand(members.logits.shape[:-1])).double()

    @cached_property
    def _prior(self) -> Float[Tensor, "*batch T M"] | None:
        """The weights that the members came with, in float64: three times 1/3 in float32 is 1 + 3e-8."""
        steps = self._readable
        if not isinstance(steps, Mixture) or steps.weights is None:
            return None
        return steps.weights.double() / steps.weights.double().sum(-1, keepdim=True)

    @cached_property
    def _weights(self) -> Float[Tensor, "*batch T M"] | None:
        """The members' weights at each step, in float64; None: all alike."""
        return self._prior if self.combine == "product" else prefix_weights(self._member_log_probs, self._prior)

    @cached_property
    def _weighed(self) -> SecondOrder:
        """The steps whose measures are asked for."""
        steps = self._readable
        if self._weights is None or not isinstance(steps, Mixture):
            return steps
        return Mixture(steps.members, self._weights.to(steps.members.logits.dtype))

    @property
    def _dtype(self) -> torch.dtype:
        steps = self._readable
        if isinstance(steps, Mixture):
            return steps.members.logits.dtype
        return steps.precision.dtype if isinstance(steps, Dirichlet) else steps.spread.total.dtype

    def _per_token(self, values: Float[Tensor, "*batch T"]) -> Float[Tensor, "*batch T"]:
        return values.masked_fill(~self._counted, 0.0)

    def _rate(self, values: Float[Tensor, "*batch T"]) -> Float[Tensor, "*batch"]:
        """The mean over the tokens that count."""
        return (values.sum(-1, dtype=torch.double) / self.length.clamp(min=1)).to(self._dtype)

    @cached_property
    def token_total(self) -> Float[Tensor, "*batch T"]:
        """H[p̄] of each step."""
        return self._per_token(self._weighed.total)

    @cached_property
    def token_data(self) -> Float[Tensor, "*batch T"]:
        """Σ_m w_m H[p_m] of each step."""
        return self._per_token(self._weighed.data)

    @cached_property
    def token_knowledge(self) -> Float[Tensor, "*batch T"]:
        """Mutual information Σ_m w_m KL[p_m ‖ p̄] of each step: total − data, never negative."""
        return self._per_token(self._weighed.knowledge)

    @cached_property
    def token_rmi(self) -> Float[Tensor, "*batch T"]:
        """Reverse mutual information Σ_m w_m KL[p̄ ‖ p_m] of each step."""
        return self._per_token(self._weighed.rmi)

    @cached_property
    def token_epkl(self) -> Float[Tensor, "*batch T"]:
        """Σ_ij w_i w_j KL[p_i ‖ p_j] of each step, over all ordered pairs: knowledge + rmi."""
        return self._per_token(self._weighed.epkl)

    @property
    def total(self) -> Float[Tensor, "*batch"]:
        """Mean of `token_total`."""
        return self._rate(self.token_total)

    @property
    def data(self) -> Float[Tensor, "*batch"]:
        """Mean of `token_data`."""
        return self._rate(self.token_data)

    @property
    def knowledge(self) -> Float[Tensor, "*batch"]:
        """Mean of `token_knowledge`."""
        return self._rate(self.token_knowledge)

    @property
    def rmi(self) -> Float[Tensor, "*batch"]:
        """Mean of `token_rmi`."""
        return self._rate(self.token_rmi)

    @property
    def epkl(self) -> Float[Tensor, "*batch"]:
        """Mean of `token_epkl`."""
        return self._rate(self.token_epkl)

    @cached_property
    def _scores(self) -> Float[Tensor, "*batch T"]:
        """ln p̄(y_t) in float64, 0 where nothing counts."""
        steps = self._readable
        if isinstance(steps, Mixture):
            each = self._member_log_probs
            log_weights = -math.log(each.shape[-1]) if self._weights is None else self._weights.log()
            scores = (each + log_weights).logsumexp(-1)
        elif isinstance(steps, Dirichlet):
            chosen, rest = self._chosen
            scores = -(rest / chosen).log1p()
        else:
            scores = steps.log_prob(self._tokens).double()
        return self._per_token(scores)

    @cached_property
    def _chosen(self) -> tuple[Tensor, Tensor]:
        """α_y and the sum of all others, in float64; a concentration that underflowed is the least number there is."""
        steps, index = self._readable, self._tokens.unsqueeze(-1)
        assert isinstance(steps, Dirichlet)
        away = steps.logits - steps.logits.amax(-1, keepdim=True)
        chosen = away.gather(-1, index).squeeze(-1).double().exp()
        rest = away.exp().scatter(-1, index, 0.0).sum(-1, dtype=torch.double)
        scale = steps.log_precision.exp() / (chosen + rest)
        return (scale * chosen).clamp(min=torch.finfo(torch.double).tiny), scale * rest

    @cached_property
    def _score_gaps(self) -> Float[Tensor, "*batch T"]:
        """ln p̄(y_t) − mean_m ln p_m(y_t), or what the Dirichlet expects of it."""
        steps = self._readable
        if isinstance(steps, Dirichlet):
            return self._per_token(dirichlet_score_rmi(*self._chosen))
        each, prior = self._member_log_probs, self._prior
        average = each.mean(-1) if prior is None else (prior * each.masked_fill(prior == 0, 0.0)).sum(-1)
        possible = self._scores > -torch.inf  # else −∞ − −∞
        return self._per_token(self._scores - average).masked_fill(~possible, 0.0)

    @cached_property
    def log_prob(self) -> Float[Tensor, "*batch"]:
        """Σ_t ln p̄(y_t), not divided by the length."""
        return self._scores.sum(-1).to(self._dtype)

    @property
    def score_total(self) -> Float[Tensor, "*batch"]:
        """−(1/L) Σ_t ln p̄(y_t)."""
        return self._rate(-self._scores)

    @property
    def score_data(self) -> Float[Tensor, "*batch"]:
        """−(1/L) mean_m Σ_t ln p_m(y_t): score_total + score_rmi."""
        return self._rate(self._score_gaps - self._scores)

    @property
    def score_rmi(self) -> Float[Tensor, "*batch"]:
        """score_data − score_total: how much likelier the ensemble finds its words than its members do on average."""
        return self._rate(self._score_gaps).clamp(min=0)


def _shape_of(steps: Steps) -> tuple[torch.Size, int]:
    """The batch axes with the time axis, and the number of classes."""
    if isinstance(steps, Mixture):
        return steps.members.logits.shape[:-2], steps.members.logits.shape[-1]
    if isinstance(steps, TopK):
        return steps.tail.shape, steps.classes
    if isinstance(steps, Dirichlet):
        values = steps.logits
    else:
        values = (steps.averaged if isinstance(steps, Mean) else steps).logits
    return values.shape[:-1], values.shape[-1]
