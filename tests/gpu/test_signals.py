"""A signal in each phase of `profile -- PROGRAM`, and kill -9: no process of the program is left, and
what was recorded until then is kept."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM

import fake_programs
import pytest
import recorded

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
#: Functions that hang in the phases in which no program runs.
HANGS = {
    "choosing": "ncu_toolkit.program.recording.step_run:choose",
    "reading": "ncu_toolkit.program.pages.step_page:analyze",
    "pages": "ncu_toolkit.program.pages.step_page:write_program_page",
}
MAIN = """
import importlib, pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # not if ours is ignored
from ncu_toolkit.kernel.gpu import cuda
from ncu_toolkit.program.recording import recorder
recorder.cupti_libraries = lambda command: (LIBRARY,)
cuda.gpu_uuid, cuda.driver_version = lambda: "", lambda: "580"
def hang(*_, **__):
    pathlib.Path("reached").touch()
    time.sleep(60)
module, _, name = HANG.partition(":")
if name: setattr(importlib.import_module(module), name, hang)
from ncu_toolkit.__main__ import run
run()
"""
#: It starts a process with its own session, and becomes a program that works until it is ended.
PROGRAM = """
import os, pathlib, subprocess, sys
word, app, how = sys.argv[1:]
sleep = [sys.executable, "-S", "-c", "import time; time.sleep(60)", word]
if how == "wait":
    subprocess.Popen(sleep, start_new_session=True, stderr=subprocess.DEVNULL)
    subprocess.Popen(sleep, stderr=subprocess.DEVNULL)
    pathlib.Path("reached").touch()
os.execv(app, [app, "9", how, word])
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_programs.build(tmp_path_factory.mktemp("fake"))


def until(what: Callable[[], object], seconds: float = 40) -> bool:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def running(word: str) -> list[str]:
    """Command lines of processes with a word in them; a zombie has none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_text(errors="replace")
        except OSError:
            continue
        found += [line.replace("\0", " ")] * (word in line)
    return found


@pytest.mark.parametrize(
    ("phase", "how"),
    [
        *((phase, SIGINT) for phase in ("building", "recording", "choosing", "ncu", "reading", "pages")),
        ("recording", SIGTERM), *((phase, SIGKILL) for phase in ("recording", "ncu")),
    ],
)  # fmt: skip
def test_one_signal_ends_it(made: Path, tmp_path: Path, phase: str, how: signal.Signals) -> None:
    word = f"signals-{os.getpid()}-{phase}-{how.name}"
    app, library, script = made / "app", made / "libcupti.so.13", tmp_path / "train.py"
    script.write_text(PROGRAM)
    ncu, compiler = fake_programs.write_ncu(tmp_path), tmp_path / "bin" / "cc"
    hangs = f"import pathlib, subprocess, sys; p = subprocess.Popen({[sys.executable, str(script), word, str(app), 'wait']!r}); p.wait()"
    compiler.parent.mkdir()
    if phase == "building":
        compiler.write_text(f"#!{sys.executable}\n{hangs}\n")
        compiler.chmod(0o755)
    if phase == "ncu":
        ncu.write_text(ncu.read_text().replace("shutil.copyfile", f"{hangs}; shutil.copyfile"))
    cache = tmp_path / "cache" if phase == "building" else recorded.CACHE
    environment = {
        **os.environ, "FAKE_CUPTI": str(library), "NCU": str(ncu), "PYTHONPATH": str(recorded.ROOT), "NCU_TOOLKIT_CACHE": str(cache),
        "PATH": f"{compiler.parent}:{os.environ['PATH']}", "TMPDIR": str(tmp_path),
    }  # fmt: skip
    program = (str(script), word, str(app), "wait" if phase == "recording" else "return")
    main = f"LIBRARY, HANG = {str(library)!r}, {HANGS.get(phase, '')!r}\n{MAIN}"
    with subprocess.Popen(
        [sys.executable, "-c", main, "profile", "--", sys.executable, *program],
        env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert until(lambda: (tmp_path / "reached").exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        if phase == "recording":  # CUPTI's records are written twice a second
            assert until(lambda: [*tmp_path.glob("ncu-toolkit-record-*/*.10.records")])
        process.send_signal(how)
        out, err = process.communicate(timeout=40)
    assert until(lambda: not running(word), 10), running(word)
    assert process.returncode == (-how if how == SIGKILL else 128 + how), out + err
    traces = [*tmp_path.glob("reports/*/program.ncu-trace")]
    if how != SIGKILL:
        assert "Traceback" not in err
        assert err.splitlines()[-1].startswith("error: interrupted"), err
        assert bool(traces) == (phase != "building")
        assert not traces or str(traces[0].parent.name) in err.splitlines()[-1]
        assert not [*tmp_path.glob("ncu-toolkit-record-*")]
    if phase == "recording" and how != SIGKILL:
        assert "where the step goes" in out
        assert not (tmp_path / "words").exists(), "ncu was run"
