"""Pure functions of rows: compiled on request (see `solera.core.fused.compiled`), in cache-sized chunks otherwise."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from solera.core.fused import attempt_compiled

_CHUNK = 1 << 17  # elements of the first column: enough to outweigh the calls, few enough to stay near the processor


def rowwise(function: Callable[..., tuple[Tensor, ...]], like: Sequence[Tensor], *rows: Tensor) -> list[Tensor]:
    """`function(*rows)`, every row by itself; results have the shapes and types of `like` and carry no gradient."""
    found = attempt_compiled(function, *rows)
    if found is not None:
        return [value.to(column.dtype) for value, column in zip(found, like, strict=True)]
    first = rows[0]
    results = [torch.empty_like(column, memory_format=torch.contiguous_format) for column in like]
    step = max(1, _CHUNK // max(1, first[:1].numel()))
    with torch.inference_mode():  # lighter calls; what the function makes is copied out of this mode
        for start in range(0, len(first), step):
            part = slice(start, start + step)
            for result, value in zip(results, function(*(column[part] for column in rows)), strict=True):
                result[part] = value
    return results
