"""Arrhythmia screening: spectral features of each recording feed a small classifier."""

import json
import math
import time

import torch
import torch.nn.functional as F

dev = "cuda"
N_REC = 72
RATE = 360
LENGTH = RATE * 30
BANDS = [(0.5, 4), (4, 8), (8, 15), (15, 25), (25, 40), (40, 100)]
WARM, TIMED = 5, 40


def synth(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(LENGTH) / RATE
    rate = 0.9 + 0.8 * torch.rand(n, 1, generator=g)
    phase = 2 * math.pi * rate * t + torch.rand(n, 1, generator=g)
    beats = torch.exp(-40 * (1 - torch.cos(phase))) + 0.2 * torch.exp(
        -6 * (1 - torch.cos(phase - 2))
    )
    return beats + 0.05 * torch.randn(n, LENGTH, generator=g)


def features(signals, window):
    """Recordings -> vectors: band powers, spectral entropy, flatness, edge, crossings."""
    x = (signals - signals.mean(1, keepdim=True)) / (signals.std(1, keepdim=True) + 1e-6)
    spec = torch.stft(x, 720, 180, window=window, return_complex=True).abs().square()
    power = spec.mean(2)
    power = power / power.sum(1, keepdim=True)
    freqs = torch.arange(power.shape[1], device=power.device) * (RATE / 720)
    bands = [
        power[:, (lo * 2) : (hi * 2)].sum(1) for lo, hi in ((int(a), int(b)) for a, b in BANDS)
    ]
    entropy = -(power * (power + 1e-12).log()).sum(1)
    flat = (power + 1e-12).log().mean(1).exp() / power.mean(1)
    centre = (power * freqs).sum(1)
    crossings = (x[:, 1:] * x[:, :-1] < 0).float().mean(1)
    rise = (spec[:, :, 1:] - spec[:, :, :-1]).clamp(min=0)
    flux = rise.sum(1).std(1) / spec.mean((1, 2))
    return torch.stack([*bands, entropy, flat, centre / 100, crossings, flux / 100], dim=1)


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(len(BANDS) + 5, 256)
        self.b = torch.nn.Linear(256, 256)
        self.c = torch.nn.Linear(256, 5)

    def forward(self, f):
        return self.c(F.relu(self.b(F.relu(self.a(f)))))


def main():
    torch.manual_seed(2)
    window = torch.hann_window(720, device=dev)
    batches = [synth(N_REC, s).to(dev) for s in range(3)]
    net = Classifier().to(dev)
    out = None

    @torch.inference_mode()
    def screen(batch):
        feats = features(batch, window)
        return feats, net(feats).softmax(-1)

    for i in range(WARM):
        out = screen(batches[i % 3])
    torch.cuda.synchronize()
    laps = []
    for i in range(TIMED):
        s = time.perf_counter()
        out = screen(batches[i % 3])
        torch.cuda.synchronize()
        laps.append(time.perf_counter() - s)
    feats, prob = out
    print(f"{N_REC / sorted(laps)[TIMED // 2]:.0f} recordings/s")
    answer = [feats.double().mean().item(), prob[:, 0].double().mean().item()]
    print(
        json.dumps(
            {
                "program": "torch_beat_features",
                "steps": WARM + TIMED,
                "us": sorted(laps)[TIMED // 2] * 1e6,
                "result": answer,
            }
        )
    )


if __name__ == "__main__":
    main()
