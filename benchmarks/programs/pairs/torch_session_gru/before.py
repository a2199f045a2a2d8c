"""Session-based recommendation: a GRU predicts the next item from clicks and the gaps between them."""

import bisect
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SESSIONS = 20000
ITEMS = 20000
DIM = 128
MAX_LEN = 40
BATCH = 512
GAP_BOUNDS = [2, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120]
BLOCKS = 10
STEPS_PER_BLOCK = 20
DEVICE = "cuda"


def click_log(rng):
    """Per session a list of item ids (1..ITEMS-1) and a list of click times in seconds."""
    lengths = rng.integers(8, 60, SESSIONS)
    sessions = []
    for n in lengths:
        home = rng.integers(1, ITEMS - 200)
        items = home + np.minimum(rng.geometric(0.03, n), 199)
        times = np.cumsum(1 + rng.lognormal(3.0, 1.5, n).astype(np.int64))
        sessions.append((items.tolist(), times.tolist()))
    return sessions


def collate(sessions, chosen):
    """Right-padded inputs of a batch, their lengths and the item that follows."""
    items, gaps, lengths, targets = [], [], [], []
    for s in chosen:
        ids, times = sessions[s]
        history = ids[:-1][-MAX_LEN:]
        stamps = times[:-1][-MAX_LEN:]
        waits = [0] + [
            bisect.bisect_right(GAP_BOUNDS, b - a) + 1 for a, b in zip(stamps, stamps[1:])
        ]
        pad = MAX_LEN - len(history)
        items.append(history + [0] * pad)
        gaps.append(waits + [0] * pad)
        lengths.append(len(history))
        targets.append(ids[-1])
    return (
        torch.tensor(items).to(DEVICE),
        torch.tensor(gaps).to(DEVICE),
        torch.tensor(lengths).to(DEVICE),
        torch.tensor(targets).to(DEVICE),
    )


class SessionGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.item = nn.Embedding(ITEMS, DIM, padding_idx=0)
        self.gap = nn.Embedding(len(GAP_BOUNDS) + 2, DIM)
        self.gru = nn.GRU(DIM, DIM, batch_first=True)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, items, gaps, lengths):
        x = self.item(items) + self.gap(gaps)
        states, _ = self.gru(x)
        last = states[torch.arange(items.shape[0], device=items.device), lengths - 1]
        return self.out(last) @ self.item.weight.t()


def main():
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    rng = np.random.default_rng(42)
    sessions = click_log(rng)
    order = rng.permutation(SESSIONS)
    model = SessionGRU().to(DEVICE)
    with torch.no_grad():
        model.item.weight.mul_(0.2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    losses = []

    def step(i):
        at = (i * BATCH) % (SESSIONS - BATCH + 1)
        items, gaps, lengths, targets = collate(sessions, order[at : at + BATCH].tolist())
        logits = model(items, gaps, lengths)
        loss = F.cross_entropy(logits, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    done = 0
    for _ in range(8):
        step(done)
        done += 1
    times = []
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step(done)
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    checksum = torch.stack(losses).mean().item()
    print(
        json.dumps(
            {
                "program": "torch_session_gru",
                "steps": done,
                "us": 1e6 * statistics.median(times),
                "result": [checksum],
            }
        )
    )


if __name__ == "__main__":
    main()
