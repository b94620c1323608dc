"""One file per method: the pure loss on top, a frozen dataclass below."""

from solera.methods.base import Method
from solera.methods.end import EnD, end_loss
from solera.methods.end2 import EnD2, end2_loss
from solera.methods.proxy_dirichlet import ProxyDirichlet, proxy_dirichlet_loss, proxy_precision

__all__ = [
    "EnD",
    "EnD2",
    "Method",
    "ProxyDirichlet",
    "end2_loss",
    "end_loss",
    "proxy_dirichlet_loss",
    "proxy_precision",
]
