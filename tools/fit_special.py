"""Prints the table of Chebyshev coefficients in solera/core/special.py, from 50-digit arithmetic.

Run: python tools/fit_special.py
"""

import mpmath as mp

mp.mp.dps = 50
TERMS = 24
NODES = 120


def digamma(x: mp.mpf) -> mp.mpf:
    return x * (mp.digamma(x) - mp.log(x))


def lgamma(x: mp.mpf) -> mp.mpf:
    u = 1 / x
    return (mp.loggamma(x) - (x - mp.mpf(1) / 2) * mp.log(x) + (x - 1)) / (1 - u)


def trigamma(x: mp.mpf) -> mp.mpf:
    return x * mp.polygamma(1, x)


def trigamma_deficit(x: mp.mpf) -> mp.mpf:
    return x * (1 - (x - 1) * mp.polygamma(1, x))


def chebyshev(function) -> list[mp.mpf]:
    """Coefficients in v = 2u − 1, u = 1/x in (0, 1], by the discrete cosine transform at the Chebyshev nodes."""
    angles = [mp.pi * (j + mp.mpf(1) / 2) / NODES for j in range(NODES)]
    values = [function(2 / (1 + mp.cos(angle))) for angle in angles]
    coefficients = [
        2 / mp.mpf(NODES) * sum(v * mp.cos(i * angle) for v, angle in zip(values, angles, strict=True))
        for i in range(TERMS)
    ]
    coefficients[0] /= 2
    return coefficients


if __name__ == "__main__":
    for function in (digamma, lgamma, trigamma, trigamma_deficit):
        print(f"_{function.__name__.upper()} = (")
        row = [mp.nstr(c, 17) for c in chebyshev(function)]
        for start in range(0, TERMS, 4):
            print("    " + ", ".join(row[start : start + 4]) + ",")
        print(")")
