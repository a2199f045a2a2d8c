"""Where the profiler's report module comes from, and in which process it reads."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import recorded

from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem
from ncu_toolkit.kernel.report import ncu_action, reader

SYSTEM_LIBRARY = "libstdc++.so.6"


def test_no_report_module_is_an_environment_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ImportError(f"No module named '{name}'")

    ncu_action._loaded.cache_clear()
    monkeypatch.setattr(ncu_action.importlib, "import_module", refuse)
    try:
        with pytest.raises(EnvironmentProblem, match="pip install ncu-report"):
            ncu_action.module()
    finally:
        ncu_action._loaded.cache_clear()


def run(script: str, *, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A script in a new process, which has loaded nothing yet; modules in `path` come before the
    installed ones."""
    own = Path(reader.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, filter(None, (path, own))))}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("before", "here"),
    [
        pytest.param("", True, marks=pytest.mark.slow),
        (f"import ctypes; ctypes.CDLL({SYSTEM_LIBRARY!r})", False),
    ],
)
def test_beside_other_native_code_a_report_is_read_in_a_process_of_its_own(
    tmp_path: Path, before: str, here: bool
) -> None:
    """An older module that is loaded after CuPy brings the process down, so it is not loaded there;
    what is read is the same."""
    report = recorded.small_recording(tmp_path / "run") / "profile.ncu-rep"
    done = run(
        f"""
        import sys
        {before}
        from ncu_toolkit.kernel.report import reader as ncu_rep
        print(len(ncu_rep.load_report({str(report)!r}).profiles), "ncu_report" in sys.modules)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(reader.load_report(report).profiles)), str(here)]


def test_errors_and_results_come_through_from_the_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recorded.small_recording(tmp_path / "run")
    report = folder / "profile.ncu-rep"
    here = reader.load_report(report)
    monkeypatch.setattr(ncu_action, "fits_here", lambda: False)
    assert reader.load_report(report) == here
    with pytest.raises(InputProblem, match=r"there is no file"):
        reader.load_report(tmp_path / "none.ncu-rep")


def test_a_module_that_dies_there_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    report = recorded.small_recording(tmp_path / "run") / "profile.ncu-rep"
    crashing = tmp_path / "modules"
    crashing.mkdir()
    (crashing / "ncu_report.py").write_text(
        "import os, signal\ndef load_report(path):\n    os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    done = run(
        f"""
        import ctypes
        ctypes.CDLL({SYSTEM_LIBRARY!r})
        from ncu_toolkit.kernel.report import reader as ncu_rep
        from ncu_toolkit.base.core.errors import InputProblem
        try:
            ncu_rep.load_report({str(report)!r}).profiles
        except InputProblem as error:
            print(error.message)
        """,
        path=crashing,
    )
    assert done.returncode == 0, done.stderr
    assert "profile.ncu-rep' ended with signal 11 (SIGSEGV)" in done.stdout
