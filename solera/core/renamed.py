"""Names that were changed: the old ones go on working and say what to write instead."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is now called {new}", DeprecationWarning, stacklevel=3)


def renamed_arguments(**names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`@renamed_arguments(old="new")`: the callable still takes `old=`."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*given: P.args, **named: P.kwargs) -> T:
            for old, new in names.items():
                if old in named:
                    _warn(old, new)
                    named[new] = named.pop(old)
            return function(*given, **named)

        return call

    return decorate


class RenamedAttribute:
    """`old = RenamedAttribute("new")` in a class: `old` stands for `new`."""

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        _warn(self.old, self.new)
        return getattr(instance, self.new)

    def __set__(self, instance: Any, value: Any) -> None:
        _warn(self.old, self.new)
        setattr(instance, self.new, value)
