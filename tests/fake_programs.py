"""A native program that uses no GPU, a CUPTI that is none, and an ncu that writes a shipped report."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import report_files

TESTS = Path(__file__).parent


def build(folder: Path) -> Path:
    """The library and the program (`app`) in a folder, which is returned; needs a C compiler."""
    cc = ["cc", "-O1", "-Wall", "-Wextra", "-Werror"]
    library = [
        *cc,
        "-shared",
        "-fPIC",
        str(TESTS / "fake_cupti.c"),
        "-o",
        str(folder / "libcupti.so.13"),
    ]
    program = [*cc, str(TESTS / "fake_cuda_program.c"), "-o", str(folder / "app"), "-ldl"]
    for words in (library, program):
        subprocess.run(words, check=True, timeout=60)
    return folder


def write_ncu(folder: Path) -> Path:
    """An ncu in a folder: it keeps its words in `words`, says what lies in `says` and fails then, else
    writes a report of two launches."""
    (folder / "base.ncu-rep").write_bytes(report_files.first_launches(2))
    ncu = folder / "ncu"
    ncu.write_text(
        f"#!{sys.executable}\nimport pathlib, shutil, sys\n"
        "words, here = sys.argv[1:], pathlib.Path(__file__).parent\n"
        "if words == ['--version']: print('Version 2025.3.1.0 (build 1)'); sys.exit()\n"
        "(here / 'words').write_text('\\n'.join(words))\n"
        "if (here / 'says').is_file(): print((here / 'says').read_text()); sys.exit(1)\n"
        "shutil.copyfile(here / 'base.ncu-rep', words[words.index('--export') + 1])\n"
        "print('==PROF== Profiling \"naive\": 0%....100% - 14 passes')\n"
    )
    ncu.chmod(0o755)
    return ncu


def write_running_ncu(folder: Path, launches: int = 2) -> Path:
    """An ncu in a folder that runs the program: it adds its words to `ran`, says so where the program
    fails or `none` lies there, else writes a report of some launches."""
    (folder / "base.ncu-rep").write_bytes(report_files.first_launches(launches))
    ncu, here = folder / "ncu", shlex.quote(str(folder))
    ncu.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "Version 2025.3.1.0 (build 1)"; exit; fi\n'
        f'echo "$*" >> {here}/ran\n'
        'while [ "$1" != --export ]; do shift; done\n'
        'out=${2%.ncu-rep}; shift 2; "$@"; code=$?\n'
        'if [ $code != 0 ]; then echo "==ERROR== The application returned an error code ($code)."; exit 1; fi\n'
        f'if [ -e {here}/none ]; then echo "==WARNING== No kernels were profiled."; exit; fi\n'
        "echo '==PROF== Profiling \"naive\": 0%....100% - 14 passes'\n"
        f'cp {here}/base.ncu-rep "$out.ncu-rep"\n'
    )
    ncu.chmod(0o755)
    return ncu
