"""Many heads as one computation against a loop over them."""

import torch
from torch import Tensor, nn

from benchmarks.timing import measure, ratio, table
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
def compare(hidden: tuple[int, ...], batch: int) -> float:
    torch.manual_seed(0)
    features = torch.randn(batch, FEATURES)
    grown, singles = grow(head(hidden), MEMBERS, head=len(hidden) + 1), [head(hidden) for _ in range(MEMBERS)]

    def loop() -> Tensor:
        return torch.stack([single(features) for single in singles], -2)

    return ratio(measure({"together": lambda: grown(features), "loop": loop}, rounds=15), "loop", "together")


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for name, hidden in (("linear, 100-10", ()), ("MLP, 100-100-100-10", (100, 100))):
        rows.append([name, *(f"{compare(hidden, batch):.1f}" for batch in (1, 256))])
    print(table([f"{MEMBERS} heads", "loop ÷ together, batch 1", "batch 256"], rows) + "\n", flush=True)
