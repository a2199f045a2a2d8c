"""Starts the Python parts of the recorder and of `try` in a program, then the sitecustomize that it
hides. The only file of its folder: the program could import others by mistake.

Nothing here may disturb the program: whatever fails is written to the folder."""

import importlib.util
import os
import sys
import traceback

_HERE = os.path.dirname(os.path.abspath(__file__))


def _load(name: str, path: str) -> None:
    found = importlib.util.spec_from_file_location(name, path)
    if found is not None and found.loader is not None:
        module = importlib.util.module_from_spec(found)
        sys.modules[name] = module
        found.loader.exec_module(module)


def _start(folder: str, name: str) -> None:
    """Begin; failures go to PID.error."""
    if not folder:
        return
    try:
        _load(f"_ncu_toolkit_{name}", os.path.join(os.path.dirname(_HERE), f"{name}.py"))
        sys.modules[f"_ncu_toolkit_{name}"].start(folder)
    except BaseException:
        try:
            path = os.path.join(folder, f"{os.getpid()}.error")
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
                traceback.print_exc(file=file)
        except OSError:
            pass


def _hidden() -> None:
    for entry in sys.path:
        path = os.path.join(entry or os.curdir, "sitecustomize.py")
        if os.path.abspath(entry or os.curdir) != _HERE and os.path.isfile(path):
            del sys.modules["sitecustomize"]
            _load("sitecustomize", path)
            return


_start(os.environ.get("NCU_TOOLKIT_RECORD", ""), "python")
_start(os.environ.get("NCU_TOOLKIT_SWITCHES", ""), "switching")
_hidden()
