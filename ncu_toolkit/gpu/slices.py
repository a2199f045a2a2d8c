"""Experiments on a program that is not ours: slices of pressure while it runs.

A thread of the program runs each kind of pressure for a few milliseconds, in an order by lot, with
pauses between. Launches of the program that fall into a slice ran under its pressure; those in no
slice ran without. The program is not stopped, and nothing of it is changed but its speed."""

from __future__ import annotations

import json
import random
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from ncu_toolkit.gpu.pressure import CARVEOUTS, NO_STREAMS, Pressure, checked, driver

#: Nanoseconds of a slice, how many times longer some are, for long kernels, and of 24 slices how
#: many are so. Short ones hold kernels in other parts than the program does on the whole.
SLICE_NS: Final = 1_000_000
_LONGER: Final = (1, 4, 16, 64)
_OFTEN: Final = (10, 10, 3, 1)
#: Of four slices, how many have each of CARVEOUTS.
_SPLITS: Final = (3, 1)
#: Seconds between two slices.
PAUSE: Final = 0.003
#: How often a program is looked at that has not used the GPU yet, and how long its libraries have
#: to load their code before the first slice, in seconds.
_WATCH: Final = 0.02
_SETTLE: Final = 0.3


def run(
    path: str, asked: dict[str, Any], done: threading.Event, quiet: AbstractContextManager[Any]
) -> None:
    """Put the program under pressure until `done`, and write a line for each slice to `path`.

    Args:
        asked: "cubin" (path of the pressure kernels), "kinds", "sm_count", "seed".
        quiet: within it the tracer is not called when a module is loaded.

    Raises:
        ToolkitError: the pressure cannot be had here; the program is not disturbed.
    """
    d = driver()
    checked(d.cuInit(0), "the driver")
    device = checked(d.cuDeviceGet(0), "the device")
    while True:
        _, active = checked(d.cuDevicePrimaryCtxGetState(device), "the device")
        if active and not done.wait(_SETTLE):
            break
        if done.wait(_WATCH):
            return
    # What this thread does must not spoil a graph that the program captures meanwhile.
    relaxed = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    checked(d.cuThreadExchangeStreamCaptureMode(relaxed), "the capture mode")
    with quiet:
        pressure = Pressure(Path(asked["cubin"]).read_bytes(), int(asked["sm_count"]))
        pressure.carve(CARVEOUTS[0])
    shuffler = random.Random(int(asked["seed"]))
    usable = pressure.usable(asked["kinds"])
    with open(path, "w", encoding="utf-8") as file:
        if len(usable) < len(asked["kinds"]):
            file.write(json.dumps({"note": NO_STREAMS}) + "\n")
        while not done.is_set():
            kinds = list(usable)
            shuffler.shuffle(kinds)
            for kind in kinds:
                if done.wait(PAUSE * (0.5 + shuffler.random())):
                    break
                # The driver's split of the L1 joins kernels that are there, and fewer of those that
                # use shared memory can come later; with the other one it is the other way round.
                (carveout,) = shuffler.choices(CARVEOUTS, _SPLITS)
                pressure.carve(carveout)
                (longer,) = shuffler.choices(_LONGER, _OFTEN)
                seen = pressure.slice(kind, SLICE_NS * longer)
                file.write(json.dumps({"kind": kind, **seen}) + "\n")
                file.flush()
