"""Fit one loudspeaker equaliser for many seats of a lecture hall.

For every seat we hold a measured binaural room response.  The equaliser is a
smooth magnitude curve (dB on ERB-like bands) applied at the source; it is tuned
until the mean spectrum over seats follows the house curve while the spread
between neighbouring seats is not boosted.
"""
import json
import time

import numpy as np
import torch
from torch import nn

FS = 48000
TAPS = 32768                   # 0.68 s of reverberation
SEATS = 192
BANDS = 40
EPOCHS_WARM = 6
EPOCHS = 36
PER_BLOCK = 6


def measure_hall(rng):
    """Synthetic responses: direct sound, some reflections, decaying noise."""
    t = np.arange(TAPS, dtype=np.float32) / FS
    decay = np.exp(-6.9 * t / 0.55)
    h = rng.standard_normal((SEATS, 2, TAPS), dtype=np.float32) * decay * 0.04
    delay = rng.integers(40, 900, size=(SEATS, 2))
    for s in range(SEATS):
        for ear in range(2):
            d = delay[s, ear]
            h[s, ear, d] += 1.0
            h[s, ear, d + 70 + s % 50] += 0.45
    return h


class HallModel(nn.Module):
    """Seats as heard through the equaliser."""

    def __init__(self, responses, fs=FS):
        super().__init__()
        bins = responses.shape[-1] // 2 + 1
        spectra = np.fft.rfft(responses[:8], axis=-1)
        self.level = float(np.sqrt(np.mean(np.abs(spectra) ** 2)))
        self.register_buffer("responses", torch.from_numpy(responses), persistent=False)
        freq = np.linspace(0, fs / 2, bins)
        centre = np.geomspace(60, 18000, BANDS)
        basis = np.exp(-0.5 * ((np.log2(freq[:, None] + 1) - np.log2(centre)) / 0.22) ** 2)
        basis /= basis.sum(1, keepdims=True) + 1e-3
        self.register_buffer("basis", torch.from_numpy(basis.astype(np.float32)))
        self.gain_db = nn.Parameter(torch.zeros(BANDS))

    def curve(self):
        return torch.pow(10.0, (self.basis @ self.gain_db) / 20.0)

    def forward(self, direction):
        ears = self.responses
        # weight of the two ears for a talker seen under this angle
        mono = torch.einsum("e,set->st", direction, ears)
        spectrum = torch.fft.rfft(mono) / self.level
        power = spectrum.real.square() + spectrum.imag.square()
        mean = power.mean(0)
        spread = (power - mean).abs().mean(0)
        eq = self.curve().square()
        return mean * eq, spread * eq


def house_curve(bins, device):
    f = torch.linspace(0, FS / 2, bins, device=device)
    db = -1.5 * torch.log2((f + 100) / 1000)
    return torch.pow(10.0, db.clamp(-9, 5) / 10.0)


def main():
    rng = np.random.default_rng(77)
    torch.manual_seed(77)
    device = torch.device("cuda")
    hall = HallModel(measure_hall(rng)).to(device)
    target = house_curve(hall.basis.shape[0], device)
    angles = torch.linspace(0.15, 1.4, EPOCHS_WARM + EPOCHS)
    directions = torch.stack([torch.cos(angles), torch.sin(angles)], 1).to(device)
    optimizer = torch.optim.Adam(hall.parameters(), lr=0.05, fused=True)
    trace = torch.zeros(EPOCHS_WARM + EPOCHS, device=device)

    def tune(k):
        mean, spread = hall(directions[k])
        loss = (torch.log(mean + 1e-4) - torch.log(target)).square().mean()
        loss = loss + 0.05 * spread.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trace[k] = loss.detach()

    done = 0
    while done < EPOCHS_WARM:
        tune(done)
        done += 1
    torch.cuda.synchronize()

    samples = []
    while done < EPOCHS_WARM + EPOCHS:
        t0 = time.perf_counter()
        for _ in range(PER_BLOCK):
            tune(done)
            done += 1
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - t0) * 1e6 / PER_BLOCK)

    with torch.no_grad():
        gains = hall.gain_db
        result = [trace[0].item(), trace[-1].item(), gains.abs().mean().item(), gains.std().item()]
    print(json.dumps({"program": "torch_room_equalizer", "steps": done,
                      "us": float(np.median(samples)), "result": result}))


if __name__ == "__main__":
    main()
