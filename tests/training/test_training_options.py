"""Clipping, accumulation, averaged weights, own optimisers and schedules, and a loss that runs away."""

import copy
import functools
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from solera import Batches, EnD, Ensemble, Training, distill, fit, train_ensemble
from solera.core.errors import DivergedError, MismatchError
from solera.nn import MLP, ConvNet
from solera.nn.call import laid_out
from solera.training import checkpoint
from solera.training.loop import train
from tests.helpers import small_batches, small_ensemble


def network():
    torch.manual_seed(3)
    return MLP(4, 3, (8,))


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def by_hand(steps, lr, batches, clip=None, accumulate=1, decay=0.0):
    """The same training, written out."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    average = None
    dealt = [batch for epoch in range(steps) for batch in batches.shuffled(0, epoch)]
    for start in range(0, len(dealt), accumulate):
        optimizer.zero_grad()
        for batch in dealt[start : start + accumulate]:
            loss = nn.functional.cross_entropy(model(batch.inputs), batch.target)
            (loss / accumulate).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        own = weights(model)
        average = own if average is None else decay * average + (1 - decay) * own
    return weights(model), average


def plain(**settings):
    sgd = functools.partial(torch.optim.SGD, lr=0.5)
    return Training(epochs=3, lr=0.5, schedule="constant", optimizer=sgd, **settings)


def test_images_are_trained_on_and_validated_channels_last():
    """The weights are those of a step written out on the images as they came."""
    images, labels = torch.randn(8, 3, 8, 8), torch.arange(8) % 3
    torch.manual_seed(0)
    model = ConvNet((3, 8, 8), 3)
    other, layouts = copy.deepcopy(model), []
    model[0].register_forward_hook(
        lambda _, inputs, __: layouts.append(
            (torch.is_grad_enabled(), inputs[0].is_contiguous(memory_format=torch.channels_last))
        )
    )
    batches = Batches(images, labels, batch_size=8)
    training = Training(epochs=1, lr=0.1, optimizer="sgd", weight_decay=0.0, schedule="constant")
    fit(model, batches, training, validation=batches)
    assert [laid for learning, laid in layouts if learning] == [True]  # the step
    assert layouts[-1] == (False, True)  # the validation
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    nn.functional.cross_entropy(other(images), labels).backward()
    optimizer.step()
    torch.testing.assert_close(weights(model), weights(other))


class Viewing(nn.Module):
    """Flattens by `view`, as many networks do: behind a convolution that refuses channels-last images."""

    def __init__(self, convolves):
        super().__init__()
        self.body = nn.Conv2d(3, 4, 3, padding=1) if convolves else nn.Identity()
        size = 64 * (4 if convolves else 3)
        self.norm, self.dropout, self.last = nn.BatchNorm1d(size), nn.Dropout(0.5), nn.Linear(size, 3)

    def forward(self, images):
        inner = self.body(images)
        return self.last(self.dropout(self.norm(inner.view(len(inner), -1))))


def test_networks_that_flatten_by_view_are_trained_asked_and_distilled():
    images, labels = torch.randn(8, 3, 8, 8), torch.arange(8) % 3
    batches, training = Batches(images, labels, batch_size=8), Training(epochs=1)
    members = [fit(Viewing(convolves), batches, training) for convolves in (True, False)]
    distill(Ensemble(members), ConvNet((3, 8, 8), 3), batches, EnD(), training)
    student = distill(Ensemble(members), Viewing(True), batches, EnD(), training)
    torch.testing.assert_close(student.predict(images).mean, student.model(images).softmax(-1))


def test_a_look_at_a_networks_layout_changes_nothing_about_it():
    network, images = Viewing(True).train(), torch.randn(4, 3, 8, 8)
    network.dropout.eval()  # a part that is not trained
    before, state = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    assert laid_out(network, images) is images
    assert torch.equal(torch.get_rng_state(), state)
    assert [network.training, network.norm.training, network.dropout.training] == [True, True, False]
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize(("channels", "stride", "kernel", "last"), [
    (7, 2, 1, False), (8, 2, 1, True), (4, 1, 1, True), (4, 2, 3, True), (4, (1, 2), 1, False),
])  # fmt: skip
def test_images_stay_as_they_are_where_channels_last_corrupts_memory(channels, stride, kernel, last):
    """On a CPU with AVX2 and nothing later the gradients of such a convolution abort the process."""
    network = nn.Sequential(nn.Conv2d(3, channels, 3), nn.Conv2d(channels, 8, kernel, stride))
    asked = laid_out(network, torch.randn(4, 3, 8, 8))
    assert asked.is_contiguous(memory_format=torch.channels_last) is last
    for _ in range(20):
        network(asked).sum().backward()


def test_images_of_a_wrong_shape_leave_no_mark():
    network = ConvNet((3, 8, 8), 3)
    wrong, right = torch.randn(4, 1, 8, 8), torch.randn(4, 3, 8, 8)
    assert laid_out(network, wrong) is wrong
    assert laid_out(network, right).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "options", [{}, {"clip": 0.05}, {"accumulate": 2}, {"accumulate": 2, "clip": 0.1}], ids=lambda o: str(o)
)
def test_steps_are_those_written_out(options):
    batches = small_batches(examples=64)
    batches.batch_size = 16
    trained = fit(network(), batches, plain(**options))
    torch.testing.assert_close(weights(trained), by_hand(3, 0.5, batches, **options)[0])


def test_sgd_has_nesterov_momentum():
    """v ← 0.9·v + g, w ← w − lr·(g + 0.9·v), written out."""
    batches = small_batches(examples=64)
    trained = fit(network(), batches, Training(epochs=3, lr=0.1, schedule="constant", optimizer="sgd"))
    model = network()
    speeds = [torch.zeros_like(p) for p in model.parameters()]
    for batch in (batch for epoch in range(3) for batch in batches.shuffled(0, epoch)):
        loss = nn.functional.cross_entropy(model(batch.inputs), batch.target)
        slopes = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, speed, slope in zip(model.parameters(), speeds, slopes, strict=True):
                speed.mul_(0.9).add_(slope)
                parameter.sub_(0.1 * (slope + 0.9 * speed))
    torch.testing.assert_close(weights(trained), weights(model))


def test_adamw_in_one_kernel_takes_the_steps_of_torchs_own():
    batches, made = small_batches(examples=64), []

    def plain(groups):
        return torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1, foreach=False)

    settings = {"epochs": 5, "lr": 0.01, "schedule": "constant", "weight_decay": 0.1}
    for optimizer in ("adamw", plain):
        training = Training(optimizer=optimizer, **settings)
        made.append(weights(fit(network(), batches, training)))
    torch.testing.assert_close(*made)


def test_only_weights_that_lie_in_a_row_are_moved_by_one_kernel():
    """The kernel reads memory as it lies; and in half precision gradients are scaled."""
    plain, last = (
        nn.Conv2d(3, 4, 3).to(memory_format=layout) for layout in (torch.contiguous_format, torch.channels_last)
    )

    def fused(model, **settings):
        groups = [{"params": list(model.parameters()), "lr": 0.1, "weight_decay": 0.0}]
        return Training(**settings).make_optimizer(groups).defaults["fused"]

    assert fused(plain)
    assert not fused(last)
    assert not fused(plain, precision="16-mixed")
    assert not fused(plain, optimizer="sgd")


def test_the_rate_warms_up_to_its_peak_and_falls_to_nearly_nothing():
    rates = []

    class Recording(torch.optim.SGD):
        def step(self, closure=None):
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    batches = small_batches(examples=16, batch_size=16)
    fit(network(), batches, Training(epochs=11, lr=0.5, warm_up=0.4, optimizer=lambda g: Recording(g, lr=0.5)))
    rise = [0.5 * (0.1 + 0.9 * progress / 0.4) for progress in (0.0, 0.1, 0.2, 0.3)]
    assert rates[:5] == pytest.approx([*rise, 0.5])
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert rates[7] == pytest.approx(0.5 * (0.001 + 0.999 / 2))  # half a cosine, half-way
    assert rates[-1] == pytest.approx(0.5 * 0.001)


def test_weight_decay_reaches_the_optimizer():
    batches, decays = small_batches(), []

    def optimizer(groups):
        decays.extend(group["weight_decay"] for group in groups)
        return torch.optim.SGD(groups, lr=0.1)

    training = Training(epochs=1, weight_decay=0.25, optimizer=optimizer)
    fit(network(), batches, training)
    distill(small_ensemble(), network(), batches, EnD(), training)
    assert decays == [0.25, 0.25]


def test_validation_is_by_the_objective_of_the_end_of_the_training():
    """The loss of EnD² changes its temperature on the way: epochs are comparable only at one point of it."""
    seen = []

    def objective(output, batch, progress):
        seen.append((torch.is_grad_enabled(), progress))
        return output.square().sum(-1)

    batches = small_batches(examples=32)
    train(network(), batches, objective, Training(epochs=3), validation=batches)
    assert {progress for learning, progress in seen if not learning} == {1.0}
    assert min(progress for learning, progress in seen if learning) == 0.0


def test_the_best_epochs_weights_are_restored_and_not_the_last_ones():
    """A constant step across the minimum: the objective is best after the second of five epochs."""

    class Walk(nn.Module):
        def __init__(self):
            super().__init__()
            self.place = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return self.place * torch.ones(len(x), 1)

    def objective(output, batch, progress):
        place = output.squeeze(-1)
        return -place if torch.is_grad_enabled() else (place - 2).square()

    training = Training(epochs=5, lr=1.0, schedule="constant", optimizer=lambda g: torch.optim.SGD(g, lr=1.0))
    batches = small_batches(examples=16, batch_size=16)
    assert train(Walk(), batches, objective, training).place.item() == 5.0
    assert train(Walk(), batches, objective, training, validation=batches).place.item() == 2.0
    averaged = replace(training, average=0.5)  # after the epochs 1, 1½, 2¼, 3⅛, 4 1/16: the third is nearest
    assert train(Walk(), batches, objective, averaged, validation=batches).place.item() == 2.25


def test_averaged_weights_are_what_is_kept():
    batches = small_batches(examples=64)
    batches.batch_size = 16
    trained = fit(network(), batches, plain(average=0.9))
    last, average = by_hand(3, 0.5, batches, decay=0.9)
    torch.testing.assert_close(weights(trained), average)
    assert not torch.allclose(average, last)


def test_a_schedule_of_ones_own():
    seen = []

    def half(progress):
        seen.append(progress)
        return 0.5

    batches = small_batches(examples=32)
    training = Training(epochs=2, lr=1.0, schedule=half, optimizer=lambda groups: torch.optim.SGD(groups, lr=9.0))
    halved = fit(network(), batches, training)
    assert seen[0] == 0
    assert seen[-1] == 1
    torch.testing.assert_close(weights(halved), by_hand(2, 0.5, batches)[0])


def test_settings_that_cannot_be_are_refused():
    for settings, message in [
        ({"clip": 0.0}, "clip must be positive"),
        ({"accumulate": 0}, "accumulate must be positive"),
        ({"average": 1.0}, "average must lie between 0"),
        ({"label_smoothing": 2.0}, "label_smoothing must lie between 0 and 1"),
        ({"weight_decay": float("nan")}, "weight_decay must not be negative"),
    ]:
        with pytest.raises(ValueError, match=message):
            Training(**settings)
    with pytest.raises(ValueError, match="there is no device 'gpu9'"):
        fit(network(), small_batches(), Training(epochs=1, device="gpu9"))


@pytest.mark.parametrize("options", [{"average": 0.9}, {"accumulate": 2}], ids=str)
def test_a_run_goes_on_with_its_options_and_no_others(tmp_path, options, monkeypatch):
    batches, whole = small_batches(examples=96), tmp_path / "whole"
    batches.batch_size = 16
    train, held = batches.split(0.25)
    training = Training(epochs=4, checkpoint_seconds=0.0, lr=1e-2, **options)
    wanted = weights(fit(network(), train, training, validation=held, folder=whole))
    saved, real = [], checkpoint.save

    def stops(*arguments):
        real(*arguments)
        saved.append(1)
        if len(saved) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", stops)
    with pytest.raises(KeyboardInterrupt):
        fit(network(), train, training, validation=held, folder=tmp_path / "stopped")
    monkeypatch.setattr(checkpoint, "save", real)
    again = fit(network(), train, training, validation=held, folder=tmp_path / "stopped")
    assert torch.equal(weights(again), wanted)
    other = Training(epochs=4, checkpoint_seconds=0.0, lr=1e-2, clip=1.0, **options)
    with pytest.raises(MismatchError, match="belongs to another training"):
        fit(network(), train, other, validation=held, folder=whole)


def test_a_function_is_known_by_what_it_does(tmp_path):
    def training(rate):
        return Training(epochs=1, optimizer=lambda groups: torch.optim.SGD(groups, lr=rate))

    fit(network(), small_batches(), training(0.1), folder=tmp_path)
    fit(network(), small_batches(), training(0.1), folder=tmp_path)
    with pytest.raises(MismatchError, match="belongs to another training"):
        fit(network(), small_batches(), training(0.2), folder=tmp_path)


def test_a_loss_that_runs_away_stops_and_overwrites_nothing(tmp_path):
    torch.manual_seed(0)
    batches = Batches(1e6 * torch.randn(64, 4), 1e15 * torch.randn(64), batch_size=16)
    wild = Training(epochs=30, lr=1e30, checkpoint_seconds=0.0, optimizer="sgd", schedule="constant")
    where = (
        r"the loss became (nan|inf) in epoch \d+, step \d+, at a learning rate of 1e\+30 on the batch of examples \d"
    )
    with pytest.raises(DivergedError, match=rf"({where}.*|is not finite): lower the learning rate"):
        fit(MLP(4, 2, (8,)), batches, wild, folder=tmp_path)
    for file in tmp_path.glob("*.safetensors"):
        assert all(t.isfinite().all() for t in load_file(file).values() if t.is_floating_point())


def test_a_teacher_that_turns_to_nan_stops_the_training():
    class Turning(nn.Module):
        calls = 0

        def forward(self, x):
            Turning.calls += 1
            return torch.full((len(x), 3), float("nan") if Turning.calls > 6 else 0.0) + x[:, :1]

    with pytest.raises(ValueError, match=r"member 0 says NaN about example \d+"):
        distill(Ensemble([Turning()]), network(), small_batches(), EnD(), Training(epochs=20))


def test_the_first_validation_that_is_no_number_does_not_win(monkeypatch):
    from solera.training import loop

    values = iter([float("nan"), 0.7, 0.6, float("inf"), 0.9])
    monkeypatch.setattr(loop, "validate", lambda *arguments: next(values))
    seen = []
    batches = small_batches()
    trained = distill(
        small_ensemble(), network(), batches, EnD(), Training(epochs=5), validation=batches,
        watch=lambda epoch, model: seen.append(weights(model)),
    )  # fmt: skip
    assert torch.equal(weights(trained.model), seen[2])


def test_weights_of_examples_count_on_the_stacked_path_as_on_the_other():
    torch.manual_seed(0)
    x = torch.randn(40, 4)
    y = (x[:, 0] > 0).long()
    weight = torch.rand(40)
    weight[:10] = 0
    spoilt = torch.where(torch.arange(40) < 10, 1 - y, y)  # wrong labels, which count nothing
    batches = Batches(x, spoilt, weight=weight, batch_size=8)
    training = Training(epochs=3, lr=1e-2)
    together, alone = (
        train_ensemble(lambda: MLP(4, 2, (8,)), batches, 3, training, stacked=stacked) for stacked in (True, False)
    )
    for one, other in zip(together.models, alone.models, strict=True):
        torch.testing.assert_close(weights(one), weights(other), rtol=1e-3, atol=1e-5)
    ignored = train_ensemble(lambda: MLP(4, 2, (8,)), Batches(x, spoilt, batch_size=8), 3, training, stacked=True)
    assert not torch.allclose(weights(ignored.models[0]), weights(together.models[0]), rtol=1e-3)


def test_label_smoothing_reaches_members_and_students():
    batches = small_batches()
    ways = [Training(epochs=3, lr=1e-2, label_smoothing=s, label_weight=0.5) for s in (0.0, 0.3)]
    members = [train_ensemble(lambda: MLP(4, 3, (8,)), batches, 2, way) for way in ways]
    assert members[1].predict(batches.all.inputs).total.mean() > members[0].predict(batches.all.inputs).total.mean()
    teacher = small_ensemble()
    students = [distill(teacher, network(), batches, EnD(), way) for way in ways]
    assert not torch.equal(weights(students[0].model), weights(students[1].model))
