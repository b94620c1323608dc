"""`solera export STUDENT FILE`: one graph that runs anywhere, with its uncertainty inside."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: solera export solera-demo/students/Proxy student.onnx --inputs x.npy"


def export(
    student: Annotated[Path, typer.Argument(help="The folder of a student: solera distill or Student.save made it.")],
    file: Annotated[
        Path, typer.Argument(help="Where the graph goes: .onnx, .pt2 for torch.export; of a translator a folder.")
    ],
    inputs: Annotated[
        Path | None,
        typer.Option(help="Real inputs (.npy; of taggers CoNLL) to compare the graph with PyTorch on, else random."),
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Also write FILE.int8.onnx with int8 weights, and measure what they cost.")
    ] = False,
    float16: Annotated[
        bool, typer.Option("--float16", help="Also write FILE.float16.onnx: half the bytes, measured like --int8.")
    ] = False,
) -> None:
    """Write a student as one graph with the outputs mean, total and, where it has them, data and knowledge.

    The graph is compared with PyTorch at several batch sizes, and refused if they differ by more than 1e-5. A
    translator becomes two graphs in a folder, encoder.onnx and step.onnx, with the uncertainty of every step.
    """
    from solera.core.array_files import read_npy
    from solera.data import load_conll
    from solera.serving import export as write
    from solera.serving import export_steps, halve, quantize, random_inputs
    from solera.serving.trace import tagger_inputs
    from solera.serving.writers import writer_of
    from solera.training import Student

    ways = (("int8", int8, quantize), ("float16", float16, halve))
    smaller = {name: way for name, wanted, way in ways if wanted}
    loaded = Student.load(student)
    if writer_of(loaded) is not None:
        if file.suffix or inputs is not None or smaller:
            raise ValueError(
                f"a translator becomes a folder with encoder.onnx and step.onnx: name a folder, not {file.name}, "
                "without --inputs, --int8 and --float16"
            )
        print(f"{export_steps(loaded, file)}: encoder.onnx and step.onnx, compared with PyTorch")
        return
    if smaller and file.suffix != ".onnx":
        name = next(iter(smaller))
        raise ValueError(f"--{name} is for ONNX: name the file {file.with_suffix('.onnx').name}, not {file.name}")
    if inputs is None:
        print(f"no --inputs: {file.name} is compared with PyTorch on random numbers, not on real inputs")
        examples = random_inputs(loaded)
    elif not inputs.is_file():
        raise FileNotFoundError(f"there is no file {inputs}")
    elif inputs.suffix not in (".npy",):
        examples = tagger_inputs(loaded, load_conll(inputs, repair=True))
    else:
        examples = read_npy(inputs, mmap_mode="r")
    print(write(loaded, file, examples))
    for name, shrink in smaller.items():
        print(shrink(file, file.with_suffix(f".{name}.onnx"), examples))
