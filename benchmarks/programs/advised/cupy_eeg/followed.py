"""Band power of a multichannel EEG recording (Welch periodogram per channel).

Each step takes the next recording of a session and returns the relative power
of the classical frequency bands of every electrode.
"""

import json
import time

import cupy as cp
import numpy as np

CHANNELS = 64
EPOCHS = 480
LENGTH = 1024
RATE = 512.0
RECORDINGS = 3
BANDS = {
    "delta": (1.0, 4.0),
    "theta": (4.0, 8.0),
    "alpha": (8.0, 13.0),
    "beta": (13.0, 30.0),
    "gamma": (30.0, 80.0),
}


def simulate_session(seed):
    """Drifting pink-ish noise with an alpha rhythm that differs by electrode."""
    rng = np.random.default_rng(seed)
    samples = EPOCHS * LENGTH
    noise = rng.standard_normal((CHANNELS, samples), dtype=np.float32)
    slow = np.repeat(noise[:, ::64], 64, axis=1)[:, :samples]
    t = np.arange(samples, dtype=np.float32) / np.float32(RATE)
    strength = np.linspace(0.2, 1.5, CHANNELS, dtype=np.float32)[:, None]
    session = []
    for r in range(RECORDINGS):
        rhythm = np.sin(np.float32(2.0 * np.pi * (9.5 + 0.5 * r)) * t)
        offset = np.float32(0.3 * (r + 1))
        recording = 10.0 * (noise + slow + strength * rhythm + offset)
        session.append(cp.asarray(np.ascontiguousarray(recording, dtype=np.float32)))
    return session


def band_slices():
    freqs = np.fft.rfftfreq(LENGTH, 1.0 / RATE)
    edges = []
    for low, high in BANDS.values():
        edges.append((int(np.searchsorted(freqs, low)), int(np.searchsorted(freqs, high))))
    return edges


PREPARE = cp.RawKernel(
    r"""
extern "C" __global__ void prepare(const float4* __restrict__ data, const float4* __restrict__ window,
                                   float4* __restrict__ out, int epochs) {
    // One warp takes one epoch of 1024 samples: subtract the mean, multiply by the window.
    int epoch = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    int lane = threadIdx.x & 31;
    if (epoch >= epochs) return;
    const float4* from = data + (size_t)epoch * 256;
    float4* to = out + (size_t)epoch * 256;
    float4 v[8];
    #pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = from[lane + 32 * k];
    float sum = 0.0f;
    #pragma unroll
    for (int k = 0; k < 8; ++k) sum += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    #pragma unroll
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    float mean = sum * (1.0f / 1024.0f);
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
        float4 w = window[lane + 32 * k];
        to[lane + 32 * k] = make_float4((v[k].x - mean) * w.x, (v[k].y - mean) * w.y,
                                        (v[k].z - mean) * w.z, (v[k].w - mean) * w.w);
    }
}
""",
    "prepare",
)

DENSITY = cp.RawKernel(
    r"""
extern "C" __global__ void density(const float2* __restrict__ spectrum, float* __restrict__ psd,
                                   int epochs, int bins, int low, int high, float scale) {
    // Mean power over the epochs of a channel, for 32 bins a block; 16 warps share the epochs.
    __shared__ float part[16][33];
    int channel = blockIdx.y;
    int bin = low + blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    if (bin < high) {
        const float2* from = spectrum + (size_t)channel * epochs * bins + bin;
        #pragma unroll 6
        for (int e = threadIdx.y; e < epochs; e += 16) {
            float2 z = from[(size_t)e * bins];
            sum += z.x * z.x + z.y * z.y;
        }
    }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && bin < high) {
        float total = 0.0f;
        #pragma unroll
        for (int k = 0; k < 16; ++k) total += part[k][threadIdx.x];
        psd[channel * (high - low) + bin - low] = total / epochs * scale;
    }
}
""",
    "density",
)

RELATIVE = cp.RawKernel(
    r"""
extern "C" __global__ void relative(const float* __restrict__ psd, const int* __restrict__ edges,
                                    float* __restrict__ out, int width, int low) {
    // One block per channel, one warp per band: band sums, then their share of the total.
    __shared__ float power[32];
    int channel = blockIdx.x, band = threadIdx.x >> 5, lane = threadIdx.x & 31;
    int bands = blockDim.x >> 5;
    float sum = 0.0f;
    for (int b = edges[2 * band] + lane; b < edges[2 * band + 1]; b += 32)
        sum += psd[channel * width + b - low];
    #pragma unroll
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane == 0) power[band] = sum;
    __syncthreads();
    if (lane == 0) {
        float total = 0.0f;
        for (int k = 0; k < bands; ++k) total += power[k];
        out[channel * bands + band] = sum / total;
    }
}
""",
    "relative",
)


class BandPower:
    def __init__(self):
        window = np.hanning(LENGTH).astype(np.float32)
        self.window = cp.asarray(window)
        self.scale = np.float32(2.0 / (RATE * float((window**2).sum())))
        edges = band_slices()
        self.edges = cp.asarray(np.array(edges, dtype=np.int32))
        self.bands = len(edges)
        self.low = min(low for low, _ in edges)
        self.high = max(high for _, high in edges)

    def __call__(self, recording):
        epochs = CHANNELS * EPOCHS
        windowed = cp.empty((CHANNELS, EPOCHS, LENGTH), dtype=cp.float32)
        PREPARE(
            ((epochs + 7) // 8,), (256,), (recording, self.window, windowed, np.int32(epochs))
        )
        spectrum = cp.fft.rfft(windowed, axis=2)
        low, high = np.int32(self.low), np.int32(self.high)
        width = self.high - self.low
        psd = cp.empty((CHANNELS, width), dtype=cp.float32)
        DENSITY(
            ((width + 31) // 32, CHANNELS),
            (32, 16),
            (spectrum, psd, np.int32(EPOCHS), np.int32(LENGTH // 2 + 1), low, high, self.scale),
        )
        power = cp.empty((CHANNELS, self.bands), dtype=cp.float32)
        RELATIVE(
            (CHANNELS,), (32 * self.bands,), (psd, self.edges, power, np.int32(width), low)
        )
        return power


def main():
    session = simulate_session(seed=77)
    band_power = BandPower()
    average = cp.zeros((CHANNELS, len(BANDS)), dtype=cp.float32)

    count = 0

    def step():
        nonlocal count, average
        average += band_power(session[count % RECORDINGS])
        count += 1

    for _ in range(6):
        step()
    cp.cuda.Device().synchronize()

    times = []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(9):
            step()
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / 9)

    table = cp.asnumpy(average).astype(np.float64) / count
    weights = np.arange(1, len(BANDS) + 1)
    checksum = float((table * weights).sum(axis=1).mean())
    print(
        json.dumps(
            {
                "program": "cupy_eeg",
                "steps": count,
                "us": 1e6 * float(np.median(times)),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
