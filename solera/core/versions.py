"""The versions of Solera and its dependencies, and the machine: where numbers came from."""

import os
import platform
import time
from importlib.metadata import version


def versions() -> str:
    """The software, the machine's cores and the day, for a results page or a report."""
    software = ", ".join(f"{name} {version(name)}" for name in ("solera", "torch", "numpy"))
    return f"{software}, Python {platform.python_version()}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}"
