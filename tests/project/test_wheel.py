"""The wheel, installed away from the checkout: kernels, sections and recordings come along, and the
commands that need no GPU work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import recorded

from ncu_toolkit.kernel.ladder.catalogue import rung_files
from ncu_toolkit.kernel.runs import store

pytestmark = pytest.mark.slow

#: Largest wheel in bytes: what the package indexes take without asking is 100 MB; a report tool
#: should stay far below.
MAX_BYTES = 25 * 2**20


def pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip(
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        str(folder),
        str(recorded.ROOT),
    )
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--no-index", "--target", str(folder), str(wheel))
    return folder


def test_what_the_wheel_holds(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for path in rung_files():
        assert f"ncu_toolkit/kernels_data/{path.parent.name}/{path.name}" in names
    for path in (recorded.ROOT / "kernels" / "common").iterdir():
        assert f"ncu_toolkit/kernels_data/common/{path.name}" in names
    for path in (recorded.ROOT / "sections").glob("*.section"):
        assert f"ncu_toolkit/sections_data/{path.name}" in names
    for folder in store.recordings():
        for path in folder.iterdir():
            assert f"ncu_toolkit/data/recordings/{folder.name}/{path.name}" in names
    for path in (recorded.ROOT / "ncu_toolkit" / "base" / "render").rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            assert str(path.relative_to(recorded.ROOT)) in names
    assert not [
        name
        for name in names
        if name.endswith((".pyc", ".pickle")) or name.startswith(("tests/", "reports/"))
    ]
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < MAX_BYTES


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    environment.pop("NCU_TOOLKIT_KERNELS", None)
    return subprocess.run(
        [sys.executable, "-m", "ncu_toolkit", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_lists_its_kernels(installed: Path, tmp_path: Path) -> None:
    where = subprocess.run(
        [sys.executable, "-c", "import ncu_toolkit; print(ncu_toolkit.__file__)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(installed)), (
        "this tests the installed package, not the checkout"
    )
    listed = run(installed, tmp_path, "list", "--format", "json")
    assert listed.returncode == 0, listed.stderr
    assert '"vectorized"' in listed.stdout


def test_it_reports_from_its_recordings(installed: Path, tmp_path: Path) -> None:
    """With one launch instead of all recordings, which would take a minute."""
    shutil.rmtree(installed / "ncu_toolkit" / "data" / "recordings")
    recorded.small_recording(installed / "ncu_toolkit" / "data" / "recordings" / "small")
    done = run(installed, tmp_path, "report", "--output", "here")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "index.html").is_file()
    assert [path.name for path in (tmp_path / "here").glob("recorded-*")] == ["recorded-small"]
    assert not list(tmp_path.glob("ncu_toolkit"))


def test_its_sections_are_found(installed: Path, tmp_path: Path) -> None:
    script = "from ncu_toolkit.kernel.gpu.collect import section_folder; print(len(list(section_folder().glob('*.section'))), section_folder())"
    found = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    count, where = found.stdout.split()
    assert int(count) == len(list((recorded.ROOT / "sections").glob("*.section")))
    assert where.startswith(str(installed))
