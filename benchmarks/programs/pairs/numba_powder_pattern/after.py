"""Powder diffraction pattern of a vibrating nanocrystal by the Debye scattering equation."""
import json
import math
import time

import numpy
import numpy as np

numpy.row_stack = numpy.vstack
from numba import cuda, float32

CELLS = 8
ATOMS = 4 * CELLS ** 3
ANGLES = 512
TILE = 128
ROWS = 8
CHUNKS = ATOMS // ROWS
SPACING = 4.078
TIMESTEP = 0.05


@cuda.jit
def displace(rest, amplitude, phase, moment, position):
    i = cuda.grid(1)
    if i < rest.shape[1]:
        for axis in range(3):
            position[axis, i] = rest[axis, i] + amplitude[axis, i] * math.sin(moment + phase[axis, i])


@cuda.jit(fastmath=True)
def debye_sums(position, wave_number, partial):
    distance = cuda.shared.array(TILE, float32)
    weight = cuda.shared.array(TILE, float32)
    lane = cuda.threadIdx.x
    angle = cuda.blockIdx.x * TILE + lane
    q = wave_number[angle]
    total = float32(0.0)
    for row in range(ROWS):
        i = cuda.blockIdx.y * ROWS + row
        xi = position[0, i]
        yi = position[1, i]
        zi = position[2, i]
        for begin in range(0, ATOMS, TILE):
            j = begin + lane
            dx = position[0, j] - xi
            dy = position[1, j] - yi
            dz = position[2, j] - zi
            square = dx * dx + dy * dy + dz * dz
            cuda.syncthreads()
            if j == i:
                distance[lane] = float32(0.0)
                weight[lane] = float32(0.0)
            else:
                r = math.sqrt(square)
                distance[lane] = r
                weight[lane] = float32(1.0) / r
            cuda.syncthreads()
            for k in range(TILE):
                total += math.sin(q * distance[k]) * weight[k]
    partial[cuda.blockIdx.y, angle] = total / q


@cuda.jit
def collect(partial, form, pattern):
    angle = cuda.grid(1)
    if angle < partial.shape[1]:
        total = float32(ATOMS)
        for chunk in range(partial.shape[0]):
            total += partial[chunk, angle]
        pattern[angle] += form[angle] * form[angle] * total


def gold_lattice():
    """Face-centred cubic block, CELLS unit cells along each edge."""
    basis = np.array([[0.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]])
    corner = np.stack(np.meshgrid(*[np.arange(CELLS)] * 3, indexing="ij"), axis=-1).reshape(-1, 1, 3)
    return ((corner + basis).reshape(-1, 3) * SPACING).T


def main():
    rng = np.random.default_rng(1915)
    real = np.float32
    rest = cuda.to_device(np.ascontiguousarray(gold_lattice().astype(real)))
    amplitude = cuda.to_device(rng.normal(0.0, 0.09, (3, ATOMS)).astype(real))
    phase = cuda.to_device(rng.uniform(0.0, 2.0 * np.pi, (3, ATOMS)).astype(real))
    q = np.linspace(0.8, 14.0, ANGLES)
    wave_number = cuda.to_device(q.astype(real))
    form = cuda.to_device(np.exp(-0.012 * q * q).astype(real))
    position = cuda.device_array((3, ATOMS), dtype=real)
    partial = cuda.device_array((CHUNKS, ANGLES), dtype=real)
    pattern = cuda.to_device(np.zeros(ANGLES, dtype=real))

    def snapshot(index):
        displace[ATOMS // 128, 128](rest, amplitude, phase, real(index * TIMESTEP), position)
        debye_sums[(ANGLES // TILE, CHUNKS), TILE](position, wave_number, partial)
        collect[ANGLES // 32, 32](partial, form, pattern)

    done = 0
    for _ in range(10):
        snapshot(done)
        done += 1
    cuda.synchronize()

    times = []
    for _ in range(8):
        start = time.perf_counter()
        for _ in range(8):
            snapshot(done)
            done += 1
        cuda.synchronize()
        times.append((time.perf_counter() - start) / 8)

    median = float(np.median(times)) * 1e6
    curve = pattern.copy_to_host().astype(np.float64) / done
    result = [float(curve.max() / ATOMS), float(q[curve.argmax()]), float(curve.mean() / ATOMS)]
    print(json.dumps({"program": "numba_powder_pattern", "steps": done, "us": round(median, 1),
                      "result": [round(value, 6) for value in result]}))


if __name__ == "__main__":
    main()
