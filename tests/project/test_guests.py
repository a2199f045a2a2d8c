"""The wings: each guest can be deleted, and what is left works."""

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
from ncu_toolkit.cli import COMMANDS

FOLDER = recorded.ROOT / "ncu_toolkit" / "guests"
GUESTS = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))
#: Modules that import what an extra brings, which a test machine has; a copy has the same machine.
IMPORTS_ALL = """
import importlib, pkgutil, sys
import ncu_toolkit
assert ncu_toolkit.__file__.startswith(sys.argv[1]), ncu_toolkit.__file__
for found in pkgutil.walk_packages(ncu_toolkit.__path__, "ncu_toolkit."):
    if not found.name.endswith(("__main__", "sitecustomize")):
        importlib.import_module(found.name)
"""


def run(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(copy), "NCU_TOOLKIT_CACHE": str(copy / "cache")}
    return subprocess.run(
        [sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", GUESTS)
def test_each_guest_can_be_deleted(name: str, tmp_path: Path) -> None:
    """Its folder and tests are gone: every module still imports, every other command has its help,
    and reports are analysed, compared and written as pages. What the guest adds is refused in one
    line, or left out."""
    skip = shutil.ignore_patterns("__pycache__", "recordings")
    shutil.copytree(recorded.ROOT / "ncu_toolkit", tmp_path / "ncu_toolkit", ignore=skip)
    for folder in ("kernels", "sections"):
        shutil.copytree(recorded.ROOT / folder, tmp_path / folder)
    lost = set(guests.commands()) & {*getattr(guests.guest(f"{name}.__init__"), "COMMANDS", {})}
    shutil.rmtree(tmp_path / "ncu_toolkit" / "guests" / name)
    (tmp_path / "a.ncu-rep").write_bytes(report_files.first_launches(2))

    done = run(tmp_path, "-c", IMPORTS_ALL, str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    tool = ("-m", "ncu_toolkit")
    shown = run(tmp_path, *tool, "--help")
    assert shown.returncode == 0, shown.stderr
    for command in {*COMMANDS, *guests.commands()} - lost:
        assert f"  {command} " in shown.stdout
        assert run(tmp_path, *tool, command, "--help").returncode == 0, command
    for command in lost:
        assert f"  {command} " not in shown.stdout
        gone = run(tmp_path, *tool, command)
        assert (gone.returncode, gone.stderr.count("\n")) == (2, 1), gone.stderr
    for words in (
        ("analyze", "a.ncu-rep", "--format", "json"),
        ("analyze", "a.ncu-rep", "--format", "html", "--output", "pages"),
        ("compare", "a.ncu-rep", "a.ncu-rep"),
        ("list",),
    ):
        done = run(tmp_path, *tool, *words)
        assert done.returncode == 0, done.stderr
    assert json.loads(run(tmp_path, *tool, "analyze", "a.ncu-rep", "--format", "json").stdout)


@pytest.mark.parametrize("name", GUESTS)
def test_what_a_guest_does_without_being_there_is_said(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests, "there", lambda each: each != name)
    assert guests.guest(f"{name}.anything") is None
    assert guests.known(*GUESTS) == tuple(each for each in GUESTS if each != name)
