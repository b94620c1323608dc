"""A Normal-Wishart over Gaussians: what a prior network for continuous targets answers (Malinin et al., 2020)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from solera.core.special import digamma_remainder, lgamma_remainder
from solera.distributions.base import SecondOrder
from solera.distributions.gaussian import Ends, beside, rounded_ends
from solera.distributions.quantiles import check_level
from solera.distributions.student_t import central_quantile

# A network says −ln E[λ], ln κ and ln(ν − D − 1). Members that agree, or a single one, have no likeliest κ and ν: both
# would grow without end. So these are bounded: each is the network's number near 0 and nears its cap only far out.
LOG_VARIANCE_CAP = 40.0  # 1/E[λ] from e^−40 to e^40: with members' own ln σ² in ±40, no loss overflows float32
BELIEF_CAP = 16.0  # κ up to 9e6: members whose means differ by a three-thousandth of σ
FREEDOM_CAP = 16.0
FREEDOM_FLOOR = 0.7  # ν − D − 1 from 0.5. As it nears 0, σ² grows without end, by the law's tail and not by any member


def _bounded(x: Tensor, below: float, above: float) -> Tensor:
    """x/√(1 + (x/c)²), c = `below` on the left of 0: twice smooth there; its slope falls like x⁻³, not like e^{−x}."""
    return x * torch.where(x < 0, x / below, x / above).square().add(1).rsqrt()


def _stirling(x: Tensor) -> Tensor:
    """lnΓ(x) − (x − ½)·ln x + x − 1 for x ≥ 1: between −0.082 and 0."""
    u = x.reciprocal()
    return (1 - u) * lgamma_remainder(u)


@dataclass(frozen=True, init=False)
class NormalWishart(SecondOrder):
    """Λ ~ Wishart(W, ν), μ ~ N(m, (κΛ)⁻¹), with W diagonal: a distribution over N(μ, Λ⁻¹), targets of D dimensions.

    Given by m, the expected variance σ² = diag E[Λ⁻¹] = 1/(W·(ν − D − 1)) as its logarithm, κ and ν. Total, data and
    knowledge are variances summed over D (they obey the law of total variance); the other measures are in nats.
    """

    location: Float[Tensor, "*batch D"]
    log_variance: Float[Tensor, "*batch D"]
    belief: Float[Tensor, "*batch"]  # κ > 0
    freedom: Float[Tensor, "*batch"]  # ν > D + 1

    def __init__(
        self,
        mean: Float[Tensor, "*batch D"],
        log_variance: Float[Tensor, "*batch D"],
        belief: Float[Tensor, "*batch"],
        freedom: Float[Tensor, "*batch"],
    ) -> None:
        object.__setattr__(self, "location", mean)  # frozen; and `mean` is what every prediction has, not a field
        object.__setattr__(self, "log_variance", log_variance)
        object.__setattr__(self, "belief", belief)
        object.__setattr__(self, "freedom", freedom)

    @staticmethod
    def outputs(size: int) -> int:
        """How many outputs a network needs for a target of `size` dimensions."""
        return 2 * size + 2

    @classmethod
    def from_output(cls, output: Float[Tensor, "*batch outputs"]) -> "NormalWishart":
        """m, −ln E[λ], ln κ and ln(ν − D − 1), the last three bounded by the caps above; in float32 at least.

        A likelihood tells the mean of the precisions from their spread (ν) without mixing the two up, and σ² follows:
        σ² = ν/(ν − D − 1)/E[λ]. Given σ² itself, a training can get lost where ν is least and σ² without end.
        """
        size, odd = divmod(output.shape[-1] - 2, 2)
        if odd or size < 1:
            raise ValueError(
                f"a Normal-Wishart over D dimensions needs 2·D + 2 outputs, got {output.shape[-1]}: give the network "
                "NormalWishart.outputs(D) of them"
            )
        output = output if output.dtype == torch.float64 else output.float()
        mean, log_variance, last = output.split([size, size, 2], -1)
        belief = _bounded(last[..., 0], BELIEF_CAP, BELIEF_CAP).exp()
        excess = _bounded(last[..., 1], FREEDOM_FLOOR, FREEDOM_CAP).exp()
        wider = ((size + 1) / excess).log1p().unsqueeze(-1)  # ln(ν/(ν − D − 1))
        log_variance = _bounded(log_variance, LOG_VARIANCE_CAP, LOG_VARIANCE_CAP) + wider
        return cls(mean, log_variance, belief, excess + (size + 1))

    @property
    def mean(self) -> Float[Tensor, "*batch D"]:
        return self.location

    @property
    def total(self) -> Float[Tensor, "*batch"]:
        """Σ_d σ²_d·(1 + 1/κ): the variance of the predictive Student-t."""
        return self.data + self.knowledge

    @property
    def data(self) -> Float[Tensor, "*batch"]:
        """Σ_d E[1/λ_d] = Σ_d σ²_d."""
        return self.log_variance.exp().sum(-1)

    @property
    def knowledge(self) -> Float[Tensor, "*batch"]:
        """Σ_d Var[μ_d] = Σ_d σ²_d/κ."""
        return self.data / self.belief

    @property
    def epkl(self) -> Float[Tensor, "*batch"]:
        """E[KL] of two draws in nats: ½[(Dν/(ν−D−1))·(1 + 1/κ) − D + D/κ] = D/κ + ½D·(D+1)/(ν−D−1)·(1 + 1/κ)."""
        size, _, belief, freedom = self._precise
        excess = freedom - size - 1
        return self._rounded(size / belief + 0.5 * size * (size + 1) / excess * (1 + 1 / belief))

    @property
    def mutual_information(self) -> Float[Tensor, "*batch"]:
        """I[y, (μ, Λ)] = H[Student-t] − E[H[N]] in nats, good to 1e-15: ln σ² and all that is large cancels on paper.

        With n = ν − D + 1, and R, δ what Stirling's ln x leaves of lnΓ and x·ψ: ½D·ln(1 + 1/κ) + ½(D + 1)·ln(1 + D/n)
        − ½D·ln((ν+1)/(ν−D−1)) + ½Σ_j [ln((ν−j)/(ν−D−1)) + 2δ_j/(ν−j)] + δ₁ − (1 + D/n)·δ₀ − R₁ + R₀.
        """
        size, _, belief, freedom = self._precise
        n, excess = freedom - size + 1, freedom - size - 1
        low, high = 2 / n, 2 / (n + size)
        j = self._steps
        u = 2 / (freedom.unsqueeze(-1) - j)
        each = ((size + 1 - j) / excess.unsqueeze(-1)).log1p() + u * digamma_remainder(u)
        result = 0.5 * size * ((1 / belief).log1p() - ((size + 2) / excess).log1p())
        result = result + 0.5 * (size + 1) * (size / n).log1p() + 0.5 * each.sum(-1)
        result = result + digamma_remainder(high) - (1 + size / n) * digamma_remainder(low)
        return self._rounded(result + _stirling(n / 2) - _stirling((n + size) / 2))

    @property
    def rmi(self) -> Float[Tensor, "*batch"]:
        """Reverse mutual information in nats: epkl − mutual_information."""
        return self.epkl - self.mutual_information

    def log_prob(self, y: Float[Tensor, "..."]) -> Float[Tensor, "*batch"]:
        """ln of the predictive Student-t with n = ν − D + 1 degrees of freedom; as ν grows it becomes the Gaussian.

        −½Σ ln(2πσ²(1 + 1/κ)) − ½(n + D)·ln(1 + q), q = Σ (y − m)²/(σ²(1 + 1/κ)(n − 2)), and what tells t from N.
        """
        size, log_variance, belief, freedom = self._precise
        n, excess = freedom - size + 1, freedom - size - 1
        away = (beside(y, self.location).double() - self.location.double()) * (-0.5 * log_variance).exp()
        q = away.square().sum(-1) / (1 + 1 / belief) / excess
        gammas = 0.5 * (n - 1) * (size / n).log1p() - 0.5 * size + _stirling((n + size) / 2) - _stirling(n / 2)
        gammas = gammas + 0.5 * size * ((size + 2) / excess).log1p()
        scale = log_variance.sum(-1) + size * (math.log(2 * math.pi) + (1 / belief).log1p())
        return self._rounded(gammas - 0.5 * scale - 0.5 * (n + size) * q.log1p())

    def interval(self, level: float = 0.9, dtype: torch.dtype | None = None) -> Ends:
        """Where the central interval of probability `level` begins and ends, in every dimension: of the Student-t.

        Its scale is √(σ²(1 + 1/κ)·(n − 2)/n), n = ν − D + 1. See `Gaussian.interval`.
        """
        check_level(level, "level")
        size, log_variance, belief, freedom = self._precise
        excess = freedom - size - 1  # n − 2
        n = (excess + 2).clamp(max=1e30)  # ∞ is the Gaussian, and so is this, to the last digit
        z = torch.from_numpy(central_quantile(level, n.detach().cpu().numpy().reshape(-1))).reshape(n.shape)
        wider = ((1 + 1 / belief) / (1 + 2 / excess)).sqrt() * z.to(n.device)
        centre, half = self.location.double(), (0.5 * log_variance).exp() * wider.unsqueeze(-1)
        return rounded_ends(centre - half, centre + half, self.location, dtype)

    def log_density(
        self, mean: Float[Tensor, "*batch M D"], log_variance: Float[Tensor, "*batch M D"]
    ) -> Float[Tensor, "*batch M"]:
        """ln NW(μ, Λ) at members N(μ_m, diag σ²_m), Λ = diag 1/σ²_m: the density in μ and the matrix Λ, complete.

        With d = ln(λ/E[λ]): −½ν·Σ(e^d − 1 − d) − ½D·Σ ln λ − ½κ·Σ λ(μ − m)² + ½D·ln(κ/2π) + [½Dν·ln(ν/2) − ½Dν −
        lnΓ_D(ν/2)]; of the bracket, ν·ln ν is taken out on paper.
        """
        size, own, belief, freedom = self._precise
        theirs = log_variance.double()
        d = (own - ((size + 1) / (freedom - size - 1)).log1p().unsqueeze(-1)).unsqueeze(-2) - theirs
        away = (mean.double() - self.location.double().unsqueeze(-2)) * (-0.5 * theirs).exp()
        spread = freedom.unsqueeze(-1) * (torch.expm1(d) - d).sum(-1) + belief.unsqueeze(-1) * away.square().sum(-1)
        j, nu = self._steps, freedom.unsqueeze(-1)
        x = (nu - j) / 2  # lnΓ_D(ν/2) = Σ_j lnΓ(x_j) + ½j·ln π
        gammas = 0.5 * (j + 1) * x.log() - 0.5 * j * (1 + math.log(math.pi)) - 1 - _stirling(x)
        gammas = gammas - 0.5 * nu * (-j / nu).log1p()
        constant = gammas.sum(-1) + 0.5 * size * (belief.log() - math.log(2 * math.pi))
        return self._rounded(constant.unsqueeze(-1) + 0.5 * size * theirs.sum(-1) - 0.5 * spread)

    @property
    def _precise(self) -> tuple[int, Tensor, Tensor, Tensor]:
        """D, and ln σ², κ and ν in float64: what is subtracted below must not have been rounded to float32."""
        return self.location.shape[-1], self.log_variance.double(), self.belief.double(), self.freedom.double()

    @property
    def _steps(self) -> Tensor:
        """j = 0 … D − 1, of the D gamma functions in lnΓ_D(ν/2): they stand at (ν − j)/2, all above 1."""
        return torch.arange(self.location.shape[-1], dtype=torch.float64, device=self.location.device)

    def _rounded(self, value: Tensor) -> Tensor:
        return value.to(self.location.dtype)
