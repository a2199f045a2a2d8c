"""Echo ranging with a towed hydrophone array: pulse compression by FFT.

Each ping gives half a second of baseband samples a channel.  We correlate it
with the transmitted chirp and read range and level of the strongest echo.
"""
import json
import statistics
import time

import cupy as cp
import numpy as np

SEED = 812
CHANNELS = 256
SAMPLE_RATE = 96_000
SAMPLES = 48_000          # half a second of listening
PULSE = 4_000
BANDWIDTH = 20_000.0
SOUND_SPEED = 1500.0
PINGS = 3
WARMUP = 6
BLOCKS = 8
BLOCK_STEPS = 4


def chirp():
    """Linear frequency sweep with a Hann taper, unit energy."""
    t = np.arange(PULSE) / SAMPLE_RATE
    duration = PULSE / SAMPLE_RATE
    phase = np.pi * BANDWIDTH / duration * (t - duration / 2) ** 2
    pulse = np.hanning(PULSE) * np.exp(1j * phase)
    return (pulse / np.linalg.norm(pulse)).astype(np.complex64)


def receive(pulse, ping):
    """Noise, one strong echo with a delay across the array, and some clutter."""
    rng = np.random.default_rng((SEED, ping))
    data = np.empty((CHANNELS, SAMPLES), dtype=np.complex64)
    data.real = rng.standard_normal((CHANNELS, SAMPLES), dtype=np.float32)
    data.imag = rng.standard_normal((CHANNELS, SAMPLES), dtype=np.float32)
    data *= 0.02
    target = 18_000 + 1_500 * ping
    for ch in range(CHANNELS):
        delay = target + ch // 4
        data[ch, delay:delay + PULSE] += 3.0 * pulse
        for at in rng.integers(0, SAMPLES - PULSE, 4):
            data[ch, at:at + PULSE] += 0.6 * pulse
    return data


class PulseCompressor:
    """Matched filter for all channels at once in the frequency domain."""

    def __init__(self, pulse):
        # Long enough that the circular correlation does not wrap around.
        self.nfft = SAMPLES + len(pulse) - 1
        self.reference = cp.conj(cp.fft.fft(cp.asarray(pulse), n=self.nfft)).astype(cp.complex64)

    def __call__(self, data):
        spectrum = cp.fft.fft(data, n=self.nfft, axis=1)
        spectrum *= self.reference
        return cp.fft.ifft(spectrum, axis=1)[:, :SAMPLES]


envelope_peak = cp.ReductionKernel(
    "complex64 z", "float32 power",
    "z.real() * z.real() + z.imag() * z.imag()",
    "max(a, b)", "power = a", "0.0f", "envelope_peak")


class Ranger:
    def __init__(self, pulse):
        self.compress = PulseCompressor(pulse)
        self.level = cp.zeros(CHANNELS, dtype=cp.float32)
        self.ranges = cp.zeros(CHANNELS, dtype=cp.float32)

    def ping(self, data):
        compressed = self.compress(data)
        peak = envelope_peak(compressed, axis=1)
        self.level += cp.sqrt(peak)
        # Range from the central channel only; the rest steer the beam later.
        where = cp.argmax(cp.abs(compressed[CHANNELS // 2]))
        self.ranges += where * (SOUND_SPEED / (2 * SAMPLE_RATE))


def main():
    pulse = chirp()
    pings = [cp.asarray(receive(pulse, k)) for k in range(PINGS)]
    ranger = Ranger(pulse)
    sync = cp.cuda.Device().synchronize
    step = 0

    def run(count):
        nonlocal step
        for _ in range(count):
            ranger.ping(pings[step % PINGS])
            step += 1

    run(WARMUP)
    sync()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        run(BLOCK_STEPS)
        sync()
        times.append((time.perf_counter() - start) / BLOCK_STEPS * 1e6)

    print(json.dumps({
        "program": "cupy_hydrophone_ranging",
        "steps": step,
        "us": statistics.median(times),
        "result": [float(ranger.level.mean()) / step, float(ranger.ranges[0]) / step],
    }))


if __name__ == "__main__":
    main()
