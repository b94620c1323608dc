"""Central intervals of continuous predictions, against scipy and against the densities of the predictions."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad

from solera.distributions import Categorical, Gaussian, Mixture, Moments, NormalWishart
from tests.distributions.inputs import FLOATS

LEVELS = [0.01, 0.5, 0.9, 0.999, 1 - 1e-9]
NEAR = {torch.float32: 1e-6, torch.float64: 1e-12}


def tensors(*values, dtype=torch.float64):
    return [torch.tensor(value, dtype=dtype) for value in values]


def assert_ends(ours, mean, half, near):
    """Both ends against mean ± half: scipy's upper end is rounded where its lower one is not."""
    np.testing.assert_allclose(ours[0].double(), mean - half, rtol=near)
    np.testing.assert_allclose(ours[1].double(), mean + half, rtol=near)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_of_a_gaussian(dtype, level):
    mean, log_variance = tensors(
        [[0.0, -3.0], [0.0, 0.0], [5.0, 1e6]], [[0.0, 5.0], [-60.0, 60.0], [-3.0, 9.0]], dtype=dtype
    )
    ours = Gaussian(mean, log_variance).interval(level)
    assert [end.dtype for end in ours] == [dtype] * 2
    half = stats.norm.isf((1 - level) / 2) * np.exp(log_variance.double().numpy() / 2)
    assert_ends(ours, mean.double().numpy(), half, NEAR[dtype])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [1, 3])
def test_of_a_normal_wishart(size, dtype, level):
    """Degrees of freedom from barely above their bound to those of a Gaussian, variances from e^−60 to e^60."""
    excess = torch.tensor([1e-5, 0.007, 0.5, 3.0, 100.0, 1e4, 1e8, math.inf], dtype=dtype)
    freedom = excess + (size + 1)
    belief = torch.tensor([1e-3, 1.0, 9e6, 2.0, 2.0, 5.0, 1.0, 1.0], dtype=dtype)
    torch.manual_seed(0)
    mean, log_variance = torch.zeros(8, size, dtype=dtype), 60 * (2 * torch.rand(8, size, dtype=dtype) - 1)
    ours = NormalWishart(mean, log_variance, belief, freedom).interval(level)
    assert [end.dtype for end in ours] == [dtype] * 2
    left = (freedom.double() - (size + 1)).numpy()
    spread = (1 + 1 / belief.double().numpy()) / (1 + 2 / left)
    scale = np.exp(log_variance.double().numpy() / 2) * np.sqrt(spread)[:, None]
    half = stats.t.isf((1 - level) / 2, np.minimum(left + 2, 1e15))[:, None] * scale
    # the probability inside is good to some 1e-15 of the whole, which is 1e-5 of a tail of 1e-9 over two
    assert_ends(ours, 0.0, half, max(NEAR[dtype], 1e-10 if level < 0.9999 else 1e-5))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("weights", [None, [0.2, 0.3, 0.5], [0.5, 0.5, 0.0]])
@pytest.mark.parametrize(
    ("means", "log_variances"),
    [
        ([0.0, 1.0, 5.0], [0.0, 1.0, -2.0]),
        ([-1e3, 0.0, 1e3], [-60.0, -100.0, -60.0]),  # three spikes
        ([0.0, 0.0, 1e-20], [-92.0, -92.0, 40.0]),
        ([7.0, 7.0, 7.0], [3.0, 3.0, 3.0]),
    ],
)
def test_of_a_mixture_leaves_as_much_on_either_side(means, log_variances, weights, level):
    shares = np.full(3, 1 / 3) if weights is None else np.array(weights)
    deviations = np.exp(np.array(log_variances) / 2)
    mean, log_variance = tensors([[[m] for m in means]], [[[v] for v in log_variances]])
    given = None if weights is None else torch.tensor([weights], dtype=torch.float64)
    (low,), (high,) = (end.squeeze(-1).tolist() for end in Mixture(Gaussian(mean, log_variance), given).interval(level))
    tail = (1 - level) / 2
    for end, mass, inward in ((low, stats.norm.cdf, math.inf), (high, stats.norm.sf, -math.inf)):
        just, before = (shares @ mass(x, means, deviations) for x in (end, np.nextafter(end, -inward)))
        after = shares @ mass(np.nextafter(end, inward), means, deviations)
        # in a spike one float to the next may be a jump: the tail lies between the two
        assert before * (1 - 1e-11) <= tail <= max(just, after) * (1 + 1e-11)


def test_members_of_weight_zero_are_not_heard():
    mean, log_variance = tensors([[[0.0], [math.nan], [2.0]]], [[[0.0], [math.nan], [1.0]]])
    silent = Mixture(Gaussian(mean, log_variance), torch.tensor([[0.5, 0.0, 0.5]]))
    alone = Mixture(Gaussian(mean[:, ::2], log_variance[:, ::2]))
    assert torch.equal(torch.stack(silent.interval(0.8)), torch.stack(alone.interval(0.8)))


@pytest.mark.parametrize(
    "prediction",
    [
        Gaussian(*tensors([1.5], [0.3])),
        Mixture(Gaussian(*tensors([[0.0], [2.5]], [[-1.0], [0.5]])), torch.tensor([0.3, 0.7])),
        NormalWishart(*tensors([1.5], [0.3], 0.7, 2.3)),
        Moments(Gaussian(*tensors([1.5], [0.3])), torch.tensor(0.1)),
    ],
    ids=lambda prediction: type(prediction).__name__,
)
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_the_density_between_the_ends_is_the_level(prediction, level):
    low, high = (end.item() for end in prediction.interval(level))

    def density(x):
        return prediction.log_prob(torch.tensor([x], dtype=torch.float64)).exp().item()

    assert quad(density, low, high, epsabs=1e-12)[0] == pytest.approx(level, abs=1e-9)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_any_batch_axes_without_a_gradient(batch):
    mean = torch.randn(*batch, 4, 2, requires_grad=True)
    one, mixture = Gaussian(mean[..., 0, :], mean[..., 1, :]), Mixture(Gaussian(mean, mean))
    wishart = NormalWishart.from_output(torch.randn(*batch, 6, requires_grad=True))
    for prediction in (one, mixture, wishart):
        low, high = prediction.interval()
        assert low.shape == high.shape == prediction.mean.shape == (*batch, 2)
        assert (low < high).all()
        assert not low.requires_grad


def test_dimensions_are_not_mixed_up():
    torch.manual_seed(0)
    mean, log_variance, weights = torch.randn(3, 4, 2), torch.randn(3, 4, 2), torch.rand(3, 4).softmax(-1)
    whole = torch.stack(Mixture(Gaussian(mean, log_variance), weights).interval())
    for d in range(2):
        alone = Mixture(Gaussian(mean[..., d : d + 1], log_variance[..., d : d + 1]), weights)
        assert torch.equal(whole[..., d : d + 1], torch.stack(alone.interval()))


@pytest.mark.parametrize("kind", ["gaussian", "mixture", "wishart"])
def test_a_narrow_interval_about_a_large_mean_is_there_in_float64(kind):
    mean, log_variance = torch.full((1, 1), 1e6), torch.full((1, 1), math.log(1e-8))
    prediction = {
        "gaussian": Gaussian(mean, log_variance),
        "mixture": Mixture(Gaussian(mean.unsqueeze(-2), log_variance.unsqueeze(-2))),
        "wishart": NormalWishart(mean, log_variance, torch.full((1,), 1e9), torch.full((1,), 1e9)),
    }[kind]
    low, high = prediction.interval(0.9, torch.float64)
    assert (high - low).item() == pytest.approx(2 * 1.6448536e-4, rel=1e-5)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 90.0, math.nan])
def test_a_level_is_a_probability(level):
    one, wishart = Gaussian(*tensors([0.0], [0.0])), NormalWishart(*tensors([0.0], [0.0], 1.0, 4.0))
    for prediction in (one, Mixture(Gaussian(*tensors([[0.0]], [[0.0]]))), wishart):
        with pytest.raises(ValueError, match=f"level is {level}: pass a number between 0 and 1"):
            prediction.interval(level)


def test_classes_have_no_interval():
    for said in (Categorical(torch.zeros(3)), Mixture(Categorical(torch.zeros(2, 3)))):
        with pytest.raises(ValueError, match="classes have no order and so no interval"):
            said.interval()
