"""Tagging: what a student's and a CRF's step cost beside a plain one, and one student beside its ensemble."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.ratios import compare_samples, declare
from benchmarks.timing import measure
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


def answers(model: Student | Ensemble, batch: Batch) -> list[torch.Tensor]:
    """What a user asks for: tags with their uncertainty."""
    said = model.predict(batch.inputs)
    return [said.mean, said.total, said.knowledge]


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
                    "student": lambda: answers(student, middle),
                    "one IID tagger": lambda: five["IID"].models[0](middle.inputs),
                    "five IID": lambda: answers(five["IID"], middle),
                    "five CRF": lambda: answers(five["CRF"], middle),
                },
                ROUNDS,
            )
    compare_samples("tagger: student's step from the store ÷ plain step", samples, "student", "plain", at_most=1.1)
    compare_samples("tagger: CRF step ÷ plain step", samples, "CRF", "plain", at_most=1.15)
    compare_samples("tagger: student ÷ one IID tagger", asked, "student", "one IID tagger")
    compare_samples("tagger: one IID tagger ÷ five IID", asked, "one IID tagger", "five IID")
    compare_samples("tagger: student ÷ five IID", asked, "student", "five IID", at_most=0.2)
    compare_samples("tagger: student ÷ five CRF", asked, "student", "five CRF", at_most=0.125)
    declare("tagger: padding, %", 100 * batches.padding_share, at_most=10)
    declare("tagger: store of means, bytes a token at 9 tags", size / int(batches.lengths.sum()), at_most=30)
