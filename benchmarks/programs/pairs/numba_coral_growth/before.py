"""Growth of a coral-like pattern: Gray-Scott reaction and diffusion with a feed that varies over the reef."""
import json
import statistics
import time

import numpy

numpy.row_stack = numpy.vstack
from numba import cuda, float32  # noqa: E402

NAME = "numba_coral_growth"
ROWS, COLS = 3072, 4096
D_U, D_V, DT = 0.16, 0.08, 1.0
KILL = 0.062
SUBSTEPS = 6
WARMUP, BLOCKS, PER_BLOCK = 6, 6, 6
THREADS = (32, 8)


@cuda.jit(device=True)
def laplacian(a, r, c, rows, cols):
    """Five-point stencil on a torus."""
    up = r - 1 if r > 0 else rows - 1
    down = r + 1 if r < rows - 1 else 0
    left = c - 1 if c > 0 else cols - 1
    right = c + 1 if c < cols - 1 else 0
    return a[up, c] + a[down, c] + a[r, left] + a[r, right] - float32(4.0) * a[r, c]


@cuda.jit(fastmath=True)
def grow(u, v, feed, u_next, v_next):
    r, c = cuda.grid(2)
    rows, cols = u.shape
    if r < rows and c < cols:
        u0 = u[r, c]
        v0 = v[r, c]
        f = feed[r, c]
        eaten = u0 * v0 * v0
        du = float32(D_U) * laplacian(u, r, c, rows, cols) - eaten + f * (float32(1.0) - u0)
        dv = float32(D_V) * laplacian(v, r, c, rows, cols) + eaten - (f + float32(KILL)) * v0
        u_next[r, c] = u0 + float32(DT) * du
        v_next[r, c] = v0 + float32(DT) * dv


def launch_grid():
    return ((ROWS + THREADS[0] - 1) // THREADS[0], (COLS + THREADS[1] - 1) // THREADS[1])


def plant_reef(seed=91):
    rng = numpy.random.default_rng(seed)
    u = numpy.ones((ROWS, COLS), dtype=numpy.float32)
    v = numpy.zeros((ROWS, COLS), dtype=numpy.float32)
    for _ in range(400):
        r, c = rng.integers(0, ROWS - 24), rng.integers(0, COLS - 24)
        u[r:r + 24, c:c + 24] = 0.5
        v[r:r + 24, c:c + 24] = 0.25
    v += 0.02 * rng.random((ROWS, COLS), dtype=numpy.float32)
    depth = numpy.sin(numpy.linspace(0, 3.1, COLS, dtype=numpy.float32))[None, :]
    feed = (0.03 + 0.008 * depth * numpy.ones((ROWS, 1), dtype=numpy.float32)).astype(numpy.float32)
    return u, v, feed


class Reef:
    def __init__(self):
        u, v, feed = plant_reef()
        self.u, self.v, self.feed = cuda.to_device(u), cuda.to_device(v), cuda.to_device(feed)
        self.u_next, self.v_next = cuda.device_array_like(self.u), cuda.device_array_like(self.v)
        self.grid = launch_grid()

    def step(self):
        for _ in range(SUBSTEPS):
            grow[self.grid, THREADS](self.u, self.v, self.feed, self.u_next, self.v_next)
            self.u, self.u_next = self.u_next, self.u
            self.v, self.v_next = self.v_next, self.v


def main():
    reef = Reef()
    for _ in range(WARMUP):
        reef.step()
    cuda.synchronize()

    spans = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            reef.step()
        cuda.synchronize()
        spans.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    u, v = reef.u.copy_to_host(), reef.v.copy_to_host()
    print(json.dumps({"program": NAME, "steps": WARMUP + BLOCKS * PER_BLOCK, "us": statistics.median(spans),
                      "result": [float(u.mean(dtype=numpy.float64)), float(v.mean(dtype=numpy.float64)),
                                 float(v.std(dtype=numpy.float64))]}))


if __name__ == "__main__":
    main()
