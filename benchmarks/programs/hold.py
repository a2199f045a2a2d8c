"""Run a program when the GPU is free: `python hold.py LOCK TIMES PROGRAM [ARGUMENT...]`.

Several wait at once, with their packages imported, so that one GPU is never idle and never shared.
TIMES gets, as JSON, the seconds that imports took and the seconds that the program ran.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import fcntl
import importlib
import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path

HEAVY = ("torch", "torchvision", "transformers", "torch_geometric", "jax", "cupy", "triton")


def imported(source: str) -> list[str]:
    """The heavy packages that a program imports, as it names them."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return [name for name in names if name.split(".")[0] in HEAVY]


def main() -> None:
    lock, times, *command = sys.argv[1:]
    began = time.monotonic()
    script = command[0].endswith(".py")
    if script:
        for name in imported(Path(command[0]).read_text()):
            with contextlib.suppress(Exception):  # the program itself says what is missing
                importlib.import_module(name)
    held = os.open(lock, os.O_CREAT | os.O_RDWR)
    imports = time.monotonic() - began
    fcntl.flock(held, fcntl.LOCK_EX)
    began = time.monotonic()

    def on_exit() -> None:
        Path(times).write_text(
            json.dumps({"imports": imports, "seconds": time.monotonic() - began, "at": began})
        )

    if not script:
        code = subprocess.run(command).returncode
        on_exit()
        sys.exit(code if code >= 0 else 128 - code)
    atexit.register(on_exit)
    sys.argv = command
    sys.path[0] = str(Path(command[0]).parent)
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main()
