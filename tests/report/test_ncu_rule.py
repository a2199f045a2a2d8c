"""The rule that runs inside Nsight Compute, against a stand-in of its module and the launches of a
real report."""

from __future__ import annotations

import importlib.util
import lzma
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import recorded

from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.explain.verdict import card
from ncu_toolkit.kernel.report import ncu_action

FILE = recorded.ROOT / "sections" / "NcuToolkitRule.py"
pytestmark = pytest.mark.skipif(recorded.FP32 is None, reason="the FP32 recording is not shipped")


class Frontend:
    """Takes what a rule posts, and checks it as the real one does: numbers are numbers, ids are
    those it gave."""

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
    module.MsgType = SimpleNamespace(
        NONE="none", OK="ok", OPTIMIZATION="optimization", WARNING="warning", ERROR="error"
    )
    module.IFrontend = SimpleNamespace(
        SpeedupType_LOCAL=1, SpeedupType_GLOBAL=2, Severity_SEVERITY_DEFAULT=0
    )
    module.frontend, module.action = Frontend(), None
    chosen = SimpleNamespace(action_by_idx=lambda index: module.action)
    module.get_context = lambda handle: SimpleNamespace(
        frontend=lambda: module.frontend, range_by_idx=lambda index: chosen
    )
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
    return ncu_action.module().load_report(str(folder / "profile.ncu-rep"))


@pytest.fixture(scope="module")
def report_as_recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Every launch of the FP32 recording as NVIDIA's module shows it."""
    assert recorded.FP32 is not None
    plain = tmp_path_factory.mktemp("recorded") / "profile.ncu-rep"
    plain.write_bytes(lzma.decompress((recorded.FP32 / "profile.ncu-rep.xz").read_bytes()))
    return [action for chosen in ncu_action.module().load_report(str(plain)) for action in chosen]


@pytest.fixture
def action(report: Any) -> Any:
    return Action(report.range_by_idx(0).action_by_idx(0))


def test_verdict_is_ours_with_its_speedup(rules: Any, action: Any) -> None:
    rules.action = action
    load().apply(object())
    profile = ncu_action.profile_from_action(action)
    diagnosis = diagnose(profile)
    primary, shown = diagnosis.primary, card(profile, diagnosis)
    kind, text, heading = rules.frontend.messages[0]
    assert (kind, heading) == ("optimization", shown.title)
    assert text.startswith(shown.gain[:1].upper() + shown.gain[1:])
    assert f"({shown.sureness})" in text
    for part in (shown.summary, shown.where[0].place, shown.do[0]):
        assert " ".join(part.replace("@", "").split()) in text
    assert rules.frontend.speedups[0] == (
        0,
        rules.IFrontend.SpeedupType_GLOBAL,
        pytest.approx(primary.saved * 100),
    )
    assert rules.frontend.focus


def test_action_gives_the_profile_of_the_file(action: Any) -> None:
    assert recorded.FP32 is not None
    held = ncu_action.profile_from_action(action)
    kept = recorded.run_of(recorded.FP32).profiles[0]
    assert held.readings == kept.readings
    assert held.mix == kept.mix
    assert [row.opcode for row in held.instructions] == [row.opcode for row in kept.instructions]
    assert held.rules == ()


@pytest.mark.parametrize(
    "given", [None, SimpleNamespace(), SimpleNamespace(metric_names=lambda: ())]
)
def test_no_traceback_whatever_happens(rules: Any, given: Any) -> None:
    rules.action = given
    load().apply(object())
    assert all(kind in ("warning", "none") for kind, _, _ in rules.frontend.messages)
    assert rules.frontend.messages


def test_no_traceback_where_the_frontend_fails(
    rules: Any, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules.action = action
    monkeypatch.setattr(rules.frontend, "message", lambda *a: 1 / 0)
    load().apply(object())


@pytest.mark.slow
def test_the_profiler_itself_gave_our_verdict(rules: Any, report_as_recorded: Any) -> None:
    """The FP32 ladder was recorded by ncu 2025.3.1 with the rule in place: what it posted there is
    what the file is diagnosed to."""
    assert recorded.FP32 is not None
    identifier, same = load().get_identifier(), []
    for action, profile in zip(
        report_as_recorded, recorded.run_of(recorded.FP32).profiles, strict=True
    ):
        posted = [
            entry["rule_message"]
            for entry in action.rule_results_as_dicts()
            if entry["rule_identifier"] == identifier
        ]
        assert posted, action.name()
        assert "No verdict" not in posted[0]["message"]
        same.append(posted[0]["title"] == card(profile, diagnose(profile)).title)
    assert len(same) > 40
    assert same.count(False) <= len(same) // 20, (
        "rules may change after a recording, but not most verdicts"
    )


def test_instructions_that_cannot_be_read_cost_the_instructions(
    rules: Any, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules.action = action
    monkeypatch.setattr(ncu_action.ncu_source, "instructions", lambda *_, **__: 1 / 0)
    load().apply(object())
    (_, output, _), (kind, verdict, _) = rules.frontend.messages[:2]
    assert "without its instructions: ZeroDivisionError" in output
    assert kind in ("ok", "optimization")
    assert verdict


#: Compiled modules that every CPython has in its binary.
_CORE = (
    "_abc _ast _codecs _collections _functools _imp _io _locale _operator _signal _sre _stat _string _symtable _thread _tokenize _tracemalloc "
    "_typing _warnings _weakref atexit builtins errno faulthandler gc itertools marshal posix pwd sys time"
)
#: Others that the Python embedded in Nsight Compute 2025.3.1 did import on an H200 machine, before
#: it failed on `_posixsubprocess`. It has no `_lzma` either ("undefined symbol:
#: PyExc_MemoryError"), so that nothing else may be counted on.
_SEEN = "_bisect _blake2 _md5 _opcode _random _sha1 _sha2 _sha256 _sha3 _sha512 _struct math zlib"
_IMPORTS = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in specs if spec is not None), None)
        compiled = spec is not None and (spec.origin == "built-in" or str(spec.origin).endswith(".so"))
        if compiled and name not in {(_CORE + " " + _SEEN).split()!r}:
            raise ModuleNotFoundError("cannot load " + name)
        return spec
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.explain.verdict import card
from ncu_toolkit.kernel.report.ncu_action import profile_from_action
print(len(load_rules()))
"""


def test_the_verdict_needs_no_extension_module_that_an_embedded_python_lacks() -> None:
    home = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _IMPORTS, home],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 25
    # what goes on from there imports nothing more
    for module in (
        "kernel/report/ncu_action",
        "kernel/report/ncu_source",
        "kernel/diagnosis/engine",
        "kernel/sass/attribution",
        "kernel/sass/branches",
        "kernel/diagnosis/figures",
        "kernel/diagnosis/time_model",
        "base/document/card",
        "kernel/explain/verdict",
    ):
        text = Path(home, "ncu_toolkit", f"{module}.py").read_text(encoding="utf-8")
        assert re.findall(r"^ +(?:import \w+|from [\w.]+ import)", text, re.MULTILINE) == [], module
