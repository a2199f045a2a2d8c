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


class BandPower:
    def __init__(self):
        window = np.hanning(LENGTH).astype(np.float32)
        self.window = cp.asarray(window)
        self.scale = np.float32(2.0 / (RATE * float((window**2).sum())))
        self.edges = band_slices()

    def __call__(self, recording):
        power = cp.empty((CHANNELS, len(self.edges)), dtype=cp.float32)
        for c in range(CHANNELS):
            epochs = recording[c].reshape(EPOCHS, LENGTH)
            epochs = epochs - epochs.mean(axis=1, keepdims=True)
            spectrum = cp.fft.rfft(epochs * self.window, axis=1)
            psd = (spectrum.real**2 + spectrum.imag**2).mean(axis=0) * self.scale
            for b, (low, high) in enumerate(self.edges):
                power[c, b] = psd[low:high].sum()
        return power / power.sum(axis=1, keepdims=True)


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
