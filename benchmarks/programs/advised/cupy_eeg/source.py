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


# One warp transforms two epochs at once (first epoch real part, second imaginary
# part; the sum of their periodograms is (|Z[k]|^2 + |Z[N-k]|^2) / 2), as 32 x 32
# points kept in registers, with one transpose through shared memory.
PAIRS_PER_WARP = 3
WARPS = 4
PARTS = EPOCHS // (2 * PAIRS_PER_WARP)
LAST_BIN = 160  # the kernel keeps bins below this one

SOURCE = r"""
#define LENGTH 1024
#define EPOCHS %(EPOCHS)d
#define PAIRS %(PAIRS)d
#define PARTS %(PARTS)d
#define WARPS %(WARPS)d
#define NB 5

__device__ __forceinline__ float quarter(int j) {
    switch (j) {
        case 0: return 1.0f;
        case 1: return 0.98078528040323044913f;
        case 2: return 0.92387953251128675613f;
        case 3: return 0.83146961230254523708f;
        case 4: return 0.70710678118654752440f;
        case 5: return 0.55557023301960222474f;
        case 6: return 0.38268343236508977173f;
        case 7: return 0.19509032201612826785f;
        default: return 0.0f;
    }
}
__device__ __forceinline__ float cos32(int j) { return j <= 8 ? quarter(j) : -quarter(16 - j); }
__device__ __forceinline__ float sin32(int j) { return j <= 8 ? quarter(8 - j) : quarter(j - 8); }

__device__ __forceinline__ constexpr int rev5(int p) {
    return ((p & 1) << 4) | ((p & 2) << 2) | (p & 4) | ((p & 8) >> 2) | ((p & 16) >> 4);
}

template <int HALF>
__device__ __forceinline__ void stage(float2 (&v)[32]) {
    #pragma unroll
    for (int base = 0; base < 32; base += 2 * HALF) {
        #pragma unroll
        for (int j = 0; j < HALF; ++j) {
            const int t = j * (16 / HALF);
            float2 a = v[base + j], b = v[base + j + HALF];
            v[base + j] = make_float2(a.x + b.x, a.y + b.y);
            float x = a.x - b.x, y = a.y - b.y;
            if (t == 0) {
                v[base + j + HALF] = make_float2(x, y);
            } else if (t == 8) {
                v[base + j + HALF] = make_float2(y, -x);
            } else {
                const float c = cos32(t), s = sin32(t);
                v[base + j + HALF] = make_float2(x * c + y * s, y * c - x * s);
            }
        }
    }
}

// v[p] becomes X[rev5(p)]
__device__ __forceinline__ void fft32(float2 (&v)[32]) {
    stage<16>(v); stage<8>(v); stage<4>(v); stage<2>(v); stage<1>(v);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 4)
band_parts(const float* __restrict__ rec, const float* __restrict__ window,
           const float2* __restrict__ twiddle, const int* __restrict__ edges,
           float* __restrict__ partial) {
    __shared__ float2 s_tw[LENGTH];
    __shared__ float s_win[LENGTH];
    __shared__ float2 s_buf[WARPS][32 * 33];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int i = threadIdx.x; i < LENGTH; i += 32 * WARPS) {
        s_tw[i] = twiddle[i];
        s_win[i] = window[i];
    }
    __syncthreads();
    const int unit = blockIdx.x * WARPS + warp;
    const int channel = unit / PARTS, part = unit - channel * PARTS;
    const float* first =
        rec + ((size_t)channel * EPOCHS + (size_t)part * (2 * PAIRS)) * LENGTH + lane;
    float2* buf = s_buf[warp];
    float acc[10];
    #pragma unroll
    for (int i = 0; i < 10; ++i) acc[i] = 0.0f;

    #pragma unroll 1
    for (int p = 0; p < PAIRS; ++p) {
        const float* e0 = first + (size_t)p * (2 * LENGTH);
        float2 v[32];
        #pragma unroll
        for (int n = 0; n < 32; ++n)
            v[n] = make_float2(__ldcs(e0 + 32 * n), __ldcs(e0 + LENGTH + 32 * n));
        float mx = 0.0f, my = 0.0f;
        #pragma unroll
        for (int n = 0; n < 32; ++n) { mx += v[n].x; my += v[n].y; }
        #pragma unroll
        for (int d = 16; d; d >>= 1) {
            mx += __shfl_xor_sync(0xffffffffu, mx, d);
            my += __shfl_xor_sync(0xffffffffu, my, d);
        }
        mx *= 1.0f / LENGTH;
        my *= 1.0f / LENGTH;
        #pragma unroll
        for (int n = 0; n < 32; ++n) {
            const float w = s_win[32 * n + lane];
            v[n] = make_float2((v[n].x - mx) * w, (v[n].y - my) * w);
        }
        fft32(v);
        #pragma unroll
        for (int q = 0; q < 32; ++q) {
            const int k1 = rev5(q);
            float2 z = v[q];
            if (k1 > 0) {
                const float2 t = s_tw[32 * k1 + lane];
                z = make_float2(z.x * t.x - z.y * t.y, z.x * t.y + z.y * t.x);
            }
            buf[33 * k1 + lane] = z;
        }
        __syncwarp();
        #pragma unroll
        for (int n = 0; n < 32; ++n) v[n] = buf[33 * lane + n];
        __syncwarp();
        fft32(v);
        #pragma unroll
        for (int q = 0; q < 32; ++q) {
            const int k2 = rev5(q);
            const float m = v[q].x * v[q].x + v[q].y * v[q].y;
            if (k2 < 5) acc[k2] += m;
            if (k2 >= 27) acc[k2 - 22] += m;
        }
    }

    float band[NB];
    #pragma unroll
    for (int b = 0; b < NB; ++b) {
        const int low = edges[2 * b], high = edges[2 * b + 1];
        float sum = 0.0f;
        #pragma unroll
        for (int i = 0; i < 10; ++i) {
            const int k = i < 5 ? lane + 32 * i : LENGTH - (lane + 32 * (i + 22));
            if (k >= low && k < high) sum += acc[i];
        }
        #pragma unroll
        for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        band[b] = sum;
    }
    if (lane == 0) {
        #pragma unroll
        for (int b = 0; b < NB; ++b) partial[(channel * NB + b) * PARTS + part] = band[b];
    }
}

extern "C" __global__ void __launch_bounds__(32 * NB)
finish(const float* __restrict__ partial, float scale, float* __restrict__ average) {
    __shared__ float power[NB];
    const int lane = threadIdx.x & 31, b = threadIdx.x >> 5, channel = blockIdx.x;
    float sum = 0.0f;
    for (int i = lane; i < PARTS; i += 32) sum += partial[(channel * NB + b) * PARTS + i];
    #pragma unroll
    for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane == 0) power[b] = sum * scale;
    __syncthreads();
    if (threadIdx.x < NB) {
        float total = 0.0f;
        #pragma unroll
        for (int i = 0; i < NB; ++i) total += power[i];
        average[channel * NB + threadIdx.x] += power[threadIdx.x] / total;
    }
}
"""
SOURCE %= dict(EPOCHS=EPOCHS, PAIRS=PAIRS_PER_WARP, PARTS=PARTS, WARPS=WARPS)


class BandPower:
    """Adds the relative band power of a recording to a running sum."""

    def __init__(self):
        window = np.hanning(LENGTH).astype(np.float32)
        self.window = cp.asarray(window)
        scale = 2.0 / (RATE * float((window**2).sum()))
        self.scale = np.float32(0.5 * scale / EPOCHS)
        edges = band_slices()
        assert len(edges) == 5 and max(high for _, high in edges) <= LAST_BIN
        assert EPOCHS % (2 * PAIRS_PER_WARP) == 0 and CHANNELS * PARTS % WARPS == 0
        self.edges = cp.asarray(np.array(edges, dtype=np.int32).ravel())
        k, n = np.meshgrid(np.arange(32), np.arange(32), indexing="ij")
        self.twiddle = cp.asarray(np.exp(-2j * np.pi * (k * n) / LENGTH).astype(np.complex64))
        self.partial = cp.zeros((CHANNELS, len(edges), PARTS), dtype=cp.float32)
        module = cp.RawModule(code=SOURCE, options=("-std=c++17",))
        self.band_parts = module.get_function("band_parts")
        self.finish = module.get_function("finish")

    def add_to(self, average, recording):
        self.band_parts(
            (CHANNELS * PARTS // WARPS,),
            (32 * WARPS,),
            (recording, self.window, self.twiddle, self.edges, self.partial),
        )
        self.finish((CHANNELS,), (160,), (self.partial, self.scale, average))


def main():
    session = simulate_session(seed=77)
    band_power = BandPower()
    average = cp.zeros((CHANNELS, len(BANDS)), dtype=cp.float32)

    count = 0

    def step():
        nonlocal count
        band_power.add_to(average, session[count % RECORDINGS])
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
