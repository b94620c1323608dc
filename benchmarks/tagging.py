"""Tagging: what a student's and a CRF's step cost beside a plain one, and one student beside its ensemble."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import nn

from benchmarks.timing import measure, ratio, table
from solera import Ensemble, ProxyDirichlet, Sequences, Student, capture
from solera.data import Batch, Tags
from solera.nn import Tagger, WordFeatures
from solera.tasks import Tagging
from solera.teachers import TransferSet

KINDS = ("LOC", "MISC", "ORG", "PER")
TAGS = Tags(("O", *(f"{prefix}-{kind}" for kind in KINDS for prefix in "BI")))
SENTENCES, VOCABULARY, MEMBERS, LABELS = 2000, 20_000, 5, 1 / 6
ROUNDS = 15


def files(folder: Path) -> WordFeatures:
    """Made-up vectors and clusters of the usual sizes."""
    random = np.random.default_rng(0)
    words = np.frombuffer("\n".join(f"w{n}" for n in range(VOCABULARY)).encode(), np.uint8)
    vectors = random.standard_normal((VOCABULARY, 100)).astype(np.float16)
    np.savez(folder / "vectors.npz", words=words, vectors=vectors)
    np.savez(folder / "clusters.npz", words=words, cluster=random.integers(0, 1000, VOCABULARY).astype(np.uint32))
    return WordFeatures(vectors=folder / "vectors.npz", clusters=folder / "clusters.npz")


def sentences(words: WordFeatures) -> Sequences:
    """Lengths as in newspapers and encyclopaedias, 23 tokens on average; two of three tokens are O."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.gamma(3.0, 23 / 3, SENTENCES).astype(int), 1, 120)
    texts = [[f"w{int(n)}" for n in VOCABULARY * random.random(size) ** 3] for size in lengths]
    tags = [random.choice([0, 0, 1, 3], size) for size in lengths]
    return Sequences(words(texts), tags, tokens=768)


def step(network: nn.Module, loss: Callable[[torch.Tensor, Batch], torch.Tensor], batch: Batch) -> Callable[[], None]:
    """One step of training on one batch."""
    optimizer = torch.optim.AdamW(network.parameters())

    def run() -> None:
        optimizer.zero_grad()
        batch.average(loss(network(batch.inputs), batch)).backward()
        optimizer.step()

    return run


def steps(words: WordFeatures, batch: Batch, kept: TransferSet) -> dict[str, Callable[[], None]]:
    """Plain, CRF, and a student that learns from the store and from labels."""
    task, method = Tagging(TAGS), ProxyDirichlet()
    networks = {name: Tagger(words, TAGS, crf=name == "CRF") for name in ("plain", "CRF", "student")}

    def labels(network: nn.Module) -> Callable[[torch.Tensor, Batch], torch.Tensor]:
        return lambda output, batch: task.label_loss(network, task.of_member(output), batch)

    def taught(output: torch.Tensor, batch: Batch) -> torch.Tensor:
        loss = method.batch_loss(output, kept(batch), batch, 1.0)
        own = task.label_loss(networks["student"], method.predict_in_training(output), batch)
        return (1 - LABELS) * loss + LABELS * own

    losses = {"plain": labels(networks["plain"]), "CRF": labels(networks["CRF"]), "student": taught}
    return {name: step(network, losses[name], batch) for name, network in networks.items()}


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words = files(folder)
        batches = sentences(words)
        five = {
            name: Ensemble([Tagger(words, TAGS, crf=name == "CRF") for _ in range(MEMBERS)]) for name in ("IID", "CRF")
        }
        kept = capture(five["IID"], batches, folder / "kept", "mean")
        middle = list(batches)[len(batches) // 2]
        size = sum(file.stat().st_size for file in (folder / "kept").glob("*.safetensors"))
        samples = measure(steps(words, middle, kept), ROUNDS)
        student = Student(Tagger(words, TAGS), ProxyDirichlet(), list(TAGS.names)).eval()
        with torch.no_grad():
            asked = measure(
                {
                    "student": lambda: student.predict(middle.inputs),
                    "one IID tagger": lambda: five["IID"].models[0](middle.inputs),
                    "five IID": lambda: five["IID"].predict(middle.inputs),
                    "five CRF": lambda: five["CRF"].predict(middle.inputs),
                },
                ROUNDS,
            )
        rows = [
            ["plain step, ms", f"{1e3 * median(samples['plain']):.1f}", ""],
            ["student's step from the store ÷ plain step", f"{ratio(samples, 'student', 'plain'):.2f}", "≤ 1.1"],
            ["CRF step ÷ plain step", f"{ratio(samples, 'CRF', 'plain'):.2f}", "≤ 1.15"],
            ["student, ms a batch", f"{1e3 * median(asked['student']):.1f}", ""],
            ["student ÷ one IID tagger", f"{ratio(asked, 'student', 'one IID tagger'):.2f}", "1"],
            ["student ÷ five IID", f"{ratio(asked, 'student', 'five IID'):.3f}", "≤ 0.2"],
            ["student ÷ five CRF", f"{ratio(asked, 'student', 'five CRF'):.3f}", "≤ 0.125"],
            ["padding, %", f"{100 * batches.padding_share:.1f}", "< 10"],
            ["store `mean`, bytes a token at 9 tags", f"{size / int(batches.lengths.sum()):.1f}", "≤ 30"],
        ]
    shape = "×".join(map(str, middle.target.shape)) if middle.target is not None else ""
    print(table([f"batch of {shape} tokens", "measured", "wanted"], rows) + "\n", flush=True)
