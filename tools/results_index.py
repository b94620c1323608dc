"""docs/results/index.md: the headline table, then every study with its question and its answer.

Run `python tools/results_index.py` after a results page was made anew. The order is that of mkdocs.yml.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
HEAD = """# Results

Every page is made by one command, which its last line repeats with seed, versions and date. It begins with what was
asked and what came out: a table, a picture, and what held of the papers' claims; how it was done, and details, follow.
A claim is *held* only if its 95 % interval says so; *held by the mean, not surely* is said where the mean agrees and
the interval does not. Intervals are either over resampled test examples, with the models as they are, or over repeats
(studies, splits or students), with the test examples as they are; each page says which.

## The headline

One member (calibrated) / the ensemble / **the student** that a `Distiller` makes by its defaults, in bold where it is
surely better than one member, calibrated or not ([the page](headline.md) explains the columns):
"""


def pages() -> list[Path]:
    """The studies, in the order in which the site lists them."""
    names = re.findall(r"results/([\w-]+\.md)", (ROOT / "mkdocs.yml").read_text())
    return [RESULTS / name for name in names if name != "index.md"]


def headline() -> str:
    """The table of the headline's page."""
    page = (RESULTS / "headline.md").read_text().split("\n![")[0]
    return "\n".join(line for line in page.splitlines() if line.startswith("|"))


def answered(page: Path) -> str:
    """The title of a page, its question, and its answer as far as the first figure."""
    title, paragraph, *_ = page.read_text().split("\n\n", 2)
    sentences = re.split(r"(?<=[.?])\s+(?=[A-Z])", paragraph.replace("\n", " "))
    figure = next((number for number, sentence in enumerate(sentences) if number and re.search(r"\d", sentence)), 1)
    return f"- **[{title.removeprefix('# ')}]({page.name})**: {' '.join(sentences[: figure + 1])}"


def index() -> str:
    """The whole page."""
    return "\n".join([HEAD, headline(), "", "## Every study", "", *map(answered, pages()), ""])


if __name__ == "__main__":
    (RESULTS / "index.md").write_text(index())
