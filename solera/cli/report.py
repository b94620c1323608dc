"""`solera report`: a saved evaluation as a page."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: solera report evaluation --out report.html"


def report(
    folders: Annotated[list[Path], typer.Argument(help="What solera evaluate wrote; with --compare, several of them.")],
    out: Annotated[Path | None, typer.Option(help="The page; without it, report.html in the folder.")] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="All models of several evaluations of the same test set on one page.")
    ] = False,
    title: Annotated[str, typer.Option(help="The page's title.")] = "",
) -> None:
    """Write report.html, one file that opens offline, and report.json with the same content."""
    from solera.evaluation import Evaluation
    from solera.evaluation import compare as join
    from solera.evaluation import report as write
    from solera.evaluation.report_data import TITLE, verdicts

    if len(folders) > 1 and not compare:
        raise ValueError(f"there are {len(folders)} folders: add --compare to put them on one page")
    found = {folder: Evaluation.load(folder) for folder in folders}
    apart = len({folder.name for folder in folders}) == len(folders)
    whole = join({f.name if apart else str(f): e for f, e in found.items()}) if compare else found[folders[0]]
    page = write(whole, out or (Path("report.html") if compare else folders[0] / "report.html"), title or TITLE)
    for judged in verdicts(whole):
        print(f"{judged.student}: {judged.sentences[0]}")
    print(
        f"{page} ({page.stat().st_size / 1e6:.1f} MB, opens offline) and {page.with_suffix('.json').name} are written."
    )
