"""Threads of a block of Numba's kernels that are launched on one axis; the grid follows, so that there
are at least as many threads. A kernel that counts on its block's size computes something else, or
reads past its data: only what was printed tells.

Source: Numba documentation, "Choosing the block size"."""

from typing import Any

TITLE = "Threads of a block of a Numba kernel"
CAUSES = ("low-occupancy", "grid-too-small")
NEEDS = "Numba kernel of that name with blocks of one axis"
GROUP = "numba-block"
DIFFERS = "Nothing, if the kernel takes blocks of any size."
TOLERANCE = 1e-3
VALUES = ("128", "256", "512")
KEEP = {"numba": "kernel[grid, {}] where it is launched"}


def hook(dispatcher: Any, thrown: Any) -> None:
    kernels = dispatcher.CUDADispatcher
    configure = kernels.configure

    def call(self: Any, grid: Any, block: Any, *others: Any, **named: Any) -> Any:
        size = [*grid] if isinstance(grid, (tuple, list)) else [grid]
        threads = [*block] if isinstance(block, (tuple, list)) else [block]
        flat = all(each == 1 for each in (*size[1:], *threads[1:]))
        new = int(thrown.value)
        if flat and threads[0] != new and thrown.named(getattr(self, "__name__", "")):
            grid, block = max(1, -(-size[0] * threads[0] // new)), new
            thrown.applied()
        return configure(self, grid, block, *others, **named)

    kernels.configure = call


HOOKS = {"numba.cuda.dispatcher": hook}
