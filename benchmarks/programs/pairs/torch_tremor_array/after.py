"""Locates volcanic tremor with a dense seismic array: spectra of a record, cross-spectral matrices, steered power on a slowness grid."""
import json
import math
import time

import numpy as np
import torch

NAME = "torch_tremor_array"
SEED = 1980
DEVICE = torch.device("cuda")

SENSORS = 48
NFFT = 1024
SEGMENTS = 8192
RATE = 100.0
FIRST_BIN = 11          # about 1.1 Hz
N_BINS = 72             # up to about 8 Hz
GRID = 20               # slowness grid is GRID x GRID
MAX_SLOWNESS = 1.2      # s/km
LOADING = 0.02
RECORDS = 3
SIGNAL = 0.6


def array_layout(rng):
    """Three rings of stations around the vent, in km."""
    ring = np.repeat([0.25, 0.6, 1.1], SENSORS // 3)
    angle = np.tile(np.linspace(0, 2 * np.pi, SENSORS // 3, endpoint=False), 3)
    angle = angle + rng.normal(0.0, 0.1, SENSORS)
    return np.stack([ring * np.cos(angle), ring * np.sin(angle)], axis=1)


def slowness_grid():
    axis = np.linspace(-MAX_SLOWNESS, MAX_SLOWNESS, GRID)
    sx, sy = np.meshgrid(axis, axis, indexing="ij")
    return np.stack([sx.ravel(), sy.ravel()], axis=1)


def steering_vectors(layout, slowness):
    """(bins, sensors, grid) phase delays with unit norm."""
    freqs = (FIRST_BIN + np.arange(N_BINS)) * RATE / NFFT
    delay = layout @ slowness.T
    phase = -2j * math.pi * freqs[:, None, None] * delay[None]
    vectors = np.exp(phase) / math.sqrt(SENSORS)
    return torch.from_numpy(vectors.astype(np.complex64)).to(DEVICE)


def simulate_record(generator, layout, slowness):
    """Noise on each sensor plus a narrow-band plane wave."""
    n = SEGMENTS * NFFT
    record = torch.randn(SENSORS, n, generator=generator, device=DEVICE)
    t = torch.arange(n, device=DEVICE, dtype=torch.float32) % (100 * RATE) / RATE
    delays = layout @ slowness
    for k, delay in enumerate(delays.tolist()):
        wave = torch.sin(2 * math.pi * 3.0 * (t - delay)) + 0.5 * torch.sin(2 * math.pi * 4.5 * (t - delay))
        record[k].add_(wave, alpha=SIGNAL)
    return record


class TremorLocator:
    def __init__(self, steering):
        self.steering = steering
        self.window = torch.hann_window(NFFT, periodic=True, device=DEVICE)
        self.eye = torch.eye(SENSORS, device=DEVICE, dtype=torch.complex64)

    def spectra(self, record):
        """(bins, sensors, segments), contiguous by bin."""
        segments = record.view(SENSORS, SEGMENTS, NFFT) * self.window
        spec = torch.fft.rfft(segments, dim=2)
        band = spec[:, :, FIRST_BIN:FIRST_BIN + N_BINS]
        return band.permute(2, 0, 1).contiguous()

    def steered_power(self, spec):
        """Normalised Bartlett power of each bin on the slowness grid."""
        csm = torch.bmm(spec, spec.mH) / SEGMENTS
        level = csm.diagonal(dim1=1, dim2=2).real.mean(dim=1)
        csm = csm / level.view(-1, 1, 1) + LOADING * self.eye
        w = self.steering
        return (w.conj() * torch.bmm(csm, w)).real.sum(dim=1)

    def locate(self, record):
        power = self.steered_power(self.spectra(record))
        stacked = power.mean(dim=0)
        best = stacked.argmax()
        return power, torch.stack([stacked.max(), stacked.mean(), best.to(torch.float32)])


def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    generator = torch.Generator(device=DEVICE).manual_seed(SEED)
    layout = array_layout(rng)
    grid = slowness_grid()
    steering = steering_vectors(layout, grid)
    sources = rng.choice(len(grid), size=RECORDS, replace=False)
    records = [simulate_record(generator, layout, grid[s]) for s in sources]
    locator = TremorLocator(steering)

    with torch.inference_mode():
        for record in records * 3:
            locator.locate(record)
        torch.cuda.synchronize()

        times, found, steps = [], [], 0
        for _ in range(10):
            start = time.perf_counter()
            for record in records * 2:
                power, summary = locator.locate(record)
                found.append(summary)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / (2 * RECORDS))
            steps += 2 * RECORDS

    summaries = torch.stack(found).cpu().numpy()
    result = [float(v) for v in summaries.mean(axis=0)] + [float(power.norm())]
    print(json.dumps({"program": NAME, "steps": steps, "us": float(np.median(times)) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
