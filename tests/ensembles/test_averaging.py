import copy
import shutil

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, update_bn

from solera import Batches, Training
from solera.core.disk import fingerprint
from solera.ensembles import average_weights, train_averaged, train_snapshots, update_batch_norm
from solera.nn import MLP
from tests.helpers import small_batches

SIX = Training(epochs=6, lr=0.01, checkpoint_seconds=0.0)


def name_of_network(network):
    return fingerprint(dict(network.state_dict()))


def normalised(inputs=4):
    return nn.Sequential(
        nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 8), nn.BatchNorm1d(8),
        nn.ReLU(), nn.Linear(8, 3),
    )  # fmt: skip


def wandered(count=3, make=normalised):
    torch.manual_seed(0)
    models = [make() for _ in range(count)]
    for number, model in enumerate(models):
        for _ in range(number + 1):
            model(torch.randn(10, 4))
    return models


def test_average_equals_brute_force():
    models = wandered()
    before = [copy.deepcopy(m.state_dict()) for m in models]
    average = average_weights(models)
    for name, tensor in average.state_dict().items():
        if tensor.is_floating_point():
            expected = sum(state[name].double() for state in before) / 3
            torch.testing.assert_close(tensor, expected.float(), rtol=1e-6, atol=0)
        else:
            assert tensor == 3  # num_batches_tracked of the last
    for model, state in zip(models, before, strict=True):
        assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert not {p.data_ptr() for p in average.parameters()} & {p.data_ptr() for m in models for p in m.parameters()}


def test_average_agrees_with_torch():
    models = wandered()
    referee = AveragedModel(models[0])
    for model in models:
        referee.update_parameters(model)
    for mine, torchs in zip(average_weights(models).parameters(), referee.module.parameters(), strict=True):
        torch.testing.assert_close(mine, torchs)


def test_one_model_is_its_own_average_and_half_precision_is_kept():
    model = MLP(4, 3).to(torch.bfloat16)
    for mine, own in zip(average_weights([model]).parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, own)
        assert mine.dtype == torch.bfloat16


def test_batch_norm_of_one_batch_equals_a_full_pass():
    torch.manual_seed(1)
    model, inputs = normalised(), 3 * torch.randn(40, 4) + 1
    first = model[0](inputs)
    hidden = model[1].train()(first)
    second = model[4](hidden.relu())
    update_batch_norm(model, Batches(inputs, batch_size=40))
    for norm, activations in ((model[1], first), (model[5], second)):
        torch.testing.assert_close(norm.running_mean, activations.mean(0))
        torch.testing.assert_close(norm.running_var, activations.var(0))
    assert not any(m.training for m in model.modules())
    assert model[1].momentum == 0.1


def test_batch_norm_of_uneven_batches_counts_examples_not_batches():
    torch.manual_seed(2)
    model, batches = normalised(), small_batches(examples=50, batch_size=16)  # 16, 16, 16 and 2
    update_batch_norm(model, batches)
    torch.testing.assert_close(model[1].running_mean, model[0](batches.all.inputs).mean(0))
    variances = [len(b) / 50 * model[0](b.inputs).var(0) for b in batches.shuffled(0, 0)]
    torch.testing.assert_close(model[1].running_var, sum(variances))


def test_batch_norm_agrees_with_torch_on_even_batches():
    torch.manual_seed(3)
    model, batches = normalised(), small_batches(examples=48, batch_size=16)
    model[3].p = 0.0  # torch leaves dropout on
    referee = copy.deepcopy(model)
    update_bn([batch.inputs for batch in batches.shuffled(0, 0)], referee)
    update_batch_norm(model, batches)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, referee.state_dict()[name])


def test_networks_without_batch_norm_are_left_alone():
    model = MLP(4, 3)
    before = name_of_network(model)
    assert name_of_network(update_batch_norm(model, small_batches())) == before
    with pytest.raises(ValueError, match="the batches are empty"):
        update_batch_norm(normalised(), [])


def test_trained_average_is_the_average_of_the_last_checkpoints(tmp_path):
    """The cycles on disk are the checkpoints; the average of the last three, with statistics of its own, comes back."""
    batches = small_batches()
    average = train_averaged(normalised, batches, 3, SIX, folder=tmp_path)
    ends = []
    for number in (1, 2, 3):
        tensors = load_file(tmp_path / f"cycle-{number}" / "checkpoint.safetensors")
        model = normalised()
        model.load_state_dict({k.removeprefix("network/"): v for k, v in tensors.items() if k.startswith("network/")})
        ends.append(model)
    expected = update_batch_norm(average_weights(ends), batches)
    assert name_of_network(average) == name_of_network(expected)
    assert len({name_of_network(m) for m in ends}) == 3
    assert not (tmp_path / "cycle-4").exists()


def test_deleted_checkpoints_come_back_in_the_same_bits(tmp_path):
    batches = small_batches()
    whole = train_averaged(normalised, batches, 3, SIX, folder=tmp_path)
    for number in (2, 3):
        shutil.rmtree(tmp_path / f"cycle-{number}")
    again = train_averaged(normalised, batches, 3, SIX, folder=tmp_path)
    assert name_of_network(again) == name_of_network(whole) == name_of_network(
        train_averaged(normalised, batches, 3, SIX)
    )  # fmt: skip


def test_snapshots_can_be_averaged():
    ensemble = train_snapshots(lambda: MLP(4, 3, (8,)), small_batches(), 3, SIX)
    assert average_weights(list(ensemble.models))(torch.randn(2, 4)).shape == (2, 3)


def test_averages_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="pass at least one model"):
        average_weights([])
    with pytest.raises(
        ValueError, match=r"one architecture: 1\.weight is \(8, 4\) in model 1 and \(9, 4\) in the last"
    ):
        average_weights([MLP(4, 3, (9,)), MLP(4, 3, (8,)), MLP(4, 3, (9,))])
    with pytest.raises(ValueError, match=r"3\.weight is \(3, 8\) in model 0 and None"):
        average_weights([MLP(4, 3, (8,)), nn.Sequential(nn.Flatten(), nn.Linear(4, 8))])
    for checkpoints in (0, 6):
        with pytest.raises(ValueError, match=f"between 1 and 5 .*got {checkpoints}: train longer"):
            train_averaged(normalised, small_batches(), checkpoints, SIX)
    with pytest.raises(ValueError, match="rate must be positive"):
        train_averaged(normalised, small_batches(), 3, SIX, rate=0.0)
