"""Hands freed memory back to the operating system."""

import ctypes


def give_back() -> None:
    """Hands what is free back to the system, where the C library can: glibc keeps ever more pieces of large blocks."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return
    trim(0)
