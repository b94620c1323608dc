"""A logistic-normal over class probabilities: the softmax of Gaussian logits, with a low-rank and a diagonal part."""

import math
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from solera.distributions.base import SecondOrder
from solera.distributions.categorical import Categorical
from solera.distributions.mixture import Mixture

NODES = 128  # at which the measures are taken


@cache
def nodes(count: int, dimensions: int) -> np.ndarray:
    """`count` fixed points `[count, dimensions]` in the place of a standard normal: pairs x and −x, of variance one.

    By NumPy's RandomState, whose numbers are promised to stay what they are: the same points on every machine.
    """
    half = np.random.RandomState(0).standard_normal((count // 2, dimensions))
    half /= np.sqrt(np.square(half).mean(0))
    return np.concatenate([half, -half])


@dataclass(frozen=True)
class LogisticNormal(SecondOrder):
    """π = softmax(z), z ~ N(μ, L·Lᵀ + diag(σ²)): classes may go together, which a Dirichlet's never do.

    The density is exact. The mean and the measures have no closed form: they are those of `count` fixed points of
    equal weight, and exactly so (total = data + knowledge). They are the same at every call, have a gradient, and can
    be exported.
    """

    location: Float[Tensor, "*batch K"]  # μ; a constant added to it changes nothing
    deviation: Float[Tensor, "*batch K"]  # σ
    factors: Float[Tensor, "*batch R K"]  # Lᵀ
    count: int = NODES

    @classmethod
    def from_output(
        cls,
        output: Float[Tensor, "*batch outputs"],
        rank: int,
        least: float,
        temperature: float | Tensor = 1.0,
        shift: float | Tensor = 0.0,
        count: int = NODES,
    ) -> "LogisticNormal":
        """Of a network's output (μ, s, Lᵀ), each K numbers a row: σ² = least² + e^{2s}.

        Fitted: the logits are divided by T = `temperature`, σ and L multiplied by e^b, b = `shift`.
        """
        if output.shape[-1] % (rank + 2):
            raise ValueError(
                f"{output.shape[-1]} outputs are no logistic-normal of rank {rank}: give the network "
                f"{rank + 2}·classes of them"
            )
        whole = output if output.dtype == torch.float64 else output.float()
        parts = whole.unflatten(-1, (rank + 2, output.shape[-1] // (rank + 2)))
        deviation = (0.5 * torch.logaddexp(2 * parts[..., 1, :], parts.new_tensor(2 * math.log(least)))).exp()
        growth = torch.as_tensor(shift, dtype=parts.dtype).exp() / temperature
        return cls(parts[..., 0, :] / temperature, growth * deviation, growth * parts[..., 2:, :], count)

    @cached_property
    def members(self) -> Mixture:
        """What the fixed points say: μ + L·ξ + σ∘ε, equally weighted."""
        rank, classes = self.factors.shape[-2:]
        points = torch.tensor(nodes(self.count, rank + classes)).to(self.location)
        together = (points[:, :rank].unsqueeze(-1) * self.factors.unsqueeze(-3)).sum(-2)
        alone = points[:, rank:] * self.deviation.unsqueeze(-2)
        return Mixture(Categorical(self.location.unsqueeze(-2) + together + alone))

    @property
    def mean(self) -> Float[Tensor, "*batch K"]:
        return self.members.mean

    @property
    def total(self) -> Float[Tensor, "*batch"]:
        """H[mean]."""
        return self.members.total

    @property
    def data(self) -> Float[Tensor, "*batch"]:
        """E[H[y|π]]."""
        return self.members.data

    @property
    def knowledge(self) -> Float[Tensor, "*batch"]:
        """I[y, π] = E[KL[π ‖ mean]]."""
        return self.members.knowledge

    @property
    def rmi(self) -> Float[Tensor, "*batch"]:
        """E[KL[mean ‖ π]]."""
        return self.members.rmi

    def log_prob(self, y: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """ln E[π_y]."""
        return self.members.log_prob(y)

    def log_density(self, log_probs: Float[Tensor, "*batch M K"]) -> Float[Tensor, "*batch M"]:
        """ln p(π) of probabilities, given by their logarithms ℓ, against the same measure as a Dirichlet's density.

        With d = ℓ − μ and L each less their mean weighted by σ⁻² (softmax forgets a constant), a = d/σ, A = L/σ,
        G = I + AᵀA: −½·(aᵀa − aᵀA·G⁻¹·Aᵀa + ln|G| + Σ ln σ² + ln Σ σ⁻² + (K − 1)·ln 2π) − Σ ln π. In float64.
        """
        deviation, classes = self.deviation.double(), log_probs.shape[-1]
        share = (-2 * deviation.log()).softmax(-1)
        away = log_probs.double() - self.location.double().unsqueeze(-2)
        away, factors = (_centred(t, share) / deviation.unsqueeze(-2) for t in (away, self.factors.double()))
        inside = torch.eye(factors.shape[-2], dtype=torch.float64, device=factors.device) + factors @ factors.mT
        lower = torch.linalg.cholesky(inside)
        along = torch.linalg.solve_triangular(lower, factors @ away.mT, upper=False)
        distance = away.square().sum(-1) - along.square().sum(-2)
        size = 2 * deviation.log().sum(-1) + (-2 * deviation.log()).logsumexp(-1)
        size = size + 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum(-1) + (classes - 1) * math.log(2 * math.pi)
        density = -0.5 * (distance + size.unsqueeze(-1)) - log_probs.double().sum(-1)
        return density.to(self.location.dtype)


def _centred(rows: Float[Tensor, "*batch M K"], share: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch M K"]:
    return rows - (rows * share.unsqueeze(-2)).sum(-1, keepdim=True)
