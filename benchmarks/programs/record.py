"""Record the pairs on this machine's GPUs: a trace of each program before its fix, and the times of
both: `python benchmarks/programs/record.py OUT [NAME...]`. Programs import side by side (--jobs on each
GPU) and hold their GPU one after another; a pair's runs are all on one. What lies in OUT already is kept:
only what is missing, and what failed, runs again. --seconds, or SECONDS_LEFT, ends it.

OUT gets NAME.before.ncu-trace (and NAME.after.ncu-trace with --after), cut to a few steps, and times.json:
{NAME: {before: {us, recorded_us, step, result, seconds, imports, code, error}, after: ...}}; `step` is what the
whole recording says of its steps: {how, us, median_us, steps}.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import lzma
import os
import secrets
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
import lanes  # noqa: E402
import msgspec  # noqa: E402
import run  # noqa: E402

from ncu_toolkit.program.model import Step, Trace  # noqa: E402
from ncu_toolkit.program.traces.step import find_step  # noqa: E402

Task = TypeVar("Task")
#: Seconds that a run may take, with its imports and its wait for the GPU; and a profile.
RUN_SECONDS, PROFILE_SECONDS = 90.0, 120.0
#: Run by a Python of its own: the recorder waits for its program in the main thread.
RECORD = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + '/benchmarks/programs']
from ncu_toolkit.base.core.errors import ToolkitError
from ncu_toolkit.program.recording import recorder
from ncu_toolkit.program.traces.files import write_trace
from ncu_toolkit.program.traces.step import find_step
from record import described, short
folder, to, name, *command = sys.argv[2:]
code = recorder.record(command, Path(folder), recorder.RecordOptions(lines=True, samples=True))
try:
    trace = recorder.read_recording(Path(folder), name)
    step = find_step(trace)
    Path(folder, 'step.json').write_text(described(step))
    write_trace(short(trace, step), Path(to))
except ToolkitError as error:
    print(f"error: {error}", file=sys.stderr)
sys.exit(code)
"""


def described(step: Step) -> str:
    """The step of a whole recording as JSON: how it was found, the mean and the median of its times in
    microseconds, and how many were recorded."""
    median = statistics.median(window.us for window in step.windows)
    return json.dumps(
        {
            "how": step.how,
            "us": round(step.wall_us, 1),
            "median_us": round(median, 1),
            "steps": len(step.windows),
        }
    )


def short(trace: Trace, step: Step) -> Trace:
    """The steps around the typical one, so that a recording can lie in a repository: as few as have
    the same step; else the whole trace."""
    for most in (16, 64, 256, 1024):
        if step.how == "whole" or len(step.windows) <= most:
            break
        cut = around(trace, step, most)
        again = find_step(cut)
        if again.launches == step.launches and abs(again.wall_us / step.wall_us - 1) < 0.05:
            return cut
    return trace


def around(trace: Trace, step: Step, most: int) -> Trace:
    """What a trace holds of `most` steps, the typical one in their middle."""
    first = max(0, min(step.typical - most // 2, len(step.windows) - most))
    kept = step.windows[first : first + most]
    ops = trace.ops[kept[0].first : kept[-1].last]
    callers = {op.call for op in ops if op.call >= 0}
    begin = min([kept[0].start, *(trace.calls[each].start for each in callers)])
    ending = kept[-1].end
    places = [
        place
        for place, call in enumerate(trace.calls)
        if place in callers or (call.end >= begin and call.start <= ending)
    ]
    new = {old: place for place, old in enumerate(places)} | {-1: -1}
    return msgspec.structs.replace(
        trace,
        ops=tuple(msgspec.structs.replace(op, call=new[op.call]) for op in ops),
        calls=tuple(trace.calls[place] for place in places),
        marks=tuple(mark for mark in trace.marks if mark.end >= begin and mark.start <= ending),
        samples=tuple(each for each in trace.samples if each.end >= begin and each.start <= ending),
    )


def bounded(
    words: list[str], folder: Path, limit: float, environment: Mapping[str, str]
) -> tuple[int, str, str]:
    """Run a command for `limit` seconds at most: exit code (-9 at the limit), output, errors. What
    it started ends with it, in whatever session, and lets go of the GPU."""
    mark = f"{os.environ.get(lanes.MARK, '')}.{secrets.token_hex(4)}"
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=folder,
        env={**os.environ, **environment, lanes.MARK: mark},
        start_new_session=True,
    ) as process:
        message = ""
        try:
            message, error = process.communicate(timeout=limit)
            code = process.returncode
        except subprocess.TimeoutExpired:
            code, error = -9, f"took over {limit:.0f} s"
            # so that ncu-toolkit ends what it started elsewhere
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                message, _ = process.communicate(timeout=15)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        lanes.kill(mark)  # ncu and its program have their own sessions
    return code, message, error


def spread(
    groups: Iterable[Sequence[Task]],
    among: Sequence[lanes.Lane],
    jobs: int,
    do: Callable[[lanes.Lane, Task], None],
) -> None:
    """Do tasks in their order, `jobs` at once on each lane. Those of a group are done on one lane: two
    GPUs alike differ by some percent."""
    coming, lock = iter(groups), threading.Lock()
    mine: dict[lanes.Lane, deque[Task]] = {lane: deque() for lane in among}

    def work(lane: lanes.Lane) -> None:
        lanes.pin(lane.cores)
        while True:
            with lock:
                while not mine[lane]:
                    group = next(coming, None)
                    if group is None:
                        return
                    mine[lane].extend(group)
                task = mine[lane].popleft()
            do(lane, task)

    with ThreadPoolExecutor(len(among) * jobs) as pool:
        list(pool.map(work, [*among] * jobs))


class Runs:
    """What was run, written after each run."""

    def __init__(
        self, out: Path, work: Path, plans: dict[tuple[str, str], dict[str, Any]], end: float
    ) -> None:
        self.plans, self.end = plans, end
        self.out, self.work, self.path = out, work, out / "times.json"
        self.found: dict[str, dict[str, dict[str, object]]] = (
            json.loads(self.path.read_text()) if self.path.is_file() else {}
        )
        self.lock = threading.Lock()

    def missing(self, name: str, variant: str, recorded: bool, turn: int = 0) -> bool:
        """Whether a run is still to be made: the recording, or the run alone of a `turn`."""
        kept = self.found.get(name, {}).get(variant, {})
        if recorded:
            trace = self.out / f"{name}.{variant}.ncu-trace"
            return not (trace.is_file() and "recorded_us" in kept)
        return len(kept.get("us", [])) <= turn  # type: ignore[arg-type]

    def profiled(self, name: str, alone: bool, rules: bool) -> bool:
        """Whether a program was profiled already; `alone`, so that what it cost is known."""
        kept = self.found.get(name, {}).get("before", {})
        if rules:
            return kept.get("rules_code") == 0
        return kept.get("profile_code") == 0 and (not alone or "profile_seconds" in kept)

    def forget_failed(self, names: Iterable[str]) -> None:
        """So that sides that failed run again, and count if they do not fail then."""
        for sides in (self.found.get(name, {}) for name in names):
            for side in [side for side, kept in sides.items() if kept.get("code")]:
                del sides[side]

    def on(self, lane: lanes.Lane) -> tuple[Path, dict[str, str]]:
        """The lock that a program on a GPU waits for, and its environment. ncu keeps its own lock in
        TMPDIR: a folder for each GPU lets those on other GPUs go on. What PyTorch compiles lies there
        too unless told otherwise, and would be compiled on each GPU."""
        own = (self.work / f"gpu{lane.number}").resolve()
        own.mkdir(exist_ok=True)
        compiled = os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(own.parent / "inductor"))
        return own / "lock", {
            "CUDA_VISIBLE_DEVICES": lane.card,
            "TMPDIR": str(own),
            "TORCHINDUCTOR_CACHE_DIR": compiled,
        }

    def over(self, seconds: float) -> bool:
        """Whether fewer seconds are left."""
        return lanes.STOPPED.is_set() or self.end - time.monotonic() < seconds

    def run(self, lane: lanes.Lane, name: str, variant: str, recorded: bool) -> None:
        plan = self.plans.get((name, variant))
        if plan is None or self.over(12):
            return
        lock, environment = self.on(lane)
        # hold.py runs a script in its own Python.
        command = [word for word in map(str, plan["command"]) if word != sys.executable]
        stem = f"{name}.{variant}"
        times = self.work / f"{stem}.{recorded:d}.json"
        words = [
            sys.executable,
            str(HERE / "hold.py"),
            str(lock),
            str(times),
            *command,
        ]
        trace = self.out / f"{stem}.ncu-trace"
        if recorded:
            raw = self.work / f"{stem}.raw"
            words = [
                sys.executable,
                "-c",
                RECORD,
                str(HERE.parents[1]),
                str(raw),
                str(trace),
                name,
                *words,
            ]
        code, message, error = bounded(words, plan["folder"], RUN_SECONDS, environment)
        if code and lanes.STOPPED.is_set():
            return  # it was ended, and did not fail
        reported, why = {}, ""
        try:
            reported = (
                run.read_public(message, plan["how"]) if plan["how"] else run.last_json(message)
            )
        except (ValueError, KeyError, IndexError, TypeError) as problem:
            why = f"{problem!r}: "
        spent = json.loads(times.read_text()) if times.is_file() else {}
        with self.lock:
            kept = self.found.setdefault(name, {}).setdefault(variant, {"us": []})
            if code or not reported:
                kept["code"], kept["error"] = code, why + (error or message)[-600:]
            if reported and recorded:
                kept["recorded_us"] = reported["us"]
                kept["recorded_seconds"] = round(spent.get("seconds", 0), 2)
                with contextlib.suppress(FileNotFoundError):
                    kept["step"] = json.loads((raw / "step.json").read_text())
            elif reported:
                kept["us"] = [*kept["us"], reported["us"]]  # type: ignore[misc]
                kept["seconds"], kept["imports"] = (
                    round(spent.get(k, 0), 2) for k in ("seconds", "imports")
                )
            if reported:
                kept["result"], kept["steps"] = reported.get("result"), reported["steps"]
            self.path.write_text(json.dumps(self.found, indent=1, sort_keys=True) + "\n")
        print(
            f"{self.end - time.monotonic():6.0f} s left  {stem} recorded={recorded:d} code={code} {reported.get('us')}",
            flush=True,
        )

    def profile(self, lane: lanes.Lane, name: str, alone: bool, rules: bool = False) -> None:
        """`ncu-toolkit profile` of the program before its fix: alone as a user runs it, which says
        what it costs, else with programs that wait for the GPU beside it. `rules`: only the biggest
        kernel, with what Nsight Compute's own rules say."""
        plan = self.plans.get((name, "before"))
        if plan is None or self.profiled(name, alone, rules) or self.over(20):
            return
        lock, environment = self.on(lane)
        kind = "rules" if rules else "before"
        to = self.work / f"{name}.{kind}.runs"
        words = [sys.executable, "-m", "ncu_toolkit", "profile", "--output", str(to)]
        words += ["--launches", "1", "--set", "full"] if rules else []
        words += ["--launches", "4"] if not rules and not alone else []
        began = time.monotonic()
        command = [*words, "--", *map(str, plan["command"])]
        if not alone:
            program = [word for word in map(str, plan["command"]) if word != sys.executable]
            times = self.work / f"{name}.profiled.json"
            hold = [str(HERE / "hold.py"), str(lock), str(times)]
            command = [*words, "--", sys.executable, *hold, *program]
        code, message, error = bounded(command, plan["folder"], PROFILE_SECONDS, environment)
        if code and lanes.STOPPED.is_set():
            return
        seconds = round(time.monotonic() - began, 1)
        if code:
            for log in to.rglob("profile.log"):
                error += f"{log.name}: {log.read_text(errors='replace')[-1500:]}"
        (self.out / f"{name}.{'rules' if rules else 'profile'}.txt").write_text(message + error)
        for report in to.rglob("profile.ncu-rep"):
            data = lzma.compress(report.read_bytes(), preset=1)
            if len(data) < 8 << 20:
                (self.out / f"{name}.{kind}.ncu-rep.xz").write_bytes(data)
            else:
                print(f"{name}: its report of {len(data) >> 20} MiB is not kept", flush=True)
        with self.lock:
            kept = self.found.setdefault(name, {}).setdefault("before", {"us": []})
            kept["rules_code" if rules else "profile_code"] = code
            if alone and not rules:
                kept["profile_seconds"] = seconds
            self.path.write_text(json.dumps(self.found, indent=1, sort_keys=True) + "\n")
        print(
            f"{self.end - time.monotonic():6.0f} s left  {name} profiled code={code} {seconds} s",
            flush=True,
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split(":")[0] if __doc__ else "")
    options.add_argument("out", type=Path)
    options.add_argument("names", nargs="*")
    options.add_argument("--jobs", type=int, default=6, help="programs at once on each GPU")
    options.add_argument("--after", action="store_true", help="record the fixed programs too")
    options.add_argument("--public", type=Path, help="the folder that public.py wrote")
    options.add_argument("--rounds", type=int, default=1, help="runs alone of each")
    options.add_argument(
        "--profile",
        type=int,
        default=0,
        metavar="JOBS",
        help="profile each too, so many at once on each GPU; 1 says what it costs",
    )
    options.add_argument(
        "--rules",
        action="store_true",
        help="and the biggest kernel with Nsight Compute's own rules",
    )
    options.add_argument("--work", type=Path, default=Path("/tmp/programs"))
    seconds = float(os.environ.get("SECONDS_LEFT", "1e9"))
    options.add_argument("--seconds", type=float, default=seconds, help="end after that long")
    asked = options.parse_intermixed_args()
    with lanes.limited(asked.seconds - lanes.GRACE):
        record(asked)


def record(asked: argparse.Namespace) -> None:
    end = time.monotonic() + asked.seconds
    # By hash, so that what the time allows is a sample of all frameworks.
    homes = [HERE / "pairs", *([asked.public] if asked.public else [])]
    found = {
        path.name: path.resolve() for home in homes for path in home.iterdir() if path.is_dir()
    }
    names = asked.names or sorted(found, key=lambda name: sha256(name.encode()).digest())
    for folder in (asked.out, asked.work / "built"):
        folder.mkdir(parents=True, exist_ok=True)
    plans = {}
    for name in names:
        for side in run.SIDES:
            plan = run.plan_side(
                found[name], side, (asked.work / "built" / f"{name}.{side}").resolve()
            )
            if plan is not None:
                plans[name, side] = plan

    for key, message in run.build_all(plans, lanes.STOPPED.is_set).items():
        print(f"error: {key} was not built: {message[-400:]}", flush=True)
        del plans[key]
    runs = Runs(asked.out, asked.work, plans, end)
    runs.forget_failed(names)
    pairs = []
    for name in names:
        wanted = [(name, "before", True, 0)]
        for turn in range(asked.rounds):
            wanted += [(name, "before", False, turn), (name, "after", False, turn)]
        if asked.after:
            wanted.append((name, "after", True, 0))
        pairs.append([each for each in wanted if asked.rounds and runs.missing(*each)])
    among = lanes.lanes()
    spread(pairs, among, asked.jobs, lambda lane, each: runs.run(lane, *each[:3]))
    tasks = [[(name, rules)] for rules in (False, True)[: 1 + asked.rules] for name in names]
    if asked.profile:
        alone = asked.profile == 1
        spread(
            tasks,
            among,
            asked.profile,
            lambda lane, task: runs.profile(lane, task[0], alone, task[1]),
        )


if __name__ == "__main__":
    main()
