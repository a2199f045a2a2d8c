"""compute-sanitizer (memcheck, racecheck, initcheck) over every rung at its small test sizes: `make
sanitize`.

    python tests/gpu/sanitize.py [FAMILY | FAMILY/RUNG] ...

One process a family, dtype and tool; the sanitizer names the kernel of each error. Exit code 0
clean, 2 no such family or rung, 3 no sanitizer or GPU, 5 errors found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from picks import best, picks_of

from ncu_toolkit.base.core.errors import EXIT_ENVIRONMENT, EXIT_KERNEL, EXIT_OK, EXIT_USAGE
from ncu_toolkit.base.model.run import RunCase
from ncu_toolkit.kernel.gpu import cuda
from ncu_toolkit.kernel.gpu.runner import TARGET
from ncu_toolkit.kernel.gpu.selection import case_of
from ncu_toolkit.kernel.gpu.target import Plan, read_progress, write_plan
from ncu_toolkit.kernel.ladder.catalogue import load_families
from ncu_toolkit.kernel.ladder.problems import Case, Problem, Size, problem_for
from ncu_toolkit.kernel.ladder.rung import Rung

sys.path.append(str(Path(__file__).resolve().parents[1] / "ladder"))
from family_sizes import further_sizes, verified_sizes

TOOLS = ("memcheck", "racecheck", "initcheck")
#: Sizes up to this many compulsory bytes: the tools slow a kernel a hundredfold.
SMALL_BYTES = 3e6
#: The same where a model chooses: only then are there several tiles to cut, and steps to share.
MODELLED_BYTES = 1e7


def main(chosen: list[str]) -> int:
    tool = shutil.which("compute-sanitizer")
    if tool is None or not cuda.available():
        print(
            "error: compute-sanitizer or a GPU is missing here. Run this on a machine with the CUDA toolkit and a GPU",
            file=sys.stderr,
        )
        return EXIT_ENVIRONMENT
    device = cuda.device()
    dirty = 0
    families = load_families()
    known = set(families) | {
        f"{name}/{rung.name}" for name, family in families.items() for rung in family.rungs
    }
    if unknown := set(chosen) - known:
        print(
            f"error: there is no {', '.join(sorted(unknown))}. `ncu-toolkit list` shows families and rungs",
            file=sys.stderr,
        )
        return EXIT_USAGE
    for name, family in families.items():
        problem = problem_for(name)
        rungs = [
            rung for rung in family.rungs if not rung.library and not rung.unsupported_on(device.cc)
        ]
        rungs = [
            rung for rung in rungs if not chosen or {name, f"{name}/{rung.name}"} & set(chosen)
        ]
        if not rungs:
            continue
        for dtype in problem.dtypes:
            cases = _cases(problem, rungs, dtype, device.sm_count)
            for check in TOOLS:
                dirty += _run(tool, check, f"{name} {dtype}", cases)
    print(f"{'clean' if not dirty else f'{dirty} runs with errors'}")
    return EXIT_KERNEL if dirty else EXIT_OK


def _cases(problem: Problem, rungs: Sequence[Rung], dtype: str, sm_count: int) -> list[RunCase]:
    """The rungs at their small sizes as their headers say, and in other forms where a model chooses
    among such."""

    def fits(size: Size, rung: Rung, limit: float) -> bool:
        return problem.compulsory_bytes(Case(size, dtype, rung.problem)) <= limit

    sizes = [problem.parse_size(size) for size in verified_sizes(problem)]
    cases = [
        case_of(rung, size, dtype)
        for size in sizes
        for rung in rungs
        if fits(size, rung, SMALL_BYTES)
    ]
    for rung in rungs:
        for further in further_sizes(problem).get(rung.name, ()):
            cases.append(case_of(rung, problem.parse_size(further), dtype))
        for size in sizes:
            if picks_of(rung) and fits(size, rung, MODELLED_BYTES):
                ranked = rung.modelled(size.as_dict(), sm_count)
                chosen = [best(ranked, pick) for pick in picks_of(rung)]
                once = {tuple(each.items()): each for each in chosen}
                cases += [case_of(rung, size, dtype, each) for each in once.values()]
    return cases


def _run(tool: str, check: str, label: str, cases: list[RunCase]) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        plan = Path(scratch) / "x-plan.json"
        write_plan(Plan(tuple(cases)), plan)
        words = [
            tool,
            "--tool",
            check,
            "--error-exitcode",
            "99",
            "--print-limit",
            "20",
            "--report-api-errors",
            "no",
            sys.executable,
            *TARGET,
            str(plan),
        ]
        path = os.pathsep.join(
            [
                str(Path(__file__).resolve().parents[2]),
                *filter(None, [os.environ.get("PYTHONPATH")]),
            ]
        )
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": path},
        )
        steps = read_progress(plan)
    text = done.stdout + done.stderr
    ran = sum(step.state == "profiled" for step in steps)
    failed = [step for step in steps if step.state == "failed"]
    kernels = sorted(
        set(re.findall(r"\bat (?:void )?([A-Za-z_]\w*)\(", text))
        | set(re.findall(r"in (?:kernel )?([A-Za-z_]\w*)(?: \+|\()", text))
    )
    summary = next(
        (line.strip("= ") for line in reversed(text.splitlines()) if "SUMMARY" in line),
        f"no summary, exit code {done.returncode}",
    )
    print(
        f"{check:10} {label:24} {ran} cases: {summary}"
        + (f" in {', '.join(kernels)}" if done.returncode else ""),
        flush=True,
    )
    for step in failed[:5]:
        case = cases[step.case]
        print(f"    {case.label} {dict(case.parameters) or ''}: {step.message}")
    if done.returncode:
        print(
            "\n".join(
                "    " + line
                for line in text.splitlines()
                if line.startswith("=========") and line.strip("= ")
            )[:4000]
        )
    return int(done.returncode != 0 or bool(failed) or ran == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
