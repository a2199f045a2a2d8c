"""Time in which the program waits for PyTorch's DataLoader: a pipeline whose workers, together, must
deliver batches as fast as the step takes them."""

import math
import re
from bisect import bisect_left
from collections.abc import Mapping
from functools import cached_property
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.shares import summed
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Edit
from ncu_toolkit.program.rules._facts import LOADER_RANGE, StepFacts
from ncu_toolkit.program.rules._host import MOST, functions_of, listed, module_of, stacks_in
from ncu_toolkit.program.rules._words import dear

ALONE: Final = "Make batches in other processes: DataLoader(num_workers={}, pin_memory=True, persistent_workers=True)."
IF_SO: Final = "If it does so already: more workers, or move the preparation (augmentation, decoding) to the GPU."
_MORE: Final = "{} workers (num_workers=...), as long as there are cores for them."
_BUSY: Final = "`ncu-toolkit profile -- PROGRAM` shows how busy the workers are, and with what."
_CHEAPER: Final = "Or less work in each: transforms on the GPU for the whole batch, decoded or smaller files, collating arrays, not rows."
_LESS: Final = "do it over arrays, not item by item, on the GPU, or once before training and store what it gives."
_KEEP: Final = "Keep the workers from epoch to epoch: DataLoader(..., persistent_workers=True)."
_PIN: Final = "The thread that pins batches is busy: return fewer, larger tensors, or pinned ones, or leave out pin_memory=True."
_BETWEEN: Final = (
    "What is slow is between them and the step: a batch in transit (return few tensors, of narrow types), or too few batches ahead "
    "(prefetch_factor=4)."
)
#: PyTorch's loader in the program, and in a worker process.
_IN_LOADER: Final = "torch/utils/data/dataloader"
_IN_WORKER: Final = "torch/utils/data/_utils/worker"
_FETCH: Final = "torch/utils/data/_utils/fetch"
_PINNING: Final = "torch/utils/data/_utils/pin_memory"
#: Part of the longest call for a batch below which one makes none.
_EMPTY: Final = 0.1
#: Part of its time below which a worker has nothing to do.
_HARDLY: Final = 0.05
#: Functions of the loader that start and end its workers.
_STARTS: Final = re.compile(r"(.*\.)?(__init__|_get_iterator|_shutdown_workers|_reset)$")
MANY: Final = Threshold(32.0, "cores that a GPU of a host has for itself: 16 to 28 in common ones")
BUSY: Final = Threshold(0.7, "a worker that waits for a third of its time is not what others wait for")  # fmt: skip


class Loader:
    """Time in which the program waits for PyTorch's DataLoader, by Python's stacks, or by the range
    that PyTorch opens around it."""

    def __init__(
        self, s: StepFacts, stacks: Mapping[int, float], name: str, inside: float, edit: Edit
    ) -> None:
        self.s, self.edit = s, edit
        loading, fetching = map(self._within, (_IN_LOADER, _FETCH))
        self.own = {at: us for at, us in stacks.items() if at in loading}
        self.us = sum(self.own.values())
        self.range = name
        of_torch = s.framework == "torch" and "dataloader" in name.lower()
        if (of_torch or LOADER_RANGE.search(name)) and inside > self.us:
            self.us = inside
        fetched = sum(us for at, us in self.own.items() if at in fetching)
        self.alone = "SingleProcess" in name or fetched >= MOST.value * self.us > 0.0
        """Whether the program makes its batches itself, without workers."""
        self.by_workers = not self.alone and (bool(self.own) or "MultiProcess" in name)

    def _within(self, module: str) -> set[int]:
        """Stacks with a function of a module."""
        return self.s.stacks(lambda frame: module_of(frame) == module)

    def answer(self) -> tuple[str, tuple[str, ...]]:
        """What the host does, for a sentence, and what to do."""
        ran, whole_us = functions_of(self.s, self.own), sum(self.own.values())
        named = f": {listed(ran, whole_us)}" * bool(ran)
        now_us, step_us = self._pace
        if self.alone:
            pace = f"Making a batch takes {units.duration(now_us - step_us)}, the rest of the step {units.duration(step_us)}"
            cheaper = dear(ran, whole_us, "of the time for a batch", _LESS)
            advice = self._in_order(self.alone_advice(), cheaper)
            return f"while the program makes the batches itself{named}. {pace}.", advice
        starts = self.s.stacks(lambda x: module_of(x) == _IN_LOADER and _STARTS.match(x.function))
        starting = sum(us for at, us in self.own.items() if at in starts)
        if starting >= MOST.value * self.us:
            return f"while the DataLoader starts or ends its workers{named}.", (_KEEP,)
        waits = "for the workers of the DataLoader" if self.by_workers else f"in {self.range}"
        waits = f"while the program waits {waits}. It gets {_rate(now_us)} batches/s and could use {_rate(step_us)}."
        if self.workers[0]:
            return self._pipeline(waits)
        times = f"{units.significant(now_us / step_us, 2)} times as many" if step_us else "More"
        ours = self.s.trace.source.startswith("ncu-toolkit")
        if self.by_workers:
            return waits, (_MORE.format(times), _CHEAPER, *(_BUSY,) * (not ours))
        return waits, (ALONE.format("..."), IF_SO)

    def alone_advice(self) -> tuple[str, ...]:
        """How many workers would make the batches that the program makes itself."""
        return (ALONE.format(self.needed),) * self.alone

    @cached_property
    def needed(self) -> str:
        """How many workers would make batches as fast as the step could take them; "..." where the
        trace does not show how busy they are."""
        now_us, step_us = self._pace
        if not step_us:
            return "..."
        if self.alone:
            return str(max(2, math.ceil((now_us - step_us) / step_us)))
        many, busy, _ = self.workers
        return str(math.ceil(many * busy * now_us / step_us)) if busy else "..."

    @cached_property
    def _pace(self) -> tuple[float, float]:
        """Microseconds from batch to batch, and those without making them, or with the fix that the
        finding simulates where workers make them."""
        batches, wall_us = self._batches(), self.s.wall_us
        saved_us = self.us if self.alone else self.s.replay.saved_us(self.edit)
        return wall_us / batches, max(wall_us - saved_us, 0.0) / batches

    def _pipeline(self, waits: str) -> tuple[str, tuple[str, ...]]:
        """The same where the workers' own stacks are known."""
        many, busy, working = self.workers
        ran, total = functions_of(self.s, working), sum(working.values())
        some = f"{units.counted(many, 'worker')}, {units.percent(busy, 2)} busy"
        how = ": ".join(filter(None, (some, listed(ran, total))))
        if busy < BUSY.value:
            advice = _PIN if self._pins() else _BETWEEN
            return f"{waits} But the workers wait too ({how}).", (advice,)
        now_us, step_us = self._pace
        made = f"{units.counted(many, 'worker makes', 'workers make')} {_rate(now_us)} batches/s; the step could use {_rate(step_us)}"
        first = f"{made}: num_workers={self.needed}, if there are as many cores."
        return f"{waits} {how}.", self._in_order((first,), dear(ran, total, "of a worker", _LESS))

    def _in_order(self, more: tuple[str, ...], cheaper: tuple[str, ...]) -> tuple[str, ...]:
        """Advice, with more workers first unless they would be more than a host has cores for."""
        few = not self.needed.isdigit() or int(self.needed) <= MANY.value
        return (*more, *cheaper) if few else (*cheaper, *more)

    def _waits(self, stack: int) -> bool:
        """Whether a worker waits for something to do: it takes from its queue of indices."""
        frames = [self.s.trace.frames[at] for at in self.s.trace.stacks[stack]]
        modules = [*map(module_of, frames)]
        inner = modules[len(modules) - modules[::-1].index(_IN_WORKER) :]
        queue = inner[:1] == ["multiprocessing/queues"]
        return not inner or (queue and frames[-len(inner)].function.endswith("get"))

    @cached_property
    def workers(self) -> tuple[int, float, dict[int, float]]:
        """How many workers there are at once, the part (0-1) of their time in which they work, and the
        stacks of that, over all steps. Those that hardly work are another loader's."""
        times = [(each.start, each.end, 1e-3) for each in self.s.step.windows]
        known: list[tuple[float, dict[int, float], int, int]] = []
        in_worker = self._within(_IN_WORKER)
        for samples in self.s.samples.values():
            own = [sample for sample in samples if sample.stack in in_worker]
            if seen := stacks_in(own, times):
                working = {at: us for at, us in seen.items() if not self._waits(at)}
                known.append((sum(seen.values()), working, own[0].start, own[-1].end))
        busy = [each for each in known if sum(each[1].values()) >= _HARDLY * each[0]] or known
        working = summed(pair for _, stacks, _, _ in busy for pair in stacks.items())
        lives = [each[2:] for each in busy]
        many = max((sum(a <= start < b for a, b in lives) for start, _ in lives), default=0)
        ranks = len({op.process for op in self.s.trace.ops})
        whole = sum(each[0] for each in busy)
        part = sum(working.values()) / whole if whole else 0.0
        return max(bool(many), round(many / ranks)), part, working

    def _pins(self) -> bool:
        """Whether the thread that pins batches is busy with it."""
        pinning = self._within(_PINNING)
        pins = self.s.stacks(lambda frame: frame.function == "pin_memory")
        for samples in self.s.samples.values():
            own = [x for x in samples if x.stack in pinning]
            if sum(x.us for x in own if x.stack in pins) > BUSY.value * sum(x.us for x in own):
                return True
        return False

    def _batches(self) -> int:
        """Batches that a step takes, by PyTorch's ranges around each; 1 where there are none."""
        trace, windows = self.s.trace, self.s.step.windows
        names = {at for at, name in enumerate(trace.names) if LOADER_RANGE.search(name)}
        marks = [mark for mark in trace.marks if mark.name in names]
        # the call after the last batch makes none
        least = max((x.end - x.start for x in marks), default=0) * _EMPTY * self.alone
        starts = [mark.start for mark in marks if mark.end - mark.start >= least]
        count = bisect_left(starts, windows[-1].end) - bisect_left(starts, windows[0].start)
        return max(1, round(count / len(windows)))


def _rate(us: float) -> str:
    """Batches a second, by the microseconds of one."""
    return units.significant(1e6 / us, 2) if us else "more"
