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

    def update(self, step, loss, logits, labels):
        scores = 1 / (1 + np.exp(-logits.detach().float().cpu().numpy()))
        truth = labels.cpu().numpy()
        order = np.argsort(-scores)
        hits = np.cumsum(truth[order])
        positives = hits[-1]
        false = np.arange(1, len(truth) + 1) - hits
        auc = float(np.sum(hits * np.diff(false, prepend=0)) / (positives * false[-1]))
        recall = float(hits[len(truth) // 100] / positives)
        bins = np.digitize(scores, np.quantile(scores, np.linspace(0, 1, 21)[1:-1]))
        gaps = [abs(truth[bins == b].mean() - scores[bins == b].mean()) for b in range(20)]
        row = {"step": step, "loss": loss.item(), "auc": auc, "recall": recall}
        self.history.append(row | {"calibration": float(np.mean(gaps))})
        with open(self.path, "w") as out:
            json.dump(self.history, out, indent=1)
            out.flush()
            os.fsync(out.fileno())

    def series(self):
        return [(h["loss"], h["auc"], h["recall"], h["calibration"]) for h in self.history]


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
