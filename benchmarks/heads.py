"""Many heads as one computation against a loop over them, and against their matrix products, which are the least."""

import torch
from torch import Tensor, nn

from benchmarks.ratios import compare_samples
from benchmarks.timing import measure
from solera.nn import grow
from solera.nn.heads import fan_out, side_by_side

MEMBERS, FEATURES, CLASSES = 50, 100, 10


def head(hidden: tuple[int, ...]) -> nn.Module:
    if not hidden:
        return nn.Linear(FEATURES, CLASSES)
    layers: list[nn.Module] = []
    for before, after in zip((FEATURES, *hidden), hidden, strict=False):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], CLASSES))


def linear_weights(network: nn.Module) -> list[Tensor]:
    return [layer.weight for layer in network.modules() if isinstance(layer, nn.Linear)]


def chained(features: Tensor, weights: list[Tensor]) -> Tensor:
    """What no way can do without: the products of all heads, one layer after the other."""
    first, *rest = weights
    values = fan_out(features, first, None).transpose(0, 1)
    for weight in rest:
        values = side_by_side(values, weight, None)
    return values


@torch.no_grad()
def against_loop(name: str, hidden: tuple[int, ...], batch: int) -> None:
    torch.manual_seed(0)
    features = torch.randn(batch, FEATURES)
    grown, singles = grow(head(hidden), MEMBERS, head=len(hidden) + 1), [head(hidden) for _ in range(MEMBERS)]

    def loop() -> Tensor:
        return torch.stack([single(features) for single in singles], -2)

    def products() -> Tensor:
        return chained(features, weights)

    weights = [torch.stack(some) for some in zip(*(linear_weights(single) for single in singles), strict=True)]
    samples = measure({"heads": lambda: grown(features), "products": products, "loop": loop}, rounds=15)
    title = f"{MEMBERS} heads ({name}), speed ÷ a loop's, batch {batch}"
    compare_samples(title, samples, "heads", "loop", at_least=32 if batch == 1 else 8)
    compare_samples(
        f"{MEMBERS} heads ({name}) ÷ their matrix products alone, batch {batch}", samples, "heads", "products"
    )


def main() -> None:
    torch.set_num_threads(1)
    for name, hidden in (("linear, 100-10", ()), ("MLP, 100-100-100-10", (100, 100))):
        for batch in (1, 256):
            against_loop(name, hidden, batch)
