"""Search for small earthquakes in the record of a strain-sensing fibre.

One record is held in host memory as sections of the cable. Each section goes
to the device, is correlated with a family of template wavelets, and the
largest response of every channel is kept as the detection score.
"""
import json
import time

import cupy as cp
import cupyx
import numpy as np

NAME = "cupy_fibre_strain"
SECTIONS = 6
CHANNELS = 2048
SAMPLES = 8192
RATE = 200.0
TEMPLATES = 6
WARMUP = 10
BLOCKS = 8
PER_BLOCK = 6

peak_response = cp.ReductionKernel(
    "float32 x", "float32 y", "fabsf(x)", "fmaxf(a, b)", "y = a", "0", "peak_response")

whiten = cp.ElementwiseKernel(
    "complex64 s, float32 level", "complex64 w",
    "float m = sqrtf(s.real() * s.real() + s.imag() * s.imag()); w = s / (m + level);",
    "whiten")


def record_fibre(rng):
    """Page-locked record of all sections: noise, hum and a few arrivals."""
    record = cupyx.empty_pinned((SECTIONS, CHANNELS, SAMPLES), dtype=np.float32)
    t = np.arange(SAMPLES, dtype=np.float32) / np.float32(RATE)
    hum = (0.3 * np.sin(2.0 * np.pi * 16.7 * t)).astype(np.float32)
    for s in range(SECTIONS):
        rng.standard_normal(out=record[s], dtype=np.float32)
        record[s] += hum
        for _ in range(20):
            centre = int(rng.integers(100, CHANNELS - 100))
            onset = int(rng.integers(500, SAMPLES - 1500))
            length = 400
            pulse = np.exp(-np.arange(length) / 90.0) * np.sin(np.arange(length) * 0.35)
            record[s, centre - 40:centre + 40, onset:onset + length] += (2.5 * pulse).astype(np.float32)
    return record


def template_spectra():
    """Conjugate spectra of damped wavelets with different centre frequencies."""
    t = np.arange(SAMPLES) / RATE
    spectra = []
    for k in range(TEMPLATES):
        frequency = 4.0 + 3.0 * k
        wavelet = np.exp(-t * (1.5 + 0.4 * k)) * np.sin(2.0 * np.pi * frequency * t)
        wavelet /= np.sqrt((wavelet ** 2).sum())
        spectra.append(np.conj(np.fft.rfft(wavelet)))
    return cp.asarray(np.stack(spectra).astype(np.complex64))


def score_section(section, spectra, scores):
    """Largest template response of each channel of one section."""
    spectrum = cp.fft.rfft(section, axis=1)
    white = whiten(spectrum, np.float32(20.0))
    for k in range(TEMPLATES):
        response = cp.fft.irfft(white * spectra[k], n=SAMPLES, axis=1)
        scores[k] = peak_response(response, axis=1)


class Detector:
    def __init__(self, record, spectra):
        self.record = record
        self.spectra = spectra
        self.scores = cp.zeros((SECTIONS, TEMPLATES, CHANNELS), dtype=cp.float32)
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.upload = cp.cuda.Stream(non_blocking=True)
        self.sections = [cp.empty((CHANNELS, SAMPLES), dtype=cp.float32) for _ in range(2)]
        self.released = [self.stream.record() for _ in range(2)]

    def scan(self):
        """One pass over the whole cable."""
        with self.stream:
            for s in range(SECTIONS):
                slot = s % 2
                self.upload.wait_event(self.released[slot])
                self.sections[slot].set(self.record[s], stream=self.upload)
                self.stream.wait_event(self.upload.record())
                score_section(self.sections[slot], self.spectra, self.scores[s])
                self.released[slot] = self.stream.record()


def main():
    rng = np.random.default_rng(77)
    record = record_fibre(rng)
    spectra = template_spectra()
    detector = Detector(record, spectra)
    cp.cuda.Device().synchronize()

    steps = 0
    for _ in range(WARMUP):
        detector.scan()
        steps += 1
    cp.cuda.Device().synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            detector.scan()
            steps += 1
        cp.cuda.Device().synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)

    scores = cp.asnumpy(detector.scores).astype(np.float64)
    scale = scores.mean()
    result = [float(scale), float(scores.max()), float((scores > 1.5 * scale).sum())]
    times.sort()
    print(json.dumps({"program": NAME, "steps": steps, "us": times[len(times) // 2], "result": result}))


if __name__ == "__main__":
    main()
