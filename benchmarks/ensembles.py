"""Training small networks together against one after another, and one student against its ensemble."""

from functools import partial

import torch

from benchmarks.timing import measure, ratio, table
from solera import Batches, EnD, Student, Training, train_ensemble
from solera.core.progress import quiet
from solera.nn import MLP, ConvNet
from solera.teachers import Ensemble


def training() -> str:
    torch.manual_seed(0)
    inputs = torch.randn(1000, 2)
    batches = Batches(inputs, (inputs.prod(1) > 0).long(), batch_size=100)
    rows = []
    for members in (10, 100):

        def train(stacked: bool, members: int = members) -> None:
            settings = Training(epochs=1 if members == 100 else 3)
            train_ensemble(lambda: MLP(2, 2, (64, 64)), batches, members, settings, stacked=stacked)

        samples = measure({"together": lambda: train(True), "one by one": lambda: train(False)}, rounds=5)
        rows.append([members, f"{ratio(samples, 'one by one', 'together'):.1f}"])
    return table(["MLPs (2-64-64-2)", "one by one ÷ together"], rows)


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
        print(training() + "\n", flush=True)
        print(inference() + "\n", flush=True)
