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
    """Area under the ROC curve, recall at fixed alarms, calibration; kept in a JSON file.

    The numbers are computed on the GPU, on a stream of their own; the file is written while
    the GPU computes the next step.
    """

    def __init__(self, path):
        self.path = path
        self.history = []
        self.texts = []
        self.pending = []
        self.stream = torch.cuda.Stream()
        self.buffers = [torch.empty(4, dtype=torch.float64).pin_memory() for _ in range(2)]
        # In sorted scores, the bins between quantiles are ranges of ranks.
        # The edge i of 20 lies at rank i * (ROWS - 1) / 20, counted from the lowest score.
        below = [-(-i * (ROWS - 1) // 20) for i in range(20)] + [ROWS]
        edges = torch.tensor([ROWS - n for n in reversed(below)])
        self.sizes = edges.diff().double().to(DEV)
        self.last = (edges[1:] - 1).to(DEV)

    def measure(self, loss, logits, labels):
        scores, order = torch.sort(torch.sigmoid(logits.float()), descending=True)
        truth = labels[order].double()
        hits = torch.cumsum(truth, 0)
        positives = hits[-1]
        auc = torch.dot(hits, 1 - truth) / (positives * (len(truth) - positives))
        recall = hits[len(truth) // 100] / positives
        excess = torch.cumsum(truth - scores, 0)[self.last]
        sums = torch.cat([excess[:1], excess.diff()])
        calibration = (sums.abs() / self.sizes).mean()
        return torch.stack([loss.double(), auc, recall, calibration])

    def update(self, step, loss, logits, labels, ready):
        loss, logits = loss.detach(), logits.detach()
        self.stream.wait_event(ready)
        with torch.cuda.stream(self.stream):
            buffer = self.buffers[step % 2]
            buffer.copy_(self.measure(loss, logits, labels), non_blocking=True)
            done = torch.cuda.Event()
            done.record()
        loss.record_stream(self.stream)
        logits.record_stream(self.stream)
        self.pending.append((step, buffer, done))
        if len(self.pending) > 1:
            self.write()

    def write(self):
        """Wait for the oldest step that is not in the file yet, and write the file with it."""
        step, buffer, done = self.pending.pop(0)
        done.synchronize()
        loss, auc, recall, calibration = buffer.tolist()
        row = {"step": step, "loss": loss, "auc": auc, "recall": recall, "calibration": calibration}
        self.history.append(row)
        self.texts.append(" " + json.dumps(row, indent=1).replace("\n", "\n "))
        with open(self.path, "w") as out:
            out.write("[\n" + ",\n".join(self.texts) + "\n]")
            out.flush()
            os.fsync(out.fileno())

    def flush(self):
        while self.pending:
            self.write()

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
        ready = torch.cuda.Event()
        ready.record()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        monitor.update(step, loss, logits, y, ready)
        if step >= WARMUP - 1 and (step - WARMUP) % 10 == 9:
            monitor.flush()
            torch.cuda.synchronize()
            stamps.append(time.perf_counter())
    monitor.flush()
    series = monitor.series()
    folder.cleanup()
    print(f"AUC {series[0][1]:.4f} -> {series[-1][1]:.4f}")
    us = float(np.median(np.diff(stamps))) / 10 * 1e6
    result = [*series[0], *series[5]]
    summary = {"program": "torch_fraud_monitor", "steps": len(series), "us": us, "result": result}
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
