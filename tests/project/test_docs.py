"""Generated documents are current, and what the documents point to is there."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import recorded
from packaging.requirements import Requirement

from ncu_toolkit import __version__
from ncu_toolkit.cli import COMMANDS

ROOT = recorded.ROOT
PACKAGE = ROOT / "ncu_toolkit"
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "kernels" / "README.md"]
)


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_documents_are_current(generate: ModuleType) -> None:
    wanted = generate.documents(
        [generate.with_tops(recorded.run_of(folder)) for folder in recorded.FOLDERS]
    )
    assert [str(path.relative_to(ROOT)) for path in generate.stale(wanted)] == [], "run `make docs`"


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"## ncu-toolkit {name}\n" not in text] == []
    for part, option in (("save", "--replace"), ("list", "--format")):
        _, found, after = text.partition(f"### ncu-toolkit baseline {part}\n")
        assert found, "commands of a group have options of their own"
        assert option in after.partition("\n## ")[0].partition("\n### ")[0]


def test_the_readme_is_short() -> None:
    """Long tables belong to docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 900


def test_figures_of_the_results_are_the_recordings(generate: ModuleType) -> None:
    """A figure that someone edits by hand is put back."""
    runs = [generate.with_tops(recorded.run_of(folder)) for folder in recorded.FOLDERS]
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    tampered = text.replace("TFLOP/s |", "PFLOP/s |", 1)
    assert tampered != text
    assert (
        generate.between(tampered, "ladder", generate.ladder_table(runs)).partition("end: ladder")[
            0
        ]
        == text.partition("end: ladder")[0]
    )


def test_markers_must_be_there_once(generate: ModuleType) -> None:
    assert (
        generate.between("a\n<!-- generated: x -->\nold\n<!-- end: x -->\nb", "x", "new\n")
        == "a\n<!-- generated: x -->\nnew\n<!-- end: x -->\nb"
    )
    for text in ("none", "<!-- generated: x -->\n<!-- end: x --><!-- end: x -->"):
        with pytest.raises(ValueError, match="markers of 'x'"):
            generate.between(text, "x", "")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    broken = [
        link
        for link in links
        if not link.startswith(("http", "#"))
        and not (path.parent / link.partition("#")[0]).exists()
    ]
    assert not broken


def test_make_targets_that_are_named_exist() -> None:
    targets = set(
        re.findall(
            r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE
        )
    )
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / ".github" / "workflows").iterdir(),
    ):
        named = {
            word
            for line in re.findall(
                r"\bmake ([a-z -]+?)(?:\s{2,}|`|$|#)",
                path.read_text(encoding="utf-8"),
                flags=re.MULTILINE,
            )
            for word in line.split()
        }
        assert named - targets == set(), path.name


def test_the_citation_names_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", text, flags=re.MULTILINE) == [__version__]


def test_the_lock_file_meets_the_requirements() -> None:
    """Every requirement of development has one locked version that fits; `make lock` rewrites."""
    text = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([a-z0-9._-]+)==([^ ;\n]+)", text, flags=re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [
        Requirement(line)
        for line in (*project["dependencies"], *extras["dev"], *extras["toolchain"])
    ]
    assert [str(each) for each in wanted if locked.get(each.name, "") not in each.specifier] == []
    assert "://" not in text, "no index, no host"


@pytest.mark.parametrize("name", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_modules_that_are_named_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = {path.rstrip("/") for path in re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?)`", text)}
    assert named, "a document that names no file is tested for nothing"
    assert [
        path for path in sorted(named) if not any((at / path).exists() for at in (ROOT, PACKAGE))
    ] == []


def test_the_picture_shows_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    assert re.findall(r"^  (\w+) ", text, flags=re.MULTILINE) == layers[1:]
