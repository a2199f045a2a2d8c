"""Ground-vibration features of quarry blasts recorded on a station array."""
import json
import time

import cupy as cp
import numpy as np

BLASTS = 16
STATIONS = 96
WINDOW = 8192
HOP = 256
POSITIONS = 32
RATE = 500.0
BANDS = 12


def array_records(rng):
    """Continuous records with a decaying wave packet from each blast."""
    length = WINDOW + HOP * POSITIONS
    records = rng.standard_normal((BLASTS, STATIONS, length), dtype=np.float32)
    clock = np.arange(length, dtype=np.float32) / np.float32(RATE)
    onset = rng.uniform(2.0, 12.0, (BLASTS, 1)) + rng.uniform(0.0, 4.0, (1, STATIONS))
    tone = rng.uniform(4.0, 30.0, BLASTS)
    for b in range(BLASTS):
        lag = clock[None, :] - onset[b][:, None].astype(np.float32)
        packet = np.exp(-np.abs(lag) * np.float32(1.5)) * np.sin(np.float32(2.0 * np.pi * tone[b]) * lag)
        records[b] += 8.0 * packet.astype(np.float32)
    return records


def band_weights(frequencies):
    """Third-octave-like triangular bands between 2 and 120 Hz."""
    edges = np.geomspace(2.0, 120.0, BANDS + 2)
    weights = np.zeros((BANDS, frequencies.size), dtype=np.float32)
    for k in range(BANDS):
        rise = (frequencies - edges[k]) / (edges[k + 1] - edges[k])
        fall = (edges[k + 2] - frequencies) / (edges[k + 2] - edges[k + 1])
        weights[k] = np.clip(np.minimum(rise, fall), 0.0, 1.0)
    return weights


class BlastAnalyser:
    def __init__(self, records, rng):
        frequencies = np.fft.rfftfreq(WINDOW, 1.0 / RATE)
        corner = rng.uniform(25.0, 90.0, BLASTS)
        gain = 1.0 / np.sqrt(1.0 + (frequencies[None, :] / corner[:, None]) ** 8)
        self.records = cp.asarray(records)
        self.taper = cp.asarray(np.hanning(WINDOW).astype(np.float32))
        self.gain = cp.asarray(gain.astype(np.float32))
        self.bands = cp.asarray(np.ascontiguousarray(band_weights(frequencies).T))
        self.limit = cp.asarray(rng.uniform(0.5, 2.0, (BLASTS, BANDS)).astype(np.float32))
        self.energies = cp.zeros((BLASTS, STATIONS, BANDS), dtype=cp.float32)
        self.peaks = cp.zeros((BLASTS, STATIONS), dtype=cp.float32)
        self.exposure = cp.zeros((BLASTS, BANDS), dtype=cp.float32)

    def analyse(self, position):
        begin = (position % POSITIONS) * HOP
        window = self.records[:, :, begin:begin + WINDOW]
        centred = window - window.mean(axis=-1, keepdims=True)
        spectrum = cp.fft.rfft(centred * self.taper, axis=-1)
        filtered = spectrum * self.gain[:, None, :]
        power = cp.square(filtered.real) + cp.square(filtered.imag)
        scaled = (power / np.float32(WINDOW)).reshape(BLASTS * STATIONS, -1)
        energy = cp.log1p(scaled @ self.bands).reshape(BLASTS, STATIONS, BANDS)
        motion = cp.fft.irfft(filtered, n=WINDOW, axis=-1)
        self.energies[...] = energy
        self.peaks[...] = cp.abs(motion).max(axis=-1)
        self.exposure += cp.maximum(energy.mean(axis=1) - self.limit, np.float32(0.0))


def main():
    rng = np.random.default_rng(88)
    analyser = BlastAnalyser(array_records(rng), rng)

    position = 0
    for _ in range(10):
        analyser.analyse(position)
        position += 1
    cp.cuda.Device().synchronize()

    times = []
    for _ in range(8):
        start = time.perf_counter()
        for _ in range(10):
            analyser.analyse(position)
            position += 1
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / 10)

    median = float(np.median(times)) * 1e6
    result = [float(analyser.energies.mean()), float(analyser.peaks.mean()), float(analyser.exposure.sum())]
    print(json.dumps({"program": "cupy_quarry_blasts", "steps": position, "us": round(median, 1),
                      "result": [round(value, 5) for value in result]}))


if __name__ == "__main__":
    main()
