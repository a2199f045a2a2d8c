"""The CUDA command-line tools and their versions. `nvcc.py` compiles."""

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ncu_toolkit.base.core.errors import EnvironmentProblem, extra

#: Default folder of the CUDA toolkit.
_DEFAULT_CUDA = Path("/usr/local/cuda")


@dataclass(frozen=True)
class Tool:
    """A program and its version, such as `13.0.88`."""

    path: Path
    version: str


def tool_folders() -> Iterator[Path]:
    """Folders that may hold CUDA tools, in order: PATH, CUDA_HOME, CUDA_PATH, this Python's
    packages, /usr/local/cuda."""
    for entry in os.environ.get("PATH", "").split(os.pathsep):
        if entry:
            yield Path(entry)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin"
    packages = Path(sysconfig.get_path("purelib")) / "nvidia"
    # cu13 and later put all tools into one tree; earlier packages had one tree each (cuda_nvcc,
    # cuda_nvdisasm, ...).
    yield from sorted(packages.glob("cu[0-9]*/bin"), reverse=True)
    yield from sorted(packages.glob("cuda_*/bin"))
    yield _DEFAULT_CUDA / "bin"


def find_tool(name: str) -> Tool:
    """The first `name` among `tool_folders` that runs. Raises EnvironmentProblem: there is none."""
    return _find(name, tuple(tool_folders()))


@lru_cache(maxsize=16)
def _find(name: str, folders: tuple[Path, ...]) -> Tool:
    broken = ""
    for folder in folders:
        found = shutil.which(name, path=str(folder))
        if found is None:
            continue
        version = _version(found)
        if version:
            return Tool(Path(found), version)
        broken = broken or found
    places = f"on PATH, in CUDA_HOME, in this Python's packages or under {_DEFAULT_CUDA}"
    what = f"was found, but does not run ({broken} --version fails)"
    raise EnvironmentProblem(
        f"{name} {what if broken else f'was not found {places}'}", extra("toolchain")
    )


def _version(program: str) -> str:
    """The version in `program --version`: `V13.0.88` → `13.0.88`; "" where it does not run."""
    words = [program, "--version"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\bV(\d+\.\d+\.\d+)", answer.stdout)
    return found[1] if found and answer.returncode == 0 else ""


def toolchain_description() -> str:
    """One line for provenance, without paths: `nvcc 13.0.88, nvdisasm 13.5.37`; says which is
    missing."""
    parts = []
    for name in ("nvcc", "nvdisasm"):
        try:
            parts.append(f"{name} {find_tool(name).version}")
        except EnvironmentProblem:
            parts.append(f"no {name}")
    return ", ".join(parts)
