"""Applies optimization settings to a program (hooks.py) before its script begins, as $NCU_TOOLKIT_SWITCHES
says: a folder with plan.json, into which PID.switches is written, a line of JSON each time something
is known: which of the watched modules the program imported, whether a switch changed anything, and at
the end which parts of frameworks it had imported.

It runs in programs of any environment and imports nothing of ncu-toolkit. Whatever fails in here is
written down, and the program goes on without."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import inspect
import json
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

#: Modules by which a switch applies to a program or not.
WATCHED = ("torch", "jax", "cupy", "triton", "numba.cuda", "warp")
#: While this file is in the folder, the program waits once it has imported a framework.
WAIT = "wait"
#: Calls of models known already after which no more are looked for.
_ENOUGH = 50


def plain(path: str, flags: int) -> int:
    """Opens a file to write into, and neither follows a link nor waits for the reader of a FIFO."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


class Setting:
    """What a switch's hook is given: its value, and how it changes the program. What it changed is
    reported once."""

    def __init__(self, folder: str, switch: str, value: str, kernel: str) -> None:
        self.folder, self.switch, self.value = folder, switch, value
        self.kernel = re.compile(kernel)
        self.reported: set[str] = set()

    def applied(self) -> None:
        """Say that something was changed."""
        self._tell("applied", "")

    def cannot(self, why: str) -> None:
        """Say why something was not."""
        self._tell("cannot", why)

    def named(self, kernel: str) -> bool:
        """Whether a kernel is one that the user asked for."""
        return self.kernel.search(kernel) is not None

    def on_models(self, torch: Any, visit: Callable[[Any], None]) -> None:
        """Call `visit` with each module on the GPU that the program itself calls, not another module,
        before its first call.

        PyTorch's own call stands in its place again while a module runs, and for good once no new
        ones come: compilers look for it."""
        kind = torch.nn.Module
        original = kind.__call__
        known: dict[int, Any] = {}
        since = 0

        def call(module: Any, *arguments: Any, **named: Any) -> Any:
            nonlocal since
            kind.__call__ = original
            try:
                since += 1
                if id(module) not in known:
                    known[id(module)], since = module, 0
                    if any(each.is_cuda for each in module.parameters()):
                        guarded(visit, module, self)
                return original(module, *arguments, **named)
            finally:
                if since < _ENOUGH:
                    kind.__call__ = call

        kind.__call__ = call

    def on_construction(
        self, kind: Any, change: Callable[[dict[str, Any]], bool], keep: str = ""
    ) -> None:
        """Before an object of a class is made, let `change` change the arguments, by name; it says
        whether it did. If the class refuses them, the object is made as the program asked.

        `keep` names an argument that may be an iterator, which a second try would find empty."""
        original = kind.__init__
        signature = inspect.signature(original)

        @functools.wraps(original)
        def made(instance: Any, *arguments: Any, **named: Any) -> None:
            if type(instance).__init__ is not made:  # a class of the user's own calls its base
                original(instance, *arguments, **named)
                return
            bound = signature.bind(instance, *arguments, **named)
            if keep and not isinstance(bound.arguments.get(keep), (list, tuple, dict)):
                bound.arguments[keep] = list(bound.arguments[keep])
            asked = dict(bound.arguments)
            try:
                if change(bound.arguments):
                    original(*bound.args, **bound.kwargs)
                    self.applied()
                    return
            except Exception as error:
                self.cannot(f"{kind.__name__} refuses it: {error}")
            bound.arguments.clear()
            bound.arguments.update(asked)
            original(*bound.args, **bound.kwargs)

        kind.__init__ = made

    def on_launches(self, kind: Any, name: str) -> None:
        """Give an argument of launches of Triton's kernels the switch's value."""
        original = kind.run

        @functools.wraps(original)
        def run(kernel: Any, *arguments: Any, **named: Any) -> Any:
            if self.named(getattr(kernel, "__name__", "")):
                named[name] = int(self.value)
                self.applied()
            return original(kernel, *arguments, **named)

        kind.run = run

    def _tell(self, what: str, why: str) -> None:
        if what + why not in self.reported:
            self.reported.add(what + why)
            tell(self.folder, {"switch": self.switch, what: why or True})


def tell(folder: str, fact: dict[str, Any]) -> None:
    """Write a fact down; a full disk is no reason to disturb the program."""
    try:
        path = os.path.join(folder, f"{os.getpid()}.switches")
        with open(path, "a", encoding="utf-8", errors="replace", opener=plain) as file:
            file.write(json.dumps(fact) + "\n")
    except OSError:
        pass


class _Finder:
    """Calls hooks after modules were imported for the first time, and `turn` after a framework that no
    other imports."""

    def __init__(
        self, hooks: dict[str, list[Callable[[Any], None]]], turn: Callable[[str], None]
    ) -> None:
        self.hooks, self.turn, self.nested = hooks, turn, 0

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        hooks = self.hooks.pop(name, None)
        if hooks is None:
            return None
        spec = importlib.util.find_spec(name)
        loader = spec.loader if spec is not None else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def run(module: Any) -> None:
            self.nested += 1
            try:
                execute(module)
                for hook in hooks:
                    hook(module)
                if self.nested == 1 and name in WATCHED:
                    self.turn(name)
            finally:
                self.nested -= 1

        try:
            loader.exec_module = run  # type: ignore[method-assign]
        except AttributeError:  # a loader of C
            pass
        return spec


def start(folder: str) -> None:
    """Apply the settings of the plan in `folder`. Raises OSError, ValueError: there is none."""
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
        plan = json.load(file)
    hooks: dict[str, list[Callable[[Any], None]]] = {
        name: [functools.partial(_imported, folder, name)] for name in WATCHED
    }
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hooks.py")
    place = importlib.util.spec_from_file_location("_ncu_toolkit_hooks", path)
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    for each in plan["switches"]:
        setting = Setting(folder, each["id"], each["value"], plan["kernel"])
        hook = getattr(module, each["id"].replace("-", "_"))
        for name in each["on"]:
            change = functools.partial(hook, setting=setting)
            hooks.setdefault(name, []).append(functools.partial(guarded, change, setting=setting))
    turn = functools.partial(_turn, folder, plan["parts"])
    sys.meta_path.insert(0, _Finder(hooks, turn))
    atexit.register(_parts, folder, os.getpid())


def _imported(folder: str, name: str, module: Any) -> None:
    """Note a framework."""
    tell(folder, {"module": name})


def _turn(folder: str, parts: list[str], name: str) -> None:
    """Wait for this run's turn before the GPU is used. Meanwhile import the parts of the framework, and
    of Triton, that the program will import later, as PyTorch's optimizers import its compiler."""
    wait, parent = os.path.join(folder, WAIT), os.getppid()
    able = [each for each in parts if _top(each) in (_top(name), "triton")]
    for part in able if os.path.exists(wait) else ():
        if part not in sys.modules:
            try:
                importlib.import_module(part)
            except (Exception, SystemExit):  # the program says itself what is missing
                pass
    while os.path.exists(wait) and os.getppid() == parent:
        time.sleep(0.005)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _parts(folder: str, pid: int) -> None:
    """Note which parts of frameworks were imported, in their order."""
    tops = {*map(_top, WATCHED)}
    parts = [name for name in [*sys.modules] if _top(name) in tops]
    if parts and os.getpid() == pid:
        tell(folder, {"parts": parts})


def guarded(change: Callable[..., None], what: Any, setting: Setting) -> None:
    """Change something; why it failed is reported, and the program goes on."""
    try:
        change(what)
    except Exception as error:
        setting.cannot(f"{type(error).__name__}: {error}")
