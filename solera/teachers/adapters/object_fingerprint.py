"""A fingerprint of any Python object by what it holds, for models that keep no torch weights.

Not a hash of its pickle: that also depends on which equal parts are one object and on the padding bytes of NumPy
records, so a forest's would change when it is saved and loaded.
"""

import copyreg
import hashlib
import pickle
import sys
import types
from typing import Any

import numpy as np
from torch import Tensor, nn

from solera.core.disk import fingerprint

PLAIN = (type(None), bool, int, float, complex, str)


def _array(value: np.ndarray) -> Any:
    if value.dtype.names:
        return [(name, value[name]) for name in value.dtype.names]
    if value.dtype.hasobject:
        return (value.shape, value.ravel().tolist())
    return (str(value.dtype), value.shape, value.tobytes())


def _names_in(code: types.CodeType) -> set[str]:
    inner = [_names_in(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*inner)


def _function(value: types.FunctionType) -> Any:
    """Its code and what it takes from around it: defaults, closed-over and global values."""
    closed = [cell.cell_contents for cell in value.__closure__ or ()]
    used = {name: value.__globals__[name] for name in sorted(_names_in(value.__code__)) if name in value.__globals__}
    return (value.__code__, value.__defaults__, value.__kwdefaults__, closed, used)


def _from_a_library(value: types.FunctionType, home: str) -> bool:
    """Whether a function's name says enough: it can be imported, and not from the module the model comes from."""
    module = sys.modules.get(value.__module__)
    importable = getattr(module, value.__qualname__, None) is value
    return importable and value.__module__ not in ("__main__", home)


def _parts(value: Any, home: str) -> Any:
    """Something simpler that says the same."""
    if isinstance(value, nn.Module):
        return fingerprint(dict(value.state_dict()), type(value).__name__)
    if isinstance(value, Tensor):
        return fingerprint({"": value})
    if isinstance(value, (np.ndarray, np.generic)):
        return _array(np.asarray(value))
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, types.CodeType):
        return (value.co_code, value.co_names, value.co_consts)
    if isinstance(value, types.FunctionType) and not _from_a_library(value, home):
        return _function(value)
    if isinstance(value, (type, types.FunctionType)):
        return (value.__module__, value.__qualname__)
    reduce = copyreg.dispatch_table.get(type(value))
    reduced: Any = reduce(value) if reduce else value.__reduce_ex__(4)
    return reduced if isinstance(reduced, str) else [list(p) if hasattr(p, "__next__") else p for p in reduced]


class _Digest:
    """Digests of nested objects; one that holds itself is named by how far up it stands."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.known: dict[int, tuple[Any, bytes]] = {}  # the object too, lest another one gets its id
        self.above: list[int] = []

    def of(self, value: Any) -> bytes:
        """32 bytes that stand for it."""
        if isinstance(value, PLAIN):
            return hashlib.sha256(f"{type(value).__name__} {value!r}".encode()).digest()
        if id(value) in self.known:
            return self.known[id(value)][1]
        if id(value) in self.above:
            return b"above %d" % (len(self.above) - self.above.index(id(value)))
        self.above.append(id(value))
        digest = hashlib.sha256(type(value).__name__.encode() + b"".join(self._inside(value))).digest()
        self.above.pop()
        self.known[id(value)] = (value, digest)
        return digest

    def _inside(self, value: Any) -> list[bytes]:
        if isinstance(value, bytes):
            return [value]
        if type(value) in (list, tuple):
            return [self.of(part) for part in value]
        if type(value) is dict:
            return sorted(self.of(key) + self.of(part) for key, part in value.items())
        if type(value) in (set, frozenset):
            return sorted(self.of(part) for part in value)
        return [self.of(_parts(value, self.home))]


def object_fingerprint(value: Any) -> str:
    """sha256 of everything in it, shortened; the same object saved and loaded has the same one."""
    try:
        return _Digest(getattr(value, "__module__", None) or "").of(value).hex()[:16]
    except (TypeError, AttributeError, ValueError, NotImplementedError, RecursionError, pickle.PicklingError) as error:
        name = getattr(value, "__qualname__", type(value).__name__)
        raise TypeError(
            f"{name} has no fingerprint ({error}): give it a name that you change whenever it changes, "
            "solera.teachers.adapters.Function(..., version='1')"
        ) from error
