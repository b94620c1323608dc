"""The type checker that the import hook applies to all of solera: an int is a float.

A training loop calls the same functions with the same shapes thousands of times, and checking them all would take half
the time of all tests: the first calls of every test are checked, the rest of a long one is not. A function inside
another is not checked either: it is made anew at every call of that one, and its checks would be compiled each time.
"""

from functools import wraps
from inspect import isclass

import jaxtyping
from beartype import BeartypeConf, beartype

MOST = 2000  # calls in one test
_calls = 0
_jaxtyped = jaxtyping.jaxtyped


def install() -> None:
    """Before anything imports solera: every annotated function checks its tensors from now on."""
    jaxtyping.jaxtyped = _unless_inside
    jaxtyping.install_import_hook("solera", "tests.typecheck.checker")


def _unless_inside(**settings):
    check = _jaxtyped(**settings)
    return lambda thing: thing if "<locals>" in thing.__qualname__ else check(thing)


def check_again() -> None:
    """For the next test: its first calls are checked."""
    global _calls
    _calls = 0
    jaxtyping.config.update("jaxtyping_disable", False)


def checker(function):
    checked = beartype(function, conf=BeartypeConf(is_pep484_tower=True))
    if isclass(function):
        return checked

    @wraps(checked)
    def counted(*args, **kwargs):
        global _calls
        _calls += 1
        if _calls == MOST:
            jaxtyping.config.update("jaxtyping_disable", True)
        return checked(*args, **kwargs)

    return counted
