"""Numbers of the package that may fall and not rise.

    python tests/ratchet.py             print them beside their limits; exit 1 where one is above
    python tests/ratchet.py --update    lower the limits to what the numbers are now

The limits are tests/ratchet.json. A change that needs a higher one edits that file by hand and says
why in its commit.

lines: of Python in the package, blank ones and comments included; lines_kernel (with base),
lines_program and lines_guests: those of the wings.
long_functions: functions of more than LONGEST lines. many_parameters: functions with more than MOST
parameters, without commands, whose parameters are their options.
verdict_modules: modules in which a function runs between a report of one launch and its card as text,
without the rules, of which each bottleneck has one.
page_modules: the same between the report and its page.
class_names: names that more than one class has.
computing_writers: modules of render/ that import from another room than core and document.
circles: modules that import themselves through others."""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ncu_toolkit"
LIMITS = Path(__file__).with_suffix(".json")
#: What a writer may know: the values that it shows, and how text is written.
SHOWN = ("base.core", "base.document", "base.render")
#: Lines of a function, and its parameters, that a reader takes in at once.
LONGEST, MOST = 60, 6
#: Named in the environment of a traced command: where it notes the modules that it enters.
NOTED = "NCU_TOOLKIT_TRACED"


@lru_cache
def trees() -> dict[str, ast.Module]:
    """The package's modules by dotted name without `ncu_toolkit.`, parsed."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        found[name.removesuffix("__init__").rstrip(".")] = ast.parse(path.read_bytes())
    return found


def lines(*wings: str) -> int:
    """Lines of the wings; without any, of the package."""
    folders = [PACKAGE / wing for wing in wings] or [PACKAGE]
    return sum(
        path.read_bytes().count(b"\n") for folder in folders for path in folder.rglob("*.py")
    )


def functions() -> Iterator[ast.FunctionDef]:
    for tree in trees().values():
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def long_functions() -> int:
    return sum((each.end_lineno or 0) - each.lineno >= LONGEST for each in functions())


def many_parameters() -> int:
    return sum(
        len([*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs]) > MOST
        for each in functions()
        if each.name != "command"
    )


def class_names() -> int:
    named = Counter(
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    return sum(count > 1 for count in named.values())


def imports(node: ast.AST) -> Iterator[str]:
    """Names of the package's modules that code imports, in functions too; not what it imports for
    types alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and str(child.module).startswith("ncu_toolkit"):
            base = str(child.module).removeprefix("ncu_toolkit").lstrip(".")
            for name in child.names:
                whole = f"{base}.{name.name}".lstrip(".")
                yield whole if whole in trees() else base
        typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not typing_only:
            yield from imports(child)


def computing_writers() -> int:
    return sum(
        any(found and not found.startswith(SHOWN) for found in imports(tree))
        for name, tree in trees().items()
        if name.startswith("base.render.")
    )


def circles() -> int:
    graph = {name: set(imports(tree)) - {name, ""} for name, tree in trees().items()}

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += graph.get(name, ())
        return seen

    return sum(name in reached(name) for name in graph)


def entered(script: str) -> int:
    """How many modules of the package code enters that has the path of a report of one launch in
    `report`, in all of its processes. Rules count for nothing: there is one file a bottleneck."""
    import recorded

    with tempfile.TemporaryDirectory() as folder:
        report, noted = Path(folder, "one.ncu-rep"), Path(folder, "modules")
        report.write_bytes(recorded.first_launches(1))
        environment = {**os.environ, NOTED: str(noted), "NCU_TOOLKIT_CACHE": str(Path(folder, "c"))}
        done = subprocess.run(
            [sys.executable, str(Path(__file__)), "--trace", f"report = {str(report)!r}\n{script}"],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"error: the traced code failed: {done.stderr[-2000:]}")
        names = {Path(line).relative_to(PACKAGE) for line in noted.read_text().splitlines()}
    rules = (Path("kernel", "diagnosis", "rules"), Path("program", "rules"))
    return sum(name.parent not in rules or name.name.startswith("_") for name in names)


def trace(script: str) -> None:
    """Run code and note each module of the package in which a function is called, at once, so that
    child processes need not end well. What modules run while they are imported is left out."""
    seen: set[str] = set()
    inside = f"{PACKAGE}{os.sep}"
    noted = Path(os.environ[NOTED])

    def importing(frame: FrameType | None) -> bool:
        while frame is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename.startswith(inside)

    def called(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event != "call" or path in seen:
            return
        if not (path.startswith(inside) and path.endswith(".py")):  # templates run as code too
            seen.add(path)
        elif not importing(frame):
            seen.add(path)
            with noted.open("a", encoding="utf-8") as file:  # child processes close what was open
                file.write(f"{path}\n")

    sys.setprofile(called)
    try:
        exec(script, {"__name__": "traced"})
    finally:
        sys.setprofile(None)


def measure() -> dict[str, int]:
    return {
        "lines": lines(),
        "lines_kernel": lines("base", "kernel"),
        "lines_program": lines("program"),
        "lines_guests": lines("guests"),
        "long_functions": long_functions(),
        "many_parameters": many_parameters(),
        "verdict_modules": entered("import ncu_toolkit\nstr(ncu_toolkit.load(report))"),
        "page_modules": entered(
            "import ncu_toolkit\nncu_toolkit.load(report).to_html('page.html')"
        ),
        "class_names": class_names(),
        "computing_writers": computing_writers(),
        "circles": circles(),
    }


def above(found: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """A sentence for each number above its limit."""
    return [
        f"{name} rose to {number}, the limit is {limits[name]}"
        for name, number in found.items()
        if number > limits[name]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="lower the limits")
    update = parser.parse_args().update
    limits = json.loads(LIMITS.read_text(encoding="utf-8"))
    found = measure()
    for name, number in found.items():
        print(f"{name:18} {number:6}   limit {limits[name]}")
    if update:
        lower = {name: min(number, limits[name]) for name, number in found.items()}
        LIMITS.write_text(json.dumps(lower, indent=1) + "\n", encoding="utf-8")
    for sentence in above(found, limits):
        print(f"error: {sentence}. Lower it again, or say in the commit why it must rise.")
    return bool(above(found, limits))


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
    if sys.argv[1:2] == ["--trace"]:
        sys.exit(trace(sys.argv[2]))
    sys.exit(main())
