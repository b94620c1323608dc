"""Perturbations: directions against finite differences of the stated objectives, steps, edges, and what they leave."""

import copy
import math

import pytest
import torch
from torch import nn

from solera import Ensemble, capture
from solera.core.seeds import generator
from solera.data import Batches
from solera.distributions import Categorical
from solera.nn import MLP, grow
from solera.nn.batch_ensemble import branch
from solera.perturbations import ODS, ConfODS, GaussianNoise, TDiv, TDivSDiv, diversity
from solera.perturbations.base import normalized
from solera.perturbations.diversity import random_pair
from solera.teachers import Labels
from tests.helpers import small_ensemble

ALL = [GaussianNoise, ODS, ConfODS, TDiv, TDivSDiv]
DIRECTED = [ODS, ConfODS, TDiv, TDivSDiv]
FREE = {"range": None, "step": 1e-3}


class Heads(nn.Module):
    """A student [B, M, K] with everything that training mode changes."""

    def __init__(self, members: int = 3, inputs: int = 4, classes: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.5))
        self.head, self.members = nn.Linear(16, members * classes), members

    def forward(self, x):
        return self.head(self.body(x)).unflatten(-1, (self.members, -1))


def sharper(ensemble: Ensemble, factor: float = 3.0) -> Ensemble:
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter *= factor
    return ensemble


@pytest.fixture
def teacher():
    return sharper(small_ensemble(3)).double()


@pytest.fixture
def student():
    torch.manual_seed(5)
    return Heads().double()


@pytest.fixture
def inputs():
    torch.manual_seed(7)
    return torch.randn(6, 4, dtype=torch.double)


def objective(kind, x, teacher, student, inputs, draw):
    """What the paper climbs, one number per example, with everything random drawn as the perturbation draws it."""
    said = teacher.said(x).logits
    if kind in (ODS, ConfODS):
        number = int(torch.randint(3, (), generator=draw))
        wish = 2 * torch.rand(6, 3, generator=draw, dtype=torch.double) - 1
        return (wish * (said[:, number] / 2).softmax(-1)).sum(-1)
    i, j = random_pair(3, draw)
    fixed = teacher.said(inputs).logits
    value = Categorical(fixed[:, i]).kl(Categorical(said[:, j]))
    if kind is TDivSDiv:
        student = copy.deepcopy(student).eval()
        value = value - Categorical(student(inputs)[:, i]).kl(Categorical(student(x)[:, j]))
    return value


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("kind", DIRECTED)
def test_direction_is_that_of_the_steepest_ascent(kind, seed, teacher, student, inputs):
    settings = {**FREE, "temperature": 2.0} if kind in (ODS, ConfODS) else FREE
    moved = kind(**settings)(inputs, teacher, student, generator(seed)) - inputs
    slope = torch.zeros_like(inputs)
    with torch.no_grad():
        for d in range(4):
            h = 1e-5 * torch.eye(4, dtype=torch.double)[d]
            up, down = (objective(kind, inputs + s * h, teacher, student, inputs, generator(seed)) for s in (1, -1))
            slope[:, d] = (up - down) / 2e-5
    torch.testing.assert_close(normalized(moved), normalized(slope), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", DIRECTED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_step_is_as_long_as_it_says(kind, dtype, teacher, student, inputs):
    x = inputs.to(dtype)
    teacher, student = teacher.to(dtype), student.to(dtype)
    moved = kind(range=None, step=0.5)(x, teacher, student, generator(0)) - x
    expected = torch.full((6,), 0.5, dtype=dtype)
    if kind is ConfODS:
        number = int(torch.randint(3, (), generator=generator(0)))
        expected = expected * teacher.said(x).mean[:, number].amax(-1)
    torch.testing.assert_close(moved.norm(dim=1), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("kind", DIRECTED)
def test_inputs_with_a_range_move_by_the_root_of_their_size(kind, teacher, student):
    torch.manual_seed(3)
    x = 0.2 + 0.6 * torch.rand(6, 4, dtype=torch.double)
    moved = kind()(x, teacher, student, generator(0)) - x
    confidence = torch.ones(6, dtype=torch.double)
    if kind is ConfODS:
        confidence = teacher.said(x).mean[:, int(torch.randint(3, (), generator=generator(0)))].amax(-1)
    torch.testing.assert_close(moved.norm(dim=1), math.sqrt(4) / 255 * confidence)
    wide = kind(range=(0.0, 10.0))(x, teacher, student, generator(0)) - x
    torch.testing.assert_close(wide.norm(dim=1), 10 * math.sqrt(4) / 255 * confidence)


@pytest.mark.parametrize("kind", ALL)
def test_nothing_leaves_the_range(kind, teacher, student):
    torch.manual_seed(3)
    x = torch.rand(50, 4, dtype=torch.double).round()
    moved = kind(step=0.5)(x, teacher, student, generator(0))
    assert moved.min() >= 0
    assert moved.max() <= 1
    assert not torch.equal(moved, x)
    free = kind(range=None, step=0.5)(x, teacher, student, generator(0))
    torch.testing.assert_close(moved, free.clamp(0, 1))


def test_gaussian_noise_has_the_stated_spread(teacher, student):
    x = torch.full((20_000, 4), 0.5)
    noise = GaussianNoise()(x, teacher, student, generator(0)) - x
    assert noise.std().item() == pytest.approx(1 / 255, rel=0.02)
    assert noise.mean().abs().item() < 1e-4
    longer = GaussianNoise(range=None, step=3.0)(x, teacher, student, generator(0)) - x
    assert longer.square().sum(1).mean().sqrt().item() == pytest.approx(3.0, rel=0.02)


@pytest.mark.parametrize("kind", ALL)
def test_the_generator_decides(kind, teacher, student, inputs):
    runs = [kind(**FREE)(inputs, teacher, student, generator(seed)) for seed in (0, 0, 1)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("kind", ALL)
def test_everything_is_left_as_it_was(kind, mode, teacher, student, inputs):
    student.train(mode)
    student.body[3].eval()  # frozen by the user
    modes = [m.training for m in student.modules()]
    state = {k: v.clone() for k, v in [*student.state_dict().items(), *teacher.state_dict().items()]}
    before = inputs.clone()
    kind(**FREE)(inputs, teacher, student, generator(0))
    assert modes == [m.training for m in student.modules()]
    after = dict([*student.state_dict().items(), *teacher.state_dict().items()])
    assert all(torch.equal(after[k], v) for k, v in state.items())
    assert all(p.grad is None for p in [*student.parameters(), *teacher.parameters()])
    assert torch.equal(inputs, before)
    assert not inputs.requires_grad


def test_a_student_that_fails_is_put_back_too(teacher, inputs):
    class Broken(Heads):
        def forward(self, x):
            raise RuntimeError("broken")

    student = Broken().train()
    with pytest.raises(RuntimeError, match="broken"):
        TDivSDiv(**FREE)(inputs, teacher, student, generator(0))
    assert all(m.training for m in student.modules())


@pytest.mark.parametrize("disabled", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("kind", DIRECTED)
def test_the_outcome_carries_no_gradient(kind, disabled, teacher, student, inputs):
    with disabled():
        moved = kind(**FREE)(inputs.clone().requires_grad_(), teacher, student, generator(0))
    assert not moved.requires_grad


class Counted(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.calls, self.graphs = network, 0, 0

    def forward(self, x):
        self.calls += 1
        self.graphs += torch.is_grad_enabled()
        return self.network(x)


@pytest.mark.parametrize(("kind", "asked", "of_student"), [(GaussianNoise, 0, 0), (ODS, 1, 0), (ConfODS, 1, 0),
                                                            (TDiv, 2, 0), (TDivSDiv, 2, 1)])  # fmt: skip
def test_only_what_is_needed_is_computed(kind, asked, of_student):
    torch.manual_seed(0)
    teacher = Ensemble([Counted(MLP(4, 3, (8,))) for _ in range(5)])
    student = Counted(Heads(5))
    kind(**FREE)(torch.randn(6, 4), teacher, student, generator(0))
    calls = [model.calls for model in teacher.models]
    assert sum(calls) == asked
    assert max(calls, default=0) <= 1
    assert sum(model.graphs for model in teacher.models) == min(asked, 1)
    assert student.calls == of_student


def test_of_subnetworks_two_are_computed_and_say_the_same(teacher, inputs):
    class Width(nn.Module):
        rows = 0

        def forward(self, x):
            Width.rows += len(x)
            return x

    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), Width(), nn.Tanh(), nn.Linear(8, 3)).double()
    student = branch(body, 3, factors="normal")
    student.eval()(inputs)
    student.train()
    Width.rows = 0
    ours = TDivSDiv(**FREE)(inputs, teacher, student, generator(0))
    assert Width.rows == 2 * len(inputs)

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = student

        def forward(self, x):
            return self.inner(x)

    torch.testing.assert_close(ours, TDivSDiv(**FREE)(inputs, teacher, Whole(), generator(0)))
    assert student.training
    assert all(p.grad is None for p in student.parameters())


def test_hydra_and_plain_students(teacher, inputs):
    torch.manual_seed(0)
    plain = MLP(4, 3, (8,)).double()
    alone = TDivSDiv(**FREE)(inputs, teacher, plain, generator(0))
    assert torch.equal(alone, TDiv(**FREE)(inputs, teacher, plain, generator(0)))
    heads = grow(plain, 3)
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    assert not torch.equal(alone, TDivSDiv(**FREE)(inputs, teacher, heads, generator(0)))


@pytest.mark.parametrize("kind", DIRECTED)
def test_no_gradient_is_no_perturbation(kind, student, inputs):
    """Teachers that say the same everywhere; ODS too finds no direction."""
    teacher = small_ensemble(3).double()
    with torch.no_grad():
        for parameter in [*teacher.parameters(), *student.parameters()]:
            parameter.zero_()
    assert torch.equal(kind(**FREE)(inputs, teacher, student, generator(0)), inputs)


def test_identical_teachers_have_no_disagreement_to_climb(student, inputs):
    network = MLP(4, 3, (8,)).double()
    teacher = Ensemble([network, copy.deepcopy(network)])
    assert torch.equal(TDiv(**FREE)(inputs, teacher, student, generator(0)), inputs)
    moved = TDivSDiv(**FREE)(inputs, teacher, Heads(2).double(), generator(0))
    assert moved.isfinite().all()


class Sure(nn.Module):
    """Logits scale·(0, a·x, b·x − 1, ...): as sure of class 0 as one likes."""

    def __init__(self, seed: int, gap: float) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.weight, self.gap = nn.Parameter(torch.randn(4, 3)), gap

    def forward(self, x):
        return x @ self.weight.to(x) + torch.tensor([self.gap, 0.0, -1.0]).to(x)


@pytest.mark.parametrize("gap", [0.0, 20.0, 60.0, 200.0])
@pytest.mark.parametrize("kind", [ODS, TDiv])
def test_sure_teachers_lead_the_right_way_in_single_precision(kind, gap, student, inputs):
    """Their gradients are e^{−gap}: the direction must not be lost in the rounding of 1 − p, nor underflow."""
    teacher = Ensemble([Sure(seed, gap) for seed in range(3)])
    x = inputs.float()
    ours = kind(**FREE)(x, teacher, student, generator(0)) - x
    slow = x.double().requires_grad_()
    said = [slow @ model.weight.double() + torch.tensor([gap, 0.0, -1.0]).double() for model in teacher.models]
    # p_0 = 1/(1 + r): every class but the first by itself, so that nothing cancels
    p = [z.detach().softmax(-1) for z in said]
    draw = generator(0)
    if kind is ODS:
        number = int(torch.randint(3, (), generator=draw))
        wish = 2 * torch.rand(6, 3, generator=draw, dtype=torch.double) - 1
        q = p[number]
        gaps = wish.unsqueeze(-1) - wish.unsqueeze(-2)  # [B, k, l]: p_k·Σ_l p_l·(w_k − w_l)
        weights = q * (q.unsqueeze(-2) * gaps).sum(-1)
        weights[:, 0] = -(weights[:, 1] + weights[:, 2])
    else:
        i, number = random_pair(3, draw)
        rest = p[number][:, 1:] - p[i][:, 1:]
        weights = torch.cat([-rest.sum(-1, keepdim=True), rest], -1)
    weights = weights / weights.abs().amax(-1, keepdim=True)
    (slope,) = torch.autograd.grad(said[number], slow, weights)
    torch.testing.assert_close(normalized(ours), normalized(slope), rtol=0, atol=1e-3)


def test_normalized_knows_tiny_and_huge():
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e-200, 4e-200], [3e200, 4e200]], dtype=torch.double)
    expected = torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.6, 0.8], [0.6, 0.8]], dtype=torch.double)
    torch.testing.assert_close(normalized(rows), expected)


def test_images(student):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    teacher = Ensemble([copy.deepcopy(network).apply(_reset) for _ in range(3)])
    x = 0.3 + 0.4 * torch.rand(7, 3, 8, 8)
    for kind in (ODS, TDiv):
        moved = kind()(x, teacher, student, generator(0))
        torch.testing.assert_close((moved - x).flatten(1).norm(dim=1), torch.full((7,), math.sqrt(192) / 255))
    tdiv = torch.stack([diversity(teacher.predict(z).members.logits).mean() for z in (x, TDiv(step=0.3)(
        x, teacher, student, generator(0)))])  # fmt: skip
    assert tdiv[1] > tdiv[0]


def _reset(module: nn.Module) -> None:
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()  # type: ignore[operator]


@pytest.mark.parametrize("members", [2, 3, 6])
def test_diversity_is_the_mean_over_ordered_pairs(members):
    logits = 3 * torch.randn(4, 5, members, 7, dtype=torch.double)
    pairs = [(i, j) for i in range(members) for j in range(members) if i != j]
    kls = [Categorical(logits[..., i, :]).kl(Categorical(logits[..., j, :])) for i, j in pairs]
    torch.testing.assert_close(diversity(logits), torch.stack(kls).mean(0))
    assert diversity(logits[..., :1, :].expand_as(logits)).abs().max() < 1e-30


def test_pairs_are_even_and_never_alike():
    draw, counts = generator(0), torch.zeros(4, 4)
    for _ in range(6000):
        counts[random_pair(4, draw)] += 1
    assert (counts.diagonal() == 0).all()
    others = counts[~torch.eye(4, dtype=torch.bool)]
    assert others.min() > 400
    assert others.max() < 600


def test_one_member_makes_no_pair(student, inputs):
    teacher = small_ensemble(1).double()
    for kind in (TDiv, TDivSDiv):
        with pytest.raises(ValueError, match=rf"{kind.__name__} needs a pair of teachers, got one: perturb with ODS"):
            kind(**FREE)(inputs, teacher, student, generator(0))
    assert ODS(**FREE)(inputs, teacher, student, generator(0)).isfinite().all()
    with pytest.raises(ValueError, match="diversity is between two members at least, got 1"):
        diversity(torch.zeros(3, 1, 4))


@pytest.mark.parametrize("kind", ALL)
def test_a_memory_is_refused(kind, tmp_path, student, inputs):
    teacher = small_ensemble(3)
    remembered = capture(teacher, Batches(inputs.float()), tmp_path / "set")
    with pytest.raises(ValueError, match="perturbed inputs have no remembered predictions: pass the live Ensemble, "):
        kind(**FREE)(inputs.float(), remembered, student, generator(0))
    with pytest.raises(ValueError, match="perturbations need an Ensemble of classifiers"):
        kind(**FREE).check(Labels(classes=3))
    real = Ensemble([MLP(4, 2, (8,))], family="gaussian")
    said = "perturbations need an Ensemble of classifiers, got Ensemble of continuous targets"
    with pytest.raises(ValueError, match=said):
        kind(**FREE).check(real)


@pytest.mark.parametrize("kind", ALL)
def test_no_inputs_are_moved_nowhere(kind):
    inputs = torch.zeros(0, 4)
    moved = kind()(inputs, small_ensemble(3), Heads(), generator(0))  # a step of its own
    assert moved.shape == inputs.shape


def test_members_without_gradients_are_named(student, inputs):
    teacher = Ensemble([lambda x: torch.zeros(len(x), 3), lambda x: torch.ones(len(x), 3)])
    with pytest.raises(ValueError, match=r"member \d \(Function\) gives no gradient with respect to its inputs"):
        TDiv(**FREE)(inputs.float(), teacher, student, generator(0))
    assert GaussianNoise(**FREE)(inputs.float(), teacher, student, generator(0)).shape == inputs.shape


def test_a_student_with_other_members_is_refused(teacher, inputs):
    with pytest.raises(ValueError, match=r"the student answers \(6, 5, 3\), the 3 teachers together \(6, 3, 3\)"):
        TDivSDiv(**FREE)(inputs, teacher, Heads(5).double(), generator(0))


def test_settings_and_inputs_that_cannot_be_are_refused(teacher, student):
    with pytest.raises(ValueError, match="inputs without a range have no natural step: pass step"):
        TDiv(range=None)
    with pytest.raises(ValueError, match="step must be positive, got -1"):
        ODS(step=-1.0)
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        ConfODS(temperature=0.0)
    with pytest.raises(ValueError, match="range must be"):
        TDiv(range=(1.0, 0.0))
    with pytest.raises(ValueError, match=r"inputs reach from -3 to 0, outside the range \(0.0, 1.0\)"):
        TDiv()(torch.tensor([[-3.0, 0.0]]), teacher, student, generator(0))
    with pytest.raises(ValueError, match="one tensor of real numbers"):
        TDiv()(torch.zeros(3, 4, dtype=torch.long), teacher, student, generator(0))
    with pytest.raises(ValueError, match=r"one tensor of real numbers .* got dict"):
        TDiv()({"x": torch.zeros(3, 4)}, teacher, student, generator(0))
