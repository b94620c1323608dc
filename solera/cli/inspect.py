"""`solera inspect PATH`: what is this folder or file, and is it whole?"""

from pathlib import Path
from typing import Annotated, Any

import typer

EXAMPLE = "Example: solera inspect solera-demo/students/Proxy"
_NUMBERS = ("metrics", "thresholds")


def inspect(
    path: Annotated[
        Path, typer.Argument(help="A transfer set, a student, a checkpoint, an evaluation or the folder of a run.")
    ],
) -> None:
    """Explain any artefact: what it is, what made it, how large it is, and whether every checksum holds."""
    from solera.core.errors import DamagedFileError

    for name, explain in (
        ("manifest.json", _transfer_set),
        ("config.json", _student),
        ("settings.json", _run),
        ("metrics.json", _evaluation),
    ):
        if (path / name).is_file():
            for key, value in explain(path).items():
                print(f"{key:>12}  {value}")
            return
    if path.name == "checkpoint.safetensors" and path.is_file():
        for key, value in _checkpoint(path).items():
            print(f"{key:>12}  {value}")
        return
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    raise DamagedFileError(
        f"{path} is nothing Solera made: there is no manifest.json (transfer set), config.json (student), "
        "settings.json (run) or metrics.json (evaluation) in it"
    )


def _size(path: Path) -> str:
    total = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return f"{total:,} bytes"


def _transfer_set(path: Path) -> dict[str, Any]:
    from solera.core.schema import require_form
    from solera.teachers import TransferSet

    found = TransferSet(path)
    require_form(path / "manifest.json", found.manifest, {"solera": str})
    rows = sum(int(shard["lengths"].sum()) for shard in found.shards)
    row = sum(c.nbytes for s in found.shards for n, c in s.items()) / max(1, rows)
    return {
        "what": "transfer set: an ensemble's predictions, remembered",
        "codec": found.manifest["codec"],
        "members": f"{found.members} ({', '.join(found.fingerprints[:3])}{', …' if found.members > 3 else ''})",
        "classes": f"{found.classes:,}",
        "examples": f"{len(found):,}",
        "rows": f"{rows:,} {'tokens' if found.manifest['tokens'] else 'examples'}, {row:.1f} bytes each",
        "labels": found.manifest["labels"] or "not recorded",
        "size": f"{_size(path)} in {len(found.shards)} shards, every checksum right",
        "written by": f"solera {found.manifest['solera']}",
    }


def _student(path: Path) -> dict[str, Any]:
    from solera.core.schema import reading, require_form
    from solera.training.card import CONFIG, read_student_files

    config, _ = read_student_files(path)
    require_form(path / CONFIG, config, {"solera": str, "outputs?": [str]})
    network, given = config["network"], config.get("preprocessing")
    with reading(path / CONFIG, "notes"):
        notes = _notes(config.get("notes", {}))
    rows = {
        "what": "student: one network and what its outputs mean",
        "method": f"{config['method']['name']} {config['method']['settings']}",
        "network": f"{network['name']} {network.get('settings', network.get('made_by', '(your own class)'))}",
        "labels": config["labels"] or "not recorded",
        **({} if given is None else _preprocessing(given)),
        **notes,
        "outputs": ", ".join(config.get("outputs", ["mean, total and what its method adds"])),
        "card": str(path / "README.md") if (path / "README.md").is_file() else "none: Student.save writes one",
        "fingerprint": config.get("fingerprint", "not recorded"),
        "size": f"{_size(path)}, checksum right",
        "written by": f"solera {config['solera']}",
    }
    passed = "" if "settings" in network else f", model={network.get('made_by', network['name'] + '(...)')}"
    return {**rows, "load it": f"solera.Student.load('{path}'{passed})"}


def _preprocessing(given: dict[str, Any]) -> dict[str, str]:
    """What goes in, a line each; what was not recorded is left out."""
    inputs = [f"{i['name']} {i['dtype']} {i['shape'] or 'of any shape'}" for i in given["inputs"]]
    units = [f"{name} in {unit}" for name, unit in given["units"].items()]
    words = [f"{name} ({len(known)})" for name, known in given.get("categories", {}).items()]
    lines = {"inputs": inputs, "features": given["features"], "units": units, "features of words": words}
    return {name: ", ".join(values) for name, values in lines.items() if values}


def _notes(notes: dict[str, Any]) -> dict[str, str]:
    """Where it came from and how it did; what was not recorded is left out."""
    numbers = {key: [f"{name} {float(value):.6g}" for name, value in notes.get(key, {}).items()] for key in _NUMBERS}
    lines = {"data": [notes["data"]] if notes.get("data") else [], "teachers": notes.get("teachers", []), **numbers}
    return {name: ", ".join(values) for name, values in lines.items() if values}


def _checkpoint(path: Path) -> dict[str, Any]:
    from solera.training.checkpoint import read

    state, _, _ = read(path)
    last = state.history[-1] if state.history else {}
    return {
        "what": "checkpoint: a training that can go on",
        "epochs": f"{state.epoch} done, step {state.step} of the next",
        "last": ", ".join(f"{k} {v:.6g}" for k, v in last.items()) or "nothing yet",
        "best": state.best,
    }


def _run(path: Path) -> dict[str, Any]:
    from solera.core.disk import read_json
    from solera.recipes.base import PAGE, SETTINGS

    settings, page = read_json(path / SETTINGS), path / PAGE
    return {
        "what": f"run of {settings.pop('recipe', 'a recipe')}",
        "settings": ", ".join(f"{k}={v}" for k, v in settings.items()),
        "finished": f"yes, see {page}" if page.is_file() else "no: the same command goes on",
        "size": _size(path),
    }


def _evaluation(path: Path) -> dict[str, Any]:
    from solera.evaluation import Evaluation

    found = Evaluation.load(path)
    return {
        "what": "evaluation: what models said about test data, and how good it is",
        "models": ", ".join(f"{model} ({found.role(model)})" for model in found.rows),
        "sets": ", ".join(f"{name} ({size:,} examples)" for name, size in found.sizes.items()),
        "size": f"{_size(path)}, every checksum right",
        "made with": found.made,
        "next": f"solera report {path}",
    }
