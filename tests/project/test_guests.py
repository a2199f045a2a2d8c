"""The wings: each guest can be deleted, and what is left works; so can all above the kernel's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import recorded
import report_files

from ncu_toolkit.base.core import guests

FOLDER = recorded.ROOT / "ncu_toolkit" / "guests"
GUESTS = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))
IMPORTS_ALL = """
import importlib, pkgutil, sys
import ncu_toolkit
assert ncu_toolkit.__file__.startswith(sys.argv[1]), ncu_toolkit.__file__
for found in pkgutil.walk_packages(ncu_toolkit.__path__, "ncu_toolkit."):
    if not found.name.endswith(("__main__", "sitecustomize")):
        importlib.import_module(found.name)
"""
#: Every command's help, and what the commands with `lost` names do.
ALL_HELP = (
    IMPORTS_ALL
    + """
import json
from click.testing import CliRunner
from ncu_toolkit.cli import cli
run = CliRunner().invoke
shown = run(cli, ["--help"])
assert shown.exit_code == 0, shown.output
named = cli.list_commands(None)
assert all(f"  {name} " in shown.output for name in named), shown.output
for name in named:
    done = run(cli, [name, "--help"])
    assert done.exit_code == 0, (name, done.output)
print(json.dumps(named))
"""
)
KERNEL_ALONE = (
    IMPORTS_ALL
    + """
from pathlib import Path
from ncu_toolkit.kernel.analysis.analyze import Options, analyze
from ncu_toolkit.kernel.analysis.answers import of_analysis
from ncu_toolkit.kernel.pages.html import write_analysis
found = analyze([Path("a.ncu-rep")], Options(profiles=True))
assert of_analysis(found).cards
write_analysis(found, Path("page.html"))
"""
)


def run(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(copy), "NCU_TOOLKIT_CACHE": str(copy / "cache")}
    return subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def without(copy: Path, *folders: str) -> None:
    """A copy of the package in which some folders are missing, and a report beside it."""
    skip = shutil.ignore_patterns("__pycache__", "recordings")
    shutil.copytree(recorded.ROOT / "ncu_toolkit", copy / "ncu_toolkit", ignore=skip)
    for folder in ("kernels", "sections"):
        shutil.copytree(recorded.ROOT / folder, copy / folder)
    for folder in folders:
        shutil.rmtree(copy / "ncu_toolkit" / folder)
    (copy / "a.ncu-rep").write_bytes(report_files.first_launches(2))


@pytest.mark.slow
@pytest.mark.parametrize("name", GUESTS)
def test_each_guest_can_be_deleted(name: str, tmp_path: Path) -> None:
    """Every module still imports, every other command has its help, and reports are analysed,
    compared and written as pages. A command that is gone is refused in one line."""
    without(tmp_path, f"guests/{name}")
    package = guests.guest(f"{name}.__init__")
    lost = set(getattr(package, "COMMANDS", {}))

    done = run(tmp_path, "-c", ALL_HELP, str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    assert not lost & {*json.loads(done.stdout)}
    tool = ("-m", "ncu_toolkit")
    for command in lost:
        gone = run(tmp_path, *tool, command)
        assert (gone.returncode, gone.stderr.count("\n")) == (2, 1), gone.stderr
    for words in (
        ("analyze", "a.ncu-rep", "--format", "html", "--output", "pages"),
        ("compare", "a.ncu-rep", "a.ncu-rep"),
        ("list",),
    ):
        done = run(tmp_path, *tool, *words)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", GUESTS)
def test_other_tests_collect_without_a_guest(name: str, tmp_path: Path) -> None:
    """With its folders gone from package and tests. Recordings are linked: they are big."""
    without(tmp_path, f"guests/{name}")
    big = tmp_path / "ncu_toolkit" / "data" / "recordings"
    if (recordings := recorded.ROOT / "ncu_toolkit" / "data" / "recordings").is_dir():
        big.symlink_to(recordings)
    skip = shutil.ignore_patterns("__pycache__", "*.xz")
    shutil.copytree(recorded.ROOT / "tests", tmp_path / "tests", ignore=skip)
    shutil.rmtree(tmp_path / "tests" / "guests" / name, ignore_errors=True)
    for linked in (
        "benchmarks",
        "docs",
        "pyproject.toml",
        "README.md",
        "CONTRIBUTING.md",
        "Makefile",
    ):
        (tmp_path / linked).symlink_to(recorded.ROOT / linked)
    done = run(tmp_path, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests")
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.slow
def test_reports_are_answered_without_the_wings_above(tmp_path: Path) -> None:
    without(tmp_path, "guests", "cli", "api", "program")
    done = run(tmp_path, "-c", KERNEL_ALONE, str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", GUESTS)
def test_a_guest_that_is_gone_is_not_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "there", lambda each: each != name)
    assert guests.guest(f"{name}.anything") is None
    assert guests.known(*GUESTS) == tuple(each for each in GUESTS if each != name)
