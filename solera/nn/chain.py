"""A linear chain: P(y) ∝ e^{score(y)}, score(y) = Σ_t emission_t(y_t) + Σ_t transition(y_{t−1}, y_t).

Everything is computed in float64, whatever comes in: scores of ±50 add up to thousands, and what is asked for
(marginals, a likelihood) are small differences of them. The sum over all sequences is taken in one of two ways:

- scaled: messages are probabilities, divided by their largest at each step, so a step is one matrix product. What
  underflows is lost; how much that can be is known afterwards.
- in logarithms: slower and always right; where too much may be lost, and where marginals themselves are to be derived.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from solera.distributions.categorical import Categorical

# Stands for −∞ where numbers are subtracted: far below any score, yet thousands of them can be added (−∞ − −∞ is NaN).
FORBIDDEN = -1e30
# What underflows is below 1e-307: beside scaled sums of this size it is nothing.
TRUSTED = 1e-250
TINY = torch.finfo(torch.double).tiny
EVERY = 4  # so many steps between two divisions


def possible(log_values: Tensor) -> Tensor:
    """−∞ again, where a forbidden score has come in."""
    return log_values.masked_fill(log_values < FORBIDDEN / 10, -torch.inf)


class Scaled(NamedTuple):
    """What one pass in both directions finds out."""

    log_partition: Float[Tensor, "B"]
    marginals: Float[Tensor, "B T K"]
    before: Float[Tensor, "T B K"]  # P(y_t, y_{t+1}) = before_t(y_t)·factor(y_t, y_{t+1})·after_{t+1}(y_{t+1})
    after: Float[Tensor, "T B K"]
    factor: Float[Tensor, "K K"]
    trusted: bool


class _Partition(torch.autograd.Function):
    """ln Z with ∂/∂emission = P(y_t) and ∂/∂transition = Σ_t P(y_t, y_{t+1}), all known beforehand."""

    @staticmethod
    def forward(ctx: Any, emissions: Tensor, transitions: Tensor, found: Scaled) -> Tensor:
        ctx.save_for_backward(found.marginals, found.before, found.after, found.factor)
        return found.log_partition

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (the decorator hides its signature)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        (upstream,), (marginals, before, after, factor) = grad_outputs, ctx.saved_tensors
        pairs = before[:-1].flatten(0, 1).mT @ (after[1:] * upstream.unsqueeze(-1)).flatten(0, 1)
        return upstream[:, None, None] * marginals, factor * pairs, None


def _propagate(
    factors: Float[Tensor, "T two B K"], matrices: Float[Tensor, "two K K"]
) -> tuple[Tensor, Tensor, Tensor]:
    """p, a and n of `Chain._scaled`."""
    p, a = torch.empty_like(factors), factors.clone()
    n = factors.new_ones((len(factors) - 1) // EVERY, *factors.shape[1:3])
    products, steps, sizes = p.unbind(), a.unbind(), n.unsqueeze(-1).unbind()
    products[0].fill_(1.0)
    for t in range(1, len(steps)):
        steps[t].mul_(torch.bmm(steps[t - 1], matrices, out=products[t]))
        if t % EVERY == 0:
            size = torch.amax(steps[t], -1, keepdim=True, out=sizes[t // EVERY - 1])
            steps[t].div_(size.clamp_(min=TINY))  # a row of zeros has no path: it stays as it is, and is not trusted
    return p, a, n


def _repeated(emissions: Tensor, matrices: Tensor, first: Tensor) -> Tensor:
    """The messages as a graph to be exported: one step, repeated for as many tokens as there will be."""
    from torch._higher_order_ops.scan import scan  # not needed elsewhere, and slow to import

    return scan(  # a lambda, because torch.export follows no decorators, not even those of a type checker
        lambda message, now: (
            (
                new := torch.where(
                    now[1], now[0], (message.unsqueeze(-1) + matrices.unsqueeze(1)).logsumexp(-2) + now[0]
                )
            ),
            new.clone(),  # no aliases
        ),
        torch.zeros_like(emissions[0]),
        (emissions, first),
    )[1]


@dataclass(frozen=True)
class Chain:
    """The scores of a batch of sequences; the first `lengths` tokens of each row count, the others' emissions are 0."""

    emissions: Float[Tensor, "B T K"]
    transitions: Float[Tensor, "K K"]  # [previous, next]
    lengths: Int[Tensor, "B"]

    @cached_property
    def _steps(self) -> Int[Tensor, "T"]:
        return torch.arange(self.emissions.shape[1], device=self.lengths.device)

    @cached_property
    def counted(self) -> Tensor:
        """`[B, T]`: which tokens count."""
        return self._steps < self.lengths.unsqueeze(-1)

    @cached_property
    def _last(self) -> Int[Tensor, "B"]:
        return (self.lengths - 1).clamp(min=0)

    @cached_property
    def _mirrored(self) -> Int[Tensor, "T B"]:
        """Each row's tokens from its last to its first; padding stays where it is. Twice mirrored is as before."""
        steps = self._steps.unsqueeze(-1)
        return torch.where(steps < self.lengths, self.lengths - 1 - steps, steps)

    def _mirror(self, values: Float[Tensor, "T B K"]) -> Float[Tensor, "T B K"]:
        return values.gather(0, self._mirrored.unsqueeze(-1).expand_as(values))

    def _at_last(self, values: Float[Tensor, "T B K"]) -> Float[Tensor, "B K"]:
        return values.gather(0, self._last[None, :, None].expand(1, *values.shape[1:])).squeeze(0)

    @torch.no_grad()
    def _scaled(self) -> Scaled:
        """Messages as probabilities, both directions at once.

        With A = e^{transition − max}, E_t = e^{emission_t − max}: p_t = a_{t−1} A, a_t = p_t∘E_t, divided at some steps
        by n_t, its largest. The same from the other end with Aᵀ gives v_t, and c_t = Σ_k p_t v_t: P(y_t) = p_t v_t/c_t,
        ln Z = Σ_t ln n_t + ln Σ_k a_T + all the maxima. Underflow takes at most ~1e-307/(n·c) of Z.
        """
        forwards = self.emissions.transpose(0, 1)
        top, highest = forwards.amax(-1).clamp_(min=FORBIDDEN), self.transitions.amax().clamp(min=FORBIDDEN)
        factors, factor = (forwards - top.unsqueeze(-1)).exp_(), (self.transitions - highest).exp()
        p, a, n = _propagate(torch.stack([factors, self._mirror(factors)], 1), torch.stack([factor, factor.mT]))
        before, after = a[:, 0], self._mirror(a[:, 1])
        joint = p[:, 0] * after
        c = joint.sum(-1, keepdim=True).masked_fill_(~self.counted.mT.unsqueeze(-1), torch.inf)
        inside = (self._steps[EVERY::EVERY].unsqueeze(-1) < self.lengths).unsqueeze(1)
        n = n.masked_fill_(~inside, 1.0)
        log_partition = top.sum(0) + self._last * highest + n[:, 0].log().sum(0) + self._at_last(before).sum(-1).log()
        least = n.amin().clamp(max=1.0) if n.numel() else 1.0
        return Scaled(
            possible(log_partition).masked_fill(self.lengths == 0, 0.0),
            joint.div_(c).transpose(0, 1),
            before,
            after.div_(c),
            factor,
            not c.numel() or bool(c.amin() * least >= TRUSTED),
        )

    @cached_property
    def _finite(self) -> tuple[Tensor, Tensor]:
        """Emissions and transitions without infinities."""
        return self.emissions.clamp(min=FORBIDDEN), self.transitions.clamp(min=FORBIDDEN)

    @cached_property
    def _messages(self) -> tuple[Float[Tensor, "T B K"], Float[Tensor, "T B K"]]:
        """Logarithms of the sums over all that comes before a token, and over all that comes after; itself included."""
        emissions, transitions = self._finite
        forwards = emissions.transpose(0, 1)
        both = torch.stack([forwards, self._mirror(forwards)], 1)
        matrices = torch.stack([transitions, transitions.mT])

        if torch.compiler.is_exporting():
            messages = _repeated(both, matrices, self._steps == 0)
        else:
            each = [both[0]]
            for emission in both[1:]:
                each.append((each[-1].unsqueeze(-1) + matrices.unsqueeze(1)).logsumexp(-2) + emission)
            messages = torch.stack(each)
        return messages[:, 0], self._mirror(messages[:, 1])

    @cached_property
    def log_partition(self) -> Float[Tensor, "B"]:
        """ln Z = ln Σ_y e^{score(y)}; 0 for a row without tokens, whose only sequence is the empty one."""
        if not torch.compiler.is_exporting():
            found = self._scaled()
            if found.trusted:
                return _Partition.apply(self.emissions, self.transitions, found)  # type: ignore[return-value]
        log_partition = self._at_last(self._messages[0]).logsumexp(-1)
        return possible(log_partition).masked_fill(self.lengths == 0, 0.0)

    @cached_property
    def log_marginals(self) -> Float[Tensor, "B T K"]:
        """ln P(y_t): forward and backward message share one emission; even where nothing counts."""
        forward, backward = self._messages
        both = (forward + backward).transpose(0, 1) - self._finite[0]
        return both.masked_fill(~self.counted.unsqueeze(-1), 0.0).log_softmax(-1)

    @property
    def marginals(self) -> Float[Tensor, "B T K"]:
        """P(y_t); 0 where nothing counts."""
        derived = torch.is_grad_enabled() and (self.emissions.requires_grad or self.transitions.requires_grad)
        if not (derived or torch.compiler.is_exporting()):
            found = self._scaled()
            if found.trusted:
                return found.marginals
        return self.log_marginals.exp().masked_fill(~self.counted.unsqueeze(-1), 0.0)

    @property
    def entropy(self) -> Float[Tensor, "B"]:
        """H = H[y_T] + Σ_t Σ_k P(y_t = k)·H[y_{t−1} | y_t = k]: terms that are all positive, so nothing cancels."""
        forward, _ = self._messages
        given_next = forward[:-1].unsqueeze(-2) + self._finite[1].mT
        conditional = (self.log_marginals[:, 1:].exp() * Categorical(given_next).total.transpose(0, 1)).sum(-1)
        end = Categorical(self._at_last(forward)).total.masked_fill(self.lengths == 0, 0.0)
        return end + conditional.masked_fill(~self.counted[:, 1:], 0.0).sum(-1)

    def score(self, tags: Int[Tensor, "B T"]) -> Float[Tensor, "B"]:
        """Of these tags."""
        emitted = self.emissions.gather(-1, tags.unsqueeze(-1)).squeeze(-1)
        moved = self.transitions[tags[:, :-1], tags[:, 1:]].masked_fill(~self.counted[:, 1:], 0.0)
        return emitted.masked_fill(~self.counted, 0.0).sum(-1) + moved.sum(-1)

    @torch.no_grad()
    def best(self) -> Int[Tensor, "B T"]:
        """The sequence of the highest score (Viterbi); 0 where nothing counts."""
        emissions, transitions = self._finite
        steps = emissions.unbind(1)
        reached, origins = [steps[0]], []
        for emission in steps[1:]:
            highest, origin = (reached[-1].unsqueeze(-1) + transitions).max(-2)
            reached.append(highest + emission)
            origins.append(origin)
        end = self._at_last(torch.stack(reached)).argmax(-1)
        tags = [end]
        for step, origin in reversed(list(enumerate(origins))):
            earlier = origin.gather(-1, tags[-1].unsqueeze(-1)).squeeze(-1)
            tags.append(torch.where(self._last > step, earlier, end))
        return torch.stack(tags[::-1], 1).masked_fill(~self.counted, 0)
