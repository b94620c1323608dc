"""The formulas of the methods once more, naively, in 60-digit arithmetic."""

from collections import Counter
from functools import cache

import mpmath as mp

mp.mp.dps = 60

digamma, loggamma = cache(mp.digamma), cache(mp.loggamma)
trigamma = cache(lambda x: mp.polygamma(1, x))
exp, log = cache(mp.exp), cache(mp.log)


def numbers(row):
    """Floats as they are, exactly."""
    return [mp.mpf(float(x)) for x in row]


def softmax(row, temperature=1):
    powers = [exp(x / mp.mpf(temperature)) for x in row]
    size = mp.fsum(powers)
    return [p / size for p in powers]


def mean(members):
    return [mp.fsum(column) / len(members) for column in zip(*members, strict=True)]


def kl(p, q):
    return mp.fsum(a * (log(a) - log(b)) for a, b in zip(p, q, strict=True) if a)


def entropy(p):
    return -mp.fsum(a * log(a) for a in p if a)


def end_loss(z, members, temperature=1):
    teacher = mean([softmax(m, temperature) for m in members])
    return temperature**2 * kl(teacher, softmax(z, temperature))


def end2_loss(z, members, temperature=1, smoothing=1e-4):
    """Value and gradient with respect to z."""
    t, g, k = mp.mpf(temperature), mp.mpf(smoothing), len(z)
    smooth = [[(1 - g) * p + g / k for p in softmax(m, t)] for m in members]
    target = mean([[log(p) for p in row] for row in smooth])
    alpha = [exp(x / t) for x in z]
    total = mp.fsum(alpha)
    value = -loggamma(total) + mp.fsum(loggamma(a) - (a - 1) * s for a, s in zip(alpha, target, strict=True))
    gradient = [a * (digamma(a) - digamma(total) - s) for a, s in zip(alpha, target, strict=True)]
    return t**2 * value, [t * x for x in gradient]


def proxy_precision(members, match="rmi"):
    rows = [softmax(m) for m in members]
    centre = mean(rows)
    rmi = mp.fsum(kl(centre, r) for r in rows) / len(rows)
    if match == "rmi":
        return (len(centre) - 1) / (2 * rmi)
    epkl = mp.fsum(kl(a, b) for a in rows for b in rows) / len(rows) ** 2
    return (len(centre) - 1) / epkl


def proxy_loss(z, centre, b):
    """Value and gradient with respect to z, given the target's mean and the divisor."""
    k, e = len(z), [exp(x) for x in z]
    size = mp.fsum(e)
    total = size + k
    reconstruction = digamma(total) * mp.fsum(centre) - mp.fsum(
        p * digamma(x + 1) for p, x in zip(centre, e, strict=True)
    )
    prior = loggamma(total) - loggamma(mp.mpf(k)) - mp.fsum(loggamma(x + 1) for x in e)
    prior += mp.fsum(x * digamma(x + 1) for x in e) - size * digamma(total)
    whole, far = mp.fsum(centre), trigamma(total)
    gradient = [x * (trigamma(x + 1) * (x / b - p) + far * (whole - size / b)) for p, x in zip(centre, e, strict=True)]
    return reconstruction + prior / b, gradient


def mixture(members, weights=None):
    """Every measure of an ensemble, EPKL by brute force over the pairs; a column that occurs often is computed once."""
    weights = [mp.mpf(1) / len(members)] * len(members) if weights is None else weights
    columns = Counter(zip(*members, strict=True))
    sizes = [mp.fsum(n * exp(c[m]) for c, n in columns.items()) for m in range(len(members))]
    rows = {c: [exp(x) / size for x, size in zip(c, sizes, strict=True)] for c in columns}
    centre = {c: mp.fsum(w * p for w, p in zip(weights, ps, strict=True)) for c, ps in rows.items()}

    def divergence(first, second):
        """Σ_k p ln(p/q), of member number `first` (or the mean: None) from another."""
        pairs = [(n, *(centre[c] if m is None else rows[c][m] for m in (first, second))) for c, n in columns.items()]
        return mp.fsum(n * p * (log(p) - log(q)) for n, p, q in pairs if p)

    each = list(enumerate(weights))
    total = -mp.fsum(n * centre[c] * log(centre[c]) for c, n in columns.items() if centre[c])
    data = -mp.fsum(n * w * rows[c][m] * log(rows[c][m]) for c, n in columns.items() for m, w in each if rows[c][m])
    return {
        "total": total,
        "data": data,
        "knowledge": total - data,
        "rmi": mp.fsum(w * divergence(None, m) for m, w in each),
        "epkl": mp.fsum(v * w * divergence(i, j) for i, v in each for j, w in each),
        "mean": [centre[c] for c in zip(*members, strict=True)],
    }


def dirichlet(concentration):
    """Every measure of Dir(α)."""
    counts = Counter(concentration)
    whole = mp.fsum(n * a for a, n in counts.items())
    total = -mp.fsum(n * a / whole * (log(a) - log(whole)) for a, n in counts.items())
    data = -mp.fsum(n * a / whole * (digamma(a + 1) - digamma(whole + 1)) for a, n in counts.items())
    epkl = (len(concentration) - 1) / whole
    entropy = mp.fsum(n * loggamma(a) for a, n in counts.items()) - loggamma(whole)
    entropy -= mp.fsum(n * (a - 1) * (digamma(a) - digamma(whole)) for a, n in counts.items())
    knowledge = total - data
    rest = {"knowledge": knowledge, "epkl": epkl, "rmi": epkl - knowledge, "entropy": entropy}
    return {"precision": whole, "total": total, "data": data, **rest}


def mapped(z, temperature=1, offset=0, slope=1, shift=0):
    """Every measure of the Dirichlet of mean ∝ e^{z/T} + d and precision e^{a·lse(z) + b}."""
    powers = [exp(x / mp.mpf(temperature)) + offset for x in z]
    size, whole = mp.fsum(powers), mp.fsum(exp(x) for x in z)
    precision = exp(slope * log(whole) + shift)
    return dirichlet([p / size * precision for p in powers])


def dirichlet_kl(first, second):
    """KL[Dir(α) ‖ Dir(β)]."""
    pairs = Counter(zip(first, second, strict=True))
    a0, b0 = (mp.fsum(n * pair[i] for pair, n in pairs.items()) for i in (0, 1))
    value = loggamma(a0) - loggamma(b0)
    return value + mp.fsum(
        n * (loggamma(b) - loggamma(a) + (a - b) * (digamma(a) - digamma(a0))) for (a, b), n in pairs.items()
    )
