"""`solera distill`: for people who bring arrays."""

from pathlib import Path
from typing import Annotated

import typer

from solera.cli.options import Folds, Saw

EXAMPLE = (
    "Example: solera distill --members preds.npy --inputs x.npy --labels y.npy --method proxy-dirichlet --out student"
)


def distill(
    members: Annotated[
        list[Path],
        typer.Option(
            help="Member predictions: (N, M, K) or (M, N, K) probabilities, or one file (N, K) per member; forecasts: "
            "(N, M) or (M, N) numbers."
        ),
    ],
    inputs: Annotated[
        Path, typer.Option(help="The inputs they were made for: .npy, rows (N, D) or images (N, C, H, W).")
    ],
    out: Annotated[Path, typer.Option(help="Where the student goes; the same command goes on if it was stopped.")],
    labels: Annotated[
        Path | None, typer.Option(help="True classes or targets, .npy (N,): needed for the table.")
    ] = None,
    variances: Annotated[
        Path | None,
        typer.Option(help="Variances beside forecasts; without them the noise is estimated from the labels."),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="end, end2, hydra, proxy-dirichlet (default for classes) or normal-wishart (default for forecasts)."
        ),
    ] = "",
    epochs: Annotated[int, typer.Option(help="Passes over the data; 0: as many as help, in up to three rounds.")] = 0,
    label_weight: Annotated[
        float | None,
        typer.Option(help="Share of the loss that comes from the labels, 0 to 1; by default held-out examples choose."),
    ] = None,
    held_out: Annotated[float, typer.Option(help="Fraction of the examples kept for the table.")] = 0.2,
    folds: Folds = None,
    saw: Saw = None,
    task: Annotated[str, typer.Option(help="classification or regression; without it, told by the members.")] = "",
    seed: Annotated[int, typer.Option(help="Decides the split, the initial weights and the order.")] = 0,
) -> None:
    """Distil an array of member predictions into one student, and compare the two on examples it has not seen."""
    from solera.cli.run import carry_out
    from solera.recipes.arrays import Arrays

    recipe = Arrays(
        seed=seed,
        members=tuple(str(path) for path in members),
        inputs=str(inputs),
        labels=str(labels) if labels else "",
        variances=str(variances) if variances else "",
        method=method,
        epochs=epochs,
        label_weight=label_weight,
        held_out=held_out,
        folds=str(folds) if folds else "",
        saw=str(saw) if saw else "",
        task=task,
    )
    carry_out(recipe, out)
    print(
        f"\nThe student is in {out}. Next: solera evaluate --student {out} with members, inputs and labels that it has "
        f"not seen, or in Python solera.Student.load('{out}').predict(inputs).knowledge"
    )
