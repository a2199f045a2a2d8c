"""Odour descriptors from molecular fingerprints: train a wide multi-label MLP.

Every molecule is a 2048-bit fingerprint; the panel rated 138 descriptors
(fruity, musky, ...), several of which may hold for one molecule.
"""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

N_BITS = 2048
N_DESCRIPTORS = 138
WIDTH = 4096
BATCH = 8192
DEVICE = torch.device("cuda")


class FingerprintNet(nn.Module):
    def __init__(self, bits, width, descriptors, p_drop=0.0):
        super().__init__()
        self.inp = nn.Linear(bits, width)
        self.mid = nn.Linear(width, width)
        self.low = nn.Linear(width, width // 2)
        self.out = nn.Linear(width // 2, descriptors)
        self.p_drop = p_drop

    def forward(self, bits):
        h = F.relu(self.inp(bits))
        h = F.relu(self.mid(h))
        h = F.dropout(h, self.p_drop, self.training)
        h = F.relu(self.low(h))
        return self.out(h)


def make_library(n, generator):
    """Fingerprints with about 3 % of the bits set, and labels of a hidden linear panel."""
    bits = (torch.rand(n, N_BITS, device=DEVICE, generator=generator) < 0.03).float()
    panel = torch.randn(N_BITS, N_DESCRIPTORS, device=DEVICE, generator=generator)
    score = bits @ panel / 8.0
    labels = (score > 0.9).float()
    return bits, labels


class Trainer:
    def __init__(self, model, library, labels, lr=2e-4):
        self.model = model
        self.library = library
        self.labels = labels
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-2, fused=True)
        freq = labels.mean(dim=0).clamp_min(1e-3)
        self.pos_weight = ((1.0 - freq) / freq).sqrt()
        self.cursor = 0
        self.steps = 0

    def next_batch(self):
        if self.cursor + BATCH > self.library.shape[0]:
            self.cursor = 0
        chunk = slice(self.cursor, self.cursor + BATCH)
        self.cursor += BATCH
        return self.library[chunk], self.labels[chunk]

    def step(self):
        bits, labels = self.next_batch()
        logits = self.model(bits)
        loss = F.binary_cross_entropy_with_logits(logits, labels, pos_weight=self.pos_weight)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return loss.detach()

    def block(self, n):
        """Run n steps; returns seconds for one of them and the last loss."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            loss = self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / n, loss


@torch.no_grad()
def mean_hit_rate(model, bits, labels):
    """Share of the rated descriptors that the model ranks above 0.5."""
    probs = torch.sigmoid(model(bits))
    return ((probs > 0.5).float() * labels).sum() / labels.sum()


def main():
    torch.manual_seed(11)
    generator = torch.Generator(device=DEVICE).manual_seed(12)
    bits, labels = make_library(4 * BATCH, generator)

    with DEVICE:
        model = FingerprintNet(N_BITS, WIDTH, N_DESCRIPTORS)
    trainer = Trainer(model, bits, labels)

    trainer.block(6)  # warm-up
    times = []
    for _ in range(6):
        seconds, loss = trainer.block(5)
        times.append(seconds)

    model.eval()
    hits = mean_hit_rate(model, bits[:BATCH], labels[:BATCH])
    print(json.dumps({
        "program": "torch_perfume",
        "steps": trainer.steps,
        "us": statistics.median(times) * 1e6,
        "result": [loss.item(), hits.item()],
    }))


if __name__ == "__main__":
    main()
