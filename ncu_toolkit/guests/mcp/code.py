"""Compiled code and CUDA source below a root, for static analysis.

A compiler reads whatever file a source names. The source and the headers next to it are therefore
compiled from copies, and only where the preprocessor, with the flags of the compile, opened no
further file but those of the compilers, and was not asked whether one exists (`__has_include`). All
of this is refused in the same words, which would tell otherwise what there is."""

import re
import tempfile
from pathlib import Path, PurePosixPath
from typing import Final

from ncu_toolkit.base.core.errors import InputProblem, KernelProblem, UsageProblem
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.views import Answer
from ncu_toolkit.guests.mcp.root import Root
from ncu_toolkit.kernel.build.nvcc import INCLUDE, preprocessed
from ncu_toolkit.kernel.build.toolchain import find_tool
from ncu_toolkit.kernel.diagnosis.static import analyse_cubin, analyse_source
from ncu_toolkit.kernel.explain.code import of_code

#: Bytes of a source or header, and of a cubin; and headers of one source.
_SOURCE_BYTES: Final = 1 << 20
_CUBIN_BYTES: Final = 64 << 20
_HEADERS: Final = 64
#: Seconds for the preprocessor, and for the compiler: the client waits, and so does its next question.
_TIMEOUT: Final = 60
#: Lines of preprocessed text that are directives, or are where a directive could be: `#` by its other
#: spellings too. Those that open no file, and the file that one names: opened, or quoted in messages.
_DIRECTIVE: Final = re.compile(r"^[^\S\n]*(?:#|%:|\?\?=).*", re.MULTILINE)
_HARMLESS: Final = re.compile(r"\s*#\s*(?:\d|line\b|pragma\b|ident\b)")
_NAMED: Final = re.compile(r'\s*#\s*(?:line\s*)?\d+\s*"((?:[^"\\]|\\.)*)"')
#: What asks whether a file exists. A place where one is used that is poisoned, as GCC and clang say it.
_ASKS: Final = (
    "__has_include",
    "__has_include_next",
    "__has_embed",
    "dependency",
    "pch_preprocess",
)
_POISON: Final = re.compile(r"error: attempt to use (?:a )?poisoned")
_POISONED: Final = re.compile(rf"^(/.*?):(\d+):(\d+): {_POISON.pattern}", re.MULTILINE)
#: It asks for a plain name; or it is asked whether it is there itself.
_ASKED: Final = re.compile(r'__has_include(?:_next)?\s*\(\s*[<"]([\w./+-]+)[>"]\s*\)')
_DEFINED: Final = re.compile(r"(?:\bifn?def|\bdefined\s*\(?)\s*$")
#: Ends of lines that are none. Directives that give lines another file's name, or that embed a file,
#: by each spelling of `#`; after what may end a comment.
_SPLICE: Final = re.compile(r"(?:\\|\?\?/)[^\S\n]*\n")
_GAP: Final = r"(?:[^\S\n]|/\*.*?\*/)*"
_RENAMES: Final = re.compile(
    rf"(?:^|\*/){_GAP}(?:#|%:|\?\?=){_GAP}(?:line\b|embed\b|\d)", re.MULTILINE | re.DOTALL
)
#: Folders of the compilers' own headers, besides the CUDA toolkit's.
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
        arch = arch or DEFAULT_ARCH
        _refuse_others(copy, folder, arch)
        try:
            found = analyse_source(copy, arch, block=block, timeout=_TIMEOUT)
        except KernelProblem as error:
            # the log lies outside the root
            raise KernelProblem(
                error.message.replace(f"{folder}/", ""), "Compile it to see all messages"
            ) from None
        return of_code(found, {copy.name: copy.read_text(encoding="utf-8", errors="replace")})


def _staged(root: Root, name: str, folder: Path) -> Path:
    """Copy a source and the headers that it includes from below its folder; returns the copy."""
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


def _refuse_others(source: Path, folder: Path, arch: str) -> None:
    """Raise UsageProblem where the compiler would read, or look for, a file that is neither among the
    copies nor its own, as the preprocessor says of the very pass that is compiled."""
    if not (_asks_for_none(source, folder, arch) and _reads_none(source, folder, arch)):
        raise UsageProblem(
            f"{source.name} does not preprocess, makes a directive by a macro, or includes or looks for a file outside the root",
            "Include headers below its folder, CUDA's and the system's; compile others to a .cubin",
        )


def _reads_none(source: Path, folder: Path, arch: str) -> bool:
    text, _ = preprocessed(source, arch, _TIMEOUT)
    allowed = [folder, *_compilers()]
    for line in _DIRECTIVE.findall(text or ""):
        named = _NAMED.match(line)
        path = (folder / re.sub(r"\\(.)", r"\1", named[1])).resolve() if named else folder
        if not any(path.is_relative_to(each) for each in allowed) or not _HARMLESS.match(line):
            return False
    return text is not None


def _asks_for_none(source: Path, folder: Path, arch: str) -> bool:
    """Whether no copy asks for a file but by a plain name: what asks is poisoned for a pass, so that
    the preprocessor names each place where one is used, also one that macros put together."""
    # Lines end as the preprocessor has it.
    files = filter(Path.is_file, folder.rglob("*"))
    copies = {path: path.read_bytes().decode("utf-8", "replace") for path in files}
    if any(_RENAMES.search(_SPLICE.sub("", text)) for text in copies.values()):
        return False
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch:
        poison = Path(scratch).resolve() / "poison.h"
        poison.write_text(f"#pragma GCC poison {' '.join(_ASKS)}\n#ifdef {_ASKS[0]}\n#endif\n")
        _, errors = preprocessed(source, arch, _TIMEOUT, ("-include", str(poison)))
    known = False  # whether this preprocessor knows poison at all
    for name, line, at in (places := _POISONED.findall(errors)):
        path = Path(name).resolve()
        known = known or path == poison
        if path in copies:
            row = copies[path].split("\n")[int(line) - 1].expandtabs()
            if not _plainly(row, int(at) - 1):
                return False
        elif path != poison and not any(path.is_relative_to(each) for each in _compilers()):
            return False
    return known and len(places) == len(_POISON.findall(errors))


def _compilers() -> tuple[Path, ...]:
    """Folders of the compilers' own headers."""
    return (*map(Path, _SYSTEM), find_tool("nvcc").path.resolve().parents[1])


def _plainly(line: str, at: int) -> bool:
    """Whether what asks for a file is there unchanged, and for a name below its own folders."""
    asked = _ASKED.match(line, at)
    name = asked[1] if asked else ""
    inside = name and not name.startswith("/") and ".." not in PurePosixPath(name).parts
    return bool(inside or _DEFINED.search(line[:at]))
