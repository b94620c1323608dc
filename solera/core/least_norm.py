"""The shortest weighted mean of some vectors: a tiny quadratic program, solved exactly, many at a time."""

import torch
from jaxtyping import Float
from torch import Tensor

_ROUNDING = 1e-12  # a slope this small, relative to the vectors' lengths, is none


def _step(a: Tensor, residual: Tensor, w: Tensor, upper: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """Moves the free weights, their sum kept, to the least ‖a·w + o‖ or the first bound; and which rows met no bound.

    Among equally good directions the shortest one: the pseudo-inverse asks for no rank.
    """
    count = free.sum(-1, keepdim=True).clamp(min=1)
    moving = (a - (a * free.unsqueeze(-2)).sum(-1, keepdim=True) / count.unsqueeze(-1)) * free.unsqueeze(-2)
    towards = -(torch.linalg.pinv(moving, atol=1e-13) @ residual.unsqueeze(-1)).squeeze(-1) * free
    towards = (towards - towards.sum(-1, keepdim=True) / count) * free
    room = torch.where(towards > 0, (upper - w) / towards, torch.where(towards < 0, -w / towards, torch.inf))
    length, first = room.min(-1, keepdim=True)
    after = torch.minimum((w + length.clamp(max=1) * towards).clamp(min=0), upper)
    bound = torch.where(towards > 0, upper, 0.0).gather(-1, first)
    hit = length <= 1
    return after.scatter(-1, first, torch.where(hit, bound, after.gather(-1, first))), ~hit.squeeze(-1)


def _released(slope: Tensor, w: Tensor, upper: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """The free weights and the one at a bound that most wants to leave it (where none is free: the best two), and how
    much it does: the slope's gap to the free ones' common level."""
    low = torch.where((w == 0) & (upper > 0), slope, torch.inf)  # may rise
    high = torch.where((w == upper) & (upper > 0), slope, -torch.inf)  # may fall
    count, rows = free.sum(-1), torch.arange(len(w), device=w.device)
    level = (slope * free).sum(-1) / count.clamp(min=1)
    (least, rising), (most, falling) = low.min(-1), high.max(-1)
    rise = torch.where(count > 0, level - least, most - least)
    fall = torch.where(count > 0, most - level, most - least)
    free = free.clone()
    free[rows, rising] |= rise >= fall
    free[rows, falling] |= fall >= rise
    return free, torch.maximum(rise, fall)


def least_norm_weights(vectors: Float[Tensor, "N M D"], upper: Float[Tensor, "N M"]) -> Float[Tensor, "N M"]:
    """argmin ‖Σ_m w_m v_m‖² over Σ w = 1, 0 ≤ w ≤ u, of each of N problems; exact up to rounding, in float64.

    A primal active-set method. Every free weight lies strictly between its bounds, so each step makes the norm smaller
    and no set comes back: it ends. The start is the even share, so what does not matter stays even. Written about the
    centre, c + Σ_m w_m (v_m − c), because nearly equal vectors differ by little of their length.
    """
    upper = upper.double()
    w = (upper > 0) / (upper > 0).sum(-1, keepdim=True).double()
    upper = torch.where(upper > 0, torch.maximum(upper, w), 0.0)
    centre = (w.unsqueeze(-2) @ vectors.double()).squeeze(-2)
    away = (vectors.double() - centre.unsqueeze(-2)) * (upper > 0).unsqueeze(-1)
    size = away.norm(dim=-1).amax(-1)
    system = torch.cat([away, centre.unsqueeze(-2)], -2).mT / size[:, None, None]
    going = (size > 0).nonzero().squeeze(-1)  # identical vectors, or no numbers: even shares
    system = system[going]
    if system.shape[-2] > system.shape[-1]:
        system = torch.linalg.qr(system, mode="r").R
    a, o, free = system[..., :-1], system[..., -1], (w < upper)[going]
    tolerance = _ROUNDING * (1 + o.norm(dim=-1))
    for _ in range(100 + 20 * w.shape[-1]):
        if not len(going):
            break
        now, most = w[going], upper[going]
        after, full = _step(a, (a @ now.unsqueeze(-1)).squeeze(-1) + o, now, most, free)
        w[going] = after
        free = free & (after > 0) & (after < most)
        slope = (a.mT @ (a @ after.unsqueeze(-1) + o.unsqueeze(-1))).squeeze(-1)
        wider, gap = _released(slope, after, most, free)
        free = torch.where((full & (gap > tolerance)).unsqueeze(-1), wider, free)
        on = ~full | (gap > tolerance)
        going, a, o, free, tolerance = going[on], a[on], o[on], free[on], tolerance[on]
    assert not len(going), "the active sets must come to an end"
    return w / w.sum(-1, keepdim=True)
