"""Classes: how far a student's prediction is from its ensemble's, against scipy."""

import numpy as np
import pytest
import scipy.stats
import torch

from solera.distributions.categorical import Categorical
from solera.tasks import Classification


@pytest.mark.parametrize("batch", [(5,), (2, 3)])
def test_the_comparison_is_scipys_relative_entropy(batch):
    """With classes that the reference rules out, and one that the student does."""
    torch.manual_seed(0)
    p, q = (4 * torch.randn(*batch, 7) for _ in range(2))
    p[..., 2] = -torch.inf
    q[..., 2:4] = -torch.inf
    p.view(-1, 7)[0, 3] = -torch.inf
    found = Classification().compare(Categorical(q), Categorical(p))
    wanted = scipy.stats.entropy(p.softmax(-1).double().numpy(), q.softmax(-1).double().numpy(), axis=-1)
    assert np.isinf(wanted).sum() == wanted.size - 1
    np.testing.assert_allclose(found["kl"].numpy(), wanted, rtol=1e-6)
    assert torch.equal(found["agrees"], p.argmax(-1) == q.argmax(-1))
