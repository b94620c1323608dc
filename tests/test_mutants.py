"""The list of mutants fits the code: one entry that does not would stop `make mutants` altogether."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LISTS = sorted((ROOT / "tools" / "mutants").glob("*.toml"))


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_mutant_is_found_once_and_names_tests_that_exist(path):
    for mutant in tomllib.loads(path.read_text())["mutant"]:
        assert mutant["old"] != mutant["new"]
        assert (ROOT / mutant["file"]).read_text().count(mutant["old"]) == 1, (mutant["file"], mutant["old"])
        for test in mutant["tests"]:
            file, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}" in (ROOT / file).read_text(), test
