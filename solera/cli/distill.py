"""`solera distill`: for people who bring arrays."""

from pathlib import Path
from typing import Annotated

import typer

from solera.cli.options import Folds, Saw

EXAMPLE = (
    "Example: solera distill --members preds.npy --inputs x.npy --labels y.npy --method proxy-dirichlet --out student"
    "\n\nOf taggers: solera distill --task tagging --members one.conll --members two.conll --labels gold.conll "
    "--out tagger"
)


def distill(
    members: Annotated[
        list[Path],
        typer.Option(
            help="Member predictions: (N, M, K) or (M, N, K) probabilities, or one file (N, K) per member; forecasts: "
            "(N, M) or (M, N) numbers; taggers: one CoNLL file per member."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where the student goes; the same command goes on if it was stopped.")],
    inputs: Annotated[
        Path | None,
        typer.Option(
            help="The inputs they were made for: .npy, rows (N, D) or images (N, C, H, W); taggers: left out, the "
            "tokens are in the members' files."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="True classes or targets, .npy (N,), or tags, CoNLL: for the table, and see --label-weight."),
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
    epochs: Annotated[int, typer.Option(help="Passes over the data; 0: as many as help (of sentences: 10).")] = 0,
    label_weight: Annotated[
        float | None,
        typer.Option(
            help="Share of the loss that comes from the labels, 0 to 1; by default held-out examples choose "
            "(0 with --epochs, and for taggers)."
        ),
    ] = None,
    held_out: Annotated[float, typer.Option(help="Fraction of the examples kept for the table.")] = 0.2,
    folds: Folds = None,
    saw: Saw = None,
    task: Annotated[
        str, typer.Option(help="classification, regression or tagging; without it, told by the members.")
    ] = "",
    vectors: Annotated[
        Path | None, typer.Option(help="Pretrained vectors of words for a tagger: .npz with words and vectors.")
    ] = None,
    clusters: Annotated[Path | None, typer.Option(help="Word clusters: .npz with words and cluster.")] = None,
    seed: Annotated[int, typer.Option(help="Decides the split, the initial weights and the order.")] = 0,
) -> None:
    """Distil an array of member predictions into one student, and compare the two on examples it has not seen."""
    from solera.cli.run import carry_out
    from solera.recipes.arrays import Arrays
    from solera.recipes.tag_files import TagFiles
    from solera.training.tag_files import are_tag_files

    if task == "tagging" or (not task and are_tag_files(members)):
        if inputs is not None or variances is not None:
            raise ValueError("taggers' tokens are in the --members files: leave --inputs and --variances out")
        tag_files = TagFiles(
            seed=seed,
            members=tuple(str(path) for path in members),
            labels=str(labels or ""),
            method=method or "proxy-dirichlet",
            epochs=epochs or 10,
            label_weight=label_weight or 0.0,
            held_out=held_out,
            folds=str(folds or ""),
            saw=str(saw or ""),
            vectors=str(vectors or ""),
            clusters=str(clusters or ""),
        )
        carry_out(tag_files, out)
        print(
            f"\nThe tagger is in {out}, what it says of held-out sentences in {out / 'held-out.conll'}. Next: "
            f"solera serve {out}, or in Python solera.Student.load('{out}').entities('Angela Merkel visited Paris.')"
        )
        return
    if inputs is None:
        raise ValueError("--inputs is needed: the .npy file of the inputs that the members were asked about")
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
