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
        session.append(cp.asarray(10.0 * (noise + slow + strength * rhythm + offset)))
    return session


def band_slices():
    freqs = np.fft.rfftfreq(LENGTH, 1.0 / RATE)
    edges = []
    for low, high in BANDS.values():
        edges.append((int(np.searchsorted(freqs, low)), int(np.searchsorted(freqs, high))))
    return edges


SOURCE = r"""
#define PAIRS (EPOCHS / 2 / CHUNKS)

__device__ __forceinline__ float2 cmul(float2 a, float2 b) {
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

__device__ __forceinline__ int place(int i) {  // keeps 8-byte accesses of all passes on free banks
    return i ^ (((i >> 4) & 3) * 5);
}

// Radix-4 butterfly of v (forward transform), in order.
__device__ __forceinline__ void butterfly(float2 *v) {
    float2 a = make_float2(v[0].x + v[2].x, v[0].y + v[2].y);
    float2 b = make_float2(v[0].x - v[2].x, v[0].y - v[2].y);
    float2 c = make_float2(v[1].x + v[3].x, v[1].y + v[3].y);
    float2 d = make_float2(v[1].x - v[3].x, v[1].y - v[3].y);
    v[0] = make_float2(a.x + c.x, a.y + c.y);
    v[2] = make_float2(a.x - c.x, a.y - c.y);
    v[1] = make_float2(b.x + d.y, b.y - d.x);
    v[3] = make_float2(b.x - d.y, b.y + d.x);
}

__device__ __forceinline__ void twist(float2 *v, float2 w) {
    float2 w2 = cmul(w, w);
    v[1] = cmul(v[1], w);
    v[2] = cmul(v[2], w2);
    v[3] = cmul(v[3], cmul(w2, w));
}

// One block: PAIRS pairs of epochs of one electrode. Two epochs make one complex transform of
// 1024 points: |A_k|^2 + |B_k|^2 = (|Z_k|^2 + |Z_{N-k}|^2) / 2. The mean is taken off afterwards,
// with the transform of the window.
extern "C" __global__ void __launch_bounds__(256, 3) epochs_power(
    const float *__restrict__ recording, const float *__restrict__ window,
    const float2 *__restrict__ response, float *__restrict__ partial) {
    __shared__ float2 work[1024];
    __shared__ float2 sums[2][8];
    __shared__ float mirror[256];
    const int j = threadIdx.x;
    const int chunk = blockIdx.x, channel = blockIdx.y;
    const float *base = recording + ((size_t)channel * EPOCHS + chunk * 2 * PAIRS) * 1024;
    float win[4];
    for (int r = 0; r < 4; r++) win[r] = window[j + 256 * r];
    const float2 low_response = response[j], high_response = response[768 + j];
    float2 tw[4];
    for (int s = 0; s < 4; s++) {
        int ns = 4 << (2 * s);
        sincospif(-2.0f * (j % ns) / (4.0f * ns), &tw[s].y, &tw[s].x);
    }
    float low = 0.0f, high = 0.0f;
    float2 next[4];
    #pragma unroll
    for (int r = 0; r < 4; r++)
        next[r] = make_float2(base[j + 256 * r], base[1024 + j + 256 * r]);
    #pragma unroll 1
    for (int p = 0; p < PAIRS; p++) {
        float2 v[4];
        float2 total = make_float2(0.0f, 0.0f);
        #pragma unroll
        for (int r = 0; r < 4; r++) {
            total.x += next[r].x;
            total.y += next[r].y;
            v[r] = make_float2(next[r].x * win[r], next[r].y * win[r]);
        }
        if (p + 1 < PAIRS) {
            const float *from = base + (size_t)(p + 1) * 2048;
            #pragma unroll
            for (int r = 0; r < 4; r++)
                next[r] = make_float2(from[j + 256 * r], from[1024 + j + 256 * r]);
        }
        #pragma unroll
        for (int o = 16; o; o >>= 1) {
            total.x += __shfl_xor_sync(0xffffffffu, total.x, o);
            total.y += __shfl_xor_sync(0xffffffffu, total.y, o);
        }
        if ((j & 31) == 0) sums[p & 1][j >> 5] = total;
        butterfly(v);
        #pragma unroll
        for (int r = 0; r < 4; r++) work[place(4 * j + r)] = v[r];
        __syncthreads();
        #pragma unroll
        for (int s = 0; s < 4; s++) {
            const int ns = 4 << (2 * s);
            #pragma unroll
            for (int r = 0; r < 4; r++) v[r] = work[place(j + 256 * r)];
            twist(v, tw[s]);
            butterfly(v);
            __syncthreads();
            if (s < 3) {
                const int to = (j / ns) * ns * 4 + j % ns;
                #pragma unroll
                for (int r = 0; r < 4; r++) work[place(to + r * ns)] = v[r];
                __syncthreads();
            }
        }
        float2 mean = make_float2(0.0f, 0.0f);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            mean.x += sums[p & 1][i].x;
            mean.y += sums[p & 1][i].y;
        }
        mean.x *= 1.0f / 1024;
        mean.y *= 1.0f / 1024;
        float2 shift = cmul(mean, low_response);
        float re = v[0].x - shift.x, im = v[0].y - shift.y;
        low += re * re + im * im;
        shift = cmul(mean, high_response);
        re = v[3].x - shift.x;
        im = v[3].y - shift.y;
        high += re * re + im * im;
    }
    mirror[j] = high;  // bin 768 + j is bin -(256 - j)
    __syncthreads();
    if (j > 0) partial[((size_t)channel * CHUNKS + chunk) * 256 + j] = 0.5f * (low + mirror[256 - j]);
}

// One block per electrode, one warp per band.
extern "C" __global__ void bands(const float *__restrict__ partial, const int *__restrict__ edges,
                                 float scale, float *__restrict__ power) {
    __shared__ float of_band[BANDS];
    const int band = threadIdx.x >> 5, lane = threadIdx.x & 31;
    float total = 0.0f;
    for (int k = edges[2 * band] + lane; k < edges[2 * band + 1]; k += 32)
        for (int c = 0; c < CHUNKS; c++)
            total += partial[((size_t)blockIdx.x * CHUNKS + c) * 256 + k];
    for (int o = 16; o; o >>= 1) total += __shfl_xor_sync(0xffffffffu, total, o);
    if (lane == 0) of_band[band] = total * scale;
    __syncthreads();
    if (threadIdx.x < BANDS) {
        float sum = 0.0f;
        for (int b = 0; b < BANDS; b++) sum += of_band[b];
        power[blockIdx.x * BANDS + threadIdx.x] = of_band[threadIdx.x] / sum;
    }
}
"""
CHUNKS = 6


class BandPower:
    def __init__(self):
        assert LENGTH == 1024 and EPOCHS % (2 * CHUNKS) == 0
        window = np.hanning(LENGTH).astype(np.float32)
        self.window = cp.asarray(window)
        self.response = cp.asarray(np.fft.fft(window.astype(np.float64)).astype(np.complex64))
        self.scale = np.float32(2.0 / (RATE * float((window**2).sum())) / EPOCHS)
        edges = band_slices()
        assert all(0 < low and high <= 256 for low, high in edges)
        self.edges = cp.asarray(np.array(edges, dtype=np.int32))
        self.partial = cp.empty((CHANNELS, CHUNKS, 256), dtype=cp.float32)
        sizes = {"EPOCHS": EPOCHS, "CHUNKS": CHUNKS, "BANDS": len(BANDS)}
        defines = "".join(f"#define {name} {size}\n" for name, size in sizes.items())
        module = cp.RawModule(code=defines + SOURCE)
        self.epochs_power = module.get_function("epochs_power")
        self.bands = module.get_function("bands")

    def __call__(self, recording):
        power = cp.empty((CHANNELS, len(BANDS)), dtype=cp.float32)
        self.epochs_power(
            (CHUNKS, CHANNELS), (256,), (recording, self.window, self.response, self.partial)
        )
        self.bands(
            (CHANNELS,), (32 * len(BANDS),), (self.partial, self.edges, self.scale, power)
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
