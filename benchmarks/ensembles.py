"""Training small networks together against one after another, and one student against its ensemble."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.ratios import compare, compare_samples
from benchmarks.timing import measure, ratio, table
from solera import Batch, Batches, EnD, Student, Training, train_ensemble
from solera.core.progress import quiet
from solera.nn import MLP, ConvNet
from solera.nn.call import laid_out
from solera.teachers import Ensemble


def training() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(1000, 2)
    batches = Batches(inputs, (inputs.prod(1) > 0).long(), batch_size=100)
    for members in (10, 100):

        def train(stacked: bool, members: int = members) -> None:
            settings = Training(epochs=1 if members == 100 else 3)
            train_ensemble(lambda: MLP(2, 2, (64, 64)), batches, members, settings, stacked=stacked)

        title = f"training {members} MLPs (2-64-64-2) together, speed ÷ one by one"
        compare(title, partial(train, True), partial(train, False), at_least=6, rounds=5)


def live() -> None:
    """A student's step with a live ensemble of convnets as its teacher, as the training loop takes it, and a step with
    labels: as people write it, and channels-last, as the loop takes it."""
    torch.manual_seed(0)
    members, shape = 5, (1, 28, 28)
    batch = Batch(torch.rand(64, *shape), torch.arange(64), torch.randint(10, (64,)))
    models = [ConvNet(shape, 10) for _ in range(members)]
    exact, rounded = Ensemble(models), Ensemble(models, precision="bf16-mixed")
    student, method = ConvNet(shape, 10), EnD()
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4)

    def step(loss: Callable[[], Tensor]) -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    def taught(ensemble: Ensemble) -> Tensor:
        with torch.no_grad():
            targets = ensemble(batch)
        return batch.average(method.loss(student(laid_out(student, batch.inputs)), targets))

    def labelled(laid: bool) -> Tensor:
        assert batch.target is not None
        return cross_entropy(student(laid_out(student, batch.inputs) if laid else batch.inputs), batch.target)

    cases = {"labels": partial(step, partial(labelled, False)), "laid out": partial(step, partial(labelled, True))}
    cases |= {"live": partial(step, partial(taught, exact)), "in bf16": partial(step, partial(taught, rounded))}
    samples = measure(cases, rounds=15)
    for name, members_are in (("live", "live convnets"), ("in bf16", "live convnets asked in bf16")):
        title = f"a step with {members} {members_are} (28×28, batch 64) ÷ a step with labels"
        compare_samples(f"{title}, images as they come", samples, name, "labels", at_most=2.0)
        compare_samples(f"{title}, channels-last", samples, name, "laid out", at_most=2.0)


def inference() -> str:
    rows = []
    for members in (5, 10, 20):
        torch.manual_seed(0)
        networks = [ConvNet((1, 28, 28), 10) for _ in range(members)]
        ensemble, student = Ensemble(networks), Student(ConvNet((1, 28, 28), 10), EnD())
        cells: list[object] = [members]
        for batch in (1, 64):
            images = torch.randn(batch, 1, 28, 28)
            cases = {"student": partial(student.predict, images), "ensemble": partial(ensemble.predict, images)}
            cells.append(f"{ratio(measure(cases, rounds=7), 'ensemble', 'student'):.1f}")
        rows.append(cells)
    return table(["members (convnets, 28×28)", "ensemble ÷ student, batch 1", "batch 64"], rows)


def main() -> None:
    torch.set_num_threads(1)
    with quiet():
        training()
        live()
        print(inference() + "\n", flush=True)
