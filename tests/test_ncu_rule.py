"""The rule that runs inside Nsight Compute, against a stand-in of its module and the launches of a real report."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import recorded

from ncu_toolkit import ncu_module, ncu_rep, ncu_rules
from ncu_toolkit.diagnose import diagnose

FILE = recorded.ROOT / "sections" / "NcuToolkitRule.py"
pytestmark = pytest.mark.skipif(recorded.FP32 is None, reason="the FP32 recording is not shipped")


class Frontend:
    """Takes what a rule posts, and checks it as the real one does: numbers are numbers, ids are those it gave."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str, str]] = []
        self.speedups: list[tuple[int, int, float]] = []
        self.focus: list[tuple[int, str, float]] = []

    def message(self, kind: str, text: str, name: str) -> int:
        assert isinstance(text, str)
        assert "\n" not in text
        assert "@" not in text
        self.messages.append((kind, text, name))
        return len(self.messages) - 1

    def speedup(self, message: int, kind: int, value: float) -> bool:
        assert 0 <= message < len(self.messages)
        assert 0 < value < 100
        self.speedups.append((message, kind, value))
        return True

    def focus_metric(self, message: int, name: str, value: float, severity: int, info: str) -> bool:
        assert isinstance(value, float)
        self.focus.append((message, name, value))
        return True


class Action:
    """A launch as rules see it: without what only files have."""

    def __init__(self, action: Any) -> None:
        self._action = action

    def __getattr__(self, name: str) -> Any:
        if name in ("rule_results_as_dicts", "sections", "timelines"):
            raise AttributeError(name)
        return getattr(self._action, name)


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The stand-in of NvRules; `action` is what the rule is given."""
    module: Any = ModuleType("NvRules")
    module.MsgType = SimpleNamespace(NONE="none", OK="ok", OPTIMIZATION="optimization", WARNING="warning", ERROR="error")
    module.IFrontend = SimpleNamespace(SpeedupType_LOCAL=1, SpeedupType_GLOBAL=2, Severity_SEVERITY_DEFAULT=0)
    module.frontend, module.action = Frontend(), None
    chosen = SimpleNamespace(action_by_idx=lambda index: module.action)
    module.get_context = lambda handle: SimpleNamespace(frontend=lambda: module.frontend, range_by_idx=lambda index: chosen)
    monkeypatch.setitem(sys.modules, "NvRules", module)
    return module


def load(path: Path = FILE) -> Any:
    spec = importlib.util.spec_from_file_location("NcuToolkitRule", path)
    assert spec is not None
    assert spec.loader is not None
    rule = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rule)
    return rule


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = recorded.small_recording(tmp_path_factory.mktemp("rule") / "run")
    return ncu_module.module().load_report(str(folder / "profile.ncu-rep"))


@pytest.fixture
def action(report: Any) -> Any:
    return Action(report.range_by_idx(0).action_by_idx(0))


def test_rule_says_what_the_profiler_asks_of_it(rules: ModuleType) -> None:
    rule = load()
    assert rule.get_identifier().startswith(ncu_rules.OWN_RULES)
    assert rule.get_name()
    assert rule.get_description()
    sections = {path.stem for path in (recorded.ROOT / "sections").glob("*.section")}
    assert rule.get_section_identifier() in sections


def test_verdict_is_ours_with_its_speedup(rules: Any, action: Any) -> None:
    rules.action = action
    load().apply(object())
    primary = diagnose(ncu_rep.profile_from_action(action)).primary
    kind, text, _ = rules.frontend.messages[0]
    assert kind == "optimization"
    assert text.startswith(primary.summary[:40])
    assert " ".join(primary.arithmetic[-1].split()) in text
    assert rules.frontend.speedups[0] == (0, rules.IFrontend.SpeedupType_GLOBAL, pytest.approx(primary.saved * 100))
    assert rules.frontend.focus


def test_action_gives_the_profile_of_the_file(action: Any) -> None:
    assert recorded.FP32 is not None
    held = ncu_rep.profile_from_action(action)
    kept = recorded.run_of(recorded.FP32).profiles[0]
    assert held.readings == kept.readings
    assert held.mix == kept.mix
    assert [row.opcode for row in held.instructions] == [row.opcode for row in kept.instructions]
    assert held.rules == ()


@pytest.mark.parametrize("given", [None, SimpleNamespace(), SimpleNamespace(metric_names=lambda: ())])
def test_no_traceback_whatever_happens(rules: Any, given: Any) -> None:
    rules.action = given
    load().apply(object())
    assert all(kind in ("warning", "none") for kind, _, _ in rules.frontend.messages)
    assert rules.frontend.messages


def test_no_traceback_without_a_frontend(rules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "get_context", lambda handle: 1 / 0)
    load().apply(object())
    assert rules.frontend.messages == []


def test_no_traceback_where_the_frontend_fails(rules: Any, action: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rules.action = action
    monkeypatch.setattr(rules.frontend, "message", lambda *a: 1 / 0)
    load().apply(object())


def test_package_is_found_from_a_checkout_and_from_an_installation(rules: Any, tmp_path: Path) -> None:
    package = tmp_path / "site" / "ncu_toolkit"
    (package / "sections_data").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    installed = package / "sections_data" / FILE.name
    installed.write_text(FILE.read_text(encoding="utf-8"), encoding="utf-8")
    assert load(installed)._home() == str(tmp_path / "site")
    assert load()._home() == str(recorded.ROOT)
    alone = tmp_path / "elsewhere" / FILE.name
    alone.parent.mkdir()
    alone.write_text(FILE.read_text(encoding="utf-8"), encoding="utf-8")
    assert load(alone)._home() == ""


#: Extension modules that lie outside the interpreter's binary on Ubuntu: the Python embedded in Nsight Compute 2025.3 cannot load them
#: (seen on an H200 machine: "_lzma…so: undefined symbol: PyExc_MemoryError").
_OUTSIDE = (
    "_asyncio _bz2 _contextvars _crypt _ctypes _curses _dbm _decimal _hashlib _json _lsprof _lzma _multibytecodec _multiprocessing "
    "_posixshmem _queue _sqlite3 _ssl _uuid _zoneinfo mmap readline resource termios"
)
_IMPORTS = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in {_OUTSIDE.split()!r}:
            raise ImportError("cannot load " + name)
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
from ncu_toolkit.diagnose import diagnose
from ncu_toolkit.ncu_rep import profile_from_action
from ncu_toolkit.rules import load_rules
print(len(load_rules()))
"""


def test_the_verdict_needs_no_extension_module_that_an_embedded_python_lacks() -> None:
    home = str(Path(__file__).resolve().parents[1])
    done = subprocess.run([sys.executable, "-I", "-S", "-c", _IMPORTS, home], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 25
