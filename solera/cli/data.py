"""`solera data FOLDER`: which of the data sets that the studies need are there, and where to get the others."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: solera data ../shared/data"


def data(folder: Annotated[Path, typer.Argument(help="The folder with the data sets, as given to `--data`.")]) -> None:
    """Say which data sets of the studies are there, which are missing, and which hold something else."""
    from solera.recipes.data_sets import states

    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}: name the one that has the data sets, or is to have them")
    missing = 0
    for one, found in states(folder):
        whole, lacking, other = (found[key] for key in ("whole", "missing", "other"))
        said = "there" if not lacking and not other else "missing" if not whole and not other else "in part"
        print(f"{said:>8}  {one.name}, for {one.studies}")
        if lacking or other:
            missing += 1
            print(f"          from {one.source}: {one.holds}")
        for path in lacking:
            print(f"          {folder / path} is missing")
        for path in other:
            print(f"          {folder / path} is another file than the studies were made with")
    print(f"solera: {missing} data sets are not whole" if missing else "solera: every data set is there and whole")
