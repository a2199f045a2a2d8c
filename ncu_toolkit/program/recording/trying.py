"""Try optimization settings in a program and time its step: runs with and without them alternate, each in a
process group of its own that is ended with it. Nothing of the program's files is changed: switches
are variables of the environment, hooks in the program's Python (inside/switching.py), and words of
the command that builds it, whose result lies in a temporary folder."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.children import Child, run
from ncu_toolkit.base.core.errors import EnvironmentProblem, UsageProblem, did_you_mean, refused
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.kernel.analysis.analyze import Analysis
from ncu_toolkit.kernel.diagnosis.compare import CLOCK
from ncu_toolkit.kernel.gpu import cuda
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.program.analysis.program import judged as judged_trace
from ncu_toolkit.program.analysis.trial import TryRun, judged, save_trial, trial_path
from ncu_toolkit.program.model import ProgramDiagnosis, ProgramTrial, Step, Trace, Tried
from ncu_toolkit.program.recording import recorder
from ncu_toolkit.program.recording.program_run import name_of
from ncu_toolkit.program.recording.step_run import TRACE
from ncu_toolkit.program.switches import Switch, switches
from ncu_toolkit.program.traces.files import write_trace
from ncu_toolkit.program.traces.replay import Replay
from ncu_toolkit.program.traces.step import find_step

DEFAULT_RUNS: Final = 5
#: Note of a trial that Ctrl-C ended.
INTERRUPTED: Final = "It was interrupted: what was measured until then is shown."
#: Part (0-1) of the step that a kernel class takes from which switches for it are tried.
_SHARE: Final = 0.1
#: Seconds that a program has to end by itself after it was asked to, and between two looks at it.
_GRACE: Final = 5.0
_POLL: Final = 0.1
#: Cores from which on the next runs import their modules while one runs.
_CORES: Final = 8
#: Seconds between two samples of clocks and power.
_SAMPLE: Final = 0.5
#: Recorded to time a step: kernels, copies and marks, no host calls.
_LIGHT: Final = recorder.RecordOptions(calls=())
#: A step is found without host calls too if its time differs by less than this part.
_SAME_STEP: Final = 0.05
_OPTION: Final = re.compile(r"(-o|--output-file)(?:=(.+))?$")


@dataclass(frozen=True)
class TryVariant:
    """Switches that are on together, each with its value; none for the program as it is."""

    on: tuple[tuple[Switch, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """`triton-warps:8`."""
        return tuple(f"{switch.id}:{value}" if value else switch.id for switch, value in self.on)

    @property
    def label(self) -> str:
        return " + ".join(self.names)

    @property
    def title(self) -> str:
        return " + ".join(": ".join(filter(None, (each.title, value))) for each, value in self.on)

    @property
    def tolerance(self) -> float:
        return sum(switch.tolerance for switch, _ in self.on)

    @property
    def work(self) -> float:
        """How much more a step does with it."""
        return float(next((value for switch, value in self.on if switch.others), "1"))


@dataclass(frozen=True)
class TryJob:
    """The program, and how its runs are made."""

    command: tuple[str, ...]
    build: tuple[str, ...] = ()
    """The command that builds it; empty where it is not built again."""
    kernel: str = ""
    """Settings of kernels change those whose names match this."""
    timeout: float = 600.0
    """Seconds after which a run is ended and counts as hung."""
    seconds: float = 0.0
    """End each run after that long; 0: let it end by itself."""


#: Makes one run of a program with a variant, given those that come next.
Runner = Callable[[TryVariant, Sequence[TryVariant]], TryRun]


def variants(names: Sequence[str], *, built: bool = False) -> tuple[TryVariant, ...]:
    """What `ID` or `ID:VALUE` name: each value of a switch by itself.

    Raises:
        UsageProblem: there is no such switch, or it takes no such value.
    """
    found = []
    for name in names:
        key, colon, value = name.partition(":")
        switch = switches().get(key)
        if switch is None:
            near = did_you_mean(key, switches())
            raise UsageProblem(
                f"there is no setting '{key}'", near or "ncu-toolkit try --list shows them"
            )
        if colon and not switch.values:
            raise UsageProblem(f"'{key}' takes no value", f"Write {key}")
        if colon and not value.isdecimal():
            raise UsageProblem(
                f"'{name}' has no number after the colon", f"Write {key}:{switch.values[0]}"
            )
        if switch.build and not built:
            raise UsageProblem(
                f"'{key}' needs the command that builds the program",
                'Give it by --build "nvcc -O2 app.cu -o app"',
            )
        found += [
            TryVariant(((switch, each),)) for each in ([value] if colon else switch.values or [""])
        ]
    return tuple(dict.fromkeys(found))


def suggested(
    found: ProgramDiagnosis, modules: Iterable[str], *, built: bool
) -> tuple[TryVariant, ...]:
    """The switches for what was found in a step, those for what can save most first: by cause, and by
    kernel classes with a tenth of the step.

    Args:
        modules: frameworks that the program imported.
        built: whether the command that builds the program is known.
    """
    used = {name.partition(".")[0] for name in modules} or {""}
    known = [each.cc for each in found.step.trace.devices if each.cc > (0, 0)]
    causes = [each.rule for each in found.costly]
    shares = {part.key: part.us for part in found.account.parts}
    large = {key for key, us in shares.items() if us >= _SHARE * found.account.wall_us}

    def rank(switch: Switch) -> tuple[int, int, float] | None:
        compiled = switch.group == "compile" and "fused" in shares
        if compiled or (switch.build and not built) or used.isdisjoint(switch.modules):
            return None
        if any(cc < switch.least_cc for cc in known):
            return None
        if switch.build:
            return len(causes), 0, 0.0
        at = next((at for at, cause in enumerate(causes) if cause in switch.causes), None)
        if at is not None:
            return at, switch.causes.index(causes[at]), switch.tolerance
        if not large.isdisjoint(switch.classes):
            return len(causes), 0, switch.tolerance
        if {"triton", "numba"} & set(switch.modules) and "other" in large:
            return len(causes), 1, switch.tolerance
        return None

    ranked = ((rank(switch), switch.id) for switch in switches().values())
    able = sorted((at, name) for at, name in ranked if at is not None)
    return variants([name for _, name in able], built=built)


def try_variants(
    chosen: Sequence[TryVariant],
    run: Runner,
    runs: int,
    *,
    tell: Callable[[str], None] = lambda line: None,
    before: list[TryRun] | None = None,
) -> tuple[list[Tried], list[TryRun], bool]:
    """Time variants against the program as it is: in each round one run of each, in turning order.

    A variant that fails, or that changes nothing, is left out of later rounds. Ctrl-C ends the
    rounds; what was measured is kept.

    Args:
        before: runs without a switch that were made already; those made here are added.

    Returns:
        What came of each variant with a run, all runs without a switch, and whether all was done.

    Raises:
        ToolkitError: the program itself fails, or no step of it can be timed.
    """
    plain = before if before is not None else []
    made: dict[TryVariant, list[TryRun]] = {each: [] for each in chosen}
    out: dict[TryVariant, Tried] = {}
    done = False
    with contextlib.suppress(KeyboardInterrupt):
        for number, variant, coming in _turns(chosen, runs, out):
            found = run(variant, coming)
            times = "" if found.us is None else f", {found.word} of {units.duration(found.us)}"
            which = f"with {variant.label}" if variant.on else "as it is"
            tell(f"round {number + 1} of {runs}, {which}{times or ': ' + found.problem}")
            if variant.on:
                made[variant].append(found)
                if judgement := _out(variant, found):
                    out[variant] = judgement
            elif found.problem or found.us is None:
                raise UsageProblem(
                    f"the program fails without a setting: {found.problem or 'no step was timed'}",
                    "Run it alone first",
                )
            else:
                plain.append(found)
        done = True
    tried = [
        out.get(each) or _judged(each, plain, made[each])
        for each in chosen
        if each in out or (made[each] and plain)
    ]
    return tried, plain, done


def _turns(
    chosen: Sequence[TryVariant], runs: int, out: Container[TryVariant]
) -> Iterator[tuple[int, TryVariant, list[TryVariant]]]:
    """The runs of all rounds: the round, the variant, and which come next. Asks `out` before each."""
    for number in range(runs):
        left = [each for each in chosen if each not in out]
        order = [TryVariant(), *(left if number % 2 == 0 else left[::-1])]
        for at, variant in enumerate(order if left else ()):
            later = [TryVariant(), *order[:0:-1]] if number + 1 < runs else []
            yield number, variant, [*order[at + 1 :], *(one for one in later if one not in out)]


def _judged(variant: TryVariant, plain: Sequence[TryRun], made: Sequence[TryRun]) -> Tried:
    tried = judged(variant.names, variant.title, plain, made, variant.tolerance, variant.work)
    compared = tried.compared
    if tried.results == "differ" and (differs := " ".join(s.differs for s, _ in variant.on)):
        compared += f" It may change this: {differs[:1].lower()}{differs[1:]}"
    keep = keep_lines(variant, plain[0].modules)
    return msgspec.structs.replace(tried, compared=compared, keep=keep)


def _out(variant: TryVariant, found: TryRun) -> Tried | None:
    """The result of a variant that further runs cannot change; None for others."""
    if found.problem:
        return judged(variant.names, variant.title, [], [found])
    if any(_may_act(switch, found) for switch, _ in variant.on):
        return None
    switch = variant.on[0][0]
    why = dict(found.unable).get(switch.id, f"the program has no {switch.needs}")
    text = f"It changes nothing: {visible(why, 160)}."
    return Tried(
        switches=variant.names, title=variant.title, outcome="not applied", description=text
    )


def _may_act(switch: Switch, found: TryRun) -> bool:
    """Whether a switch changed something, as far as can be seen: a variable acts unseen."""
    if switch.id in found.applied or (switch.build and not switch.hooks):
        return True
    used = {name.partition(".")[0] for name in found.modules} or {""}
    acts = used & set(switch.modules) - {name.partition(".")[0] for name in switch.hooks}
    return bool(switch.environment and acts)


def keep_lines(variant: TryVariant, modules: Iterable[str]) -> tuple[str, ...]:
    """The line that makes each switch permanent, for the frameworks that the program uses."""
    used = [*(name.partition(".")[0] for name in modules), ""]
    lines = []
    for switch, value in variant.on:
        line = next((switch.keep[name] for name in used if name in switch.keep), "")
        lines.append((line or next(iter(switch.keep.values()))).replace("{}", value))
    return tuple(lines)


def try_program(
    job: TryJob,
    names: Sequence[str],
    reports: Path,
    *,
    runs: int = DEFAULT_RUNS,
    tell: Callable[[str], None] = lambda line: None,
    runner: ProgramRunner | None = None,
) -> tuple[ProgramTrial, Path]:
    """Trace a program and try settings in it, `runs` runs per side: each alone, then all that are worth
    keeping at once. Returns what came of it, and the trace's path in a new folder under `reports`.

    Args:
        names: switches; empty for those that the trace's findings suggest.

    Raises:
        ToolkitError: the program fails by itself, no switch is for what was found, or nothing can be
            recorded here.
        KeyboardInterrupt: before a switch was timed.
    """
    program = name_of(job.command)
    asked = variants(names, built=bool(job.build))
    with (
        tempfile.TemporaryDirectory(prefix="ncu-toolkit-try-") as place,
        runner or ProgramRunner(job, Path(place)) as run,
    ):
        tell(f"Tracing {program}")
        first, trace = run.recorded(TryVariant(), recorder.RecordOptions(), [TryVariant(), *asked])
        if trace is None:
            raise UsageProblem(
                f"the program fails by itself: {first.problem}", "Run it alone first"
            )
        found = judged_trace(trace, program, Analysis(())).found
        assert found is not None
        if not _light(found.step):
            run.need_calls()
        chosen = asked or _suggested(found, first, job)
        tell(f"{found.step.description} Trying {', '.join(each.label for each in chosen)}")
        tried, plain, done = try_variants(chosen, run, runs, tell=tell)
        both = winners(tried, chosen) if done else None
        if both is not None:
            tell("All of these at once")
            more, _, done = try_variants([both], run, runs, tell=tell, before=plain)
            tried += more
            chosen = (*chosen, both)
    if not tried:
        raise KeyboardInterrupt
    by_name = {each.names: each for each in chosen}
    tried = [with_ceiling(each, by_name[each.switches], found) for each in tried]
    notes = [] if done else [INTERRUPTED]
    trial = ProgramTrial(
        program=program, gpu=next((each.name for each in trace.devices), ""), word=found.step.word,
        before_us=tuple(each.us for each in plain if each.us is not None),
        # what is worth keeping first, then by time; what has none last
        tried=tuple(sorted(tried, key=lambda x: (not x.good, not x.after_us, x.left))), notes=tuple(filter(None, [*notes, clocks_differ(plain)])),
    )  # fmt: skip
    path = store.new_run_folder(reports, program) / TRACE
    write_trace(trace, path)
    save_trial(trial, trial_path(path))
    return trial, path


def _suggested(found: ProgramDiagnosis, first: TryRun, job: TryJob) -> tuple[TryVariant, ...]:
    """As `suggested`; raises UsageProblem where there is none."""
    if chosen := suggested(found, first.modules, built=bool(job.build)):
        return chosen
    causes = units.listed([f'"{each.title}"' for each in found.costly]) or "nothing"
    raise UsageProblem(
        f"there is no setting for what was found: {causes}",
        "Name one; ncu-toolkit try --list shows them",
    )


def _light(step: Step) -> bool:
    """Whether the same step is found without host calls."""
    ops = tuple(msgspec.structs.replace(op, call=-1) for op in step.trace.ops)
    light = find_step(msgspec.structs.replace(step.trace, ops=ops, calls=()))
    return abs(light.wall_us / step.wall_us - 1) < _SAME_STEP


def with_ceiling(tried: Tried, variant: TryVariant, found: ProgramDiagnosis) -> Tried:
    """With what the findings that its switches are for can save at most."""
    causes = {cause for switch, _ in variant.on for cause in switch.causes}
    mine = [each for each in found.costly if each.rule in causes]
    if not mine:
        return tried
    ids = tuple(each.rule for each in mine)
    saved = Replay(found.step, found.account).saved_us(*(each.edit for each in mine))
    return msgspec.structs.replace(tried, causes=ids, ceiling_us=saved)


def winners(tried: Sequence[Tried], chosen: Sequence[TryVariant]) -> TryVariant | None:
    """The variants that are worth keeping, at once: of each group the fastest, without those that
    compute something else. None where there are fewer than two."""
    by_name = {each.names: each for each in chosen}
    best: dict[str, tuple[Switch, str]] = {}
    for each in sorted((each for each in tried if each.good), key=lambda each: each.left):
        for switch, value in by_name[each.switches].on:
            if not switch.others:
                best.setdefault(switch.group or switch.id, (switch, value))
    return TryVariant(tuple(best.values())) if len(best) > 1 else None


def clocks_differ(runs: Sequence[TryRun]) -> str:
    """A note on the runs of one program: the GPU was throttled, or its clock moved; empty where
    neither is seen."""
    reasons = {each.throttle for each in runs} - {""}
    if reasons:
        return f"The GPU was slowed down while it was timed: {', '.join(sorted(reasons))}."
    clocks = [each.sm_mhz for each in runs if each.sm_mhz]
    if clocks and max(clocks) > (1 + CLOCK) * min(clocks):
        return f"The SM clock moved between runs alike: {min(clocks):.0f} to {max(clocks):.0f} MHz."
    return ""


@dataclass(frozen=True)
class _Started:
    """A program that runs, or waits for its turn."""

    variant: TryVariant
    process: Child
    folder: Path

    def clear(self, how: signal.Signals) -> None:
        """End the program, and remove the run's folder."""
        self.process.end(how, _GRACE)
        shutil.rmtree(self.folder, ignore_errors=True)


class ProgramRunner(contextlib.AbstractContextManager["ProgramRunner"]):
    """Runs a program, each time in its own process group, and reads its step's time. Where there
    are cores for it, the next runs import their modules meanwhile and wait for their turn."""

    def __init__(self, job: TryJob, folder: Path, ahead: int | None = None) -> None:
        self.job, self.folder, self.count = job, folder, 0
        self.built: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.sampled = cuda.available()
        cores = len(os.sched_getaffinity(0))
        self.ahead = (2 if cores >= _CORES else 0) if ahead is None else ahead
        self.waiting: list[_Started] = []
        self.running: list[_Started] = []
        self.imports = False
        self.asked = _LIGHT
        """What is recorded to time a step."""
        self.parts: tuple[str, ...] = ()
        """What the first run imported of its frameworks: others import it before their turn."""

    def __call__(self, variant: TryVariant, following: Sequence[TryVariant] = ()) -> TryRun:
        return self.recorded(variant, self.asked, following)[0]

    def need_calls(self) -> None:
        """Record host calls too, without which the step is not found: a compiler that tries kernels
        is known by the modules that it loads."""
        self.asked = recorder.RecordOptions()
        for each in self.waiting:
            each.clear(signal.SIGTERM)
        self.waiting.clear()

    def __exit__(self, *_: object) -> None:
        """End what waits for its turn, and what a second Ctrl-C left running."""
        for each in (*self.waiting, *self.running):
            each.clear(signal.SIGKILL)

    def recorded(
        self, variant: TryVariant, asked: recorder.RecordOptions, following: Sequence[TryVariant]
    ) -> tuple[TryRun, Trace | None]:
        """One run, and its trace where there is one.

        Raises:
            ToolkitError: it cannot be recorded here.
            KeyboardInterrupt: after the program was ended.
        """
        ready = next((each for each in self.waiting if each.variant == variant), None)
        try:
            ready = ready or self._start(variant, asked, wait=False)
            self.waiting = [each for each in self.waiting if each is not ready]
        except EnvironmentProblem as error:
            if not variant.on:
                raise
            return TryRun(None, problem=error.message), None
        self.running.append(ready)
        try:
            self._prepare(following)
            return self._finish(ready, following)
        finally:
            ready.clear(signal.SIGTERM)
            self.running.remove(ready)

    def _prepare(self, following: Sequence[TryVariant]) -> None:
        """Start the next runs that are not started yet, and end those that will not come."""
        soon = [*following[: self.ahead]] if self.imports else []
        for each in [*self.waiting]:
            if each.variant in soon:
                soon.remove(each.variant)
            else:
                self.waiting.remove(each)
                each.clear(signal.SIGKILL)
        for variant in soon:
            with contextlib.suppress(EnvironmentProblem):
                self.waiting.append(self._start(variant, self.asked, wait=True))

    def _start(self, variant: TryVariant, asked: recorder.RecordOptions, *, wait: bool) -> _Started:
        command = self._command(variant)
        self.count += 1
        folder = (self.folder / str(self.count)).resolve()
        variables = dict(asked.environment)
        for switch, _ in variant.on:
            variables.update(switch.environment)
        environment = recorder.prepared(command, folder, replace(asked, environment=variables))
        environment["NCU_TOOLKIT_SWITCHES"] = str(folder)
        plan = {
            "kernel": self.job.kernel,
            "parts": self.parts,
            "switches": [{"id": s.id, "value": v, "on": s.hooks} for s, v in variant.on if s.hooks],
        }
        (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        if wait:
            (folder / "wait").touch()
        with (
            open(folder / "printed", "wb") as out,
            open(folder / "complained", "wb") as errors,
            refused(f"'{command[0]}' cannot be started"),
        ):
            process = Child(
                command, environment, stdin=subprocess.DEVNULL, stdout=out, stderr=errors
            )
        return _Started(variant, process, folder)

    def _finish(
        self, started: _Started, following: Sequence[TryVariant]
    ) -> tuple[TryRun, Trace | None]:
        folder, variant = started.folder, started.variant
        self._let(started)
        code, states = self._watched(started.process)
        started.process.end(signal.SIGTERM, _GRACE)
        coming = [each for each in self.waiting if each.variant in following[:1]]
        for each in coming[:1]:  # it runs while this one's recording is read
            self._let(each)
        printed, complaint = (_read(folder / name) for name in ("printed", "complained"))
        applied, unable, modules, parts = _facts(folder)
        self.parts = self.parts or parts
        self.imports = self.imports or bool(modules)
        state = cuda.combined(states)
        found = TryRun(
            None, printed=printed, code=code, applied=applied, unable=unable, modules=modules,
            sm_mhz=state.sm_mhz, throttle=state.throttle,
        )  # fmt: skip
        if code:
            return replace(found, problem=_ended_by(code, complaint, self.job.timeout)), None
        try:
            trace = recorder.read_recording(folder, name_of(self.job.command))
            step = find_step(trace)
        except UsageProblem as error:
            if not variant.on:
                raise
            return replace(found, problem=error.message), None
        return replace(found, us=step.wall_us, steps=len(step.windows), word=step.word), trace

    def _let(self, started: _Started) -> None:
        """It is its turn."""
        (started.folder / "wait").unlink(missing_ok=True)

    def _watched(self, process: Child) -> tuple[int, list[cuda.GpuState]]:
        """Its exit code, minus the signal that ended it; and samples of the GPU while it ran."""
        states: list[cuda.GpuState] = []
        began = last = time.monotonic()
        ended = False
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(_POLL)
                return (0 if ended else code), states
            now = time.monotonic()
            if self.sampled and now - last > _SAMPLE:
                states.append(cuda.sample())
                last = now
            if self.job.seconds and not ended and now - began > self.job.seconds:
                ended = True
                process.end(signal.SIGINT, _GRACE)
            elif now - began > self.job.timeout:
                return -signal.SIGALRM, states

    def _command(self, variant: TryVariant) -> tuple[str, ...]:
        """The program's command; built with the variant's words where it is built."""
        if not self.job.build:
            return self.job.command
        key = variant.names if any(switch.build for switch, _ in variant.on) else ()
        if key not in self.built:
            target = self.folder / f"built-{len(self.built)}"
            words, made = build_words(self.job.build, variant, target)
            done = run(words)
            if done.returncode:
                said = done.stderr.strip() or done.stdout.strip() or "it says nothing"
                why = visible(said.splitlines()[-1], 160)
                raise EnvironmentProblem(f"the build fails: {why}", shlex.join(words))
            same = [os.path.abspath(word) == os.path.abspath(made) for word in self.job.command]
            if not any(same):
                raise UsageProblem(
                    f"the program is not what the build makes ('{made}')",
                    "Name the same file after -o in --build, and after --",
                )
            self.built[key] = tuple(
                str(target) if here else word
                for word, here in zip(self.job.command, same, strict=True)
            )
        return self.built[key]


def build_words(build: Sequence[str], variant: TryVariant, target: Path) -> tuple[list[str], str]:
    """The command that builds a variant into `target`, and the file that the user's command makes.
    Words that the variant's take the place of are left out.

    Raises:
        UsageProblem: there is no such compiler.
    """
    known = Path(build[0]).name in ("nvcc", "nvc++", "hipcc", "clang++")
    if not known and shutil.which(build[0]) is None:
        raise UsageProblem(
            f"there is no compiler '{build[0]}'", 'Write --build "nvcc -O2 app.cu -o app"'
        )
    extra = [word.replace("{}", value) for switch, value in variant.on for word in switch.build]
    words, made, rest = [], "a.out", iter(build)
    for word in rest:
        if option := _OPTION.match(word):
            made = option[2] or next(rest, made)
        elif not any(_replaces(new, word) for new in extra):
            words.append(word)
    return [*words, *extra, "-o", str(target)], made


def _replaces(new: str, word: str) -> bool:
    """Whether a word of a build must go for a new one: nvcc refuses an option that comes twice."""
    if new.startswith("-O"):
        return bool(re.fullmatch(r"-O\d?|--optimize=\d|-G|--device-debug", word))
    return word.lstrip("-").partition("=")[0] == new.lstrip("-").partition("=")[0]


def _ended_by(code: int, complaint: str, timeout: float) -> str:
    """Why a run counts for nothing, a clause."""
    if code == -signal.SIGALRM:
        return f"it did not end within {timeout:.0f} s"
    lines = [line for line in complaint.splitlines() if line.strip()]
    text = f": {visible(lines[-1].strip(), 160).rstrip('.')}" if lines else ""
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}{text}"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _facts(
    folder: Path,
) -> tuple[frozenset[str], tuple[tuple[str, str], ...], frozenset[str], tuple[str, ...]]:
    """What inside/switching.py wrote: switches that changed something, why others did not, the
    frameworks that were imported, and their parts in the order of import."""
    applied, unable, modules, parts = set(), [], set(), ()
    for path in sorted(folder.glob("*.switches")):
        for line in _read(path).splitlines():
            with contextlib.suppress(ValueError):
                fact = json.loads(line)
                if "module" in fact:
                    modules.add(fact["module"])
                elif "parts" in fact:
                    parts = max(parts, tuple(fact["parts"]), key=len)
                elif "applied" in fact:
                    applied.add(fact["switch"])
                else:
                    unable.append((fact["switch"], fact["cannot"]))
    return frozenset(applied), tuple(unable), frozenset(modules), parts
