"""The recorder, built and injected into programs that use a CUPTI that is none (fake_cupti.c)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import fake_programs
import msgspec
import pytest

from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, UsageProblem
from ncu_toolkit.program.model import Trace
from ncu_toolkit.program.recording import recorder
from ncu_toolkit.program.recording.recorder import FIELDS, RecordOptions, read_recording, record
from ncu_toolkit.program.recording.step_run import redacted
from ncu_toolkit.program.traces.files import read_trace, write_trace

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
#: What the fake makes in a step: launches, and host calls by kind.
LAUNCHES, CALLS = 3, {"copy": 1, "launch": 3, "set": 1, "sync": 1}

Recorded = Callable[..., tuple[int, Path]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake library and the native program."""
    return fake_programs.build(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def recorded(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setenv("FAKE_CUPTI", str(made / "libcupti.so.13"))
    monkeypatch.setattr(
        recorder, "cupti_libraries", lambda command: (str(made / "libcupti.so.13"),)
    )

    def run(*words: str, asked: RecordOptions | None = None) -> tuple[int, Path]:
        command = words if "python" in words[0] else (str(made / "app"), *words)
        return record(command, tmp_path / "recording", asked), tmp_path / "recording"

    return run


def kinds(trace: Trace) -> dict[str, int]:
    return dict(Counter(call.kind for call in trace.calls))


def test_a_native_program(recorded: Recorded) -> None:
    code, folder = recorded("9")
    trace = read_recording(folder, "app")
    assert code == 0
    assert Counter(op.kind for op in trace.ops) == {"kernel": 27, "copy": 9, "set": 9}
    assert kinds(trace) == {kind: 9 * number for kind, number in CALLS.items()}
    first = trace.devices[0]
    assert (first.name, first.cc, first.sm_count, first.l2_bytes) == (
        "NVIDIA H200",
        (9, 0),
        132,
        50 << 20,
    )
    assert [mark.kind for mark in trace.marks] == ["range"] * 9
    assert trace.names[trace.marks[0].name] == "step"
    foo = next(shape for shape in trace.shapes if "foo" in shape.kernel)
    assert (foo.function, foo.grid, foo.block, foo.registers, foo.shared_static) == (
        "foo",
        (64, 1, 1),
        (256, 1, 1),
        32,
        1024,
    )
    assert {"lines", "shapes"} == set(trace.lacks)
    assert trace.notes == ()
    assert trace.program == "app"


def test_work_belongs_to_the_call_that_the_program_made(recorded: Recorded) -> None:
    trace = read_recording(recorded("2")[1])
    called = {
        trace.shapes[op.shape].function: trace.names[trace.calls[op.call].name]
        for op in trace.ops
        if op.kind == "kernel"
    }
    assert called["foo"] == "cudaLaunchKernel"  # and not the driver's, which it calls
    assert called["triton_poi_fused_add_0"] == "cuLaunchKernel"
    copies = [op for op in trace.ops if op.kind == "copy"]
    assert [(op.path, op.pinned, op.size) for op in copies] == [
        ("HtoD", False, 4096),
        ("HtoD", True, 4096),
    ]
    assert all(trace.calls[op.call].start <= op.start for op in trace.ops)


@pytest.mark.parametrize(
    ("how", "code", "note"),
    [
        ("return", 0, ""),
        ("fail", 7, ""),
        ("fork", 0, ""),
        ("kill", 128 + 9, "ended from outside"),
        ("unfinished", 0, "1 launches and copies had not ended"),
    ],
)
def test_ends(recorded: Recorded, how: str, code: int, note: str) -> None:
    found, folder = recorded("3", how)
    trace = read_recording(folder)
    assert found == code
    assert sum(op.kind == "kernel" for op in trace.ops) == 3 * LAUNCHES
    assert note in " ".join(trace.notes)
    assert bool(trace.notes) == bool(note)


def test_what_a_hard_exit_loses_is_reported(recorded: Recorded) -> None:
    code, folder = recorded(
        "3", "_exit", asked=RecordOptions(environment={"NCU_TOOLKIT_RECORD_PERIOD": "1"})
    )
    assert code == 3
    assert not any("ended\n" in path.read_text() for path in folder.glob("*.facts"))


def test_a_profiler_inside_the_program_is_reported(recorded: Recorded) -> None:
    """PyTorch's gives CUPTI its own clock and takes the records (seen: 16 of 90 launches)."""
    _, folder = recorded("3")
    (facts,) = folder.glob("*.facts")
    facts.write_text(
        facts.read_text().replace("ended\n", "clock 187499015476 1795533401429234271\nended\n")
    )
    notes = " ".join(read_recording(folder).notes)
    assert "another profiler began inside the program" in notes.lower()


def test_nothing_was_written_before_a_hard_exit(recorded: Recorded) -> None:
    _, folder = recorded("3")
    for path in folder.glob("*.records"):
        path.unlink()
    (facts,) = folder.glob("*.facts")
    facts.write_text(facts.read_text().replace("ended\n", ""))
    with pytest.raises(UsageProblem, match=r"ended by _exit, before anything.*a second or longer"):
        read_recording(folder)


def test_python_and_its_hard_exit(recorded: Recorded, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM + "os._exit(4)\n")
    code, folder = recorded(sys.executable, str(script))
    trace = read_recording(folder)
    assert (code, trace.notes) == (4, ())
    assert sum(op.kind == "kernel" for op in trace.ops) == 3 * LAUNCHES


PROGRAM = """import ctypes, os
library = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"])
library.InitializeInjection()
cupti = ctypes.CDLL(os.environ["FAKE_CUPTI"])

def inner(at):
    cupti.fake_step(at)

for at in range(3):
    inner(at)
"""


def newer_python() -> str:
    """A Python that has sys.monitoring; empty where there is none."""
    found = filter(None, (sys.executable, *map(shutil.which, ("python3.13", "python3.12"))))
    asked = ("-c", "import sys; sys.monitoring")
    works = (
        each
        for each in found
        if not subprocess.run([each, *asked], capture_output=True, check=False).returncode
    )
    return next(works, "")


def test_lines(recorded: Recorded, tmp_path: Path) -> None:
    python = newer_python()
    if not python:
        pytest.skip("sys.monitoring")
    script = tmp_path / "train.py"
    script.write_text(PROGRAM + "    cupti.fake_launch(b'after', 1)\n")
    trace = read_recording(recorded(python, str(script), asked=RecordOptions(lines=True))[1])
    lines = {
        trace.shapes[op.shape].function: trace.lines[trace.calls[op.call].line]
        for op in trace.ops
        if op.kind == "kernel"
    }
    assert lines["foo"] == "train.py:7"
    assert lines["after"] == "train.py:11"
    assert "lines" not in trace.lacks


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring")
def test_lines_need_a_newer_python(recorded: Recorded, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    trace = read_recording(
        recorded(sys.executable, str(script), asked=RecordOptions(lines=True))[1]
    )
    assert (
        "Lines are not known: RuntimeError: lines need Python 3.12 or newer, with its lock."
        in trace.notes
    )
    assert "lines" in trace.lacks


SAMPLED = RecordOptions(samples=True)
BUSY = """import threading, time

def heavy(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(200))

"""


def pythons() -> list[str]:
    """This Python, and 3.12 and 3.13 where they are: from 3.13 on a program takes its samples itself."""
    known = (Path.home() / ".pyenv" / "versions").glob("3.1[23].*/bin/python")
    found = [*(shutil.which(f"python3.{minor}") for minor in (12, 13)), *sorted(map(str, known))]
    asked, newer = ("-c", "import ctypes, sys; print(sys.version_info[:2])"), dict[str, str]()
    for each in filter(None, found):
        version = subprocess.run([each, *asked], capture_output=True, text=True, check=False).stdout
        newer.setdefault(version, each)
    newer.pop("", None)  # a shim of pyenv whose version is not chosen
    newer.pop(f"{sys.version_info[:2]}\n", None)
    return [sys.executable, *newer.values()]


def by_function(trace: Trace, *, worker: bool = False) -> Counter[str]:
    """Nanoseconds by the innermost function of the program's own file, of the process that uses the
    GPU or of the others."""
    time = Counter[str]()
    for sample in trace.samples:
        frames = [trace.frames[frame] for frame in trace.stacks[sample.stack]]
        own = [frame.function for frame in frames if frame.file == "train.py"]
        if bool(sample.process) == worker:
            time[own[-1] if own else ""] += sample.end - sample.start
    return time


@pytest.fixture(params=pythons())
def sampled(
    request: pytest.FixtureRequest, recorded: Recorded, tmp_path: Path
) -> Callable[..., Trace]:
    """A recorded program of each Python: `PROGRAM`, and some lines."""

    def run(text: str, *words: str, code: int = 0) -> Trace:
        script = tmp_path / "train.py"
        script.write_text(BUSY + PROGRAM + text)
        ended, folder = recorded(request.param, str(script), *words, asked=SAMPLED)
        assert ended == code
        return read_recording(folder)

    return run


def test_the_function_that_takes_the_time_has_the_samples(sampled: Callable[..., Trace]) -> None:
    trace = sampled("heavy(1)\ncupti.fake_step(9)\n")
    time = by_function(trace)
    assert time["heavy"] > 0.8 * time.total() > 0.4e9
    first, *rest = trace.samples
    assert all(one.end == two.start for one, two in zip(trace.samples, rest, strict=False))
    assert (first.process, {sample.thread for sample in trace.samples}) == (
        0,
        {trace.calls[0].thread},
    )
    assert trace.notes == ()
    stack = max(trace.samples, key=lambda sample: sample.end - sample.start).stack
    names = [trace.frames[frame].function for frame in trace.stacks[stack]]
    assert names[:2] == ["<module>", "heavy"]


def test_a_loop_has_its_time_between_calls_that_release_the_lock(
    sampled: Callable[..., Trace], tmp_path: Path
) -> None:
    """Before Python 3.13 all samples fell to the calls. On a core that others use a call may wait for it,
    so that one of three runs decides."""
    code = (
        "import zlib\n"
        "def release(data):\n    zlib.crc32(data)\n"
        "data = bytes(1 << 20)\n"
        "for _ in range(150):\n    heavy(0.004)\n    release(data)\n"
        "cupti.fake_step(9)\n"
    )
    parts = []
    while len(parts) < 3 and max(parts, default=0.0) <= 0.6:
        shutil.rmtree(tmp_path / "recording", ignore_errors=True)
        time = by_function(sampled(code))
        parts.append(time["heavy"] / (time["heavy"] + time["release"]))
    assert max(parts) > 0.6


@pytest.mark.parametrize("library", ["PyDLL", "CDLL"])
def test_a_call_of_c_has_its_time(sampled: Callable[..., Trace], library: str) -> None:
    """One that holds Python's lock, and one that lets go of it."""
    trace = sampled(
        f"def waits():\n    ctypes.{library}(None).usleep(100_000)\n\n"
        "for _ in range(5):\n    heavy(0.05)\n    waits()\nheavy(0.02)\n"
    )
    time = by_function(trace)
    assert time["waits"] == pytest.approx(0.5e9, rel=0.3)
    assert time["heavy"] > 0.1e9


@pytest.mark.parametrize("end", ["os._exit(4)", "os.kill(os.getpid(), 15)", "sys.exit(4)"])
def test_samples_of_a_program_that_ends_so(sampled: Callable[..., Trace], end: str) -> None:
    code = 128 + 15 if "kill" in end else 4
    trace = sampled(f"import sys\nheavy(0.8)\n{end}\n", code=code)
    assert 0.1e9 < by_function(trace)["heavy"] < 2.4e9


def test_a_program_that_ends_while_the_sampler_begins(
    sampled: Callable[..., Trace], tmp_path: Path
) -> None:
    for at in range(6):
        sampled(f"time.sleep({at} * 0.002)\n")
        shutil.rmtree(tmp_path / "recording")


def test_threads_that_call_cuda_are_sampled(sampled: Callable[..., Trace]) -> None:
    trace = sampled(
        "def launches():\n    cupti.fake_step(1)\n    heavy(2)\n\n"
        "thread = threading.Thread(target=launches)\nthread.start()\nthread.join()\n"
    )
    (other,) = {call.thread for call in trace.calls} - {trace.calls[0].thread}
    time = sum(
        sample.end - sample.start
        for sample in trace.samples
        if sample.thread == other
        and trace.frames[trace.stacks[sample.stack][-1]].function in ("heavy", "launches")
    )
    assert time > 0.5e9  # known from half a second on


LOADER = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

def transform(item):
    heavy(0.02)
    return item

def work(tasks, results):
    while (item := tasks.get()) is not None:
        results.put(transform(item))

def train(method, end):
    context = multiprocessing.get_context(method)
    tasks, results = context.Queue(), context.Queue()
    workers = [context.Process(target=work, args=(tasks, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for item in range(40):
        tasks.put(item)
    for _ in range(40):
        results.get()
    for worker in workers:
        worker.terminate() if end == "terminate" else tasks.put(None)
    for worker in workers:
        worker.join()
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        list(pool.map(transform, range(10)))
    if not os.fork():  # no worker
        heavy(0.1)
        os._exit(0)
    os.wait()
    os.system("true")

if __name__ == "__main__":
    import sys
    uses_cuda()
    train(*sys.argv[1:])
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("end", ["join", "terminate"])
def test_workers_of_a_loader(recorded: Recorded, tmp_path: Path, method: str, end: str) -> None:
    script = tmp_path / "train.py"
    cuda = "import ctypes, os\ndef uses_cuda():\n" + "".join(
        f"    {line}\n" for line in PROGRAM.splitlines()[1:4]
    )
    script.write_text(BUSY + cuda + "    cupti.fake_step(1)\n" + LOADER)
    for python in {sys.executable, pythons()[-1]}:
        code, folder = recorded(python, str(script), method, end, asked=SAMPLED)
        trace = read_recording(folder)
        assert code == 0
        assert {sample.process for sample in trace.samples} == {0, 1, 2, 3}
        time = by_function(trace, worker=True)
        # of one second; what a killed worker had not written is lost
        assert 0.3e9 < time["heavy"] < 3e9
        assert "get" not in time  # the library's functions are no file of the user's
        assert by_function(trace)["train"] > 0.2e9  # waits for them
        assert {op.process for op in trace.ops} == {0}
        shutil.rmtree(folder)


def test_other_processes_cost_nothing(recorded: Recorded, tmp_path: Path, made: Path) -> None:
    """Children that use no GPU and are no workers begin no thread and write no file."""
    script = tmp_path / "train.py"
    child = "import os; print(len(os.listdir('/proc/self/task')))"
    script.write_text(
        f"import subprocess, sys\nsubprocess.run([{str(made / 'app')!r}, '3'])\n"
        f"assert subprocess.check_output([sys.executable, '-c', {child!r}]) == b'1\\n'\n"
    )
    code, folder = recorded(sys.executable, str(script), asked=SAMPLED)
    assert code == 0
    assert not [*folder.glob("*.samples")]


def test_a_fork_while_samples_are_taken(sampled: Callable[..., Trace]) -> None:
    """From several threads, in a finalizer, and by a library of C."""
    trace = sampled(
        """import gc

def forks():
    for _ in range(20):
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)

class Forks:
    def __del__(self):
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)

threads = [threading.Thread(target=forks) for _ in range(3)]
for thread in threads:
    thread.start()
for at in range(20):
    it = Forks()
    it.self = it
    os.system("true")
heavy(0.1)
del it
gc.collect()
for thread in threads:
    thread.join()
"""
    )
    assert {sample.process for sample in trace.samples} == {0}


def test_samples_keep_no_object_alive(sampled: Callable[..., Trace]) -> None:
    sampled(
        """import gc, weakref

def made():
    exec("def local(): heavy(0.1)", names := {"heavy": heavy})
    names["local"]()
    return weakref.ref(names["local"].__code__), weakref.ref(names["local"])

known = made()
gc.collect()
assert [each() for each in known] == [None, None]
"""
    )


def test_samples_name_no_folder_of_the_machine(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a trace says may be published: files by their name, or from their package on."""
    package = tmp_path / "venv" / "lib" / "python3.11" / "site-packages" / "package"
    package.mkdir(parents=True)
    work = "def run(step):\n    step()\n"
    (package / "__init__.py").write_text(work)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "tools.py").write_text(work)
    script = tmp_path / "train.py"
    script.write_text(
        f"import sys\nsys.path[:0] = [{str(package.parent)!r}, {str(tmp_path / 'mine')!r}]\n"
        "import json, package, tools\n" + BUSY + PROGRAM + "class Net:\n    def go(self):\n        heavy(0.05)\n"
        "tools.run(lambda: package.run(Net().go))\n"
        "json.loads('[1]', object_hook=None, parse_int=lambda text: heavy(0.2))\n"
    )  # fmt: skip
    trace = read_recording(recorded(sys.executable, str(script), asked=SAMPLED)[1])
    known = {(frame.function, frame.file) for frame in trace.frames}
    assert {("Net.go", "train.py"), ("run", "tools.py")} <= known
    assert {("run", "site-packages/package/__init__.py"), ("loads", "json/__init__.py")} <= known
    stored = msgspec.json.encode(trace).decode()
    assert str(tmp_path) not in stored
    assert not [frame.file for frame in trace.frames if frame.file.startswith("/")]
    monkeypatch.setenv("LOGNAME", "tools")  # the user's name
    assert not [frame for frame in redacted(trace).frames if "tools" in frame.file]
    write_trace(trace, tmp_path / "a.ncu-trace")
    assert read_trace(tmp_path / "a.ncu-trace") == trace


def test_samples_that_are_cut_off_or_full(recorded: Recorded, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(BUSY + PROGRAM + "heavy(0.3)\n")
    _, folder = recorded(sys.executable, str(script), asked=SAMPLED)
    (path,) = folder.glob("*.samples")
    whole = read_recording(folder).samples
    text = path.read_text()
    path.write_text(text + "note the samples are full\nx\ns 1\nn 7\ns 17 1 99 1\ns 179")
    trace = read_recording(folder)
    assert trace.samples == whole
    assert trace.notes == ("The samples are full.",)
    path.write_text("")
    assert read_recording(folder).samples == ()


@pytest.mark.parametrize(
    ("asked", "others", "note"),
    [
        (RecordOptions(calls=("all",)), 2, ""),  # cudaGetDevice
        (RecordOptions(environment={"FAKE_OLD": "1"}), 2, ""),  # an old CUPTI records all calls
        (RecordOptions(environment={"FAKE_GROWN": "32"}), 0, ""),  # records of a newer one
        (RecordOptions(environment={"FAKE_LOST": "12"}), 0, "CUPTI lost 12 records."),
        (RecordOptions(calls=(), ranges=False), 0, ""),
    ],
)
def test_what_is_recorded(recorded: Recorded, asked: RecordOptions, others: int, note: str) -> None:
    trace = read_recording(recorded("2", asked=asked)[1])
    assert sum(op.kind == "kernel" for op in trace.ops) == 2 * LAUNCHES
    assert kinds(trace).get("other", 0) == others
    assert trace.notes == (note,) * bool(note)
    assert bool(trace.calls) == bool(trace.marks) == (asked.ranges)
    assert ({"host calls", "marks"} <= set(trace.lacks)) == (not asked.ranges)


def test_records_that_are_too_short_are_refused(recorded: Recorded) -> None:
    _, folder = recorded("2", asked=RecordOptions(environment={"FAKE_GROWN": "-80"}))
    with pytest.raises(InputProblem, match="no CUPTI known here"):
        read_recording(folder)


def test_a_full_recording_is_reported(recorded: Recorded) -> None:
    small = RecordOptions(environment={"NCU_TOOLKIT_RECORD_BYTES": "2000000"})
    _, folder = recorded("20000", asked=small)
    trace = read_recording(folder)
    assert "The recording is full (2000000 bytes): later work is missing." in trace.notes
    written = sum(path.stat().st_size for path in folder.glob("*.records"))
    assert 2_000_000 < written < 4_000_000


@pytest.mark.parametrize(
    ("status", "problem"),
    [("39", "another profiler"), ("15", "driver is too old"), ("999", "CUPTI_ERROR_UNKNOWN")],
)
def test_why_cupti_cannot_record(recorded: Recorded, status: str, problem: str) -> None:
    code, folder = recorded("2", asked=RecordOptions(environment={"FAKE_STATUS": status}))
    assert code == 0  # the program is not disturbed
    with pytest.raises(EnvironmentProblem, match=problem):
        read_recording(folder)


def test_code_is_kept_where_asked(recorded: Recorded) -> None:
    _, folder = recorded("2", asked=RecordOptions(code=True))
    assert [path.read_bytes()[:4] for path in folder.glob("*.cubin")] == [b"\177ELF"]


def test_a_program_is_ended_when_enough_is_recorded(recorded: Recorded) -> None:
    looked = []

    def enough(folder: Path) -> bool:
        looked.append(len(read_recording(folder).ops))
        return looked[-1] > 30

    code, folder = recorded("3", "wait", asked=RecordOptions(enough=enough))
    assert code == 0
    assert looked
    trace = read_recording(folder)
    assert len(trace.ops) > 30


def test_several_processes(recorded: Recorded, tmp_path: Path, made: Path) -> None:
    script = tmp_path / "launcher.py"
    script.write_text(
        f"import subprocess\nfor _ in range(2): subprocess.run([{str(made / 'app')!r}, '3'])\n"
    )
    trace = read_recording(recorded(sys.executable, str(script))[1])
    assert sorted({op.process for op in trace.ops}) == [0, 1]
    assert len(trace.devices) == 1  # by its UUID
    assert trace.notes == ("The program used the GPU from 2 processes.",)


def test_what_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageProblem, match="no program 'nowhere'"):
        record(["nowhere"], tmp_path)
    with pytest.raises(UsageProblem, match="no program to record"):
        record([], tmp_path)
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/other.so")
    with pytest.raises(UsageProblem, match="another profiler is injected"):
        record([sys.executable], tmp_path)


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCU_TOOLKIT_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match="no C compiler"):
        recorder.built()
    bad = tmp_path / "cc"
    bad.write_text("#!/bin/sh\necho 'recorder.c: no headers' >&2\nexit 1\n")
    bad.chmod(0o755)
    with pytest.raises(EnvironmentProblem, match=r"recorder\.c: no headers"):
        recorder.built()


@pytest.mark.parametrize(
    ("name", "kind"), [("7.facts", "fifo"), ("7.lines", "link"), ("x", "fifo")]
)
def test_what_is_no_regular_file_hangs_nothing(recorded: Recorded, name: str, kind: str) -> None:
    _, folder = recorded("3")
    os.mkfifo(folder / name) if kind == "fifo" else (folder / name).symlink_to("/dev/zero")
    with pytest.raises(InputProblem, match=f"'{name}' in the recording is not a regular file"):
        read_recording(folder)


def test_the_program_writes_into_no_link_or_fifo(
    made: Path, recorded: Recorded, tmp_path: Path
) -> None:
    """Names in the folder follow from the process."""
    (tmp_path / "recording").mkdir()
    (tmp_path / "other").touch()
    script = tmp_path / "a.py"
    script.write_text(
        "import os\nstem = f'recording/{os.getpid()}'\nos.mkfifo(f'{stem}.facts')\n"
        "os.mkfifo(f'{stem}-2.1.records')\nos.symlink('../other', f'{stem}-2.10.records')\n"
        f"os.execv({str(made / 'app')!r}, ['app', '3'])"
    )
    with contextlib.chdir(tmp_path):
        code, folder = recorded(sys.executable, str(script))
    assert code == 0
    assert (tmp_path / "other").read_bytes() == b""
    assert "records were lost" in next(folder.glob("*-2.facts")).read_text()


def test_the_libraries_that_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "venv" / "bin" / "python"
    own = (
        tmp_path
        / "venv"
        / "lib"
        / "python3.12"
        / "site-packages"
        / "nvidia"
        / "cu13"
        / "lib"
        / "libcupti.so.13"
    )
    toolkit = tmp_path / "cuda" / "extras" / "CUPTI" / "lib64" / "libcupti.so.12"
    for path in (program, own, toolkit):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"")
    program.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    found = recorder.cupti_libraries([str(program)])
    assert found[0] == str(own)
    assert str(toolkit) in found
    assert found[-1] == "libcupti.so"


HEADERS = Path("/usr/local/cuda/include/cupti_activity.h")


@pytest.mark.skipif(not HEADERS.is_file(), reason="no CUPTI headers here")
def test_fields_lie_as_the_headers_say(tmp_path: Path) -> None:
    import re

    text = HEADERS.read_text()
    structs = {
        1: "Memcpy",
        2: "Memset",
        4: "API",
        8: "Device",
        10: "Kernel",
        12: "Marker",
        22: "MemcpyPtoP",
    }
    lines = []
    for kind, name in structs.items():
        versions = re.findall(rf"^}} (CUpti_Activity{name}\d*);", text, re.MULTILINE)
        last = max(versions, key=lambda each: int(re.sub(r"\D", "", each) or 0))
        for each, at, form in FIELDS[kind]:
            if (kind, each) == (12, "objectId"):
                each = "objectId.pt.threadId"
            size = int(form[1:])
            lines.append(f'_Static_assert(offsetof({last}, {each}) == {at}, "{last}.{each}");')
            lines.append(
                f'_Static_assert(sizeof((({last} *)0)->{each}) == {size}, "{last}.{each}");'
            )
    source = tmp_path / "layout.c"
    source.write_text(
        "#include <stddef.h>\n#include <cuda.h>\n#include <cupti_activity.h>\n" + "\n".join(lines)
    )
    words = ["cc", "-w", "-fsyntax-only", "-I", str(HEADERS.parent), str(source)]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
