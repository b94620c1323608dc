"""Which classes a loss pulls at: the gradient-ratio study of the proxy paper (Ryabinin et al., 2021, Figure 1)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from solera.recipes.base import Recipe, Workspace
from solera.recipes.page import origin, pyplot, save_figure, table

Ratios = dict[str, dict[str, list[float | None]]]  # situation -> criterion -> ρ along the classes
Criterion = Callable[[Tensor, Tensor, Tensor], Tensor]  # e = e^z, π target, β = π·β₀ -> loss

EPSILON, MODEL_PRECISION, TARGET_PRECISION = 1e-4, 9e4, 1e5


def log_beta(a: Float[Tensor, " K"]) -> Float[Tensor, ""]:
    """ln B(α) = Σ lnΓ(α_k) − lnΓ(α₀)."""
    return a.lgamma().sum() - a.sum().lgamma()


def forward_kl(a: Float[Tensor, " K"], b: Float[Tensor, " K"]) -> Float[Tensor, ""]:
    """KL[Dir(β) ‖ Dir(α)]: the model α comes second (eq. 14, third line)."""
    return log_beta(a) - log_beta(b) + ((b - a) * (b.digamma() - b.sum().digamma())).sum()


def reverse_kl(a: Float[Tensor, " K"], b: Float[Tensor, " K"]) -> Float[Tensor, ""]:
    """KL[Dir(α) ‖ Dir(β)]: the model α comes first (eq. 14, fourth line)."""
    return forward_kl(b, a)


CRITERIA: dict[str, Criterion] = {
    "cross-entropy": lambda e, target, b: -(target * (e / e.sum()).log()).sum(),
    "Dirichlet NLL": lambda e, target, b: log_beta(e) - ((e - 1) * target.log()).sum(),
    "forward KL": lambda e, target, b: forward_kl(e, b),
    "forward KL, +1": lambda e, target, b: forward_kl(e + 1, b + 1),
    "reverse KL": lambda e, target, b: reverse_kl(e, b),
    "reverse KL, +1": lambda e, target, b: reverse_kl(e + 1, b + 1),
}

SITUATIONS = ("initialisation", "near convergence", "misclassified")
TAIL = "tail"


def sparse(classes: int, tail: float) -> Float[Tensor, " K"]:
    """(1 − tail, tail/(K − 1), …): one likely class, the rest alike."""
    probs = torch.full((classes,), tail / (classes - 1), dtype=torch.float64)
    probs[0] = 1 - tail
    return probs


def situation(name: str, classes: int) -> Float[Tensor, " K"]:
    """e^z of the network: all 1 at first, then sure of the right class 1, or as sure of the wrong class K."""
    if name == "initialisation":
        return torch.ones(classes, dtype=torch.float64)
    e = MODEL_PRECISION * sparse(classes, 5 * EPSILON)
    return e if name == "near convergence" else e.flip(0)


def gradient(criterion: Criterion, e: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
    """∂L/∂z by automatic differentiation, in float64: the worst cancellation here leaves ten digits."""
    z = e.log().requires_grad_()
    target = sparse(len(e), EPSILON)
    return torch.autograd.grad(criterion(z.exp(), target, TARGET_PRECISION * target), z)[0]


def gradient_ratio(criterion: Criterion, name: str, classes: int) -> float:
    """ρ = (K − 1)/K · |∂L/∂z_1| / Σ_{k ≥ 2} |∂L/∂z_k| (eq. 15)."""
    size = gradient(criterion, situation(name, classes)).abs()
    return float((classes - 1) / classes * size[0] / size[1:].sum())


def tail_ratio(criterion: Criterion, classes: int) -> float | None:
    """ρ after a misclassification, with the sum over the tail proper: 2 ≤ k < K, without the wrong class."""
    size = gradient(criterion, situation("misclassified", classes)).abs()
    return float((classes - 1) / classes * size[0] / size[1:-1].sum()) if classes > 2 else None


@dataclass(frozen=True)
class GradientRatio(Recipe):
    """How much a loss cares for the class that matters beside the tail of unlikely ones, from 2 to 10,000 classes.

    Six criteria in the proxy paper's three situations: exact, no data, no training, some seconds; no use for `seed`.
    """

    classes: tuple[int, ...] = (2, 10, 30, 100, 300, 1000, 3000, 10000)

    def __post_init__(self) -> None:
        if not self.classes or min(self.classes) < 2 or list(self.classes) != sorted(set(self.classes)):
            raise ValueError(f"classes must be increasing numbers of at least 2, got {self.classes}: try 10,100,1000")

    def run(self, work: Workspace) -> str:
        pyplot()
        work.say(f"six losses in three situations, with {self.classes[0]} to {self.classes[-1]} classes")
        ratios = work.remember("ratios", self.ratios)
        self.draw(ratios, work)
        return self.page(ratios, work)

    def ratios(self) -> Ratios:
        """ρ by situation and criterion, along `classes`."""
        found: Ratios = {
            where: {name: [gradient_ratio(c, where, k) for k in self.classes] for name, c in CRITERIA.items()}
            for where in SITUATIONS
        }
        return found | {TAIL: {name: [tail_ratio(c, k) for k in self.classes] for name, c in CRITERIA.items()}}

    def draw(self, ratios: Ratios, work: Workspace) -> None:
        """Three panels, one line per criterion."""
        plt = pyplot()
        figure, panels = plt.subplots(1, 3, figsize=(13.5, 4.6), sharex=True, layout="constrained")
        for panel, where in zip(panels, SITUATIONS, strict=True):
            panel.axhline(1, color="0.8", linewidth=1, zorder=0)
            for name, values in ratios[where].items():
                panel.loglog(self.classes, values, label=name, **LINES[name])
            panel.set_title(where)
            panel.set_xlabel("number of classes K")
            panel.grid(alpha=0.25)
            panel.set_xticks([10, 100, 1000, 10000], ["10", "100", "1,000", "10,000"])
        panels[0].set_ylabel("ρ")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
        figure.suptitle("Gradient ratio ρ: above 1 a loss pulls harder at the target class than at all others together")
        save_figure(figure, work.folder / "gradient-ratio.png")
        plt.close(figure)

    def page(self, ratios: Ratios, work: Workspace) -> str:
        """The numbers, and what they say about the paper's claim."""
        header = ["criterion", *(f"K = {classes}" for classes in self.classes)]
        tables = {
            where: table(header, [[name, *map(number, values)] for name, values in rows.items()])
            for where, rows in ratios.items()
        }
        last = {where: {name: number(values[-1]) for name, values in rows.items()} for where, rows in ratios.items()}
        findings = FINDINGS if self.classes[-1] >= 1000 else "What the paper claims shows with 1,000 classes or more.\n"
        text = (PAGE + findings + HOW).format(tables=tables, last=last, classes=f"{self.classes[-1]:,}")
        return f"{text}\n{origin(self, 'gradient-ratio', work)}\n"


def number(value: float | None) -> str:
    """Four digits at most, whatever the size; a dash where there is nothing to divide by."""
    if value is None:
        return "–"
    if 1e-3 <= value < 1e3:
        return f"{value:.4g}"
    return f"{value:,.0f}" if value > 1 else f"{value:.1e}".replace("e-0", "e-")


LINES: dict[str, dict[str, Any]] = {
    "cross-entropy": {"color": "0.25", "linestyle": "--", "linewidth": 2},
    "Dirichlet NLL": {"color": "#d95f02", "marker": "s", "markersize": 4},
    "forward KL": {"color": "#b8860b", "marker": "v", "markersize": 4},
    "forward KL, +1": {"color": "#b8860b", "marker": "v", "markersize": 4, "linestyle": ":"},
    "reverse KL": {"color": "#1b6ca8", "marker": "o", "markersize": 4},
    "reverse KL, +1": {"color": "#1b6ca8", "marker": "o", "markersize": 4, "linestyle": ":"},
}

PAGE = """\
# Gradient ratio

Why does the original EnD² loss fail with many classes? Because it pulls less at the class that matters than at all
others: with {classes} classes, before any training, the ratio ρ of the two is {last[initialisation][Dirichlet NLL]} for
EnD² (Dirichlet NLL) and {last[initialisation][reverse KL, +1]} for the proxy loss (reverse KL, +1).

![ρ against the number of classes for six losses in three situations](gradient-ratio.png)

"""

FINDINGS = """\
## What reproduces, and what does not

The paper prints no numbers, only the figure, so this is a comparison of statements. With {classes} classes:

- **Reproduces.** The Dirichlet NLL and the forward KL lose the target class as K grows, at initialisation
  (ρ = {last[initialisation][Dirichlet NLL]} and {last[initialisation][forward KL]}) and after a misclassification
  ({last[misclassified][Dirichlet NLL]} and {last[misclassified][forward KL]}). Cross-entropy stays at (K − 1)/K in all
  situations. At initialisation, where training starts, both forms of the reverse KL grow and stabilise
  (ρ = {last[initialisation][reverse KL]} plain, {last[initialisation][reverse KL, +1]} with +1).
- **Does not reproduce literally.** The paper says of the reverse KL that "ρ grows and stabilizes as the number of
  classes is increased in all situations". The plain reverse KL does not near convergence, where ρ falls to
  {last[near convergence][reverse KL]} (and after a misclassification it grows without stabilising, to
  {last[misclassified][reverse KL]}). With +1, the form the method uses, it is the other way round:
  {last[near convergence][reverse KL, +1]} near convergence, {last[misclassified][reverse KL, +1]} after a
  misclassification. That +1 "improves ρ, especially near convergence" is right about convergence; the price is paid
  after a misclassification. And near convergence it is +1 that does it, not the direction of the divergence: the
  forward KL with +1 has {last[near convergence][forward KL, +1]}.
- **What the claim does say.** After a misclassification the sum over k ≥ 2 holds one class that is no tail class at
  all: the wrong one, which the loss must push down, and which has most of the sum. Leave it out, and the target class
  outweighs the whole tail under the reverse KL with or without +1, at every K, while under the Dirichlet NLL and the
  forward KL the tail still wins (ρ after a misclassification, class K left out of the sum):

{tables[tail]}

In short: neither at initialisation nor after an error does the reverse KL let the tail drown the target class, which is
what stalls EnD² with many classes. That its ρ never falls as K grows is not so.
"""

HOW = """
## How

The proxy paper (Ryabinin et al., 2021, section 3, Figure 1) compares how hard each loss pulls at the logit of the class
that matters with how hard it pulls at all others: ρ = (K − 1)/K · |∂L/∂z₁| / Σ_{{k ≥ 2}} |∂L/∂z_k|. A ρ that falls as K
grows means a network that is kept busy by classes nobody asks about. This page computes the same ratio exactly
(float64, automatic differentiation; checked against mpmath and against the losses Solera ships).

The target is π = (1 − ε, ε/(K − 1), …) with ε = 10⁻⁴; for the divergences β = 10⁵·π. The network says e^z = 1
everywhere at initialisation, 9·10⁴·(1 − 5ε, 5ε/(K − 1), …) near convergence, and the same with the first and the last
class exchanged when it has misclassified. "+1" adds one to every concentration of the model and of the target, as the
proxy loss does. Cross-entropy is EnD, Dirichlet NLL is EnD², reverse KL, +1 is Proxy-Dirichlet.

Initialisation:

{tables[initialisation]}

Near convergence (the Dirichlet NLL's peak near K = 100 is no merit: there the tail's gradient passes through zero on
its way from one sign to the other):

{tables[near convergence]}

Misclassified:

{tables[misclassified]}
"""
