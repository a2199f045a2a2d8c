"""`ncu-toolkit watch`: profile a kernel, and again after each save, and show what changed."""

import contextlib
import os
import select
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from ncu_toolkit.base.core import patterns, workers
from ncu_toolkit.base.core.errors import EnvironmentProblem, UsageProblem
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.model.run import LadderOptions
from ncu_toolkit.cli._common import RunHistory, console, interruptible, require
from ncu_toolkit.cli._options import COUNT, KERNEL, Chosen, PathName, option, options
from ncu_toolkit.cli._program import ProgramCommand
from ncu_toolkit.guests.watch.watch import Watched, fingerprint, loop
from ncu_toolkit.kernel.analysis import answers, gate
from ncu_toolkit.kernel.analysis.analyze import DEFAULT_TIMEOUT, Analysis, Options, prepare
from ncu_toolkit.kernel.gpu import collect, cuda, runner
from ncu_toolkit.kernel.runs import baselines, store
from ncu_toolkit.program.analysis.reported import across
from ncu_toolkit.program.recording import program_run

#: Milliseconds without a further save that end a burst of saves.
_DEBOUNCE: Final = 300
#: Milliseconds between two looks at the keyboard.
_KEYS: Final = 200


@dataclass(frozen=True)
class Rounds:
    """What each round profiles and how."""

    kernel: str
    build: str
    inputs: tuple[Path, ...]
    launch_count: int
    launch_skip: int
    size: str | None
    timeout: float
    reports: Path


@click.command("watch", cls=ProgramCommand)
@options(
    asked=Rounds,
    kernel=option(f"{KERNEL}  [default: the kernel of the program that takes most time]", metavar="NAME"),
    build=option("Run this before each round, without a shell. The program is profiled only if the build succeeds and changes it.", default="",
        metavar="COMMAND"),
    inputs=option("Another file to watch, such as a library or a data file that the program loads. Can be repeated.", "--input",
        type=PathName(), metavar="FILE"),
    launch_count=option("With a program: profile N launches of the kernel in each round. Several launches show the spread of the time.",
        type=COUNT, default=1),
    launch_skip="With a program: skip its first N launches.",
    size="For a kernel of a ladder: the problem size.",
    timeout=option("Give up on a round after this long.", default=runner.DEFAULT_TIMEOUT),
)  # fmt: skip
def command(asked: Rounds, program: tuple[str, ...]) -> None:
    """Profile a kernel, profile it again after each save of a source file, and show what changed.

    Watches the current folder (for a kernel of a ladder, the ladder's folder) and the files that
    --input names. A save that only changes comments, or anything else that does not run, is not
    profiled. When the build or the program fails, its last lines are shown and the next save tries
    again. Press `q` or Ctrl-C to stop. A round that Ctrl-C, SIGTERM or SIGHUP interrupts is
    discarded; the exit code is 0. Each round is kept in the folder of reports and, if DuckDB is
    installed, in the history (`ncu-toolkit history`).

    \b
    Examples:
      ncu-toolkit watch -k matmul -- python train.py
      ncu-toolkit watch -k matmul --build "make -j" -- ./app 4096
      ncu-toolkit watch --kernel smem_tiled"""
    require("`watch` needs the package watchfiles", "watch", "watchfiles")
    with workers.WorkerPool(
        "ncu_toolkit.kernel.runs.baselines:read", DEFAULT_TIMEOUT, lambda _: "the run"
    ) as pool:
        pool.fork(1, prepare)  # while this process has one thread: `watchfiles` starts others

        def read(paths: Sequence[Path], options: Options) -> Analysis:
            done = pool.do(0, (paths, options))
            if done.error is not None:
                raise done.error
            found: Analysis = done.value
            return found

        screen = Screen(read=read)
        build = _words(asked.build)
        watched, profile, state = (
            _of_program(asked, program, build, screen) if program else _of_rung(asked, build)
        )
        # what no save can fix ends it now
        collect.find_ncu()
        store.discard(store.new_run_folder(asked.reports, "watch"))

        def round_() -> Path:
            screen.at = RunHistory(cuda.gpu_uuid())
            return profile()

        with (
            contextlib.suppress(KeyboardInterrupt),
            interruptible(signal.SIGINT) as ended,
            _keyboard() as pressed,
        ):
            changes = _saves(watched, pressed)
            next(changes, None)  # from here on no save is missed
            screen.line("each save is a round; q or Ctrl-C ends it")
            loop(watched, changes, round_, screen, state, ended)
        screen.line(f"ended; every round is in {asked.reports}")


class Screen:
    """Shows rounds on a terminal, and adds them to the history. `kernel` is the function under study
    once it is known; `at` the commit and the GPU of the round that is under way, None where rounds
    are not kept. `read` is called as `baselines.read`."""

    def __init__(self, screen: Any = None, read: Callable[..., Analysis] = baselines.read) -> None:
        self._screen, self._reader = screen or console(), read
        self._sides: dict[Path, tuple[gate.Sides, gate.Sides]] = {}
        self.kernel = ""
        self.at: RunHistory | None = None

    def first(self, run: Path) -> None:
        analysis = self._read(run)
        if analysis.judged:
            self.kernel = analysis.judged[0].typical.function
        found = answers.of_analysis(analysis, top=1, across=partial(across, top=1))
        # `next` of a card would have the user do by hand what the next round does
        cards = tuple(replace(card, next="") for card in found.cards)
        self._show(replace(found, kernels=None, rest="", cards=cards, next=""))
        self._keep(run, analysis)

    def again(self, old: Path, new: Path) -> None:
        if old not in self._sides:
            self._read(old)
        before = self._sides.pop(old)
        analysis = self._read(new)
        after = self._sides[new]
        found = gate.compare(before[0], after[0], (before[1], after[1]))
        self._show(answers.of_comparison(found, short=True))
        self._keep(new, analysis)

    def line(self, text: str) -> None:
        self._screen.print(f"watch: {text}")

    def output(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._screen.print(f"  {visible(line)}")

    def _read(self, run: Path) -> Analysis:
        analysis = self._reader([run], Options(profiles=True, packed=True))
        self._sides[run] = (gate.sides_of(analysis), baselines.timings_of(run))
        return analysis

    def _keep(self, run: Path, analysis: Analysis) -> None:
        if self.at is not None:
            wholes = (each.whole for each in analysis.launches)
            self.at.keep_read(run, [each for each in wholes if each is not None])

    def _show(self, found: Any) -> None:
        from ncu_toolkit.base.render.text import AnswerText

        self._screen.print(AnswerText(found))


_Plan = tuple[Watched, Callable[[], Path], Callable[[Watched], str]]


def _of_program(
    asked: Rounds, program: tuple[str, ...], build: tuple[str, ...], screen: Screen
) -> _Plan:
    """The rounds of a program. Without --kernel the first round looks for the slowest kernel."""
    if not build:  # else it may be there only after the first build
        program_run.check(program, "")
    patterns.compiled(asked.kernel, "--kernel")

    def profile() -> Path:
        count = asked.launch_count
        if not (asked.kernel or screen.kernel):
            count = max(count, program_run.DEFAULT_LAUNCHES)
        request = collect.Request(
            command=program,
            launch_skip=asked.launch_skip,
            launch_count=count,
            kernel_filter=asked.kernel,
            kernel_function=screen.kernel,
        )
        job = program_run.ProgramJob(request, asked.reports, asked.timeout)
        made = program_run.profile(job)
        made.raise_failure()
        return made.folder

    return Watched(program, asked.inputs, (Path(),), build), profile, fingerprint


def _of_rung(asked: Rounds, build: tuple[str, ...]) -> _Plan:
    """The rounds of a rung, at its family's largest recorded size unless --size says another."""
    from ncu_toolkit.cli.profile import run_ladder, title_of
    from ncu_toolkit.kernel.build import nvcc
    from ncu_toolkit.kernel.gpu.runner import LadderJob
    from ncu_toolkit.kernel.ladder.catalogue import find_rung

    kernel = asked.kernel
    if not kernel:
        raise UsageProblem(
            "there is nothing to watch",
            "Write `ncu-toolkit watch -- ./app` or `ncu-toolkit watch --kernel NAME`",
        )
    rung = find_rung(kernel)
    cuda.cupy()

    def profile() -> Path:
        chosen = Chosen((kernel,), (), False, asked.size, None, ())
        cases = chosen.cases(lambda problem: problem.record_sizes[-1:])
        title = title_of((kernel,), cases)
        job = LadderJob(title, cases, LadderOptions(), asked.reports, timeout=asked.timeout)
        made = run_ladder(job, lambda _: None)
        made.raise_failure()
        return made.folder

    def state(watched: Watched) -> str:
        return nvcc.source_digest(find_rung(kernel)) + fingerprint(replace(watched, folders=()))

    return Watched((), asked.inputs, (rung.path.parents[1],), build), profile, state


def _words(build: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(build))
    except ValueError as error:
        raise UsageProblem(f"--build '{build}' is not a command: {error}") from None
    if build and not words:
        raise UsageProblem("--build is empty", "Write it like --build 'make -j'")
    return words


def _saves(watched: Watched, pressed: Callable[[], bool]) -> Iterator[object]:
    """An item for each save or burst of saves until `q` is pressed; the first at once."""
    import watchfiles

    found = watchfiles.watch(
        *watched.places,
        watch_filter=lambda _, path: watched.starts_a_round(path),
        debounce=_DEBOUNCE,
        step=50,
        yield_on_timeout=True,
        rust_timeout=_KEYS,
        raise_interrupt=True,
    )
    first = True
    try:
        for saved in found:
            if pressed():
                return
            if saved or first:
                first = False
                yield saved
    except (OSError, RuntimeError) as error:
        raise EnvironmentProblem(
            f"the folder cannot be watched: {error}",
            "Run it in a smaller folder, or raise fs.inotify.max_user_watches",
        ) from None


@contextlib.contextmanager
def _keyboard() -> Iterator[Callable[[], bool]]:
    """Yields whether `q` was pressed since the last look. Keys come one by one meanwhile; the
    terminal is put back as it was. Without a terminal, or in the background, no key is ever
    pressed."""
    try:
        descriptor = sys.stdin.fileno()
        ours = os.isatty(descriptor) and os.tcgetpgrp(descriptor) == os.getpgrp()
    except (AttributeError, OSError, ValueError):
        ours = False
    if not ours:
        yield lambda: False
        return
    import termios
    import tty

    def pressed() -> bool:
        ready, _, _ = select.select([descriptor], [], [], 0)
        return bool(ready) and b"q" in os.read(descriptor, 1024).lower()

    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
