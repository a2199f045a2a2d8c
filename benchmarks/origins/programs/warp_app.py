"""Warp: an elementwise kernel, one with vectors and a loop, and one with atomics."""

import os

import numpy as np
import warp as wp
from gpu_range import gpu_range

wp.config.quiet = True
wp.config.kernel_cache_dir = os.environ.get("WARP_CACHE_PATH", "/src/cache/warp")
wp.init()


@wp.kernel
def axpy(a: float, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = a * x[i] + y[i]


@wp.kernel
def attract(p: wp.array(dtype=wp.vec3), f: wp.array(dtype=wp.vec3), n: int):
    i = wp.tid()
    total = wp.vec3(0.0, 0.0, 0.0)
    for j in range(n):
        d = p[j] - p[i]
        total += d / (wp.length(d) * wp.length(d) + 0.01)
    f[i] = total


@wp.kernel
def add_up(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(out, 0, x[i])


device = "cuda:0"
n = 1 << 18
x = wp.array(np.linspace(0, 1, n, dtype=np.float32), dtype=float, device=device)
y = wp.array(np.ones(n, dtype=np.float32), dtype=float, device=device)
points = np.random.default_rng(7).random((4096, 3), dtype=np.float32)
p = wp.array(points, dtype=wp.vec3, device=device)
f = wp.zeros(4096, dtype=wp.vec3, device=device)
out = wp.zeros(1, dtype=float, device=device)


def work():
    wp.launch(axpy, dim=n, inputs=[2.0, x, y], device=device)
    wp.launch(attract, dim=4096, inputs=[p, f, 256], device=device)
    wp.launch(add_up, dim=n, inputs=[y, out], device=device)
    wp.synchronize_device(device)


work()
with gpu_range():
    work()
print("warp", float(out.numpy()[0]))
