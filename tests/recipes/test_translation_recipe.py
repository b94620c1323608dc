"""The recipe `translation` on a few made-up sentences."""

import gzip

from solera.recipes.base import Workspace, settings_of
from solera.recipes.translation import OTHERS, PUBLISHED, Study, Translation, permuted
from tests.training.test_translate import sentences


def write(path, lines):
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


def test_every_part_is_made_once_and_the_page_says_what_held(tmp_path):
    folder = tmp_path / "data" / "translation"
    folder.mkdir(parents=True)
    for number, name in enumerate(("train", "val", "test_2016_flickr", "test_2017_mscoco")):
        german, english = sentences(16 if name == "train" else 6, number)
        for side, lines in (("de", german), ("en", english), ("fr", [line[::-1] for line in german])):
            write(folder / f"multi30k.{name}.{side}.gz", lines)
    write(folder / OTHERS[0], sentences(4, 5)[0])
    write(folder / OTHERS[1], sentences(4, 6)[0])
    write(folder / OTHERS[2], ["\t".join(pair) for pair in zip(*sentences(9, 7), strict=True)])
    recipe = Translation(
        data=str(tmp_path / "data"), members=2, epochs=1, student_epochs=1, vocabulary=270, width=8, keep=8, sweep=(),
        beams=2, others=4, resamples=2,
    )  # fmt: skip
    page = recipe.run(Workspace(tmp_path / "run", settings_of(recipe)))
    for part in ("| SEnD² |", "| EnD, tail |", "## Rejection", "held", "nrefs:1|case:lc", "translation.png"):
        assert part in page
    again = Study(recipe, Workspace(tmp_path / "run", settings_of(recipe)))
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*.safetensors")}
    assert list(again.models()) == ["single", "ensemble", "SEnD²", PUBLISHED, "EnD", "sequence KD", "EnD, tail"]
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*.safetensors")} == times


def test_permuted_sentences_have_the_same_words():
    lines = ["a b c d e f", "x"]
    moved = permuted(lines, 0)
    assert moved != lines
    assert [sorted(line.split()) for line in moved] == [sorted(line.split()) for line in lines]
