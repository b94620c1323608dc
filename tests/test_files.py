"""Every file of the package can be read in one sitting."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LONGEST = 300


@pytest.mark.parametrize("file", sorted((ROOT / "solera").rglob("*.py")), ids=lambda f: str(f.relative_to(ROOT)))
def test_no_file_is_too_long(file):
    assert len(file.read_text().splitlines()) <= LONGEST, "split it by job"
