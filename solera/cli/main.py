"""`solera`: the verbs, one file each."""

import os
import sys
from typing import Annotated

# torch's threads spin while they wait, which makes two of them slower than one on a busy machine
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import typer

from solera.cli import capture, data, demo, distill, evaluate, export, inspect, report, run, serve
from solera.core.errors import InUseError, LostProcessError

app = typer.Typer(
    name="solera",
    help="Distil an ensemble into one model, about as accurate at one network's cost, that knows what it does not.",
    epilog="Start here: solera demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import version

        print(f"solera {version('solera')}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.command("demo", epilog=demo.EXAMPLE)(demo.demo)
app.command("capture", epilog=capture.EXAMPLE)(capture.capture)
app.command("distill", epilog=distill.EXAMPLE)(distill.distill)
app.command("evaluate", epilog=evaluate.EXAMPLE)(evaluate.evaluate)
app.command("report", epilog=report.EXAMPLE)(report.report)
app.command("export", epilog=export.EXAMPLE)(export.export)
app.command("serve", epilog=serve.EXAMPLE)(serve.serve)
app.command("inspect", epilog=inspect.EXAMPLE)(inspect.inspect)
app.command("data", epilog=data.EXAMPLE)(data.data)
app.add_typer(run.app, name="run", epilog=run.EXAMPLE)


def main() -> None:
    """Errors that users can mend are one line."""
    try:
        app()
    except (ValueError, OSError, ImportError, ArithmeticError, InUseError, LostProcessError) as error:
        if os.environ.get("SOLERA_TRACEBACK"):
            raise
        print(f"solera: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
