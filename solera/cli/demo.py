"""`solera demo`: the whole way, from training an ensemble to a saved student, in a minute or two."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: solera demo --out my-demo"
OWN = """\
With an ensemble of your own (torch, scikit-learn, ONNX files, ..., or their predictions as an array):
  student = solera.Distiller().fit([model_1, model_2, model_3], inputs).student_
  student.save('student')
help(solera.Distiller) says more; from the shell, solera distill --help."""


def demo(
    out: Annotated[
        Path, typer.Option(help="The folder to work in; the same command goes on if it was stopped.")
    ] = Path("solera-demo"),
) -> None:
    """Train ten small networks on handwritten digits 0–7, distil them three ways, and meet the digits 8 and 9.

    Prints a table that compares one network, the ensemble and each student, and a verdict; leaves a report to open in a
    browser, a student that you can load, and the same as an ONNX file.
    """
    from solera.cli.run import carry_out
    from solera.recipes.digits import Digits

    carry_out(Digits(), out)
    print(
        f"\nOpen {out}/report.html in a browser. The student is in {out}/students/Proxy, and as {out}/student.onnx.\n"
        f"Next: solera serve {out}/students/Proxy, or in Python\n"
        f"  solera.Student.load('{out}/students/Proxy').predict(images).knowledge\n"
        f"{OWN}"
    )
