"""`make lock`: joins what uv resolved with the hashes of the public builds of torch.

The lock is resolved with a CPU build of torch where pip is told of one, because the public build for Linux asks for
gigabytes of CUDA packages. Both builds have the same version, so torch carries the hashes of both: whichever an
installer finds, it is one that was looked at.
"""

import re
import sys
from pathlib import Path

_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def joined(resolved: str, public: str) -> str:
    """The lock, its torch without a local version and with all hashes."""
    head, torch, tail = re.split(r"^(torch==(?:[^\n]*\\\n)*[^\n]*\n)", resolved, maxsplit=1, flags=re.M)
    version = re.match(r"torch==([^+\s]+)", torch)
    assert version is not None
    hashes = sorted({*_HASH.findall(torch), *_HASH.findall(public)})
    entry = " \\\n    ".join([f"torch=={version[1]}", *hashes])
    return f"{head}{entry}\n{tail}".replace(".lock-constraints", "requirements.in")


if __name__ == "__main__":
    sys.stdout.write(joined(*(Path(name).read_text() for name in sys.argv[1:])))
