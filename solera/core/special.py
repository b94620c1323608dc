"""ψ, ψ₁ and lnΓ of 1 + a, for a ≥ 0, in plain arithmetic: accurate in float32, fast, and exportable to ONNX.

With u = 1/(1 + a) in (0, 1], what is left after Stirling's leading terms is smooth in u: a short polynomial gives it.

    ψ(1 + a)     = ln(1 + a) + u·D(u)
    lnΓ(1 + a)   = (a + ½)·ln(1 + a) − a + a·u·G(u)
    a·ψ₁(1 + a)  = a·u·P(u) = 1 − u·Q(u)

P is exact where a is small and Q where it is large: ψ₁ is needed as a·ψ₁ near 0 and as 1 − a·ψ₁ far out, and neither
can be had from the other without cancellation. The large logarithms are written apart so that a formula which
subtracts them can do so on paper (METHODS: finite is not right).

The coefficients below are Chebyshev's, made by tools/fit_special.py; float32 needs the first few, float64 all of them.
"""

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
_TRIGAMMA = (
    1.3061876743427442, 0.32346165408645626, 0.016302113182913097, -0.0010124148005224628,
    -2.0166733089193275e-5, 1.7758828501808796e-5, -2.6662473166940664e-6, 5.7201107607950503e-8,
    7.6175589513040139e-8, -2.2153488838134532e-8, 2.938841004253786e-9, 1.9503295923552062e-10,
    -2.2594729951933677e-10, 6.7918615974752671e-11, -1.0692763888931082e-11, -5.0850634078737686e-13,
    9.9043002343595352e-13, -3.8049285435993316e-13, 8.6482447186371248e-14, -6.7549537240668141e-15,
    -4.5708176798260519e-15, 2.8369115068206048e-15, -9.6382763604695693e-16, 2.0494469015840828e-16,
)
_TRIGAMMA_DEFICIT = (
    0.73017725440479341, 0.25073179659138111, 0.019936051703139892, -0.00075888707755328449,
    -0.00011150149716449369, 2.756756604000441e-5, -1.9842723250200653e-6, -4.5049714715940043e-7,
    1.8079267694193887e-7, -2.8391766980741623e-8, -5.8773478689263614e-10, 1.7310986671203119e-9,
    -5.5163476108457979e-10, 8.7017029297794471e-11, 5.1234071312176591e-12, -8.4682061484023317e-12,
    3.1276839816666297e-12, -6.570210569501448e-13, 2.425631157585097e-14, 4.8295731341700388e-14,
    -2.5426237304572922e-14, 7.7803364098513514e-15, -1.3429038446439988e-15, -1.2501725149042684e-16,
)
# fmt: on

_TERMS = {torch.float32: 9, torch.float64: 24}  # how many coefficients each precision can tell apart


def _powers(table: tuple[float, ...]) -> dict[torch.dtype, tuple[float, ...]]:
    """The same polynomial in powers of v = 2u − 1, highest first, for Horner's rule."""
    return {
        dtype: tuple(float(c) for c in np.polynomial.chebyshev.cheb2poly(table[:terms])[::-1])
        for dtype, terms in _TERMS.items()
    }


_D, _G, _P, _Q = _powers(_DIGAMMA), _powers(_LGAMMA), _powers(_TRIGAMMA), _powers(_TRIGAMMA_DEFICIT)


def _evaluate(powers: dict[torch.dtype, tuple[float, ...]], u: Tensor) -> Tensor:
    if u.dtype not in powers:
        raise TypeError(f"special functions need float32 or float64, not {u.dtype}: call .float() first")
    first, second, *rest = powers[u.dtype]
    v = 2 * u - 1
    result = first * v + second
    if u.requires_grad or torch.compiler.is_compiling():
        for coefficient in rest:
            result = result * v + coefficient
    else:  # the same steps without a new tensor for each
        for coefficient in rest:
            result.mul_(v).add_(coefficient)
    return result


def digamma_remainder(u: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """D(u) = (ψ(1 + a) − ln(1 + a))/u; −½ far out, −γ at a = 0."""
    return _evaluate(_D, u)


def lgamma_remainder(u: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """G(u) = (lnΓ(1 + a) − (a + ½)·ln(1 + a) + a)/(a·u); −0.081 far out, ½ − γ at a = 0."""
    return _evaluate(_G, u)


def trigamma_remainder(u: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """P(u) = ψ₁(1 + a)/u; 1 far out, π²/6 at a = 0."""
    return _evaluate(_P, u)


def trigamma_deficit(u: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Q(u) = (1 − a·ψ₁(1 + a))/u; ½ far out, 1 at a = 0."""
    return _evaluate(_Q, u)


def digamma1p(a: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """ψ(1 + a)."""
    u = (1 + a).reciprocal()
    return a.log1p() + u * digamma_remainder(u)


def lgamma1p(a: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """lnΓ(1 + a)."""
    u = (1 + a).reciprocal()
    return (a + 0.5) * a.log1p() - a + a * u * lgamma_remainder(u)


def digamma_excess(a: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """ψ(1 + a) − ln a: positive, falling like 1/2a; ln a is never subtracted from its like."""
    u = (1 + a).reciprocal()
    return a.reciprocal().log1p() + u * digamma_remainder(u)
