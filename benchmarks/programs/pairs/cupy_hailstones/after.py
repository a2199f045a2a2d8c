"""Ground impact of simulated hailstones.

A storm model writes, for each storm, a catalogue of embryos leaving the updraft
(diameter, height, horizontal drift speed, supercooling).  Every embryo is
followed to the ground with a melting and drag model, and the impact catalogue
(diameter, fall time, kinetic energy, drift) is written back to host memory for
the archive.
"""
import json
import time

import cupy as cp
import cupyx
import numpy as np

STORMS = 4
CHUNKS = 8
STONES = 2 * 1024 * 1024
LANES = 4
THREADS = 256
WARMUP = 30
BLOCKS = 10
STEPS_PER_BLOCK = 10

FALL_SOURCE = r"""
__device__ __forceinline__ float air_density(float z)
{
    return 1.225f * __expf(-z * 1.18e-4f);
}

__device__ __forceinline__ float air_temperature(float z, float t_ground)
{
    return t_ground - 6.5e-3f * z;
}

extern "C" __global__
void fall_to_ground(const float4* __restrict__ embryo, float4* __restrict__ impact,
                    float t_ground, float freezing_level, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 e = embryo[i];
    float d = e.x;
    float z0 = e.y;
    float drift_speed = e.z;
    float cold = e.w;
    const int layers = 56;
    float dz = z0 / layers;
    float t = 0.0f, drift = 0.0f, speed = 0.0f;
    for (int k = 0; k < layers; ++k) {
        float z = z0 - (k + 0.5f) * dz;
        float rho = air_density(z);
        float temp = air_temperature(z, t_ground);
        float cd = 0.55f + 0.12f * __expf(-80.0f * d);
        float ice = 900.0f - 4.0f * cold;
        speed = sqrtf(4.0f * 9.81f * ice * d / (3.0f * cd * rho)) + 0.05f;
        float dt = dz / speed;
        float re = rho * speed * d * 5.6e4f;
        float nu = 2.0f + 0.6f * sqrtf(re) * 0.89f;
        float warm = fmaxf(temp - 273.15f, 0.0f) * (z < freezing_level ? 1.0f : 0.2f);
        float heat = nu * 0.024f * warm / d;
        cold *= __expf(-dt * 2.0e-4f * nu / (d * 100.0f + 0.1f));
        d = fmaxf(d - dt * 2.0f * heat / (ice * 3.34e5f), 1.0e-3f);
        drift += drift_speed * (0.3f + 0.7f * z / (z0 + 1.0f)) * dt;
        t += dt;
    }
    float mass = 900.0f * 0.5236f * d * d * d;
    impact[i] = make_float4(d, t, 0.5f * mass * speed * speed, drift);
}
"""

fall_to_ground = cp.RawKernel(FALL_SOURCE, "fall_to_ground")


def simulate_storms(seed):
    rng = np.random.default_rng(seed)
    storms = cupyx.empty_pinned((STORMS, CHUNKS, STONES, 4), dtype=np.float32)
    low = np.tile(np.array([0.008, 3500.0, 2.0, 0.5], dtype=np.float32), 4096)
    span = np.tile(np.array([0.035, 4500.0, 16.0, 12.0], dtype=np.float32), 4096)
    for s in range(STORMS):
        for c in range(CHUNKS):
            rng.random(dtype=np.float32, out=storms[s, c])
            rows = storms[s, c].reshape(-1, 4 * 4096)
            rows *= span
            rows += low
    return storms


class ImpactModel:
    def __init__(self):
        self.streams = [cp.cuda.Stream(non_blocking=True) for _ in range(LANES)]
        self.embryos = [cp.empty((STONES, 4), dtype=cp.float32) for _ in range(LANES)]
        self.impacts = [cp.empty((STONES, 4), dtype=cp.float32) for _ in range(LANES)]
        self.grid = (STONES + THREADS - 1) // THREADS

    def process_storm(self, storm, catalogue, t_ground, freezing_level):
        for c in range(CHUNKS):
            stream = self.streams[c % LANES]
            embryos = self.embryos[c % LANES]
            impacts = self.impacts[c % LANES]
            with stream:
                embryos.set(storm[c], stream=stream)
                fall_to_ground((self.grid,), (THREADS,),
                               (embryos, impacts, np.float32(t_ground),
                                np.float32(freezing_level), np.int32(STONES)))
                impacts.get(stream=stream, out=catalogue[c], blocking=False)


def main():
    storms = simulate_storms(4711)
    catalogue = cupyx.empty_pinned((CHUNKS, STONES, 4), dtype=np.float32)
    model = ImpactModel()
    device = cp.cuda.Device()
    ground = [291.0 + 2.5 * k for k in range(STORMS)]
    freezing = [2600.0 + 300.0 * k for k in range(STORMS)]

    step = 0

    def run(count):
        nonlocal step
        for _ in range(count):
            s = step % STORMS
            model.process_storm(storms[s], catalogue, ground[s], freezing[s])
            step += 1

    run(WARMUP)
    device.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        run(STEPS_PER_BLOCK)
        device.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)

    sample = catalogue[:, ::64].astype(np.float64)
    result = [float(sample[..., k].mean()) for k in range(4)]
    print(json.dumps({"program": "cupy_hailstones", "steps": step,
                      "us": float(np.median(times) * 1e6), "result": result}))


if __name__ == "__main__":
    main()
