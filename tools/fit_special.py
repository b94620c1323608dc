"""Prints the tables of Chebyshev coefficients in solera/core/special.py, from 50-digit arithmetic.

Run: python tools/fit_special.py
"""

import mpmath as mp

mp.mp.dps = 50
NODES = 160


def digamma(u: mp.mpf) -> mp.mpf:
    """D(u) = (ψ(x) − ln x)·x at x = 1/u."""
    return (mp.digamma(1 / u) + mp.log(u)) / u


def lgamma(u: mp.mpf) -> mp.mpf:
    """G(u) = (lnΓ(x) − (x − ½)·ln x + x − 1)/(1 − u) at x = 1/u."""
    x = 1 / u
    return (mp.loggamma(x) - (x - mp.mpf(1) / 2) * mp.log(x) + x - 1) / (1 - u)


def trigamma_tail(u: mp.mpf) -> mp.mpf:
    """R(u) = (ψ₁(x)·x − 1)·x at x = 1/u."""
    return (mp.polygamma(1, 1 / u) / u - 1) / u


def logarithm(u: mp.mpf) -> mp.mpf:
    """L(m) = −ln(1 − m)/m at m = u/2."""
    return -mp.log1p(-u / 2) / (u / 2)


def chebyshev(function, terms: int) -> list[mp.mpf]:
    """Coefficients in v = 2u − 1, u in (0, 1], by the discrete cosine transform at the Chebyshev nodes."""
    angles = [mp.pi * (j + mp.mpf(1) / 2) / NODES for j in range(NODES)]
    values = [function((1 + mp.cos(angle)) / 2) for angle in angles]
    coefficients = [
        2 / mp.mpf(NODES) * sum(v * mp.cos(i * angle) for v, angle in zip(values, angles, strict=True))
        for i in range(terms)
    ]
    coefficients[0] /= 2
    return coefficients


if __name__ == "__main__":
    for function, terms in ((digamma, 24), (lgamma, 24), (trigamma_tail, 28), (logarithm, 24)):
        print(f"_{function.__name__.upper()} = (")
        row = [mp.nstr(c, 17) for c in chebyshev(function, terms)]
        for start in range(0, terms, 4):
            print("    " + ", ".join(row[start : start + 4]) + ",")
        print(")")
