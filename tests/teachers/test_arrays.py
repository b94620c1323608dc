import numpy as np
import pytest
import torch

from solera import Batch
from solera.teachers.adapters import Predictions
from solera.testing import check_teacher


def probabilities(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).softmax(-1).numpy()


@pytest.mark.parametrize("form", ["probabilities", "log-probabilities", "members first", "tensor", "float64"])
def test_every_form_says_the_same(form):
    values = probabilities(20, 3, 4)
    given = {
        "probabilities": values,
        "log-probabilities": np.log(values),
        "members first": values.swapaxes(0, 1),
        "tensor": torch.from_numpy(values),
        "float64": values.astype(np.float64),
    }[form]
    teacher = Predictions(given, examples=20)
    batch = Batch(torch.zeros(5, 1), torch.tensor([3, 1, 19, 0, 7]))
    check_teacher(teacher, batch)
    torch.testing.assert_close(teacher(batch).members.mean, torch.from_numpy(values[[3, 1, 19, 0, 7]]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v * 2, "example 0, member 0 sums to 2"),
        (lambda v: np.log(v) + 3, "neither probabilities nor log-probabilities: example 0, member"),
        (lambda v: np.where(np.arange(20)[:, None, None] == 6, np.nan, v), "NaN for example 6, member 0"),
        (lambda v: v[0], "three axes"),
        (lambda v: v[:15], "there are 20 inputs"),
    ],
)
def test_anything_else_is_refused_with_the_row(change, message):
    with pytest.raises(ValueError, match=message):
        Predictions(change(probabilities(20, 3, 4)), examples=20)


def test_a_zero_probability_stays_finite():
    values = np.zeros((2, 3, 4))
    values[..., 1] = 1
    values[0, 0] = [1, 0, 0, 0]
    targets = Predictions(values)(Batch(torch.zeros(2, 1), torch.arange(2)))
    assert targets.rmi.isfinite().all()
    assert targets.knowledge[0] > 0.5
    assert targets.knowledge[1] == 0
