"""The import graph: data flows one way, and heavy optional packages stay where they belong."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "solera"

# a folder may import what stands below it, and siblings on its own line may not import each other
LAYERS = [
    ["cli", "testing"],
    ["recipes"],
    ["serving", "evaluation"],
    ["ensembles", "calibration"],
    ["training"],
    ["perturbations"],
    ["methods", "teachers"],
    ["tasks"],
    ["metrics"],
    ["nn", "decoding"],
    ["distributions"],
    ["data"],
    ["core"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
OPTIONAL = {
    "sklearn",
    "uvicorn",
    "matplotlib",
    "lightgbm",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "transformers",
    "pyarrow",
    "pandas",
    "fastapi",
    "plotly",
    "jinja2",
    "datasets",
    "scipy",
}


def imports():
    """(file, importing folder, imported module) for every import in the package."""
    for file in ROOT.rglob("*.py"):
        folder = file.relative_to(ROOT).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file} imports relatively"
                names = [f"{node.module}.{a.name}" if node.module == "solera" else str(node.module) for a in node.names]
            for name in names:
                yield file.relative_to(ROOT), folder, name


def test_imports_point_one_way():
    wrong = []
    for file, folder, name in imports():
        parts = name.split(".")
        if parts[0] != "solera" or len(parts) < 2 or folder == "__init__" or parts[1] == folder:
            continue
        if LEVEL[parts[1]] <= LEVEL[folder]:
            wrong.append(f"{file} imports {name}")
    assert not wrong, wrong


def test_methods_do_not_know_each_other():
    wrong = [
        f"{file} imports {name}"
        for file, folder, name in imports()
        if folder == "methods" and name.startswith("solera.methods.") and file.name != "__init__.py"
        if name != "solera.methods.base"
    ]
    assert not wrong, wrong


def test_importing_solera_loads_no_optional_package():
    code = "import solera, sys; [getattr(solera, n) for n in solera.__all__]; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    loaded = {m.split(".")[0] for m in modules}
    assert "torch" in loaded
    assert not loaded & (OPTIONAL | {"lightning_fabric", "rich", "pydantic", "typer"})


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["distill", "--help"], ["run", "--help"]], ids=" ".join
)
def test_help_does_not_wait_for_torch(arguments):
    code = """
import atexit, sys
atexit.register(lambda: print("loaded:", *sys.modules))
from solera.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    said, _, modules = done.stdout.rpartition("loaded: ")
    assert "solera" in said
    assert not {"torch", "numpy", "rich"} & set(modules.split())


def test_importing_solera_loads_nothing_but_itself_and_what_defers_the_rest():
    code = "import sys; before = set(sys.modules); import solera; print(*(set(sys.modules) - before))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {m.split(".")[0] for m in modules} - sys.stdlib_module_names == {"solera", "lazy_loader"}


def test_the_scikit_learn_faces_are_loaded_on_first_use():
    code = "import solera, sys; solera.Distiller; assert 'sklearn' not in sys.modules; solera.DistilledClassifier; "
    code += "assert 'sklearn' in sys.modules; assert solera.training.DistilledRegressor is solera.DistilledRegressor"
    subprocess.run([sys.executable, "-c", code], check=True)
