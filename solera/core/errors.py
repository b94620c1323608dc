"""The few exceptions we own.

ValueError
  ├─ DamagedFileError   a file is missing, cut short or changed; the message names it
  └─ MismatchError      a remembered prediction belongs to another ensemble, data set or vocabulary
OSError
  └─ UnwritableError    a disk is full or read-only; the message names the file
RuntimeError
  ├─ InUseError         another process is writing here
  └─ LostProcessError   a process that shares the work has died, or never came
ArithmeticError
  └─ DivergedError      a loss, a weight or an answer became infinite or no number at all
"""

import errno
import os


class DamagedFileError(ValueError):
    """A file is missing, cut short or changed."""


class MismatchError(ValueError):
    """Two things that must belong together do not."""


class UnwritableError(OSError):
    """A file cannot be written: the disk is full, or may not be written to."""

    def __init__(self, number: int | None, path: object) -> None:
        super().__init__(number, os.strerror(number or errno.EIO), str(path))

    def __str__(self) -> str:
        return f"{self.filename} cannot be written ({self.strerror}): make room there, or choose another folder"


class InUseError(RuntimeError):
    """Another process is writing here."""


class LostProcessError(RuntimeError):
    """A process that shares the work has died, or never came."""


class DivergedError(ArithmeticError):
    """A loss, a weight or an answer became infinite or no number at all."""
