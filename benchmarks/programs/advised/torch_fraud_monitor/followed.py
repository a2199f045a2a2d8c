"""Card fraud: a tabular network, watched closely while it trains."""

import json
import os
import queue
import tempfile
import threading
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

DEV = torch.device("cuda")
ROWS = 65536
FEATURES = 192
WARMUP = 6
STEPS = 60


class Monitor:
    """Area under the ROC curve, recall at fixed alarms, calibration; kept in a JSON file.

    The GPU computes the numbers; a thread waits for them and writes the file, while the next
    step runs.
    """

    def __init__(self, path, capacity):
        self.path = path
        self.history = []
        self.texts = []
        self.error = None
        self.numbers = torch.empty(capacity, 4, dtype=torch.float64, pin_memory=True)
        place = np.linspace(0, 1, 21)[1:-1] * (ROWS - 1)
        low = np.floor(place).astype(np.int64)
        high = np.minimum(low + 1, ROWS - 1)
        # places in the descending order
        self.low = torch.from_numpy(ROWS - 1 - low).to(DEV)
        self.high = torch.from_numpy(ROWS - 1 - high).to(DEV)
        self.part = torch.from_numpy(place - low).to(DEV)
        self.zero = torch.zeros(1, dtype=torch.int64, device=DEV)
        self.all = torch.full((1,), ROWS, dtype=torch.int64, device=DEV)
        self.jobs = queue.Queue()
        self.thread = threading.Thread(target=self._write, daemon=True)
        self.thread.start()

    @torch.no_grad()
    def update(self, step, loss, logits, labels):
        minus, order = torch.sort(-torch.sigmoid(logits.detach().float()))
        minus = minus.double()  # ascending: the highest score first
        truth = labels[order].double()
        hits = truth.cumsum(0)
        positives = hits[-1]
        auc = (hits * (1 - truth)).sum() / (positives * (ROWS - positives))
        recall = hits[ROWS // 100] / positives
        # The quantiles cut the sorted scores into 20 runs; prefix sums give each run's means.
        edges = torch.lerp(minus[self.low], minus[self.high], self.part)
        cuts = torch.cat([self.zero, torch.searchsorted(minus, edges, right=True).flip(0), self.all])
        gap = F.pad((truth + minus).cumsum(0), (1, 0))[cuts]
        calibration = (gap.diff() / cuts.diff()).abs().mean()
        numbers = torch.stack([loss.detach().double(), auc, recall, calibration])
        self.numbers[step].copy_(numbers, non_blocking=True)
        ready = torch.cuda.Event()
        ready.record()
        self.jobs.put((step, ready))

    def _write(self):
        while (job := self.jobs.get()) is not None:
            try:
                step, ready = job
                ready.synchronize()
                loss, auc, recall, calibration = self.numbers[step].tolist()
                row = {"step": step, "loss": loss, "auc": auc, "recall": recall}
                row["calibration"] = calibration
                self.history.append(row)
                self.texts.append(" " + json.dumps(row, indent=1).replace("\n", "\n "))
                with open(self.path, "w") as out:
                    out.write("[\n" + ",\n".join(self.texts) + "\n]")
                    out.flush()
                    os.fsync(out.fileno())
            except Exception as error:
                self.error = error
            finally:
                self.jobs.task_done()

    def drain(self):
        self.jobs.join()
        if self.error is not None:
            raise self.error

    def close(self):
        self.drain()
        self.jobs.put(None)
        self.thread.join()

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
    monitor = Monitor(os.path.join(folder.name, "progress.json"), WARMUP + STEPS)
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
            monitor.drain()
            stamps.append(time.perf_counter())
    monitor.close()
    series = monitor.series()
    folder.cleanup()
    print(f"AUC {series[0][1]:.4f} -> {series[-1][1]:.4f}")
    us = float(np.median(np.diff(stamps))) / 10 * 1e6
    result = [*series[0], *series[5]]
    summary = {"program": "torch_fraud_monitor", "steps": len(series), "us": us, "result": result}
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
