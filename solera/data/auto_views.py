"""The views that `views="auto"` stands for."""

from typing import Any

import torch
from torch import Tensor

from solera.core.seeds import generator
from solera.data.augment import Jitter, OneOf, Plain, Resample, Shift, View

MOST_ROWS = 4096  # of a reference table that `default_views` keeps


def default_views(inputs: Any, continuous: bool = False, words: tuple[int, ...] = ()) -> View | None:
    """The views that `views="auto"` stands for, by the kind of the inputs; None where there are none.

    Rows of real numbers `(N, D)`: every second one at random as it is, the others with 30 % of their features
    resampled; for `continuous` targets two fifths each, and every fifth row moved off the range by a wide jitter, or
    students would extrapolate what they know as far as what they predict (the columns in `words` hold numbers of
    words: they are not moved). Images `(N, C, H, W)`: every second one as it
    is, the others shifted by up to an eighth of their size. Token ids, class numbers and nests of several tensors have
    no default. `inputs` serve as the reference table (of more than 4,096 rows, a random 4,096). Chosen by the tables of
    docs/views.md.
    """
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        return None
    if inputs.ndim == 2:
        some = torch.randperm(len(inputs), generator=generator(0, "reference"))[:MOST_ROWS]
        table = inputs[some.sort().values].detach().cpu()
        near = (Plain(), Resample(table, 0.3))
        return OneOf(*near, *near, Jitter(table, 2.0, words)) if continuous else OneOf(*near)
    if inputs.ndim == 4:
        return OneOf(Plain(), Shift(max(1, min(inputs.shape[2:]) // 8)))
    return None
