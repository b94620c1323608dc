"""What a file must hold before it is used: one line names the file and the key that is wrong."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from solera.core.errors import DamagedFileError

# a type, None, a tuple of forms (any of them), [form] (a list), {key: form}, or {type: form} (an object of any keys)
Form = Any


def _told(form: Form) -> str:
    """A form as a person writes it."""
    if form is None:
        return "null"
    if isinstance(form, tuple):
        return " or ".join(_told(one) for one in form)
    if isinstance(form, list):
        return f"a list of {_told(form[0])}"
    if isinstance(form, dict):
        return "an object"
    names: dict[Any, str] = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(form, "an object")


def _fits(value: Any, form: type) -> bool:
    if form is object:
        return True
    if form is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, form) and (form is bool or not isinstance(value, bool))


def _wrong(value: Any, form: Form, key: str) -> tuple[str, Form, Any] | None:
    """The first key where a value does not have this form, what it must be, and what it is."""
    if isinstance(form, tuple):
        return None if any(_wrong(value, one, key) is None for one in form) else (key, form, value)
    if form is None:
        return None if value is None else (key, form, value)
    if isinstance(form, list):
        if not isinstance(value, list):
            return key, form, value
        found = (_wrong(part, form[0], f"{key}[{place}]") for place, part in enumerate(value))
        return next((wrong for wrong in found if wrong), None)
    if isinstance(form, dict):
        return _wrong_in_object(value, form, key)
    return None if _fits(value, form) else (key, form, value)


def _wrong_in_object(value: Any, form: dict[Any, Form], key: str) -> tuple[str, Form, Any] | None:
    if not isinstance(value, dict):
        return key, form, value
    for name, inner in form.items():
        if isinstance(name, type):
            found = (_wrong(part, inner, f"{key}.{one}".lstrip(".")) for one, part in value.items())
            if wrong := next((wrong for wrong in found if wrong), None):
                return wrong
            continue
        bare = name.removesuffix("?")
        place = f"{key}.{bare}".lstrip(".")
        if bare not in value:
            if name != bare:
                continue
            return place, inner, "nothing"
        if wrong := _wrong(value[bare], inner, place):
            return wrong
    return None


def require_form(path: Path, value: Any, form: Form, key: str = "") -> None:
    """Refuses a value read from a file that does not have this form; `key?` in a form may be missing."""
    if wrong := _wrong(value, form, key):
        place, wanted, got = wrong
        shown = got if got == "nothing" else repr(got)[:80]
        raise DamagedFileError(f"{path}: {place or 'it'} must be {_told(wanted)}, got {shown}")


@contextmanager
def reading(path: Path, key: str) -> Iterator[None]:
    """What a file says is put to use here: whatever goes wrong with it is told by the file and the key."""
    try:
        yield
    except DamagedFileError:
        raise
    except (
        TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError, RuntimeError,
        AssertionError, MemoryError,
    ) as error:  # fmt: skip
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise DamagedFileError(f"{path}: {key} cannot be used ({type(error).__name__}: {reason})") from error
