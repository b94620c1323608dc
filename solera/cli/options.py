"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

Folds = Annotated[
    Path | None, typer.Option(help="The fold of each row, .npy (N,): member m was trained on all but fold m.")
]
Saw = Annotated[Path | None, typer.Option(help="Who was trained on which row, .npy (N, M) of true and false.")]
