"""Echo state reservoir driven by many tide gauge series at once."""
import json
import statistics
import time

import cupy as cp
import numpy as np

UNITS = 12288
SERIES = 4096
INPUTS = 64
READOUTS = 32
PERIOD = 64
LEAK = 0.3
RADIUS = 0.9
WARMUP = 1500
BLOCKS = 10
BLOCK_STEPS = 10

leaky_update = cp.ElementwiseKernel(
    "float16 recurrent, float16 drive, float32 leak",
    "float16 state",
    """
    float pre = (float)recurrent + (float)drive;
    float old = (float)state;
    state = (float16)(old + leak * (tanhf(pre) - old));
    """,
    "leaky_update")


def random_half(rng, rows, columns, scale):
    values = rng.standard_normal((rows, columns), dtype=cp.float32)
    values *= cp.float32(scale)
    return values.astype(cp.float16)


def make_tides(seed):
    rng = np.random.default_rng(seed)
    hours = np.arange(PERIOD, dtype=np.float32)[:, None, None]
    phase = cp.asarray(rng.uniform(0, 2 * np.pi, (1, SERIES, INPUTS)).astype(np.float32))
    amplitude = cp.asarray(rng.uniform(0.2, 1.0, (1, SERIES, INPUTS)).astype(np.float32))
    angle = cp.asarray(hours * np.float32(2 * np.pi / PERIOD))
    tides = amplitude * (cp.sin(angle + phase) + 0.4 * cp.sin(2 * angle + 0.7 * phase))
    return tides.astype(cp.float16)


class Reservoir:
    def __init__(self, seed):
        rng = cp.random.default_rng(seed)
        self.weights = random_half(rng, UNITS, UNITS, RADIUS / UNITS ** 0.5)
        self.inputs = random_half(rng, INPUTS, UNITS, 0.5 / INPUTS ** 0.5)
        self.readout = random_half(rng, UNITS, READOUTS, 1.0 / UNITS ** 0.5)
        self.state = cp.zeros((SERIES, UNITS), dtype=cp.float16)
        self.recurrent = cp.empty((SERIES, UNITS), dtype=cp.float16)
        self.drive = cp.empty((SERIES, UNITS), dtype=cp.float16)
        self.signal = cp.empty((PERIOD, SERIES, READOUTS), dtype=cp.float16)

    def step(self, tides, hour):
        slot = hour % PERIOD
        cp.dot(tides[slot], self.inputs, out=self.drive)
        cp.dot(self.state, self.weights, out=self.recurrent)
        leaky_update(self.recurrent, self.drive, np.float32(LEAK), self.state)
        cp.dot(self.state, self.readout, out=self.signal[slot])


def main():
    tides = make_tides(seed=51)
    reservoir = Reservoir(seed=52)
    stream = cp.cuda.get_current_stream()

    hour = 0
    for _ in range(WARMUP):
        reservoir.step(tides, hour)
        hour += 1
    stream.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            reservoir.step(tides, hour)
            hour += 1
        stream.synchronize()
        times.append((time.perf_counter() - begin) / BLOCK_STEPS * 1e6)

    signal = reservoir.signal.astype(cp.float32)
    state = reservoir.state.astype(cp.float32)
    result = [float(cp.sqrt((signal * signal).mean())), float(cp.sqrt((state * state).mean()))]
    print(json.dumps({"program": "cupy_echo_reservoir", "steps": hour,
                      "us": statistics.median(times), "result": result}))


if __name__ == "__main__":
    main()
