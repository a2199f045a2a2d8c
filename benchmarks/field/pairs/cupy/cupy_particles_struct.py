"""Kinetic energy of each of 8 million particles."""

import cupy

from benchmarks.field import Launch, Pair, Work

COUNT, FIELDS = 1 << 23, 16
CODE = r"""
struct Particle {
  float x, y, z, mass, vx, vy, vz, charge, fx, fy, fz, age, r, g, b, a;
};

extern "C" __global__ void energy_struct(const Particle* particles, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  Particle const& p = particles[i];
  out[i] = 0.5f * (p.vx * p.vx + p.vy * p.vy + p.vz * p.vz);
}

extern "C" __global__ void energy_arrays(
    const float* vx, const float* vy, const float* vz, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 0.5f * (vx[i] * vx[i] + vy[i] * vy[i] + vz[i] * vz[i]);
}
"""


def inputs():
    rng = cupy.random.default_rng(3)
    particles = rng.random((COUNT, FIELDS), dtype="float32")
    return particles, cupy.ascontiguousarray(particles[:, 4:7].T)


def make(variant, particles, speeds):
    out = cupy.empty(COUNT, "float32")
    if variant == "before":
        kernel, given = cupy.RawKernel(CODE, "energy_struct"), (particles, out)
    else:
        kernel, given = cupy.RawKernel(CODE, "energy_arrays"), (*speeds, out)
    return Work(lambda: kernel((COUNT // 256,), (256,), given), out.get)


PAIR = Pair(inputs, make, Launch("energy_"), tolerance=1e-6)
