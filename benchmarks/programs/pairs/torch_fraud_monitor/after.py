"""Card fraud: a tabular network, watched closely while it trains."""

import json
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn

DEV = torch.device("cuda")
ROWS = 65536
FEATURES = 192
WARMUP = 6
STEPS = 60


class Monitor:
    """Area under the ROC curve, recall at fixed alarms, calibration; kept in a JSON file."""

    def __init__(self, path):
        self.path = path
        self.history = []

    @torch.no_grad()
    def update(self, step, loss, logits, labels):
        scores, order = torch.sigmoid(logits.float()).sort(descending=True)
        truth = labels[order].double()
        hits = truth.cumsum(0)
        positives = hits[-1]
        false = torch.arange(1, len(truth) + 1, device=truth.device) - hits
        auc = (hits * (1 - truth)).sum() / (positives * false[-1])
        recall = hits[len(truth) // 100] / positives
        edges = (torch.arange(21, device=truth.device) * len(truth)) // 20
        sums = torch.stack([truth, scores.double()]).cumsum(1)
        sums = torch.nn.functional.pad(sums, (1, 0))[:, edges].diff()
        gaps = (sums[0] - sums[1]).abs() / edges.diff()
        self.history.append(torch.stack([loss.double(), auc, recall, gaps.mean()]))

    def series(self):
        rows = torch.stack(self.history).tolist()
        names = ("loss", "auc", "recall", "calibration")
        with open(self.path, "w") as out:
            json.dump([dict(zip(names, r), step=i) for i, r in enumerate(rows)], out, indent=1)
        return [tuple(r) for r in rows]


def make_batches(count):
    gen = torch.Generator().manual_seed(8)
    taste = torch.randn(FEATURES, generator=gen) / FEATURES**0.5
    batches = []
    for _ in range(count):
        x = torch.randn(ROWS, FEATURES, generator=gen)
        chance = torch.sigmoid(3 * (x @ taste) - 3.5)
        y = (torch.rand(ROWS, generator=gen) < chance).float()
        batches.append((x.to(DEV), y.to(DEV)))
    return batches


def main():
    torch.manual_seed(8)
    torch.set_float32_matmul_precision("high")
    batches = make_batches(4)
    net = nn.Sequential(
        nn.Linear(FEATURES, 1024), nn.SiLU(), nn.Linear(1024, 1024), nn.SiLU(), nn.Linear(1024, 1)
    ).to(DEV)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-4, fused=True)
    criterion = nn.BCEWithLogitsLoss()
    folder = tempfile.TemporaryDirectory()
    monitor = Monitor(os.path.join(folder.name, "progress.json"))
    stamps = []
    for step in range(WARMUP + STEPS):
        x, y = batches[step % len(batches)]
        logits = net(x).squeeze(1)
        loss = criterion(logits, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        monitor.update(step, loss, logits, y)
        if step >= WARMUP - 1 and (step - WARMUP) % 10 == 9:
            torch.cuda.synchronize()
            stamps.append(time.perf_counter())
    series = monitor.series()
    folder.cleanup()
    print(f"AUC {series[0][1]:.4f} -> {series[-1][1]:.4f}")
    us = float(np.median(np.diff(stamps))) / 10 * 1e6
    result = [*series[0], *series[5]]
    summary = {"program": "torch_fraud_monitor", "steps": len(series), "us": us, "result": result}
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
