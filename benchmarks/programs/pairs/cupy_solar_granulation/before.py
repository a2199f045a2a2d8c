"""Registration and stacking of short exposures of solar granulation."""
import json
import time

import cupy
import numpy as np

SIZE = 512
FRAMES = 128
BURSTS = 6
HALF = SIZE // 2 + 1
PIXELS = SIZE * SIZE
WARMUP = 5
BLOCKS = 8
STEPS_PER_BLOCK = 5

prepare = cupy.ElementwiseKernel(
    "uint16 count, float32 taper, float32 level", "float32 out",
    "out = ((float)count - level) * taper", "prepare")

accumulate = cupy.RawKernel(r"""
extern "C" __global__
void accumulate(const float2* spectra, const long long* peaks, float2* total,
                const int frames, const int size, const int half) {
    const int cell = blockIdx.x * blockDim.x + threadIdx.x;
    const int cells = size * half;
    if (cell >= cells) return;
    const int ky = cell / half;
    const int kx = cell - ky * half;
    float re = 0.0f, im = 0.0f;
    #pragma unroll 8
    for (int f = 0; f < frames; ++f) {
        const int peak = (int)peaks[f];
        const int dy = peak / size;
        const int dx = peak - dy * size;
        const int turn = (ky * dy + kx * dx) & (size - 1);
        float s, c;
        sincospif(2.0f * turn / size, &s, &c);
        const float2 v = spectra[(size_t)f * cells + cell];
        re += v.x * c - v.y * s;
        im += v.x * s + v.y * c;
    }
    float2 sum = total[cell];
    sum.x += re;
    sum.y += im;
    total[cell] = sum;
}
""", "accumulate")


def observe(rng):
    """Bursts of 12 bit frames of one wandering scene, in page-locked memory."""
    fy = np.fft.fftfreq(SIZE)[:, None]
    fx = np.fft.rfftfreq(SIZE)[None, :]
    shape = np.exp(-((np.hypot(fy, fx) - 0.05) / 0.02) ** 2)
    scene = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((SIZE, SIZE))) * shape)
    scene = 2000.0 + 400.0 * scene / scene.std()
    scene = np.clip(scene, 200, 3800).astype(np.uint16)
    noise = rng.integers(0, 120, (8, SIZE, SIZE), dtype=np.uint16)
    bursts = []
    for _ in range(BURSTS):
        memory = cupy.cuda.alloc_pinned_memory(FRAMES * PIXELS * 2)
        burst = np.frombuffer(memory, np.uint16, FRAMES * PIXELS).reshape(FRAMES, SIZE, SIZE)
        drift = rng.integers(-9, 10, (FRAMES, 2))
        for f in range(FRAMES):
            np.add(np.roll(scene, tuple(drift[f]), axis=(0, 1)), noise[f % 8], out=burst[f])
        bursts.append(burst)
    return scene, bursts


class Stacker:
    def __init__(self, scene):
        ramp = np.hanning(SIZE).astype(np.float32) ** 0.5
        self.taper = cupy.asarray(ramp[:, None] * ramp[None, :])
        self.level = np.float32(scene.mean() + 60.0)
        reference = (cupy.asarray(scene, dtype=cupy.float32) - self.level) * self.taper
        self.reference = cupy.conj(cupy.fft.rfft2(reference))
        self.total = cupy.zeros((SIZE, HALF), cupy.complex64)
        self.peaks = cupy.zeros((BURSTS, FRAMES), cupy.int64)

    def add(self, k, slab):
        spectra = cupy.ascontiguousarray(cupy.fft.rfft2(prepare(slab, self.taper, self.level)))
        surface = cupy.fft.irfft2(spectra * self.reference, s=(SIZE, SIZE))
        peaks = surface.reshape(FRAMES, PIXELS).argmax(axis=1)
        self.peaks[k] = peaks
        blocks = (SIZE * HALF + 255) // 256
        accumulate((blocks,), (256,), (spectra, peaks, self.total, np.int32(FRAMES),
                                       np.int32(SIZE), np.int32(HALF)))

    def image(self):
        return cupy.fft.irfft2(self.total, s=(SIZE, SIZE))


def main():
    scene, bursts = observe(np.random.default_rng(12))
    stacker = Stacker(scene)
    slab = cupy.empty((FRAMES, SIZE, SIZE), cupy.uint16)
    line = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()

    def stack_bursts():
        with line:
            stacker.total.fill(0)
            for k, burst in enumerate(bursts):
                slab.set(burst, stream=line)
                stacker.add(k, slab)

    for _ in range(WARMUP):
        stack_bursts()
    cupy.cuda.Device().synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            stack_bursts()
        cupy.cuda.Device().synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK * 1e6)

    image = stacker.image() / (FRAMES * BURSTS)
    result = [float(image.std()), float(cupy.abs(image).max()), float(stacker.peaks.mean())]
    steps = WARMUP + BLOCKS * STEPS_PER_BLOCK
    print(json.dumps({"program": "cupy_solar_granulation", "steps": steps,
                      "us": float(np.median(times)), "result": result}))


if __name__ == "__main__":
    main()
