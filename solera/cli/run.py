"""`solera run RECIPE [field=value ...]`: an experiment, resumable, with its settings checked by type."""

import dataclasses
import difflib
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from solera.recipes.base import Recipe, Workspace

ALL, EVERY = "all", "Every study, one after the other, with the settings it has; a finished one is not begun again."
EXAMPLE = "Example: solera run digits members=5 --out runs/five"


def parse(kind: type, overrides: list[str]) -> Any:
    """The dataclass `kind` with `field=value` overrides; every mistake is named, with the fields there are."""
    from pydantic import TypeAdapter, ValidationError

    hints, given = get_type_hints(kind), {}
    fields = [f.name for f in dataclasses.fields(kind)]
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is not an override: write field=value, with a field among {', '.join(fields)}")
        if name not in fields:
            close = difflib.get_close_matches(name, fields, 1)
            hint = f"did you mean {close[0]}?" if close else f"the fields are {', '.join(fields)}"
            raise ValueError(f"{kind.__name__} has no field {name!r}: {hint}")
        given[name] = value
    values, wrong = {}, []
    for name, text in given.items():
        many = getattr(hints[name], "__origin__", None) in (tuple, list)
        try:
            values[name] = TypeAdapter(hints[name]).validate_python(text.split(",") if many else text)
        except ValidationError as error:
            wrong.append(f"{name}={text!r} is not a {type_name(hints[name])} ({error.errors()[0]['msg'].lower()})")
    if wrong:
        raise ValueError("; ".join(wrong))
    return kind(**values)


def type_name(hint: Any) -> str:
    """A type as a person writes it."""
    return getattr(hint, "__name__", str(hint)) if getattr(hint, "__origin__", None) is None else str(hint)


@contextmanager
def workspace(out: Path, settings: dict[str, Any]) -> "Iterator[Workspace]":
    """The folder of a run; one that fails before it has kept anything leaves it as it was."""
    from solera.core.disk import only_writer
    from solera.recipes.base import Workspace

    made = not out.exists()
    try:
        with only_writer(out):
            work = Workspace(out, settings)
            try:
                yield work
            except BaseException:
                work.take_back()
                raise
    except BaseException:
        if made and out.is_dir() and all(entry.name.startswith(".lock") for entry in out.iterdir()):
            shutil.rmtree(out)
        raise


def carry_out(recipe: "Recipe", out: Path) -> None:
    """Runs a recipe in its folder and shows its page."""
    from rich.console import Console
    from rich.markdown import Markdown

    from solera.recipes.base import PAGE, settings_of

    with workspace(out, settings_of(recipe)) as work:
        try:
            page = recipe.run(work)
        except KeyboardInterrupt:
            work.say("stopped; nothing is lost, the same command goes on from here")
            raise SystemExit(130) from None
        work.write(PAGE, page)
    console = Console()
    console.print(Markdown(page)) if console.is_terminal else print(page)
    work.say(f"results are in {out / PAGE}")


def finished(recipe: "Recipe", out: Path) -> bool:
    """Whether this folder has the page of a recipe with these settings."""
    from solera.recipes.base import PAGE, require_same_settings, settings_of

    if not (out / PAGE).exists():
        return False
    require_same_settings(out, settings_of(recipe))
    return True


def command_for(name: str) -> Any:
    """A command whose help is the recipe's docstring and fields."""
    from solera.recipes import find

    kind = find(name)
    hints = get_type_hints(kind)
    fields = [f"{f.name}={f.default!r} ({type_name(hints[f.name])})" for f in dataclasses.fields(kind)]
    single = typer.Typer(rich_markup_mode=None, add_completion=False)
    epilog = f"Fields and defaults: {', '.join(fields)}. Example: solera run {name} seed=1 --out runs/{name}-1"

    @single.command(name, help=kind.__doc__, epilog=epilog)
    def _run(
        overrides: Annotated[
            list[str] | None, typer.Argument(metavar="[FIELD=VALUE]...", help="Other settings.")
        ] = None,
        out: Annotated[Path, typer.Option(help="The folder to work in; the same command goes on.")] = Path("runs")
        / name,
        data: Annotated[Path | None, typer.Option(help="Where the data sets are, for recipes that read some.")] = None,
    ) -> None:
        changes = [*(overrides or []), *([f"data={data}"] if data else [])]
        carry_out(parse(kind, changes), out)

    return typer.main.get_command(single)


def command_for_all() -> Any:
    """A command that runs one study after the other."""
    single = typer.Typer(rich_markup_mode=None, add_completion=False)

    @single.command(ALL, help=EVERY, epilog="Example: solera run all --data ../shared/data --out runs")
    def _run_all(
        out: Annotated[Path, typer.Option(help="The folder to work in, one folder in it for each study.")] = Path(
            "runs"
        ),
        data: Annotated[Path | None, typer.Option(help="Where the data sets are.")] = None,
    ) -> None:
        carry_out_all(out, data)

    return typer.main.get_command(single)


def carry_out_all(out: Path, data: Path | None) -> None:
    """Every study that is not finished, with its own settings; one that fails is named at the end, the others go on."""
    from solera.recipes import find, names
    from solera.recipes.base import PAGE

    failed = {}
    studies = {name: kind for name in names() if (kind := find(name)).study}
    for number, (name, kind) in enumerate(studies.items(), 1):
        typer.echo(f"solera: {name}, {number} of {len(studies)}", err=True)
        reads = data and "data" in {field.name for field in dataclasses.fields(kind)}
        given: dict[str, Any] = {"data": str(data)} if reads else {}
        try:
            recipe = kind(**given)
            if finished(recipe, out / name):
                typer.echo(f"solera: {name} is finished: {out / name / PAGE}; without it, it is made again", err=True)
            else:
                carry_out(recipe, out / name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
            typer.echo(f"solera: {name} failed: {failed[name]}", err=True)
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(studies)} studies failed ({', '.join(failed)}): the same command tries them again"
        )


class Recipes(TyperGroup):
    """One subcommand per file in solera/recipes, and one for all studies."""

    def list_commands(self, ctx: Any) -> list[str]:
        from solera.recipes import names

        return [*names(), ALL]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Without loading them: all recipes and torch take seconds."""
        from solera.recipes import names, summary

        with formatter.section("Commands"):
            formatter.write_dl([*((name, summary(name)) for name in names()), (ALL, EVERY)])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name == ALL:
            return command_for_all()
        return command_for(cmd_name) if cmd_name in self.list_commands(ctx) else None


app = typer.Typer(
    cls=Recipes,
    help="Run an experiment: the papers' studies at laptop scale. `solera run RECIPE --help` lists its fields.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _recipes() -> None:
    """Typer needs a callback to make a group."""
