"""Closed-loop adaptive mirror in front of a telescope imager.

A frozen-flow turbulent layer drifts over the pupil, an integrator drives the
piezo actuators of the mirror, the actuators follow with inertia, hysteresis
and creep, and the long-exposure image is summed over the spectral channels.
"""
import json
import statistics
import time

import cupy as cp
import numpy as np

GRID = 2048
ACTUATORS = 64
PITCH = GRID // ACTUATORS
CHANNELS = 20
DT = 1.0e-4
LEAK = 0.995
LOOP_GAIN = 0.05
STROKE = 3.0
DAMPING = 1400.0
HYST_WEIGHT = 0.12
HYST_A = 1.0
HYST_BETA = 0.9
HYST_GAMMA = 0.4
CREEP_RATE = 6.0
CREEP_WEIGHT = 0.04
WARMUP = 200
BLOCKS = 10
STEPS_PER_BLOCK = 10

optics = cp.RawModule(code=r"""
extern "C" __global__
void sense(const float* layer, const float* surface, float* error, int n, int actuators,
           int pitch, int shift) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= actuators * actuators) return;
    int row = (i / actuators) * pitch;
    int col = (i % actuators) * pitch;
    error[i] = layer[((row + shift) % n) * n + col] - surface[i];
}

extern "C" __global__
void pupil_field(const float* layer, const float* surface, const float* pupil,
                 const float* wavelength, float2* field, int n, int actuators, int pitch,
                 int shift, int channels) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= n * n) return;
    int row = p / n, col = p % n;
    float fr = (float)row / pitch, fc = (float)col / pitch;
    int r0 = (int)fr, c0 = (int)fc;
    int r1 = min(r0 + 1, actuators - 1), c1 = min(c0 + 1, actuators - 1);
    fr -= r0;
    fc -= c0;
    float top = surface[r0 * actuators + c0] * (1.0f - fc) + surface[r0 * actuators + c1] * fc;
    float low = surface[r1 * actuators + c0] * (1.0f - fc) + surface[r1 * actuators + c1] * fc;
    float residual = layer[((row + shift) % n) * n + col] - (top * (1.0f - fr) + low * fr);
    float amplitude = pupil[p];
    for (int w = 0; w < channels; ++w) {
        float s, c;
        __sincosf(6.2831853f * residual / wavelength[w], &s, &c);
        field[(size_t)w * n * n + p] = make_float2(amplitude * c, amplitude * s);
    }
}

extern "C" __global__
void expose(const float2* focal, const float* throughput, float* image, int pixels, int channels) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pixels) return;
    float sum = 0.0f;
    for (int w = 0; w < channels; ++w) {
        float2 f = focal[(size_t)w * pixels + p];
        sum += throughput[w] * (f.x * f.x + f.y * f.y);
    }
    image[p] += sum;
}
""")
sense = optics.get_function("sense")
pupil_field = optics.get_function("pupil_field")
expose = optics.get_function("expose")


def turbulent_layer(rng):
    noise = cp.asarray(rng.standard_normal((GRID, GRID), dtype=np.float32))
    k = cp.fft.fftfreq(GRID).astype(cp.float32) * GRID
    radius = cp.sqrt(k[:, None] ** 2 + k[None, :] ** 2 + 4.0)
    layer = cp.fft.ifft2(cp.fft.fft2(noise) * radius ** (-11.0 / 6.0)).real
    layer = layer.astype(cp.float32)
    layer -= layer.mean()
    return cp.ascontiguousarray(layer * (0.6 / layer.std()))


def pupil_mask():
    axis = cp.arange(GRID, dtype=cp.float32) - GRID / 2
    radius = cp.sqrt(axis[:, None] ** 2 + axis[None, :] ** 2)
    return ((radius < GRID / 4) & (radius > GRID / 20)).astype(cp.float32)


def actuator_rates(x, v, z, c, drive, stiffness):
    dv = stiffness * (drive - x - HYST_WEIGHT * z + CREEP_WEIGHT * c) - DAMPING * v
    dz = HYST_A * v - HYST_BETA * cp.abs(v) * z - HYST_GAMMA * v * cp.abs(z)
    dc = CREEP_RATE * (x - c)
    return v, dv, dz, dc


def move_actuators(x, v, z, c, drive, stiffness):
    h = 0.5 * DT
    x1, v1, z1, c1 = actuator_rates(x, v, z, c, drive, stiffness)
    x2, v2, z2, c2 = actuator_rates(x + h * x1, v + h * v1, z + h * z1, c + h * c1,
                                    drive, stiffness)
    x3, v3, z3, c3 = actuator_rates(x + h * x2, v + h * v2, z + h * z2, c + h * c2,
                                    drive, stiffness)
    x4, v4, z4, c4 = actuator_rates(x + DT * x3, v + DT * v3, z + DT * z3, c + DT * c3,
                                    drive, stiffness)
    sixth = DT / 6.0
    x = x + sixth * (x1 + 2.0 * x2 + 2.0 * x3 + x4)
    v = v + sixth * (v1 + 2.0 * v2 + 2.0 * v3 + v4)
    z = z + sixth * (z1 + 2.0 * z2 + 2.0 * z3 + z4)
    c = c + sixth * (c1 + 2.0 * c2 + 2.0 * c3 + c4)
    return x, v, z, c


class Mirror:
    def __init__(self, rng):
        shape = (ACTUATORS, ACTUATORS)
        resonance = 2400.0 * (1.0 + 0.05 * rng.standard_normal(shape))
        self.stiffness = cp.asarray((resonance ** 2).astype(np.float32))
        self.command = cp.zeros(shape, dtype=cp.float32)
        self.x = cp.zeros(shape, dtype=cp.float32)
        self.v = cp.zeros(shape, dtype=cp.float32)
        self.z = cp.zeros(shape, dtype=cp.float32)
        self.c = cp.zeros(shape, dtype=cp.float32)

    def update(self, error):
        self.command = cp.clip(LEAK * self.command + LOOP_GAIN * error, -STROKE, STROKE)
        self.x, self.v, self.z, self.c = move_actuators(
            self.x, self.v, self.z, self.c, self.command, self.stiffness)


def main():
    rng = np.random.default_rng(314)
    layer = turbulent_layer(rng)
    pupil = pupil_mask()
    mirror = Mirror(rng)
    wavelength = cp.linspace(0.60, 0.92, CHANNELS, dtype=cp.float32)
    throughput = cp.asarray(np.hanning(CHANNELS + 2)[1:-1].astype(np.float32))
    throughput /= throughput.sum() * GRID * GRID
    error = cp.empty((ACTUATORS, ACTUATORS), dtype=cp.float32)
    field = cp.empty((CHANNELS, GRID, GRID), dtype=cp.complex64)
    image = cp.zeros((GRID, GRID), dtype=cp.float32)
    n, actuators, pitch = np.int32(GRID), np.int32(ACTUATORS), np.int32(PITCH)
    pixels, channels = np.int32(GRID * GRID), np.int32(CHANNELS)
    tiles = (GRID * GRID // 256,)

    def step(index):
        shift = np.int32((3 * index) % GRID)
        sense((ACTUATORS * ACTUATORS // 256,), (256,),
              (layer, mirror.x, error, n, actuators, pitch, shift))
        mirror.update(error)
        pupil_field(tiles, (256,), (layer, mirror.x, pupil, wavelength, field, n, actuators,
                                    pitch, shift, channels))
        focal = cp.fft.fft2(field)
        expose(tiles, (256,), (focal, throughput, image, pixels, channels))

    done = 0
    for _ in range(WARMUP):
        step(done)
        done += 1
    cp.cuda.Device().synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(done)
            done += 1
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)

    result = [
        float(image.sum(dtype=cp.float64)) / done,
        float(image[0, 0]) / done,
        float(cp.sqrt((mirror.x.astype(cp.float64) ** 2).mean())),
        float(cp.abs(mirror.z).mean(dtype=cp.float64)),
    ]
    print(json.dumps({"program": "cupy_adaptive_mirror", "steps": done,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
