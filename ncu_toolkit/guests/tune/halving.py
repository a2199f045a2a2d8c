"""The search for a kernel's best parameters, without a GPU in it: settings, pruning, successive
halving, and a state that survives interruption.

What times a setting is passed in as a function, so that the search is tested on any machine;
`tune.py` times on the GPU."""

import itertools
import json
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal, Self

from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.cache import cache_folder, keep
from ncu_toolkit.base.core.errors import InputProblem, KernelProblem, UsageProblem
from ncu_toolkit.base.core.workers import Done
from ncu_toolkit.base.hardware.specs import limits_of, occupancy
from ncu_toolkit.base.model.codec import encoded, from_plain, open_document
from ncu_toolkit.kernel.build.nvcc import Resources
from ncu_toolkit.kernel.gpu.executor import HERE
from ncu_toolkit.kernel.gpu.tuned import file_name
from ncu_toolkit.kernel.ladder.rung import LaunchGeometry, Rung

KIND: Final = "tune"
#: Runs of each setting in the first round; doubled every round, while half of the settings drop
#: out, so that every round costs about the same (successive halving; Karnin et al., "Almost Optimal
#: Exploration in Multi-Armed Bandits", 2013).
FIRST_REPEATS: Final = 3
LAST_REPEATS: Final = 48
#: Settings that get LAST_REPEATS runs and are ranked by them.
FINALISTS: Final = 6
#: A setting whose first run takes this many times the best median is not run again: halving would
#: drop it, and its runs take the most time.
_HOPELESS: Final = 3.0
#: Times a search may end while a setting runs before it counts as failed.
STRIKES: Final = 2

TrialState = Literal["new", "pruned", "failed", "ready"]
Parameters = Mapping[str, int]
#: One measurement: parameters, repeats, and the limit in microseconds; see `Measure`.
Task = tuple[Parameters, int, float | None]


@dataclass(frozen=True)
class Round:
    """One round's runs of one setting, microseconds, each with the baseline's beside it (empty
    without a baseline)."""

    times_us: tuple[float, ...]
    beside_us: tuple[float, ...] = ()


@dataclass(frozen=True)
class Trial:
    """One setting and how far it came. `warps` are those that fit on a multiprocessor; `registers`
    a thread, `shared` bytes per block."""

    parameters: Parameters
    state: TrialState = "new"
    reason: str = ""
    registers: int = 0
    shared: int = 0
    warps: int = 0
    rounds: tuple[Round, ...] = ()

    def score(self, rounds: int | None = None) -> float:
        """Median of time over the baseline's time beside it (of time in microseconds without a
        baseline) in the first `rounds`; lower is better."""
        used = self.rounds[:rounds]
        if any(r.beside_us for r in used):
            pairs = (zip(r.times_us, r.beside_us, strict=True) for r in used)
            return statistics.median(t / b for pair in pairs for t, b in pair)
        return statistics.median(t for r in used for t in r.times_us)

    @property
    def median_us(self) -> float:
        return statistics.median(t for r in self.rounds for t in r.times_us)

    @property
    def beside_us(self) -> float | None:
        """The baseline's median beside this setting's runs."""
        runs = [t for r in self.rounds for t in r.beside_us]
        return statistics.median(runs) if runs else None

    def compact(self) -> Self:
        """The same median and score from one run in each round."""
        if not self.rounds:
            return self
        median = self.median_us
        beside = (round(median / self.score(), 4),) if self.beside_us else ()
        return replace(self, rounds=(Round((round(median, 4),), beside),) * len(self.rounds))

    @property
    def label(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.parameters.items())


@dataclass(frozen=True)
class Search:
    """A search for one kernel, size, element type and GPU. `source` is the digest of the kernel's
    source, `invalid` what constraints forbid."""

    family: str
    rung: str
    size: str
    dtype: str
    gpu: str
    source: str
    seed: int
    default: Parameters
    trials: tuple[Trial, ...]
    invalid: int = 0
    finished: bool = False

    @property
    def path(self) -> Path:
        """The file of its state."""
        name = f"{self.family}-{self.rung}-{self.size}-{self.dtype}-{self.source}"
        return cache_folder() / "tune" / file_name(self.gpu).removesuffix(".json") / f"{name}.json"

    @property
    def timed(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.state == "ready" and trial.rounds)

    def ranked(self) -> tuple[Trial, ...]:
        """Timed settings: those that came furthest first, and among them the fastest."""
        return tuple(sorted(self.timed, key=lambda trial: (-len(trial.rounds), trial.score())))

    def compact(self) -> Self:
        """The same with the median of each round only: enough to draw the landscape, and small
        enough to store."""
        return replace(self, trials=tuple(trial.compact() for trial in self.trials))

    @property
    def own(self) -> Trial | None:
        """The header's own parameters, where they could be timed."""
        return next((each for each in self.timed if each.parameters == self.default), None)


#: Times one setting, whose parameters come first, this many times; once is enough where that run takes
#: longer than the limit in microseconds. Raises KernelProblem or UsageProblem where the setting
#: cannot be used: the search goes on without it.
Measure = Callable[[Parameters, int, float | None], Round]
#: Gets the round, the settings left in it, and the one that was measured.
Progress = Callable[[int, int, "Trial"], None]
#: Calls a Measure with each task, here or on the GPUs of a cluster; see `Executor.run`.
Runs = Callable[[Measure, Iterable[Task]], Iterator[Done]]


def check(rung: Rung) -> None:
    """Raises UsageProblem where a rung has no parameters to search."""
    if not rung.search:
        hint = "Kernels with a [search] table in their header can be tuned: kernels/README.md"
        raise UsageProblem(f"{rung.name} has no parameters to search", hint)


def settings(
    rung: Rung, most: int | None = None, seed: int = 1
) -> tuple[list[dict[str, int]], int]:
    """Every setting of the header's [search] that its constraints allow, the header's own
    parameters first, and how many they forbid.

    Args:
        rung: a kernel with a [search] table.
        most: settings to keep, a random choice where there are more; the header's own always stay.
        seed: of that choice.

    Raises:
        UsageProblem: nothing to search.
    """
    check(rung)
    own = rung.with_parameters()
    allowed, forbidden = [], 0
    for values in itertools.product(*rung.search.values()):
        try:
            allowed.append(rung.with_parameters(dict(zip(rung.search, values, strict=True))))
        except UsageProblem:
            forbidden += 1
    others = [each for each in allowed if each != own]
    if most is not None and len(others) > most - 1:
        others = random.Random(seed).sample(others, max(0, most - 1))
    return [own, *others], forbidden


def prune(
    cc: tuple[int, int], resources: Mapping[str, Resources], launches: Sequence[LaunchGeometry]
) -> tuple[str, Trial]:
    """Why a compiled setting is not run, "" where it is, and a trial that holds its resources (with
    no parameters yet).

    Spills, more registers or shared memory than a block may have, or no block on a multiprocessor,
    in any of its kernels."""
    registers = shared = 0
    warps = 10**9
    reason = ""
    for launch in launches:
        used = resources.get(launch.kernel)
        if used is None:
            return f"the compiled code has no kernel {launch.kernel}", Trial({})
        barriers = max(1, used.barriers)
        threads, dynamic = launch.threads, launch.shared
        fill = occupancy(cc, threads, used.registers, used.shared, dynamic, None, barriers)
        registers, shared = max(registers, used.registers), max(shared, fill.shared)
        warps = min(warps, fill.active_warps)
        if used.spills:
            reason = f"spills {used.spill_stores + used.spill_loads} bytes"
        elif fill.shared > limits_of(cc).shared_per_block:
            reason = f"{fill.shared} bytes of shared memory, a block may have {limits_of(cc).shared_per_block}"
        elif not fill.limits["registers"]:
            reason = (
                f"{used.registers} registers for {threads} threads are more than a block may have"
            )
        elif not fill.active_blocks:
            reason = "no block fits on a multiprocessor"
    return reason, Trial({}, registers=registers, shared=shared, warps=warps if launches else 0)


class Searcher:
    """Runs a search and updates `search` after every step, so that a caller can save it at any
    time."""

    def __init__(
        self,
        search: Search,
        saved: Callable[[Search], None],
        running: Callable[[Parameters, bool], None] = lambda _, __: None,
    ) -> None:
        """`saved` gets every new state, `running` each setting before it is run (True) and
        after (False)."""
        self.search, self._saved, self._running = search, saved, running

    def _set(self, index: int, trial: Trial) -> None:
        trials = list(self.search.trials)
        trials[index] = trial
        self.search = replace(self.search, trials=tuple(trials))
        self._saved(self.search)

    def run(
        self,
        measure: Measure,
        progress: Progress = lambda level, left, trial: None,
        run: Runs = HERE.run,
    ) -> Search:
        """Halve until FINALISTS are left, then rank those by LAST_REPEATS runs. Rounds that an
        earlier call measured are not measured again.

        Settings that are not compiled yet ("new") are left out; the search is finished only where
        there are none.

        Args:
            measure: times a setting; anything but KernelProblem and UsageProblem that it raises
                ends the search, with its state kept.
            progress: is called after each setting.
            run: calls `measure`; the settings of one round may run at once.

        Raises:
            KernelProblem: no setting could be timed.
        """
        alive = [i for i, trial in enumerate(self.search.trials) if trial.state == "ready"]
        level = 0
        while alive:
            last = len(alive) <= FINALISTS
            repeats = LAST_REPEATS if last else min(FIRST_REPEATS * 2**level, LAST_REPEATS)
            order = list(alive)
            random.Random(self.search.seed * 1000 + level).shuffle(order)
            due = [i for i in order if len(self.search.trials[i].rounds) <= level]
            self._round(due, partial(run, measure), repeats, level, progress)
            alive = [i for i in alive if self.search.trials[i].state == "ready"]
            if last:
                break
            alive = self._better_half(alive, level)
            level += 1
        finished = all(trial.state != "new" for trial in self.search.trials)
        if finished and not self.search.timed:
            remedy = "Look at the kernel's [search] and constraints, or run one setting with `ncu-toolkit bench --param`"
            raise KernelProblem(_nothing_left(self.search), remedy)
        self.search = replace(self.search, finished=finished)
        self._saved(self.search)
        return self.search

    def _round(
        self, due: Sequence[int], run: Callable[[Iterable[Task]], Iterator[Done]], repeats: int, level: int, progress: Progress
    ) -> None:  # fmt: skip
        under_way: list[int] = []

        def tasks() -> Iterator[Task]:
            for index in due:
                best = min((other.median_us for other in self.search.timed), default=None)
                limit = _HOPELESS * best if best is not None and level == 0 else None
                under_way.append(index)
                self._running(self.search.trials[index].parameters, True)
                yield self.search.trials[index].parameters, repeats, limit

        try:
            for n, done in enumerate(run(tasks())):
                index = due[done.index]
                trial = self.search.trials[index]
                under_way.remove(index)
                self._running(trial.parameters, False)
                if done.error is None:
                    found = replace(trial, rounds=(*trial.rounds, done.value))
                elif isinstance(done.error, KernelProblem | UsageProblem):
                    found = replace(trial, state="failed", reason=done.error.message)
                else:
                    raise done.error
                self._set(index, found)
                progress(level, len(due) - n - 1, found)
        finally:  # A program that is killed here leaves its mark.
            for index in under_way:
                self._running(self.search.trials[index].parameters, False)

    def _better_half(self, alive: list[int], level: int) -> list[int]:
        """The faster half by what was measured up to this round; the header's own parameters stay,
        so that the gain over them is known."""
        ranked = sorted(alive, key=lambda i: self.search.trials[i].score(level + 1))
        half, default = max(1, (len(ranked) + 1) // 2), self.search.default
        own = [i for i in ranked[half:] if self.search.trials[i].parameters == default]
        return ranked[:half] + own


def _nothing_left(search: Search) -> str:
    """Text for a search that has nothing to time: how many settings were dropped for which
    reason."""
    listed = "; ".join(f"{n} x {reason}" for reason, n in list(fallen(search).items())[:3])
    none = f"none of {len(search.trials)} settings of {search.rung} can be used at {search.size}"
    return f"{none}: {listed}" if listed else none


def fallen(search: Search) -> dict[str, int]:
    """Settings that were not timed, by reason without its numbers, most first."""

    def plain(word: str) -> str:
        return "N" if word.strip(",;:()[]").lstrip("-").isdigit() else word

    dropped = (trial for trial in search.trials if trial.state in ("pruned", "failed"))
    return dict(Counter(" ".join(map(plain, t.reason.split())) for t in dropped).most_common())


def save(search: Search) -> None:
    """Write the state, atomically. Raises EnvironmentProblem: the folder cannot be written."""
    keep(search.path, encoded(KIND, search))


def resume(fresh: Search) -> Search:
    """The saved state of the same search, or `fresh` where there is none, or where it is of another
    set of settings.

    A setting that was running when the program ended STRIKES times is taken as failed: it may have
    hung or broken the GPU's context.

    Raises:
        InputProblem: the state is damaged.
    """
    try:
        data = files.read_json(fresh.path)
    except FileNotFoundError:
        return _struck(fresh)
    except (OSError, InputProblem) as error:
        what = f"'{fresh.path}' cannot be read: {error}"
        raise InputProblem(what, "Start over with --restart") from error
    saved = from_plain(Search, open_document(KIND, data, str(fresh.path)), fresh.path.name)
    before, now = ([each.parameters for each in search.trials] for search in (saved, fresh))
    return _struck(saved) if (before, saved.default) == (now, fresh.default) else fresh


def forget(search: Search) -> None:
    """Remove the state of a search, so that it starts over."""
    for path in (search.path, marker(search)):
        path.unlink(missing_ok=True)


def marker(search: Search) -> Path:
    """The file that says which settings were running when the program last ended."""
    return search.path.with_suffix(".running")


def mark(search: Search, parameters: Parameters, running: bool) -> None:
    """Note that a setting is about to run, or that it is done. A setting has a line for each time
    the program was killed while it ran."""
    path, line = marker(search), json.dumps(dict(parameters))
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    lines = [*lines, line] if running else [each for each in lines if each != line]
    if lines:
        keep(path, ("\n".join(lines) + "\n").encode())
    else:
        path.unlink(missing_ok=True)


def _struck(search: Search) -> Search:
    try:
        lines = marker(search).read_text(encoding="utf-8").splitlines()
    except OSError:
        return search
    trials = list(search.trials)
    for index, trial in enumerate(trials):
        if lines.count(json.dumps(dict(trial.parameters))) >= STRIKES:
            reason = "the program ended while it ran"
            trials[index] = replace(trial, state="failed", reason=reason)
    return replace(search, trials=tuple(trials))
