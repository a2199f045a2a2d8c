"""What runs under ncu: `python -m ncu_toolkit.gpu.target PLAN`. Builds, verifies and launches each
case of a plan, one profiler range a launch.

Progress goes to a file, a line a step, so that the parent shows it and knows after a crash what was
finished. A stop file beside the plan ends the ladder after the current case, so that ncu still
writes its report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncu_toolkit.core import files
from ncu_toolkit.core.errors import EXIT_OK, EXIT_USAGE, InputProblem, KernelProblem, ToolkitError
from ncu_toolkit.model.codec import document, from_plain, open_document
from ncu_toolkit.model.run import marker


@dataclass(frozen=True)
class PlannedCase:
    """One case of a plan; `size` is the family's size text."""

    family: str
    rung: str
    size: str
    dtype: str
    overrides: Mapping[str, int] = field(default_factory=dict)

    @property
    def marker(self) -> str:
        """The NVTX range its launches are found by."""
        return marker(self.family, self.rung, self.size, self.dtype)

    @property
    def label(self) -> str:
        return f"{self.family}/{self.rung} at {self.size}" + (
            "" if self.dtype in ("float32", "") else f" {self.dtype}"
        )


@dataclass(frozen=True)
class Plan:
    """Cases in order, with where progress is written and whose presence stops the ladder."""

    cases: tuple[PlannedCase, ...]
    progress: str
    stop: str
    seed: int = 1
    seconds: float | None = None
    """No further case is begun after this long, so that ncu writes what it has; None for all cases
    in one process."""


@dataclass(frozen=True)
class Step:
    """One line of progress.

    `state`: started, profiled, failed (wrong result or launch error), skipped (cannot run here),
    stopped (asked to), paused (the time is up)."""

    case: int
    state: str
    message: str = ""
    exit_code: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)


def write_plan(plan: Plan, path: Path) -> None:
    path.write_text(json.dumps(document("plan", plan), indent=1), encoding="utf-8")


def read_plan(path: Path) -> Plan:
    return from_plain(Plan, open_document("plan", files.read_json(path), str(path)))


def read_progress(path: Path) -> list[Step]:
    """Every whole line of a progress file; a line cut off by a crash is left out, since its step
    did not finish."""
    if not path.is_file():
        return []
    steps = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            steps.append(from_plain(Step, files.parse_json(line, path)))
        except InputProblem:
            continue
    return steps


def run_plan(plan: Plan) -> None:
    """Run every case; one that fails is reported and the rest goes on."""
    from ncu_toolkit.gpu import cuda
    from ncu_toolkit.gpu.launch import Runnable, Workspace, explained
    from ncu_toolkit.ladder.catalogue import find_rung
    from ncu_toolkit.ladder.problems import problem_for

    cuda.disable_tf32()
    cp = cuda.cupy()
    progress = Path(plan.progress)
    began = time.monotonic()
    space: Workspace | None = None
    key: tuple[Any, ...] = ()
    for index, case in enumerate(plan.cases):
        if Path(plan.stop).exists():
            _note(progress, Step(index, "stopped"))
            return
        if index and plan.seconds is not None and time.monotonic() - began > plan.seconds:
            _note(progress, Step(index, "paused"))
            return
        _note(progress, Step(index, "started"))
        try:
            rung = find_rung(f"{case.family}/{case.rung}")
            problem = problem_for(case.family)
            wanted = (
                case.family,
                case.size,
                case.dtype,
                json.dumps(dict(rung.problem), sort_keys=True, default=str),
            )
            if wanted != key:
                space = None
                cp.get_default_memory_pool().free_all_blocks()
                space, key = (
                    Workspace(
                        problem, problem.parse_size(case.size), case.dtype, rung.problem, plan.seed
                    ),
                    wanted,
                )
            assert space is not None
            runnable = Runnable(rung, space, case.overrides)
            worst = max((verdict.worst for verdict in runnable.verify()), default=0.0)
            _profile(runnable, case, cp)
        except KernelProblem as error:
            _note(progress, Step(index, "failed", str(error), error.exit_code))
            if not _context_works():
                _note(progress, Step(index + 1, "paused"))
                return
        except ToolkitError as error:
            _note(progress, Step(index, "skipped", str(error), error.exit_code))
        except Exception as error:
            told = explained(error, case.label)
            if told is None or isinstance(told, KernelProblem):
                raise  # the GPU's context is lost: this process can do no more, the next one goes on
            _note(progress, Step(index, "skipped", str(told), told.exit_code))
        else:
            facts = {"worst": worst, "parameters": dict(runnable.parameters)}
            _note(progress, Step(index, "profiled", facts=facts))


def _context_works() -> bool:
    """Whether this process can go on: a kernel that touched memory it must not breaks the context,
    and whatever follows would fail with it."""
    from ncu_toolkit.gpu import cuda

    try:
        cuda.synchronize("the GPU")
    except KernelProblem:
        return False
    return True


def _profile(runnable: Any, case: PlannedCase, cp: Any) -> None:
    def start() -> None:
        cp.cuda.profiler.start()
        cp.cuda.nvtx.RangePush(case.marker)

    def stop() -> None:
        cp.cuda.nvtx.RangePop()
        cp.cuda.profiler.stop()

    runnable.run_profiled(start, stop)


def _note(path: Path, step: Step) -> None:
    from ncu_toolkit.model.codec import to_plain

    with path.open("a", encoding="utf-8") as sink:
        sink.write(json.dumps(to_plain(step)) + "\n")


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m ncu_toolkit.gpu.target PLAN", file=sys.stderr)
        return EXIT_USAGE
    try:
        run_plan(read_plan(Path(arguments[0])))
    except ToolkitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
