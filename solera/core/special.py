"""ψ, ψ₁ and lnΓ of 1 + a, for a ≥ 0, in plain arithmetic: accurate in float32, fast, and exportable to ONNX.

With u = 1/(1 + a) in (0, 1] and s = a·u = 1 − u, what is left after Stirling's leading terms is smooth in u, so a
short polynomial gives it:

    ψ(1 + a)     = ln(1 + a) + u·D(u)
    lnΓ(1 + a)   = (a + ½)·ln(1 + a) − a + s·G(u)
    ψ₁(1 + a)    = u·P(u),      P = 1 + u·R(u)
    a·ψ₁(1 + a)  = 1 − u·Q(u),  Q = 1 − s·R(u)
    ln(1 + a)    = max(ln a, 0) + m·L(m),  m = min(u, s)

P is exact where a is small and Q where it is large: ψ₁ is needed as a·ψ₁ near 0 and as 1 − a·ψ₁ far out, and neither
can be had from the other without cancellation, but both from R. The large logarithms are written apart so that a
formula which subtracts them can do so on paper (METHODS: finite is not right).

The coefficients below are Chebyshev's, made by tools/fit_special.py; float32 needs the first few, float64 all of them.
"""

from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

# fmt: off
_DIGAMMA = (
    -0.53964549119041319, -0.038711240633459732, 0.0010586852516175127, 0.0001021775212025393,
    -2.1282532588559493e-5, 1.3172903323253601e-6, 2.446041105138906e-7, -8.709258785931369e-8,
    1.2060765811179979e-8, 2.8855915886075119e-10, -6.2192154889646453e-10, 1.7784955388298965e-10,
    -2.4767407013258308e-11, -1.9007986429939014e-12, 2.2994941003698215e-12, -7.6546719127025906e-13,
    1.433680862985676e-13, -1.4672066409225886e-15, -1.105249102606381e-14, 5.1511393788291614e-15,
    -1.4271938361089029e-15, 2.0861130152546723e-16, 3.4907260860357591e-17, -3.8726421215292333e-17,
)
_LGAMMA = (
    -0.079290982380826374, 0.0019442706103000187, 0.00015153899278621682, -2.1560900148789873e-5,
    9.2836441697116581e-7, 1.85814648255203e-7, -5.1141989587041037e-8, 5.6979113835955897e-9,
    2.5317815645124025e-10, -2.6917698288158992e-10, 6.511253409499752e-11, -7.3858565040045988e-12,
    -9.0291395409045997e-13, 7.1946017473309395e-13, -2.0736665244109122e-13, 3.2838052850131917e-14,
    1.1363389443287838e-15, -2.8619263564688851e-15, 1.1448668179024652e-15, -2.7860981535443128e-16,
    3.1089073374806898e-17, 9.9378592048299971e-18, -7.6999498486316219e-18, 2.8910890621621058e-18,
)
_TRIGAMMA_TAIL = (
    0.57601041993795077, 0.072729857495075156, -0.003633938520226795, -0.00025352772296917831,
    9.1334764075300412e-5, -9.8087375381956144e-6, -6.8197499167400111e-7, 5.0769825476735093e-7,
    -1.0461708742889873e-7, 6.238278142607091e-9, 3.5265757911464221e-9, -1.5360657078847913e-9,
    3.2568746156524303e-10, -1.90984133230418e-11, -1.5816171020148741e-11, 7.9596998076149548e-12,
    -2.1372539582306762e-12, 2.7652820259021164e-13, 6.2226135610520277e-14, -5.5050685065767202e-14,
    2.0855419624746871e-14, -4.9434249030307466e-15, 3.7907620859704186e-16, 3.2996194164883512e-16,
    -2.1922133126107897e-16, 8.2737210007501069e-17, -2.0634280873622386e-17, 1.8140598574062335e-18,
)
_LOGARITHM = (
    1.1715728752538099, 0.19040919061837922, 0.021201872316580199, 0.0026850769313357004,
    0.00036468786526351462, 5.1754447017625967e-5, 7.5689366178721107e-6, 1.1314200762527294e-6,
    1.7196212722695952e-7, 2.6479634499940724e-8, 4.1206089603343853e-9, 6.4680342486605149e-10,
    1.0226637574756305e-10, 1.6269307719816319e-11, 2.601994187957903e-12, 4.1806463927166106e-13,
    6.7442657720201252e-14, 1.0918850905147054e-14, 1.7733743477883676e-15, 2.8884293869679029e-16,
    4.7167055165380242e-17, 7.7201634736993946e-18, 1.2662928182105083e-18, 2.0810503895588566e-19,
)
# fmt: on

_NEGLIGIBLE = {torch.float32: 4e-8, torch.float64: 4e-17}  # what each precision cannot tell from nothing

Powers = dict[torch.dtype, tuple[float, ...]]


def _powers(table: tuple[float, ...]) -> Powers:
    """The same polynomial, as short as each precision allows, in powers of v in [−1, 1], highest first."""
    left_out = np.abs(table)[::-1].cumsum()[::-1]  # by a polynomial that stops before this term
    kept = {dtype: table[: int((left_out > limit).sum())] for dtype, limit in _NEGLIGIBLE.items()}
    return {
        dtype: tuple(float(c) for c in np.polynomial.chebyshev.cheb2poly(terms)[::-1]) for dtype, terms in kept.items()
    }


_D, _G, _R, _L = _powers(_DIGAMMA), _powers(_LGAMMA), _powers(_TRIGAMMA_TAIL), _powers(_LOGARITHM)


@cache
def _on(device: torch.device, dtype: torch.dtype, powers: tuple[float, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.tensor(power, dtype=dtype, device=device) for power in powers)


def _evaluate(powers: Powers, scale: float, u: Tensor) -> Tensor:
    """Horner's rule, at v = scale·u − 1."""
    if u.dtype not in powers:
        raise TypeError(f"special functions need float32 or float64, not {u.dtype}: call .float() first")
    if not torch.compiler.is_compiling() and torch.is_inference_mode_enabled():  # no new tensor for each step
        slope, shift, first, second, *rest = _on(u.device, u.dtype, (scale, -1.0, *powers[u.dtype]))
        v = torch.addcmul(shift, slope, u)
        result = torch.addcmul(second, first, v)
        for power in rest:
            torch.addcmul(power, result, v, out=result)
        return result
    first, second, *rest = powers[u.dtype]
    v = scale * u - 1
    result = first * v + second
    for power in rest:
        result = result * v + power
    return result


def digamma_remainder(u: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """D(u) = (ψ(1 + a) − ln(1 + a))/u; −½ far out, −γ at a = 0."""
    return _evaluate(_D, 2.0, u)


def lgamma_remainder(u: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """G(u) = (lnΓ(1 + a) − (a + ½)·ln(1 + a) + a)/(a·u); −0.081 far out, ½ − γ at a = 0."""
    return _evaluate(_G, 2.0, u)


def trigamma_tail(u: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """R(u) = (ψ₁(1 + a)/u − 1)/u; ½ far out, π²/6 − 1 at a = 0."""
    return _evaluate(_R, 2.0, u)


def trigamma_deficit(u: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Q(u) = (1 − a·ψ₁(1 + a))/u; ½ far out, 1 at a = 0."""
    return 1 - (1 - u) * trigamma_tail(u)


def logarithm_remainder(m: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """L(m) = −ln(1 − m)/m for m ≤ ½; 1 at m = 0, 2·ln 2 at m = ½."""
    return _evaluate(_L, 4.0, m)


def digamma_excess(a: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """ψ(1 + a) − ln a: positive, falling like 1/2a; ln a is never subtracted from its like."""
    u = (1 + a).reciprocal()
    return a.reciprocal().log1p() + u * digamma_remainder(u)
