"""What runs under ncu: `python -m ncu_toolkit.kernel.gpu.target PLAN`. Verifies and launches each case of a
plan, one profiler range a launch.

Progress goes to a file, a line a step, so that the parent shows it and knows after a crash what was
finished. A stop file ends the program after the current case, so that ncu writes its report."""

import contextlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import (
    EXIT_OK,
    EXIT_USAGE,
    InputProblem,
    KernelProblem,
    ToolkitError,
)
from ncu_toolkit.base.model.codec import document, from_plain, open_document, to_plain
from ncu_toolkit.base.model.run import RunCase

_PLAN = "-plan.json"


@dataclass(frozen=True)
class Plan:
    """The cases of one run of ncu, in order. No case after the first is begun once `seconds` are
    over; None for all cases."""

    cases: tuple[RunCase, ...]
    seconds: float | None = None


@dataclass(frozen=True)
class CaseStep:
    """One line of progress.

    `case`: index in the plan. `state`: started, profiled, failed (wrong result or launch error),
    skipped (cannot run here), stopped (asked to), paused (the time is up)."""

    case: int
    state: str
    message: str = ""


def plan_path(folder: Path, stem: str) -> Path:
    return folder / f"{stem}{_PLAN}"


def progress_path(plan: Path) -> Path:
    return plan.with_name(f"{plan.name.removesuffix(_PLAN)}-progress.jsonl")


def stop_path(plan: Path) -> Path:
    return plan.with_name(f"{plan.name.removesuffix(_PLAN)}-stop")


def write_plan(plan: Plan, path: Path) -> None:
    path.write_text(json.dumps(document("plan", plan), indent=1), encoding="utf-8")


def read_plan(path: Path) -> Plan:
    """A plan. Raises InputProblem, or OSError where the file cannot be read."""
    return from_plain(Plan, open_document("plan", files.read_json(path), str(path)))


def read_progress(plan: Path) -> list[CaseStep]:
    """Every whole line of a plan's progress; a line cut off by a crash is left out, since its step
    did not finish."""
    path, steps = progress_path(plan), []
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    for line in text.splitlines():
        with contextlib.suppress(InputProblem):
            steps.append(from_plain(CaseStep, files.parse_json(line, path)))
    return steps


def add_step(plan: Path, case: int, state: str, message: str = "") -> None:
    """Append a line to a plan's progress."""
    with progress_path(plan).open("a", encoding="utf-8") as sink:
        sink.write(json.dumps(to_plain(CaseStep(case, state, message))) + "\n")


def run_plan(path: Path) -> None:
    """Run every case of a plan; one that fails is reported and the rest goes on."""
    from ncu_toolkit.kernel.gpu import cuda
    from ncu_toolkit.kernel.gpu.launch import Workspace, bind_verified, explained
    from ncu_toolkit.kernel.gpu.selection import operation_of, rung_of, size_of

    plan = read_plan(path)
    cuda.disable_tf32()
    cp = cuda.cupy()
    began = time.monotonic()
    space: Workspace | None = None
    key: tuple[str, ...] = ()
    for index, case in enumerate(plan.cases):
        if stop_path(path).exists():
            add_step(path, index, "stopped")
            return
        if index and plan.seconds is not None and time.monotonic() - began > plan.seconds:
            add_step(path, index, "paused")
            return
        add_step(path, index, "started")
        try:
            rung = rung_of(case)
            wanted = (case.family, case.size, case.dtype, operation_of(rung))
            if space is None or wanted != key:
                space = None
                cp.get_default_memory_pool().free_all_blocks()
                space = Workspace(rung, size_of(case), case.dtype)
                key = wanted
            _profile(bind_verified(rung, space, case.parameters), case, cp)
        except KernelProblem as error:
            add_step(path, index, "failed", str(error))
            if not cuda.context_works():
                add_step(path, index + 1, "paused")
                return
        except ToolkitError as error:
            add_step(path, index, "skipped", str(error))
        except Exception as error:
            known = explained(error, case.label)
            if known is None or isinstance(known, KernelProblem):
                raise  # The GPU's context is lost: the next process goes on.
            add_step(path, index, "skipped", str(known))
        else:
            add_step(path, index, "profiled")


def _profile(runnable: Any, case: RunCase, cp: Any) -> None:
    def start() -> None:
        cp.cuda.profiler.start()
        cp.cuda.nvtx.RangePush(case.marker)

    def stop() -> None:
        cp.cuda.nvtx.RangePop()
        cp.cuda.profiler.stop()

    runnable.run_profiled(start, stop)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m ncu_toolkit.kernel.gpu.target PLAN", file=sys.stderr)
        return EXIT_USAGE
    try:
        run_plan(Path(arguments[0]))
    except ToolkitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
