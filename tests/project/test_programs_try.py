"""The programs whose switches are tried on a GPU: each can be started, and none is of the sealed half."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.field import half
from benchmarks.programs import short, try_all
from ncu_toolkit.diagnosis.switches import switches
from ncu_toolkit.gpu.trying import variants


@pytest.mark.parametrize("name", try_all.PROGRAMS)
def test_it_can_be_started(name: str, tmp_path: Path) -> None:
    job = try_all.job_of(name, tmp_path)
    words = [*job.command, *job.build]
    files = [Path(word) for word in words if word.endswith((".py", ".cu"))]
    assert files
    assert all(each.is_file() for each in files)
    if Path(short.__file__) in files:
        text = files[-1].read_text()
        assert short.changed(text, [word for word in words if "=" in word]) != text
    assert half(name) == "development" or not any("pairs" in each.parts for each in files)
    variants(try_all.PROGRAMS[name][1].split(), built=bool(job.build))


def test_every_switch_is_tried() -> None:
    named = {
        word.partition(":")[0] for _, words in try_all.PROGRAMS.values() for word in words.split()
    }
    assert {each.id for each in switches().values() if not each.build} <= named
    assert ("-G", "") in try_all.PROGRAMS.values()  # --all takes those of compilers


def test_other_constants(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("BLOCKS = 6\nif __name__ == '__main__':\n    print(BLOCKS, __file__)\n")
    words = [sys.executable, short.__file__, str(program)]
    done = subprocess.run([*words, "BLOCKS=2"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", str(program)]
    failed = subprocess.run([*words, "STEPS=2"], capture_output=True, text=True, check=False)
    assert "no constant STEPS" in failed.stderr
