"""The few exceptions we own.

ValueError
  ├─ DamagedFileError   a file is missing, cut short or changed; the message names it
  └─ MismatchError      a remembered prediction belongs to another ensemble, data set or vocabulary
RuntimeError
  ├─ InUseError         another process is writing here
  └─ LostProcessError   a process that shares the work has died, or never came
ArithmeticError
  └─ DivergedError      a loss, a weight or an answer became infinite or no number at all
"""


class DamagedFileError(ValueError):
    """A file is missing, cut short or changed."""


class MismatchError(ValueError):
    """Two things that must belong together do not."""


class InUseError(RuntimeError):
    """Another process is writing here."""


class LostProcessError(RuntimeError):
    """A process that shares the work has died, or never came."""


class DivergedError(ArithmeticError):
    """A loss, a weight or an answer became infinite or no number at all."""
