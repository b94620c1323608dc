"""`solera capture`: remember what models say, on disk."""

from pathlib import Path
from typing import Annotated

import typer

from solera.cli.options import Folds, Saw

EXAMPLE = "Example: solera capture --members a.onnx --members b.onnx --inputs x.npy --codec top_k --out transfer-set"


def capture(
    members: Annotated[
        list[Path], typer.Option(help="ONNX models, one --members each; or their predictions, as for solera distill.")
    ],
    inputs: Annotated[Path, typer.Option(help="What to ask them about: .npy, first axis the examples.")],
    out: Annotated[Path, typer.Option(help="The folder of the transfer set; the same command goes on, or appends.")],
    labels: Annotated[
        Path | None, typer.Option(help="Forecasts without variances: true targets, to estimate the noise from.")
    ] = None,
    variances: Annotated[Path | None, typer.Option(help="Variances beside forecasts.")] = None,
    folds: Folds = None,
    saw: Saw = None,
    codec: Annotated[str, typer.Option(help="dense (every member), mean, or top_k.")] = "dense",
    keep: Annotated[int, typer.Option(help="top_k: how many classes to keep.")] = 64,
    batch_size: Annotated[int, typer.Option(help="Examples asked about at once.")] = 256,
    verify: Annotated[
        bool, typer.Option("--verify", help="Re-read every checksum, compare a sample with the live teacher.")
    ] = False,
) -> None:
    """Ask every member once about every input and keep the answers: checksummed, resumable after a kill."""
    from solera.data import Batches
    from solera.distributions.families import family_named
    from solera.teachers import Ensemble, TopKCodec, TransferSet
    from solera.teachers import capture as remember
    from solera.teachers import verify as compare
    from solera.teachers.from_files import load_array, load_saw, teacher_from
    from solera.training.distiller import floats

    x = floats(load_array(str(inputs)))
    models = all(path.suffix == ".onnx" for path in members)
    y = load_array(str(labels)) if labels else None
    seen = load_saw(str(folds or ""), str(saw or ""))
    files = [str(path) for path in members]
    teacher = Ensemble(members, saw=seen) if models else teacher_from(files, str(variances or ""), x, y, seen)[0]
    batches = Batches(x, batch_size=batch_size)
    if verify:
        kept = TransferSet(out, teacher=teacher)
        worst = compare(kept, teacher, batches)
        print(f"{out}: {len(kept)} examples, every checksum right; largest difference of a mean {worst:.2e}")
        return
    kept = remember(teacher, batches, out, TopKCodec(keep) if codec == "top_k" else codec)
    what = family_named(kept(batches.take(slice(0, 1))).family).sizes
    print(f"{out}: {len(kept)} examples by {kept.members} members over {kept.classes} {what}")
    print(f"Next: solera inspect {out}, or in Python solera.distill(solera.TransferSet('{out}'), ...)")
