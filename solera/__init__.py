"""Distil an ensemble into one student about as accurate, at one network's cost, that knows what it does not know."""

import lazy_loader

# Loaded on first use, so that `solera --help` need not wait for torch; __init__.pyi lists the names.
__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
# `from solera import *` needs no extra: the estimators, which need scikit-learn, are asked for by name
__all__ = [name for name in _names if not name.startswith("Distilled")]  # pyright: ignore[reportUnsupportedDunderAll]
