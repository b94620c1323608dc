"""The README keeps its word: its example runs as printed, its commands exist."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_the_example_runs_as_printed_and_fits_ten_lines(tmp_path):
    (example,) = blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path, timeout=200)
    assert done.returncode == 0, done.stderr
    *_, data, knowledge = re.findall(r"tensor\((\[.*?\])\)", done.stdout, re.S)
    data, knowledge = ([float(v) for v in text.strip("[]").split(",")] for text in (data, knowledge))
    assert max(data) == data[1]
    assert max(knowledge) == knowledge[2] > 10 * knowledge[0]
    assert (tmp_path / "student" / "model.safetensors").exists()


def test_both_commands_are_on_the_first_screen_and_in_the_makefile():
    first_screen = "\n".join(README.splitlines()[:25])
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in first_screen
        assert f"\n{target}: $(STAMP)" in makefile
    assert (ROOT / ".ci" / "run").read_text().strip().endswith("make test")


def test_every_solera_command_in_the_readme_is_understood():
    from typer.testing import CliRunner

    from solera.cli.main import app

    lines = re.findall(r"^\.venv/bin/solera (run \S+)", README, re.M)
    assert len(lines) >= 9
    for line in lines:
        assert CliRunner().invoke(app, [*line.split(), "--help"]).exit_code == 0, line


def test_the_table_of_what_was_measured_is_that_of_the_results_page():
    page = (ROOT / "docs" / "results" / "headline.md").read_text().split("\n![")[0]
    table = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(table) == 10  # eight problems
    assert "\n".join(table) in README


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
