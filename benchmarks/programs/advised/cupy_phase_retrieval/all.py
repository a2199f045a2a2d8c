"""Recover an object from far-field diffraction magnitudes with hybrid input-output."""
import json
import time

import cupy as cp

NAME = "cupy_phase_retrieval"
SIZE = 2048
BETA = 0.8
ITERATIONS = 10          # HIO iterations between two looks at the error
WARMUP, BLOCKS, PER_BLOCK = 5, 6, 5
EAGER = 3                # of the warm-up, before the step is captured


def make_sample(rng):
    """A few smooth cells in the middle third of the frame."""
    axis = cp.linspace(-1, 1, SIZE, dtype=cp.float32)
    y, x = axis[:, None], axis[None, :]
    sample = cp.zeros((SIZE, SIZE), dtype=cp.float32)
    for _ in range(12):
        cx, cy = (float(v) for v in rng.uniform(-0.22, 0.22, 2))
        r = float(rng.uniform(0.04, 0.10))
        height = float(rng.uniform(0.3, 1.0))
        sample += height * cp.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * r * r))
    support = (cp.abs(x) < 0.36) & (cp.abs(y) < 0.36)
    return sample * support, support


def measure(sample):
    return cp.abs(cp.fft.fft2(sample.astype(cp.complex64)))


class Reconstruction:
    def __init__(self, magnitude, support, seed):
        self.magnitude = magnitude
        self.support = support
        rng = cp.random.default_rng(seed)
        phase = rng.random((SIZE, SIZE), dtype=cp.float32) * (2 * cp.pi)
        start = magnitude * cp.exp(1j * phase).astype(cp.complex64)
        self.obj = cp.fft.ifft2(start) * support

    def project(self, obj):
        """Keep the phases, take the measured magnitudes."""
        field = cp.fft.fft2(obj)
        field *= self.magnitude / (cp.abs(field) + 1e-6)
        return cp.fft.ifft2(field)

    def iterate(self):
        guess = self.project(self.obj)
        feedback = self.obj - BETA * guess
        self.obj = cp.where(self.support, guess, feedback)

    def error(self):
        """Share of the amplitude that falls outside of the support."""
        amplitude = cp.abs(self.obj)
        return cp.sum(amplitude * ~self.support) / cp.sum(amplitude)


def work(recon, obj, error):
    """A step on arrays that stay where they are, as a CUDA graph needs them."""
    recon.obj = obj
    for _ in range(ITERATIONS):
        recon.iterate()
    error[...] = recon.error()
    obj[...] = recon.obj
    recon.obj = obj


def main():
    import numpy as np

    # The detector preview runs on this card too.
    cp.get_default_memory_pool().set_limit(size=4 << 30)
    rng = np.random.default_rng(17)
    sample, support = make_sample(rng)
    recon = Reconstruction(measure(sample), support, seed=18)
    total = WARMUP + BLOCKS * PER_BLOCK
    history = cp.zeros(total, dtype=cp.float32)

    obj, error = recon.obj, cp.zeros((), dtype=cp.float32)
    cp.cuda.Device().synchronize()

    done = 0
    with cp.cuda.Stream(non_blocking=True) as stream:
        for _ in range(EAGER):
            work(recon, obj, error)
            history[done] = error
            done += 1
        stream.synchronize()
        stream.begin_capture()
        work(recon, obj, error)
        graph = stream.end_capture()
        for _ in range(EAGER, WARMUP):
            graph.launch(stream)
            history[done] = error
            done += 1
        cp.cuda.Device().synchronize()

        times = []
        for _ in range(BLOCKS):
            start = time.perf_counter()
            for _ in range(PER_BLOCK):
                graph.launch(stream)
                history[done] = error
                done += 1
            cp.cuda.Device().synchronize()
            times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)
    times.sort()

    curve = cp.asnumpy(history)
    print(json.dumps({
        "program": NAME,
        "steps": done,
        "us": times[len(times) // 2],
        "result": [float(curve[0]), float(curve[-1]), float(cp.abs(recon.obj).mean())],
    }))


if __name__ == "__main__":
    main()
