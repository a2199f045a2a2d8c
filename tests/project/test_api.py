"""The Python interface, the examples of its document, and `profile -- program` with an ncu that is
a script."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import program_traces
import pytest
import report_files

import ncu_toolkit
from ncu_toolkit import api
from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    InputProblem,
    KernelProblem,
    UsageProblem,
)
from ncu_toolkit.kernel.gpu import collect
from ncu_toolkit.kernel.gpu.runner import Session
from ncu_toolkit.kernel.report import redact
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.program.recording import program_run
from ncu_toolkit.program.traces.files import write_trace

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "python-api.md"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "report.ncu-rep"
    path.write_bytes(report_files.first_launches(2))
    return path


def test_load_diagnose_and_frames(report: Path) -> None:
    found = ncu_toolkit.load(report)
    assert len(found) == len(list(found)) == 2
    assert found[0].launch.function == "naive"
    assert len(repr(found[0])) < 150, "which launch it is, not all of its data"
    assert "naive" in repr(found[0])
    verdicts = found.diagnose()
    assert [len(verdict.findings) > 0 for verdict in verdicts] == [True, True]
    frame = found.to_frame()
    assert list(frame["bottleneck"]) == [verdict.primary.bottleneck for verdict in verdicts]
    assert {"kernel", "duration", "predicted_speedup"} <= set(frame.columns)
    assert len(found.to_frame("instructions")) == sum(
        len(profile.instructions) for profile in found
    )
    assert {"metric", "value", "presence"} <= set(found.to_frame("metrics").columns)
    quick = ncu_toolkit.load(str(report), instructions=False)
    assert quick[0].instructions == ()
    empty = quick.to_frame("instructions")
    assert len(empty) == 0
    assert {"kernel", "sass", "samples", "source_file", "line"} <= set(empty.columns), (
        "as the document's example uses them"
    )
    assert list(empty.sort_values("samples").head(10)["sass"]) == []
    nothing = ncu_toolkit.Report("r", ())
    assert {"kernel", "duration", "dram_utilization", "bottleneck"} <= set(
        nothing.to_frame().columns
    )
    assert {"metric", "value"} <= set(nothing.to_frame("metrics").columns)
    with pytest.raises(ValueError, match="no table 'nope'"):
        found.to_frame("nope")  # type: ignore[call-overload]
    with pytest.raises(InputProblem):
        ncu_toolkit.load("/no/such.ncu-rep")


def test_two_reports_are_compared(report: Path, tmp_path: Path) -> None:
    found = ncu_toolkit.compare(report, ncu_toolkit.load(report))
    assert isinstance(found, ncu_toolkit.ReportComparison)
    assert repr(found) == "<ReportComparison of 2 kernels>"
    assert "2 kernels, none changed" in str(found)
    bundle = found._repr_mimebundle_()
    assert bundle == {"text/plain": str(found), "text/html": found._repr_html_()}
    assert "2 kernels, none changed" in bundle["text/html"]
    assert "<script" not in bundle["text/html"]
    frame = found.to_frame()
    assert sorted(frame["kernel"]) == ["coalesced", "naive"]
    assert list(frame["change"]) == [0.0, 0.0]
    assert (frame["old_us"] > 0).all()
    page = found.to_html(tmp_path / "new" / "comparison.html")
    text = page.read_text(encoding="utf-8")
    assert "2 kernels, none changed" in text
    assert "Content-Security-Policy" in text
    assert 'src="' not in text


def test_public_names_are_listed_and_there() -> None:
    assert dir(ncu_toolkit) == sorted(ncu_toolkit.__all__)
    assert all(hasattr(ncu_toolkit, name) for name in dir(ncu_toolkit))


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    code = "import sys, ncu_toolkit; heavy = {'pandas', 'plotly', 'ncu_report', 'click'} & set(sys.modules); assert not heavy, heavy"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ncu_toolkit.nothing  # noqa: B018


class Calls:
    """A GPU library that writes down what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def note(self, text: str) -> None:
        self.calls.append(text)

    def library(self) -> api._Library:
        return api._Library(
            lambda: self.note("start"),
            lambda: self.note("stop"),
            lambda name: self.note(f"push {name}"),
            lambda: self.note("pop"),
        )


def test_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()
    monkeypatch.setattr(api, "find_library", calls.library)

    @ncu_toolkit.profile
    def outer(n: int) -> int:
        """Kept."""
        with ncu_toolkit.profile("inner"):
            return n + 1

    assert (outer(1), outer.__doc__) == (2, "Kept.")
    name = "test_ranges.<locals>.outer"
    assert calls.calls == ["start", f"push {name}", "push inner", "pop", "pop", "stop"], (
        "the profiler starts once for nested ranges"
    )
    calls.calls.clear()

    @ncu_toolkit.profile("fails")
    def fails() -> None:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - any of its
        fails()
    assert calls.calls == ["start", "push fails", "pop", "stop"]


def test_ranges_go_through_the_library_that_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()
    profiler = types.SimpleNamespace(
        start=lambda: calls.note("start"), stop=lambda: calls.note("stop")
    )
    nvtx = types.SimpleNamespace(
        RangePush=lambda name: calls.note(f"push {name}"), RangePop=lambda: calls.note("pop")
    )
    device = types.SimpleNamespace(synchronize=lambda: calls.note("wait"))
    cuda = types.SimpleNamespace(
        is_available=lambda: True, profiler=profiler, nvtx=nvtx, Device=lambda: device
    )
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with ncu_toolkit.profile("a"):
        calls.note("work")
    assert calls.calls == ["start", "push a", "work", "pop", "wait", "stop"]
    calls.calls.clear()
    runtime = types.SimpleNamespace(
        cudaProfilerStart=lambda: calls.note("torch start"),
        cudaProfilerStop=lambda: calls.note("torch stop"),
    )
    torch_nvtx = types.SimpleNamespace(
        range_push=lambda name: calls.note(f"torch push {name}"),
        range_pop=lambda: calls.note("torch pop"),
    )
    torch_cuda = types.SimpleNamespace(
        is_available=lambda: True,
        cudart=lambda: runtime,
        nvtx=torch_nvtx,
        synchronize=lambda: calls.note("torch wait"),
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=torch_cuda))
    with ncu_toolkit.profile("b"):
        pass
    assert calls.calls == ["torch start", "torch push b", "torch pop", "torch wait", "torch stop"]


@pytest.mark.slow
@pytest.mark.skipif(not DOCUMENT.is_file(), reason="docs/python-api.md is not in this installation")
@pytest.mark.parametrize("library", ["torch", "cupy", "nvtx", "none"])
def test_steps_are_marked_where_something_can(
    monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    done: list[str] = []
    names = {"torch": ("range_push", "range_pop"), "cupy": ("RangePush", "RangePop"), "nvtx": ("push_range", "pop_range")}  # fmt: skip
    for name, (push, pop) in names.items():
        calls = types.SimpleNamespace(**{push: done.append, pop: lambda: done.append("end")})
        cuda = types.SimpleNamespace(is_available=lambda: True, nvtx=calls)
        module = calls if name == "nvtx" else types.SimpleNamespace(cuda=cuda)
        monkeypatch.setitem(sys.modules, name, module if name == library else None)  # type: ignore[arg-type]
    monkeypatch.setattr(api, "_nvtx_library", lambda: None)
    with ncu_toolkit.step():
        done.append("work")

    @ncu_toolkit.step()
    def body() -> None:
        raise KeyError("a step that fails")

    with pytest.raises(KeyError, match="a step that fails"):
        body()
    step = ["ncu_toolkit.step", "work", "end", "ncu_toolkit.step", "end"]
    assert done == (["work"] if library == "none" else step)


def test_without_any_library_steps_are_not_marked() -> None:
    with ncu_toolkit.step():
        pass


def test_examples_of_the_document_run(report: Path, tmp_path: Path) -> None:
    examples = re.findall(
        r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert len(examples) >= 3
    (tmp_path / "report.ncu-rep").write_bytes(report.read_bytes())
    write_trace(program_traces.gpt(), tmp_path / "train.ncu-trace")
    for example in examples:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        done = subprocess.run(
            [sys.executable, "-c", example],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{example}\n{done.stderr}"


# ---- profile -- program


@pytest.fixture
def fake_ncu(tmp_path: Path, report: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ncu that runs the program, writes a report where it is told to, and says what the file
    `says` holds."""
    path = tmp_path / "bin" / "ncu"
    path.parent.mkdir()
    path.write_text(
        textwrap.dedent(f"""\
        #!{sys.executable}
        import pathlib, shutil, signal, subprocess, sys
        here = pathlib.Path(__file__).parent
        words = sys.argv[1:]
        if words == ["--version"]:
            print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 1) (public-release)")
            sys.exit()
        (here / "words").write_text("\\n".join(words))
        at = words.index("--export")
        process = subprocess.Popen(words[at + 2 :])
        code = process.wait()
        says = here / "says"
        print(says.read_text() if says.is_file() else "==PROF== Profiling \\"naive\\": 0%....100% - 14 passes\\n" * 2)
        if not says.is_file():
            shutil.copyfile({str(report)!r}, words[at + 1])
        if code:
            print(f"==ERROR== The application returned an error code ({{code}}).")
        sys.exit(1 if code else 0)
        """)
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("NCU", str(path))
    return path


def profiled(
    command: Sequence[str],
    reports: Path,
    timeout: float = 60,
    redact: bool = False,
    redact_source: bool = False,
    **launches: Any,
) -> Session:
    """A program profiled as `ncu-toolkit profile -- command` does it."""
    request = collect.Request(
        command=tuple(command), **{"launch_count": program_run.DEFAULT_LAUNCHES, **launches}
    )
    return program_run.profile(
        program_run.ProgramJob(request, reports, timeout, redact, redact_source)
    )


def test_a_program_becomes_a_run(fake_ncu: Path, tmp_path: Path) -> None:
    done = profiled(
        [sys.executable, "-c", "print('hello')"],
        tmp_path / "reports",
        kernel_filter="na.*",
        launch_skip=3,
        launch_count=2,
        nvtx_include=("step/",),
    )
    words = (fake_ncu.parent / "words").read_text().splitlines()
    for pair in (
        ("--kernel-name", "regex:na.*"),
        ("--launch-skip", "3"),
        ("--launch-count", "2"),
        ("--nvtx-include", "step/"),
        ("--set", "ladder"),
    ):
        assert words[words.index(pair[0]) + 1] == pair[1]
    assert "--profile-from-start" not in words
    assert done.failures == []
    assert any("--launch-skip 3 --launch-count 2)" in note for note in done.notes)
    assert any("Profiled 2 of at least 5 launches" in note for note in done.notes)
    run = store.load_run(done.folder, live=True)
    assert [profile.launch.function for profile in run.profiles] == ["naive", "coalesced"]
    assert store.load_manifest(done.folder).checksums.keys() == {"profile.ncu-rep"}
    assert "hello" in (done.folder / "profile.log").read_text()


def test_what_was_profiled_before_a_crash_is_kept(fake_ncu: Path, tmp_path: Path) -> None:
    done = profiled(
        [sys.executable, "-c", "raise SystemExit(7)"],
        tmp_path / "reports",
    )
    assert isinstance(done.failures[0], KernelProblem)
    assert "exit code 7" in str(done.failures[0])
    assert len(store.load_run(done.folder, live=True).profiles) == 2


def test_a_program_that_hangs_is_ended_with_its_children(
    fake_ncu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "GRACE_SECONDS", 20.0)
    code = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)']); time.sleep(99)"
    started = time.monotonic()
    done = profiled(
        [sys.executable, "-c", code],
        tmp_path / "reports",
        timeout=2,
    )
    assert time.monotonic() - started < 20
    assert isinstance(done.failures[0], EnvironmentProblem)
    assert "within 2 s" in str(done.failures[0])
    assert "fewer launches (--launch-count)" in str(done.failures[0])
    assert "rungs" not in str(done.failures[0]), "a program has none"
    assert len(store.load_run(done.folder, live=True).profiles) == 2, (
        "ncu wrote its report when the program ended"
    )


def test_nothing_profiled_says_why(fake_ncu: Path, tmp_path: Path) -> None:
    (fake_ncu.parent / "says").write_text("==WARNING== No kernels were profiled.\n")
    with pytest.raises(UsageProblem) as refused:
        profiled(
            [sys.executable, "-c", "pass"],
            tmp_path / "reports",
            kernel_filter="zzz",
            ranges_only=True,
        )
    assert "Only marked ranges" in str(refused.value)
    assert "'zzz'" in str(refused.value)
    with pytest.raises(UsageProblem, match=r"no kernel was profiled\. The program's output is in "):
        profiled([sys.executable, "-c", "pass"], tmp_path / "reports", ranges_only=False)


@pytest.mark.parametrize(
    ("command", "kernel_filter"),
    [
        ((), ""),
        (("./nothing",), ""),
        (("true",), "("),
    ],
)
def test_bad_requests_are_refused_before_a_folder_is_made(
    tmp_path: Path, command: tuple[str, ...], kernel_filter: str
) -> None:
    with pytest.raises(UsageProblem):
        profiled(command, tmp_path / "reports", kernel_filter=kernel_filter)
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(
    ("script", "marked"),
    [
        ("import ncu_toolkit\n@ncu_toolkit.profile\ndef f(): ...", True),
        ("torch.cuda.cudart().cudaProfilerStart()", True),
        ("from ncu_toolkit import profile", True),
        ("print(1)", False),
    ],
)
def test_marks_in_a_script_are_seen(tmp_path: Path, script: str, marked: bool) -> None:
    path = tmp_path / "train.py"
    path.write_text(script)
    assert program_run.marks_ranges(["python", str(path), "--epochs", "1"]) is marked
    assert program_run.marks_ranges(["python", "-m", "train"]) is False


@pytest.mark.slow
def test_interrupt(fake_ncu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the program; the report is written and the run kept."""
    monkeypatch.setattr(collect, "GRACE_SECONDS", 20.0)
    threading.Timer(6, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    done = profiled(
        [sys.executable, "-c", "import time; time.sleep(99)"],
        tmp_path / "reports",
    )
    assert done.interrupted
    assert len(store.load_run(done.folder, live=True).profiles) == 2


def test_the_kept_report_of_a_program_is_redacted(fake_ncu: Path, tmp_path: Path) -> None:
    """Nothing that is kept names a folder of this machine or holds source; the figures stay."""
    reports = tmp_path / "reports"
    private = tmp_path / "private"
    private.mkdir()
    script = private / "train.py"
    script.write_text("print('hello from', __file__)")
    plain = profiled(
        [sys.executable, str(script)],
        reports,
    )
    done = profiled([sys.executable, str(script)], reports, redact=True, redact_source=True)
    marks = (str(tmp_path).encode(), b"blockIdx")
    assert all(
        any(mark in path.read_bytes() for path in plain.folder.iterdir()) for mark in marks
    ), "what is to go was there"
    assert [
        path.name for path in done.folder.iterdir() for mark in marks if mark in path.read_bytes()
    ] == []
    before, after = (
        store.load_run(folder, live=True).profiles for folder in (plain.folder, done.folder)
    )
    assert list(map(redact.figures, before)) == list(map(redact.figures, after))
    assert "hello from" in (done.folder / "profile.log").read_text()
    assert "train.py" in store.load_manifest(done.folder).commands[0]


def test_arguments_and_host_names_are_not_kept(
    fake_ncu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token on the command line and the name of the machine, however short and in any case, are in
    no file of a redacted run: not in its log, its manifest or its pages."""
    from ncu_toolkit.program.pages.publish import publish_run

    monkeypatch.setattr(socket, "gethostname", lambda: "q7")
    monkeypatch.setattr(socket, "getfqdn", lambda: "q7.lab.example.org")
    script = tmp_path / "train.py"
    message = "print('hello on q7, Q7 and q7.LAB.example.org, not on q77; given', sys.argv[1:])"
    script.write_text(f"import sys\n{message}")
    arguments = ["--token=s3cretvalue", "/srv/secret data/set", "-k", "hush-hush"]
    secrets = (b"s3cretvalue", b"secret data", b"hush-hush", b"LAB.example")
    found = {}
    for redacted in (False, True):
        reports = tmp_path / f"reports{redacted}"
        done = profiled([sys.executable, str(script), *arguments], reports, redact=redacted)
        publish_run(done.folder, reports)
        files = [path for path in reports.rglob("*") if path.is_file()]
        assert any(path.suffix == ".html" for path in files)
        found[redacted] = {
            secret for secret in secrets for path in files if secret in path.read_bytes()
        }
    assert found[False] == {*secrets}, "all of it was there"
    assert found[True] == set()
    log = (done.folder / "profile.log").read_text()
    assert "hello on xx, xx and xx.xxx.xxxxxxx.xxx, not on q77" in log
    (command,) = store.load_manifest(done.folder).commands
    assert command.startswith("ncu --set ladder")
    assert command.endswith("--export profile.ncu-rep train.py")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python3", "-c", "token = 's3cret'"), "python3"),
        (("python3", "-u", "-W", "ignore", "/a/train.py", "--token=s3cret"), "train.py"),
        (("python3", "-m", "train", "s3cret"), "train"),
        (("/usr/bin/python3",), "python3"),
        (("./app", "s3cret"), "app"),
    ],
)
def test_a_run_is_never_called_by_an_argument(command: tuple[str, ...], name: str) -> None:
    assert program_run.name_of(command) == name


def test_a_refused_program_leaves_no_folder(fake_ncu: Path, tmp_path: Path) -> None:
    (fake_ncu.parent / "says").write_text(
        "==ERROR== Profiling failed because a driver resource was unavailable.\n"
    )
    with pytest.raises(EnvironmentProblem, match="another profiler holds") as refused:
        profiled(
            [sys.executable, "-c", "raise SystemExit(1)"],
            tmp_path / "reports",
        )
    assert "End it" in refused.value.remedy
    assert list((tmp_path / "reports").iterdir()) == []


def test_what_a_program_prints_is_not_taken_for_ncus_words(fake_ncu: Path, tmp_path: Path) -> None:
    code = "print('Address already in use'); print('No space left on device')"
    done = profiled(
        [sys.executable, "-c", code],
        tmp_path / "reports",
    )
    assert done.failures == []


def test_a_disk_that_is_full(
    fake_ncu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the log of ncu, in a file of the toolkit, and while the folder is made."""
    code = "import sys; sys.exit('OSError: [Errno 28] No space left on device')"
    (fake_ncu.parent / "says").write_text("==PROF== Connected\n")
    with pytest.raises(EnvironmentProblem, match="the disk is full") as full:
        profiled(
            [sys.executable, "-c", code],
            tmp_path / "reports",
        )
    assert "Free space" in full.value.remedy
    monkeypatch.setattr(files.tempfile, "mkstemp", _full)
    with pytest.raises(
        EnvironmentProblem, match="cannot be written: No space left on device"
    ) as full:
        store.write_atomic(tmp_path / "x", b"")
    assert "Free space" in full.value.remedy
    monkeypatch.setattr(store.Path, "mkdir", _full)
    with pytest.raises(EnvironmentProblem, match="cannot be made: No space left on device"):
        store.new_run_folder(tmp_path / "reports", "x")
    monkeypatch.setattr(collect.Path, "open", _full)
    with pytest.raises(EnvironmentProblem, match="cannot be written: No space left on device"):
        collect.run(collect.NcuJob(collect.Ncu("true", ""), collect.Request(tmp_path / "x"), 1))


def _full(*arguments: object, **named: object) -> None:
    raise OSError(28, "No space left on device")
