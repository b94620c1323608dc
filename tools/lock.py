"""`make lock`: takes torch out of what uv resolved, and gives it the hashes of its public builds, too.

The lock is resolved with a CPU build of torch where pip is told of one, because the public build for Linux asks for
gigabytes of CUDA packages. The two have the same public version but not the same bytes, so torch carries the hashes of
both, in a file of its own: pip accepts either build by them, while uv looks hashes up by the full version, `+cpu`
included, and would refuse the CPU build.
"""

import re
import sys
from pathlib import Path

_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_TORCH = re.compile(r"^torch==(?P<version>[^+\s]+)(?:[^\n]*\\\n)*[^\n]*\n(?:    #[^\n]*\n)*", re.M)


def split(resolved: str, public: str) -> tuple[str, str]:
    """The lock without torch, and that of torch alone, with all hashes."""
    found = _TORCH.search(resolved)
    assert found is not None, "uv resolved no torch"
    hashes = sorted({*_HASH.findall(found[0]), *_HASH.findall(public)})
    torch = " \\\n    ".join([f"torch=={found['version']}", *hashes]) + "\n"
    return _TORCH.sub("", resolved).replace(".lock-constraints", "requirements.in"), torch


if __name__ == "__main__":
    resolved, public, rest, alone = map(Path, sys.argv[1:])
    texts = split(resolved.read_text(), public.read_text())
    for path, text in zip((rest, alone), texts, strict=True):
        path.write_text(text)
