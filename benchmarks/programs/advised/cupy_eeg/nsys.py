"""Band power of a multichannel EEG recording (Welch periodogram per channel).

Each step takes the next recording of a session and returns the relative power
of the classical frequency bands of every electrode.
"""

import json
import math
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


GROUPS = 30  # blocks per channel
WARPS = 4  # warps per block, each takes two epochs at a time
PAIRS = EPOCHS // (2 * GROUPS * WARPS)  # pairs of epochs per warp
NEAR = range(0, 5)  # rows of 32 bins that hold bins 0..159
FAR = range(27, 32)  # and the rows of their mirror images
assert LENGTH == 1024 and PAIRS * 2 * GROUPS * WARPS == EPOCHS and GROUPS <= 32


def reverse5(i):
    return int(f"{i:05b}"[::-1], 2)


def fft32():
    """Straight-line 32-point transform of re[], im[]; outputs in bit-reversed order."""
    lines = []
    half = 16
    while half:
        for s in range(0, 32, 2 * half):
            for j in range(half):
                a, b = s + j, s + j + half
                angle = -math.pi * j / half
                c, d = f"{math.cos(angle):.9e}f", f"{math.sin(angle):.9e}f"
                lines.append(f"dr = re[{a}] - re[{b}]; di = im[{a}] - im[{b}];")
                lines.append(f"re[{a}] += re[{b}]; im[{a}] += im[{b}];")
                if j == 0:
                    lines.append(f"re[{b}] = dr; im[{b}] = di;")
                elif 2 * j == half:
                    lines.append(f"re[{b}] = di; im[{b}] = -dr;")
                else:
                    lines.append(
                        f"re[{b}] = dr * {c} - di * {d}; im[{b}] = dr * {d} + di * {c};"
                    )
        half //= 2
    return "\n".join(lines)


def kernel_source(edges):
    assert edges[-1][1] <= 160 and all(low >= 1 for low, _ in edges)
    bands = len(edges)
    twiddle = "\n".join(
        f"w = tw[{reverse5(i)} * 32 + lane]; dr = re[{i}]; di = im[{i}];"
        f"re[{i}] = dr * w.x - di * w.y; im[{i}] = dr * w.y + di * w.x;"
        for i in range(32)
    )
    put_re = "\n".join(f"box[{reverse5(i) * 33} + lane] = re[{i}];" for i in range(32))
    put_im = put_re.replace("= re[", "= im[")
    rows = [*NEAR, *FAR]
    collect = "\n".join(
        f"acc[{n}] += re[{reverse5(k)}] * re[{reverse5(k)}]"
        f" + im[{reverse5(k)}] * im[{reverse5(k)}];"
        for n, k in enumerate(rows)
    )
    sums = []
    for b, (low, high) in enumerate(edges):
        sums.append("v = 0.f;")
        for n, k in enumerate(rows):
            where = f"lane + {32 * k}" if k in NEAR else f"{LENGTH - 32 * k} - lane"
            sums.append(f"m = {where}; if (m >= {low} && m < {high}) v += acc[{n}];")
        sums.append("for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);")
        sums.append(f"if (lane == 0) part[warp][{b}] = v;")
    sums = "\n".join(sums)
    # Two real epochs are the two parts of one complex signal z; for their spectra
    # |X1[k]|^2 + |X2[k]|^2 = (|Z[k]|^2 + |Z[N-k]|^2) / 2.
    return f"""
extern "C" __global__ void __launch_bounds__({32 * WARPS}, 4)
band_sums(const float* __restrict__ rec, const float* __restrict__ window,
          const float2* __restrict__ twiddle, float* __restrict__ partial) {{
    __shared__ float2 tw[1024];
    __shared__ float win[1024];
    __shared__ float boxes[{WARPS}][32 * 33];
    __shared__ float part[{WARPS}][{bands}];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int group = blockIdx.x, channel = blockIdx.y;
    for (int i = threadIdx.x; i < 1024; i += {32 * WARPS}) {{
        tw[i] = twiddle[i];
        win[i] = window[i];
    }}
    __syncthreads();
    float* box = boxes[warp];
    float acc[{len(rows)}];
    #pragma unroll
    for (int n = 0; n < {len(rows)}; n++) acc[n] = 0.f;
    const int first = (group * {WARPS} + warp) * {PAIRS};
    #pragma unroll 1
    for (int p = 0; p < {PAIRS}; p++) {{
        const float* x = rec + ((size_t)channel * {EPOCHS} + 2 * (first + p)) * 1024 + lane;
        float re[32], im[32], dr, di, v0 = 0.f, v1 = 0.f;
        float2 w;
        #pragma unroll
        for (int j = 0; j < 32; j++) {{
            re[j] = __ldcs(x + 32 * j);
            im[j] = __ldcs(x + 1024 + 32 * j);
        }}
        #pragma unroll
        for (int j = 0; j < 32; j++) {{ v0 += re[j]; v1 += im[j]; }}
        #pragma unroll
        for (int o = 16; o; o >>= 1) {{
            v0 += __shfl_xor_sync(0xffffffffu, v0, o);
            v1 += __shfl_xor_sync(0xffffffffu, v1, o);
        }}
        v0 *= 1.f / 1024.f;
        v1 *= 1.f / 1024.f;
        #pragma unroll
        for (int j = 0; j < 32; j++) {{
            const float h = win[32 * j + lane];
            re[j] = (re[j] - v0) * h;
            im[j] = (im[j] - v1) * h;
        }}
        {fft32()}
        {twiddle}
        __syncwarp();
        {put_re}
        __syncwarp();
        #pragma unroll
        for (int j = 0; j < 32; j++) re[j] = box[lane * 33 + j];
        __syncwarp();
        {put_im}
        __syncwarp();
        #pragma unroll
        for (int j = 0; j < 32; j++) im[j] = box[lane * 33 + j];
        {fft32()}
        {collect}
    }}
    float v;
    int m;
    {sums}
    __syncthreads();
    if (threadIdx.x < {bands}) {{
        v = 0.f;
        for (int k = 0; k < {WARPS}; k++) v += part[k][threadIdx.x];
        partial[(channel * {GROUPS} + group) * {bands} + threadIdx.x] = v;
    }}
}}

extern "C" __global__ void __launch_bounds__(32)
add_relative(const float* __restrict__ partial, float* __restrict__ average, float scale) {{
    const int lane = threadIdx.x, channel = blockIdx.x;
    float power[{bands}], total = 0.f;
    #pragma unroll
    for (int b = 0; b < {bands}; b++) {{
        float v = lane < {GROUPS} ? partial[(channel * {GROUPS} + lane) * {bands} + b] : 0.f;
        #pragma unroll
        for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
        power[b] = v * scale;
        total += power[b];
    }}
    if (lane == 0) {{
        #pragma unroll
        for (int b = 0; b < {bands}; b++) average[channel * {bands} + b] += power[b] / total;
    }}
}}
"""


class BandPower:
    def __init__(self):
        window = np.hanning(LENGTH).astype(np.float32)
        self.window = cp.asarray(window)
        scale = 2.0 / (RATE * float((window**2).sum()))
        self.scale = np.float32(scale * 0.5 / EPOCHS)
        self.edges = band_slices()
        angle = -2.0 * np.pi * np.outer(np.arange(32), np.arange(32)) / LENGTH
        self.twiddle = cp.asarray(np.exp(1j * angle).astype(np.complex64))
        self.partial = cp.empty((CHANNELS, GROUPS, len(self.edges)), dtype=cp.float32)
        module = cp.RawModule(code=kernel_source(self.edges))
        self.band_sums = module.get_function("band_sums")
        self.add_relative = module.get_function("add_relative")

    def add_to(self, average, recording):
        """Add the relative band power of every channel of the recording."""
        self.band_sums(
            (GROUPS, CHANNELS),
            (32 * WARPS,),
            (recording, self.window, self.twiddle, self.partial),
        )
        self.add_relative((CHANNELS,), (32,), (self.partial, average, self.scale))


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
