"""Every task keeps the contract."""

import pytest
import torch

from solera.data import UNLABELLED, Batch
from solera.tasks import Classification, Regression
from solera.testing import check_task


def classes(*shape, weight=None):
    labels = torch.randint(4, shape)
    return Batch(torch.randn(*shape, 5), torch.arange(shape[0]), labels, weight)


def test_classes_of_examples_and_of_tokens():
    check_task(Classification(), classes(60), 4)
    check_task(Classification(), classes(12, 5), 4)


def test_padding_does_not_count():
    weight = torch.ones(12, 5)
    weight[:, 3:] = 0
    batch = classes(12, 5, weight=weight)
    assert int(Classification().mask(batch, (12, 5)).sum()) == 36
    unlabelled = batch.target.clone()
    unlabelled[0] = UNLABELLED
    assert int(Classification().mask(Batch(batch.inputs, batch.index, unlabelled, weight), (12, 5)).sum()) == 33


@pytest.mark.parametrize("dimensions", [1, 3])
def test_continuous_targets(dimensions):
    target = torch.randn(50, dimensions)
    batch = Batch(torch.randn(50, 5), torch.arange(50), target.squeeze(-1) if dimensions == 1 else target)
    check_task(Regression(), batch, dimensions)


def test_a_task_that_breaks_the_contract_is_told():
    class Wrong(Classification):
        name = "wrong"

        def scores(self, columns):
            return {**super().scores(columns), "my own": 1.0}

    with pytest.raises(AssertionError, match="explained in the task's table"):
        check_task(Wrong(), classes(30), 4)


def test_smoothed_labels_are_a_mixture_of_labels_and_of_anything():
    batch = classes(30)
    logits = torch.randn(30, 4, dtype=torch.double)
    loss = Classification().label_loss(torch.nn.Identity(), Classification().of_member(logits), batch, 0.2)
    wanted = torch.nn.functional.cross_entropy(logits, batch.target, label_smoothing=0.2, reduction="none")
    torch.testing.assert_close(loss, wanted)
    real = Batch(torch.randn(3, 5), torch.arange(3), torch.randn(3))
    with pytest.raises(ValueError, match="label_smoothing is for classes, not for regression"):
        Regression().label_loss(torch.nn.Identity(), Regression().of_member(torch.randn(3, 2)), real, 0.1)
