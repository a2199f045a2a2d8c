"""Cable tension of a stay-cable bridge, estimated from accelerometer windows.

A long six-channel record is cut into windows at random positions; a small
transformer reads the log spectra of a window and predicts the tension.
"""
import json
import time

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

PROGRAM = "torch_cable_tension"
CHANNELS = 6
WINDOW = 4096
BINS = 1024
PATCH = 16
BATCH = 256
LENGTH = 1_000_000
WARMUP = 8
BLOCKS = 8
STEPS_PER_BLOCK = 8


def make_record(rng):
    t = np.arange(LENGTH, dtype=np.float32)
    tension = 1.0 + 0.3 * np.sin(2 * np.pi * t / 210_000.0) + 0.1 * np.sin(2 * np.pi * t / 37_000.0)
    phase = np.cumsum(0.18 * np.sqrt(tension), dtype=np.float64)
    record = rng.standard_normal((CHANNELS, LENGTH), dtype=np.float32) * 0.4
    for channel in range(CHANNELS):
        for harmonic in (1, 2, 3):
            amplitude = 1.0 / (harmonic + 0.5 * channel + 0.5)
            record[channel] += amplitude * np.sin(harmonic * phase + channel).astype(np.float32)
        record[channel] += 0.2 * channel
    return record, tension.astype(np.float32)


class CableRecord:
    def __init__(self, record, tension, device):
        self.record = record
        self.tension = torch.from_numpy(tension).to(device)
        self.taper = np.hanning(WINDOW).astype(np.float32)
        self.device = device

    def spectra(self, starts):
        features = np.empty((len(starts), CHANNELS, BINS), dtype=np.float32)
        for row, start in enumerate(starts):
            segment = self.record[:, start:start + WINDOW]
            segment = segment - segment.mean(axis=1, keepdims=True)
            spectrum = np.fft.rfft(segment * self.taper, axis=1)[:, :BINS]
            power = spectrum.real ** 2 + spectrum.imag ** 2
            features[row] = np.log(power + 1e-2)
        return torch.from_numpy(features).to(self.device)

    def batch(self, starts):
        centre = torch.from_numpy(starts + WINDOW // 2).to(self.device)
        return self.spectra(starts), self.tension[centre]


class TensionNet(nn.Module):
    def __init__(self, width=512, layers=6):
        super().__init__()
        self.embed = nn.Linear(CHANNELS * PATCH, width)
        self.position = nn.Parameter(torch.randn(1, BINS // PATCH, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1)

    def forward(self, spectra):
        batch = spectra.shape[0]
        patches = spectra.reshape(batch, CHANNELS, BINS // PATCH, PATCH)
        patches = patches.permute(0, 2, 1, 3).reshape(batch, BINS // PATCH, CHANNELS * PATCH)
        tokens = self.embed(patches * 0.1) + self.position
        tokens = self.encoder(tokens)
        return self.head(self.norm(tokens).mean(dim=1)).squeeze(-1)


def main():
    device = torch.device("cuda")
    torch.manual_seed(31)
    rng = np.random.default_rng(31)
    record, tension = make_record(rng)
    data = CableRecord(record, tension, device)
    total = WARMUP + BLOCKS * STEPS_PER_BLOCK
    starts = rng.integers(0, LENGTH - WINDOW, size=(total, BATCH))

    model = TensionNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    losses = []

    def step(index):
        spectra, target = data.batch(starts[index])
        with torch.autocast("cuda", dtype=torch.bfloat16):
            predicted = model(spectra)
        loss = F.mse_loss(predicted.float(), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        return spectra

    for index in range(WARMUP):
        spectra = step(index)
    torch.cuda.synchronize()
    first = spectra.double()

    times = []
    index = WARMUP
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(index)
            index += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / STEPS_PER_BLOCK)

    result = [first.mean().item(), first.std().item(), torch.stack(losses[:4]).mean().item()]
    print(json.dumps({"program": PROGRAM, "steps": total,
                      "us": float(np.median(times) * 1e6), "result": result}))


if __name__ == "__main__":
    main()
