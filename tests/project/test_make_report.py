"""`make report` uses the environment that is there."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import recorded


def made(tmp_path: Path, code: int) -> list[str]:
    """What `make report` ran with a Python that has what is needed (`code` 0) or lacks it."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/ran\ncase "$1$3" in -ctomllib*) exit 0;; esac\n'
        f'case "$2" in *"import tomllib"*) exit {code};; esac\n'
        f'case "$2" in venv) mkdir -p {tmp_path}/venv/bin; cp "$0" {tmp_path}/venv/bin/python;; esac\n'
    )
    python.chmod(0o755)
    words = [
        "make",
        "report",
        f"PYTHON={python}",
        f"VENV={tmp_path}/venv",
        "REPORTS=out",
        "OFFLINE=",
    ]
    subprocess.run(words, cwd=recorded.ROOT, check=True, capture_output=True, text=True)
    return (tmp_path / "ran").read_text().splitlines()


def test_no_second_environment_is_built_where_one_is(tmp_path: Path) -> None:
    ran = made(tmp_path, 0)
    assert ran[-1] == "-m ncu_toolkit report --output out"
    assert not (tmp_path / "venv").exists()


def test_one_is_built_where_none_is(tmp_path: Path) -> None:
    ran = made(tmp_path, 1)
    assert any(line.startswith("-m venv ") for line in ran)
    assert ran[-1] == "-m ncu_toolkit report --output out"


def test_what_is_looked_for_is_what_the_package_needs() -> None:
    project = tomllib.loads((recorded.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {re.split(r"[>=<]", each)[0].replace("-", "_") for each in project["project"]["dependencies"]}  # fmt: skip
    needed = {name.replace("backports_", "backports.") for name in needed}
    (line,) = re.findall(r"^NEEDED := import (.*)$", (recorded.ROOT / "Makefile").read_text(), re.M)
    assert set(line.split(", ")) == {"tomllib", *needed}
