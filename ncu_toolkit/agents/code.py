"""Compiled code and CUDA source below a root, for static analysis.

A compiler reads whatever file a source names. The source and the headers beside it are therefore
compiled from copies, and only where the preprocessor names no further file but those of the
compilers."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path, PurePosixPath
from typing import Final

from ncu_toolkit.agents.root import Root
from ncu_toolkit.build.nvcc import INCLUDE
from ncu_toolkit.build.toolchain import find_tool
from ncu_toolkit.core.errors import InputProblem, KernelProblem, UsageProblem
from ncu_toolkit.core.safe import visible
from ncu_toolkit.diagnosis.static import analyse_cubin, analyse_source
from ncu_toolkit.explain.answer import Answer
from ncu_toolkit.explain.code import of_code

#: Bytes of a source or header, and of a cubin; and headers of one source.
_SOURCE_BYTES: Final = 1 << 20
_CUBIN_BYTES: Final = 64 << 20
_HEADERS: Final = 64
_TIMEOUT: Final = 60
#: Folders of the compilers' own headers, beside the CUDA toolkit's.
_SYSTEM: Final = ("/usr/include", "/usr/lib/gcc", "/usr/local/include")
DEFAULT_ARCH: Final = "sm_90"


def analysed(root: Root, file: str, arch: str, block: int | None) -> Answer:
    """The static analysis of a .cubin or .cu file.

    Raises:
        UsageProblem: it is another kind of file, is outside the root, or includes a file that is.
        InputProblem, EnvironmentProblem, KernelProblem: as `analyse_source` and `analyse_cubin`.
    """
    name = root.name(file)
    kind = PurePosixPath(name).suffix
    if kind not in (".cu", ".cubin"):
        raise UsageProblem(
            f"'{visible(name, 200)}' is not a .cu or .cubin file", "`analyze` reads reports"
        )
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch:
        folder = Path(scratch).resolve()
        if kind == ".cubin":
            copy = folder / PurePosixPath(name).name
            copy.write_bytes(root.read(name, _CUBIN_BYTES))
            return of_code(analyse_cubin(copy, block=block))
        copy = _staged(root, name, folder)
        _refuse_others(copy, folder)
        try:
            found = analyse_source(copy, arch or DEFAULT_ARCH, block=block)
        except KernelProblem as error:
            # the log lies outside the root
            raise KernelProblem(
                error.message.replace(f"{folder}/", ""), "Compile it to see all messages"
            ) from None
        return of_code(found, {copy.name: copy.read_text(encoding="utf-8", errors="replace")})


def _staged(root: Root, name: str, folder: Path) -> Path:
    """Copies of a source and of the headers that it includes by a path below its own folder;
    returns that of the source."""
    home = PurePosixPath(name).parent
    first = PurePosixPath(name).name
    waiting, seen = [first], {first}
    while waiting:
        part = waiting.pop()
        try:
            data = root.read(str(home / part), _SOURCE_BYTES)
        except InputProblem:
            if part == first:
                raise
            continue  # the compiler's own, or none that is compiled
        copy = folder / part
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
        for found in INCLUDE.findall(data.decode("utf-8", "replace")):
            header = str(PurePosixPath(part).parent / found)
            inside = not header.startswith("/") and ".." not in PurePosixPath(header).parts
            if inside and header not in seen and len(seen) < _HEADERS:
                seen.add(header)
                waiting.append(header)
    return folder / first


def _refuse_others(source: Path, folder: Path) -> None:
    """Raise UsageProblem where the compiler would read a file that is neither among the copies nor
    its own."""
    tool = find_tool("nvcc")
    command = [str(tool.path), "-M", "-std=c++17", str(source)]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, cwd=folder
        )
    except subprocess.TimeoutExpired:
        raise KernelProblem(
            f"{source.name}: nvcc did not finish within {_TIMEOUT} s", "Simplify the kernel"
        ) from None
    remedy = "Include headers below its folder, CUDA's and the system's; compile others to a .cubin"
    if answer.returncode:
        # what nvcc prints may quote a file outside the root
        raise UsageProblem(f"{source.name}: the preprocessor found no header or an error", remedy)
    _, _, listed = answer.stdout.replace("\\\n", " ").partition(":")
    allowed = [folder, *map(Path, _SYSTEM), tool.path.resolve().parents[1]]
    for word in re.split(r"(?<!\\)\s+", listed.strip()):
        path = (folder / word.replace("\\ ", " ")).resolve()
        if not any(path.is_relative_to(each) for each in allowed):
            raise UsageProblem(f"{source.name} includes a file outside the root", remedy)
