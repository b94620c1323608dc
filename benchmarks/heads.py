"""Many heads as one computation against a loop over them."""

import torch
from torch import Tensor, nn

from benchmarks.ratios import compare
from solera.nn import grow

MEMBERS, FEATURES, CLASSES = 50, 100, 10


def head(hidden: tuple[int, ...]) -> nn.Module:
    if not hidden:
        return nn.Linear(FEATURES, CLASSES)
    layers: list[nn.Module] = []
    for before, after in zip((FEATURES, *hidden), hidden, strict=False):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], CLASSES))


@torch.no_grad()
def against_loop(name: str, hidden: tuple[int, ...], batch: int) -> None:
    torch.manual_seed(0)
    features = torch.randn(batch, FEATURES)
    grown, singles = grow(head(hidden), MEMBERS, head=len(hidden) + 1), [head(hidden) for _ in range(MEMBERS)]

    def loop() -> Tensor:
        return torch.stack([single(features) for single in singles], -2)

    title = f"{MEMBERS} heads ({name}), speed ÷ a loop's, batch {batch}"
    compare(title, lambda: grown(features), loop, at_least=32 if batch == 1 else 8, rounds=15)


def main() -> None:
    torch.set_num_threads(1)
    for name, hidden in (("linear, 100-10", ()), ("MLP, 100-100-100-10", (100, 100))):
        for batch in (1, 256):
            against_loop(name, hidden, batch)
