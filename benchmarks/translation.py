"""Beam search of our translator against transformers' `generate` on a Marian model of its size, and a step of training
from the memory against a plain one; and the memory's size: CPU time, one thread."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import GenerationConfig

from benchmarks.decoding import CLASSES, END, INNER, LONGEST, PAD, ROWS, TOKENS, WIDTH, model
from benchmarks.ratios import compare_samples, declare
from benchmarks.timing import measure
from solera import EnD, Ensemble, ProxyDirichlet, capture
from solera.core.fused import compiled
from solera.data import Batch
from solera.decoding import beam
from solera.distributions import Categorical
from solera.methods.base import Method
from solera.nn import Translator
from solera.nn.stepwise import stepwise
from solera.tasks import Seq2Seq
from solera.teachers import TopKCodec


def translator() -> Translator:
    torch.manual_seed(0)
    return Translator(CLASSES, WIDTH, encoder=3, decoder=1, heads=4, inner=INNER, dropout=0.0).eval()


def decode(network: torch.nn.Module, source: torch.Tensor, beams: int) -> Callable[[], Any]:
    """Beam search as `translate` does it, over so many tokens: the end is never likely."""
    asked = stepwise(network)

    def step(state: Any, tokens: torch.Tensor) -> tuple[Categorical, Any]:
        output, state = asked.step(state, tokens)
        return Categorical(output), state

    inputs = {"input_ids": source, "attention_mask": torch.ones_like(source)}
    start = torch.full((ROWS,), PAD)
    return lambda: beam(step, asked.begin(inputs), start, END, LONGEST, beams, early=True)


@torch.no_grad()
def decoding(beams: int) -> None:
    marian, own = model(0.0), translator()
    source = torch.randint(4, CLASSES, (ROWS, TOKENS))
    settings = GenerationConfig(
        num_beams=beams, max_new_tokens=LONGEST, do_sample=False, pad_token_id=PAD, eos_token_id=END,
        decoder_start_token_id=PAD,
    )  # fmt: skip
    theirs = lambda: marian.generate(source, attention_mask=torch.ones_like(source), generation_config=settings)  # noqa: E731
    runs = {"marian": decode(marian, source, beams), "translator": decode(own, source, beams), "theirs": theirs}
    samples = measure(runs, rounds=5)
    for name, what in (("marian", "a Marian model"), ("translator", "our Translator of its size")):
        compare_samples(f"beam {beams} of {what} ÷ transformers' generate", samples, name, "theirs", at_most=1.0)


def batch(rows: int = 60) -> Batch:
    draw = torch.Generator().manual_seed(0)
    ids, prefix, target = (torch.randint(4, CLASSES, (rows, 16), generator=draw) for _ in range(3))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "decoder_input_ids": prefix}
    return Batch(inputs, torch.arange(rows), target, torch.ones(rows, 16))


def steps(methods: dict[str, tuple[Method, float]]) -> None:
    """One step of training from a memory of 32 tokens a step, beside one from labels alone; and the memory's bytes."""
    given, task, network = batch(), Seq2Seq(), translator().train()
    optimizer = torch.optim.AdamW(network.parameters())

    def stepped(loss: Callable[[Any], torch.Tensor]) -> Callable[[], None]:
        def run() -> None:
            optimizer.zero_grad()
            given.average(loss(network(given.inputs))).backward()
            optimizer.step()

        return run

    with TemporaryDirectory() as folder:
        kept = capture(Ensemble([translator(), translator()]), [given], Path(folder) / "kept", TopKCodec(keep=32))
        runs = {"plain": stepped(lambda output: task.label_loss(network, task.of_member(output), given))}
        runs |= {name: stepped(lambda o, m=m: m.loss(o, kept(given))) for name, (m, _) in methods.items()}
        with compiled(True):
            samples = measure(runs, rounds=9)
        (shard,) = kept.shards
    for name, (_, goal) in methods.items():
        compare_samples(f"{name}: step from the memory, compiled ÷ plain step", samples, name, "plain", at_most=goal)
    tokens = int(given.weight.sum())
    columns = [(len(column), column.nbytes) for column in shard.values()]
    declare(f"memory: bytes a token at 32 of {CLASSES:,}", sum(size for _, size in columns) / tokens, at_most=140)
    own = sum(size for length, size in columns if length == tokens)
    declare("memory: of these, what is kept of the tokens themselves", own / tokens)


def main() -> None:
    torch.set_num_threads(1)
    decoding(5)
    steps({"EnD": (EnD(tail="dropped"), 1.1), "EnD, tail": (EnD(), 1.1), "SEnD²": (ProxyDirichlet(), 1.2)})
