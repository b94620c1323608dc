"""What this machine's processor can do."""

import warnings
from functools import cache

import torch


@cache
def multiplies_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 numbers itself; where it does not, they are ten times slower than float32."""
    if not hasattr(torch.cpu, "get_capabilities"):  # an older torch, which cannot tell
        return True
    return any(able for name, able in torch.cpu.get_capabilities().items() if "bf16" in name)


def warn_of_slow_bfloat16(precision: str, remedy: str) -> None:
    """For those who ask for bfloat16 on a CPU that has to emulate it."""
    if precision == "bf16-mixed" and not multiplies_bfloat16():
        warnings.warn(
            f"precision='bf16-mixed' is about ten times slower than float32 on this CPU, which does not multiply "
            f"bfloat16: {remedy}",
            stacklevel=3,
        )
