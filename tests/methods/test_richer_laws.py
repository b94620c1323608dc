"""The mixture of Dirichlets and the logistic-normal as methods: their losses, what they learn, and their size."""

from dataclasses import asdict, replace

import mpmath as mp
import numpy as np
import pytest
import torch

from solera import Batches, Ensemble, Student, Training, distill
from solera.distributions import Categorical, Mixture
from solera.distributions import LogisticNormal as Law
from solera.methods import (
    DirichletMixture,
    EnD2,
    LogisticNormal,
    dirichlet_mixture_loss,
    end2_loss,
    logistic_normal_loss,
)
from solera.nn import MLP
from tests import referee


def exact_mixture_loss(output, members, components, temperature, smoothing=1e-4):
    """−T²·mean_m ln Σ_c w_c·Dir(p̃_m | e^{z_c/T}) in 60 digits."""
    t, g = mp.mpf(temperature), mp.mpf(smoothing)
    rows = [referee.numbers(row) for row in output.unflatten(-1, (components, -1))]
    weights, classes = referee.softmax([row[-1] for row in rows]), len(rows[0]) - 1
    loss = mp.mpf(0)
    for member in members:
        p = [(1 - g) * x + g / classes for x in referee.softmax(referee.numbers(member), t)]
        densities = []
        for row in rows:
            alpha = [mp.exp(z / t) for z in row[:-1]]
            log_density = mp.loggamma(mp.fsum(alpha)) - mp.fsum(mp.loggamma(a) for a in alpha)
            densities.append(log_density + mp.fsum((a - 1) * mp.log(x) for a, x in zip(alpha, p, strict=True)))
        loss -= mp.log(mp.fsum(w * mp.exp(d) for w, d in zip(weights, densities, strict=True)))
    return t**2 * loss / len(members)


@pytest.mark.parametrize("temperature", [1.0, 10.0])
@pytest.mark.parametrize("level", [-30.0, 0.0, 5.0, 15.0, 20.0])
@pytest.mark.parametrize("kind", ["ordinary", "one-hot", "identical"])
def test_dirichlet_mixture_loss(kind, level, temperature):
    random = np.random.default_rng(0)
    members = {"ordinary": random.normal(0, 2, (4, 5)), "one-hot": 60 * np.eye(5)[:4], "identical": np.ones((4, 5))}[
        kind
    ]
    output = random.normal(0, 1, (3, 6))
    output[0, 0] = level
    output, members = (torch.tensor(a, dtype=torch.float32) for a in (output.reshape(-1), members))
    true = float(exact_mixture_loss(output, members, 3, temperature))
    ours = dirichlet_mixture_loss(output, members, 3, temperature).item()
    assert ours == pytest.approx(true, rel=3e-6 * max(1.0, abs(level) / temperature), abs=3e-5 * temperature**2)


def test_one_component_has_the_loss_of_end2():
    logits, members = torch.randn(4, 6), torch.randn(4, 3, 6)
    output = torch.cat([logits, torch.randn(4, 1)], -1)
    torch.testing.assert_close(dirichlet_mixture_loss(output, members, 1, 2.0), end2_loss(logits, members, 2.0))


def test_members_are_given_to_components_until_those_are_freed():
    """At first neighbours share a component and the weights stay even; at last the likelihood alone decides."""
    members = torch.randn(3, 4, 5)
    method, targets = DirichletMixture(initial_temperature=1.0), Mixture(Categorical(members))
    output = torch.randn(3, 12, requires_grad=True)
    logits = output.unflatten(-1, (2, 6))[..., :-1]
    given = (end2_loss(logits[:, 0], members[:, :2]) + end2_loss(logits[:, 1], members[:, 2:])) / 2
    mixed = dirichlet_mixture_loss(output, members)
    for progress, wanted in ((0.0, given), (0.3, given), (0.5, (given + mixed) / 2), (0.7, mixed), (1.0, mixed)):
        loss = method.loss(output, targets, progress)
        torch.testing.assert_close(loss, wanted)
        (gradient,) = torch.autograd.grad(loss.sum(), output, retain_graph=True)
        assert bool((gradient.unflatten(-1, (2, 6))[..., -1] != 0).any()) == (progress > 0.4)


def test_logistic_normal_loss_is_the_density_of_the_smoothed_members():
    output, members = torch.randn(3, 20, dtype=torch.float64), 3 * torch.randn(3, 4, 5, dtype=torch.float64)
    smooth = (1 - 1e-4) * members.softmax(-1) + 1e-4 / 5
    wanted = -Law.from_output(output, 2, 0.01).log_density(smooth.log()).mean(-1)
    torch.testing.assert_close(logistic_normal_loss(output, members), wanted)
    single = logistic_normal_loss(output.float(), members.float())
    torch.testing.assert_close(single.double(), wanted, rtol=1e-5, atol=1e-5)
    assert single.dtype == torch.float32


def test_the_logistic_normal_begins_at_the_members():
    torch.manual_seed(0)
    members = torch.tensor([3.0, 0.0, -2.0]) + torch.randn(200, 4, 3)
    method, network = LogisticNormal(), MLP(2, 12)
    method.begin(network, Mixture(Categorical(members)))
    bias = list(network.modules())[-1].bias.unflatten(-1, (4, 3))
    log_probs = members.log_softmax(-1)
    torch.testing.assert_close(bias[0], log_probs.mean((0, 1)), rtol=0, atol=0.02)
    torch.testing.assert_close(bias[1].exp(), log_probs.std((0, 1)), rtol=0.05, atol=0)
    assert (bias[2:] == 0).all()


class Contradicting(torch.nn.Module):
    """Sure of class 0 or of class 1, whatever it sees; which of the two is fixed."""

    def __init__(self, kind):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor([[4.0, 0.0, -1.0], [0.0, 4.0, -1.0]][kind]))

    def forward(self, x):
        return self.logits + 0.2 * torch.tanh(x[:, :1])


@pytest.mark.parametrize("seed", range(3))
def test_members_of_two_kinds_get_a_component_each(seed):
    """Two thirds say one thing, one third another. A Dirichlet cannot; the mixture does not collapse."""
    ensemble = Ensemble([Contradicting(m < 2) for m in range(6)])
    x, training = torch.randn(256, 2), Training(epochs=25, lr=2e-2, seed=seed)
    torch.manual_seed(seed)
    student = distill(ensemble, MLP(2, 8, (16,)), Batches(x, batch_size=64), DirichletMixture(), training)
    said = student.predict(x[:20])
    weights, order = said.weights.sort(-1)
    torch.testing.assert_close(weights[:, 0], torch.full((20,), 1 / 3), rtol=0, atol=0.1)
    small = said.components.mean.gather(1, order[:, :1, None].expand(-1, -1, 3)).squeeze(1)
    assert (small.argmax(-1) == 1).all()
    torch.manual_seed(seed)
    plain = distill(ensemble, MLP(2, 3, (16,)), Batches(x, batch_size=64), EnD2(), training).predict(x[:20])
    log_probs = ensemble.predict(x[:20]).members.log_probs
    assert said.log_density(log_probs).mean() > plain.log_density(log_probs).mean() + 1


@pytest.mark.parametrize(
    "true",
    [
        DirichletMixture(mean_temperature=0.7, precision_shift=1.2),
        LogisticNormal(nodes=16, mean_temperature=1.4, deviation_shift=-0.6),
    ],
    ids=lambda m: type(m).__name__,
)
def test_the_fit_finds_the_map_that_the_ensemble_follows(true):
    torch.manual_seed(0)
    output, plain = torch.randn(60, true.outputs(3)), type(true)()
    plain = replace(plain, nodes=16) if isinstance(plain, LogisticNormal) else plain
    theirs = true.predict(output)
    fitted = plain.fitted(output, theirs.total, theirs.knowledge)
    assert asdict(fitted) == pytest.approx(asdict(true), rel=1e-3)
    assert plain.fitted(output, theirs.total, torch.zeros(60)) == plain


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DirichletMixture(components=0), "components must be positive"),
        (lambda: DirichletMixture(precision_shift=float("nan")), "precision_shift must be finite"),
        (lambda: LogisticNormal(rank=0), "rank must be positive"),
        (lambda: LogisticNormal(nodes=33), "nodes come in pairs, got 33"),
        (lambda: LogisticNormal(deviation_shift=float("inf")), "deviation_shift must be finite"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_student_says_how_many_outputs_it_needs():
    with pytest.raises(ValueError, match="DirichletMixture needs 8 of them"):
        distill(Ensemble([MLP(2, 3)]), MLP(2, 3), Batches(torch.randn(8, 2)), DirichletMixture(), Training(epochs=1))
    assert Student(MLP(2, 16), LogisticNormal())._outputs == ("mean", "total", "data", "knowledge")
