"""The next token of a caption: as many classes as a translator has, for the recipe `many-classes`."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from solera.core.seeds import generator
from solera.data import Tokenizer, train_bpe
from solera.data.pairs import read_lines

BEFORE = 6  # tokens that the next one is told from
CAPTIONS = "translation/multi30k.{}.gz"
FILES = [CAPTIONS.format(name) for name in ("train.en", "val.en", "test_2016_flickr.en", "test_2016_flickr.fr")]
Asked = tuple[Tensor, Tensor]  # the tokens before [N, BEFORE], and the next one [N]


@dataclass(frozen=True)
class Captions:
    """Places in captions of photographs, and places that are unlike them."""

    train: Asked
    held: Asked
    test: Asked
    unfamiliar: dict[str, Tensor]


def places(lines: list[str], tokenizer: Tokenizer, count: int, seed: int) -> Asked:
    """So many places, drawn from all tokens of these lines; before the first one there is only the start."""
    before, after = [], []
    for tokens in tokenizer.targets(lines):
        padded = [tokenizer.start] * BEFORE + tokens
        before += [padded[place : place + BEFORE] for place in range(len(tokens))]
        after += tokens
    rows = torch.randperm(len(after), generator=generator(seed, "places"))[:count]
    return torch.tensor(before)[rows], torch.tensor(after)[rows]


def load(folder: str, tokens: int, count: int, seed: int) -> Captions:
    """`count` places to learn from, and at most a fifth as many to choose by and to be judged on.

    Unfamiliar: French captions, and English ones whose tokens before the place, none of them the start, were shuffled.
    """
    train, held, test, french = (read_lines(Path(folder) / name) for name in FILES)
    tokenizer = train_bpe(train, tokens, lowercase=True)
    asked = places(test, tokenizer, count // 5, seed)
    inside = asked[0][(asked[0] != tokenizer.start).all(-1)]
    order = torch.rand(inside.shape, generator=generator(seed, "shuffled")).argsort(-1)
    unfamiliar = {
        "French": places(french, tokenizer, count // 5, seed)[0],
        "shuffled": inside.gather(-1, order),
    }
    return Captions(places(train, tokenizer, count, seed), places(held, tokenizer, count // 5, seed), asked, unfamiliar)


def network(tokens: int, width: int = 48, hidden: int = 128) -> nn.Module:
    """Embedded tokens side by side, and one hidden layer."""
    return nn.Sequential(
        nn.Embedding(tokens, width),
        nn.Flatten(),
        nn.Linear(BEFORE * width, hidden),
        nn.ReLU(),
        nn.Linear(hidden, tokens),
    )
