"""The least value of a smooth function of a few numbers."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def minimum(function: Callable[[Tensor], Tensor], start: Sequence[float]) -> tuple[list[float], float]:
    """Where the function of these numbers is least, and how small it is there; by L-BFGS in float64.

    Never worse than the start, which is returned if the search loses itself.
    """
    x = torch.tensor(list(start), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [x], max_iter=200, tolerance_grad=1e-10, tolerance_change=1e-13, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = function(x)
        value.backward()
        return value

    with torch.inference_mode(False), torch.enable_grad():
        optimizer.step(closure)  # pyright: ignore[reportArgumentType]  (it wants a float, and takes a tensor)
    with torch.no_grad():
        first, last = (float(function(point)) for point in (x.new_tensor(list(start)), x))
    return (x.tolist(), last) if last <= first else (list(start), first)
