"""Training steps: what distillation adds to plain training, and M subnetworks to online distillation."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.ratios import compare, compare_samples
from benchmarks.timing import measure, ratio, table
from solera import Batches, EnD, Ensemble, LatentBE, ProxyDirichlet, Training, capture, distill
from solera.core.progress import quiet
from solera.data import Batch
from solera.methods.base import Method
from solera.nn import MLP, WideResNet
from solera.perturbations import TDivSDiv
from solera.teachers.base import Teacher

MEMBERS, BATCH, SHAPE, CLASSES = 4, 16, (3, 32, 32), 10
PLAIN, CACHED, ONLINE, LATENT = "cross-entropy", "EnD, cached", "EnD, online", "LatentBE, online"
PERTURBED = "LatentBE, online, TDiv−SDiv"
FOURFOLD = f"EnD, online, on {MEMBERS} copies of the images"  # what M subnetworks cost without any factor


def network(layout: torch.memory_format) -> nn.Module:
    return WideResNet(16, 1, SHAPE, CLASSES).to(memory_format=layout)  # type: ignore[call-overload]


def step(student: nn.Module, batch: Batch, loss: Callable[[Tensor], Tensor]) -> Callable[[], None]:
    """What the training loop does with one batch."""
    optimizer = torch.optim.AdamW(student.train().parameters(), lr=1e-4)

    def run() -> None:
        optimizer.zero_grad()
        batch.average(loss(student(batch.inputs))).backward()
        optimizer.step()

    return run


def perturbed(method: Method, model: nn.Module, teacher: Ensemble, batch: Batch) -> Callable[[], None]:
    """The inputs are moved first, and then both are asked about them."""
    student, draw = method.student(model, MEMBERS).train(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4)

    def run() -> None:
        moved = replace(batch, inputs=TDivSDiv()(batch.inputs, teacher, student, draw))
        optimizer.zero_grad()
        with torch.no_grad():
            targets = teacher(moved)
        batch.average(method.loss(student(moved.inputs), targets)).backward()
        optimizer.step()

    return run


def distilling(method: Method, model: nn.Module, teacher: Teacher, batch: Batch) -> Callable[[], None]:
    def loss(output: Tensor) -> Tensor:
        with torch.no_grad():
            targets = teacher(batch)
        return method.loss(output, targets)

    return step(method.student(model, MEMBERS), batch, loss)


class Copies(nn.Module):
    """A network that is asked about every image M times."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(torch.cat([images] * MEMBERS))


def fourfold(model: nn.Module, teacher: Ensemble, batch: Batch) -> Callable[[], None]:
    """The teacher is asked once about each image."""
    method = EnD(temperature=4.0)

    def loss(output: Tensor) -> Tensor:
        with torch.no_grad():
            targets = teacher(batch)
        return torch.stack([method.loss(part, targets) for part in output.chunk(MEMBERS)]).mean(0)

    return step(Copies(model), batch, loss)


def images(folder: Path, channels_last: bool, rounds: int = 25) -> list[str]:
    """Milliseconds of a plain step, and the ratios that the goals are about."""
    torch.manual_seed(0)
    inputs, labels = torch.rand(BATCH, *SHAPE), torch.randint(CLASSES, (BATCH,))
    layout = torch.channels_last if channels_last else torch.contiguous_format
    batches = Batches(inputs.to(memory_format=layout), labels, batch_size=BATCH)
    (batch,) = batches
    ensemble = Ensemble([network(layout) for _ in range(MEMBERS)])
    cached = capture(ensemble, batches, folder)
    cases = {
        PLAIN: step(network(layout), batch, lambda z: cross_entropy(z, labels, reduction="none")),
        CACHED: distilling(EnD(temperature=4.0), network(layout), cached, batch),
        ONLINE: distilling(EnD(temperature=4.0), network(layout), ensemble, batch),
        LATENT: distilling(LatentBE(), network(layout), ensemble, batch),
        FOURFOLD: fourfold(network(layout), ensemble, batch),
        PERTURBED: perturbed(LatentBE(), network(layout), ensemble, batch),
    }
    samples = measure(cases, rounds)
    name = "channels-last" if channels_last else "channels-first"
    where = f"WRN-16-1, {BATCH} images, M = {MEMBERS}, {name}"
    compare_samples(f"step of {LATENT} ÷ {ONLINE}: {where}", samples, LATENT, ONLINE, at_most=2.2)
    compare_samples(f"step of {FOURFOLD} ÷ {ONLINE}: {where}", samples, FOURFOLD, ONLINE)
    compare_samples(f"step of {PERTURBED} ÷ {ONLINE}: {where}", samples, PERTURBED, ONLINE, at_most=3.0)
    found = [ratio(samples, CACHED, PLAIN), ratio(samples, ONLINE, PLAIN), ratio(samples, LATENT, ONLINE)]
    return [name, f"{1e3 * median(samples[PLAIN]):.0f} ms", *(f"{number:.2f}" for number in found)]


def small(folder: Path) -> None:
    """A whole training of a small student, from its members' answers, and as many plain steps with labels."""
    torch.manual_seed(0)
    rows, labels, epochs = torch.randn(512, 13), torch.randint(3, (512,)), 20
    batches = Batches(rows, labels, batch_size=64)
    kept = capture(Ensemble([MLP(13, 3, (50,)) for _ in range(5)]), batches, folder)

    def plain() -> None:
        student = MLP(13, 3, (50,))
        optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
        for part in (part for _ in range(epochs) for part in torch.randperm(len(rows)).split(64)):
            optimizer.zero_grad()
            cross_entropy(student(rows[part]), labels[part]).backward()
            optimizer.step()

    methods = {"EnD": EnD(), "Proxy-Dirichlet": ProxyDirichlet(), "Proxy-Dirichlet by mi": ProxyDirichlet(match="mi")}
    for name, method in methods.items():

        def distilled(method: Method = method) -> None:
            distill(kept, MLP(13, 3, (50,)), batches, method, Training(epochs=epochs, compile=False))

        title = f"training by {name} ÷ plain steps with labels: MLP 13-50-3, 512 rows, batches of 64"
        compare(title, distilled, plain, rounds=5)


@torch.no_grad()
def inference(rounds: int = 15) -> float:
    """The merged student against a member: the same graph."""
    member, images = network(torch.contiguous_format).eval(), torch.rand(BATCH, *SHAPE)
    merged = LatentBE().finalize(LatentBE().student(member, MEMBERS)).eval()
    return ratio(
        measure({"merged": lambda: merged(images), "member": lambda: member(images)}, rounds), "merged", "member"
    )


def main() -> None:
    torch.set_num_threads(1)
    with quiet(), TemporaryDirectory() as folder:
        small(Path(folder) / "small")
        rows = [images(Path(folder) / str(last), last) for last in (False, True)]
    header = [f"WRN-16-1, {BATCH} images, M = {MEMBERS}", PLAIN]
    header += [f"{CACHED} ÷ {PLAIN}", f"{ONLINE} ÷ {PLAIN}", f"{LATENT} ÷ {ONLINE}"]
    print(table(header, rows) + "\n", flush=True)
    print(f"Inference, merged LatentBE ÷ member: {inference():.2f}\n", flush=True)
