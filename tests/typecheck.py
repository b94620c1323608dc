"""The type checker that the import hook applies to all of solera: an int is a float.

A training loop calls the same functions with the same shapes thousands of times, and checking them all would take half
the time of all tests: the first calls of every test are checked, the rest of a long one is not.
"""

from functools import wraps
from inspect import isclass

import jaxtyping
from beartype import BeartypeConf, beartype

MOST = 2000  # calls in one test
_calls = 0


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
