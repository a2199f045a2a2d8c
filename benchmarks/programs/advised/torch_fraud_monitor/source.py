"""Card fraud: a tabular network, watched closely while it trains."""

import json
import os
import queue
import tempfile
import threading
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

    The measures are computed on the device, on a stream of their own; a thread receives them
    and writes the file anew for each step.
    """

    BINS = 20

    def __init__(self, path, capacity):
        self.path = path
        self.history = []
        self.texts = []
        self.error = None
        self.stream = torch.cuda.Stream()
        self.rows = torch.empty(capacity, 4, dtype=torch.float64, pin_memory=True)
        # Ends of the quantile bins among the scores in descending order.
        ends = [ROWS - -(-k * (ROWS - 1) // self.BINS) for k in range(self.BINS - 1, 0, -1)] + [ROWS]
        self.last = torch.tensor(ends, device=DEV) - 1
        self.counts = torch.tensor(np.diff(ends, prepend=0), device=DEV, dtype=torch.float64)
        self.zero = torch.zeros(1, device=DEV, dtype=torch.float64)
        self.queue = queue.Queue()
        self.stream.wait_stream(torch.cuda.current_stream())
        threading.Thread(target=self._write, daemon=True).start()

    @torch.no_grad()
    def update(self, step, loss, logits, labels, ready):
        """`ready` is an event after which loss and logits are there."""
        loss, logits = loss.detach(), logits.detach()
        self.stream.wait_event(ready)
        with torch.cuda.stream(self.stream):
            scores, order = torch.sort(torch.sigmoid(logits.float()), descending=True)
            truth = labels[order].double()
            hits = torch.cumsum(truth, 0)
            positives = hits[-1]
            auc = torch.dot(hits, 1 - truth) / (positives * (len(truth) - positives))
            recall = hits[len(truth) // 100] / positives
            excess = torch.cumsum(truth - scores, 0)[self.last]
            gaps = torch.diff(excess, prepend=self.zero).abs() / self.counts
            row = torch.stack([loss.double(), auc, recall, gaps.mean()])
            self.rows[step].copy_(row, non_blocking=True)
            logits.record_stream(self.stream)
            loss.record_stream(self.stream)
            arrived = torch.cuda.Event()
            arrived.record(self.stream)
        self.queue.put((step, arrived))

    def _write(self):
        while True:
            step, arrived = self.queue.get()
            try:
                while not arrived.query():
                    time.sleep(5e-5)
                loss, auc, recall, calibration = self.rows[step].tolist()
                row = {"step": step, "loss": loss, "auc": auc, "recall": recall}
                row["calibration"] = calibration
                self.history.append(row)
                self.texts.append(" " + json.dumps(row, indent=1).replace("\n", "\n "))
                with open(self.path, "w") as out:
                    out.write("[\n" + ",\n".join(self.texts) + "\n]")
                    out.flush()
                    os.fsync(out.fileno())
            except BaseException as error:
                self.error = error
            finally:
                self.queue.task_done()

    def drain(self):
        """Wait until every step so far stands in the file."""
        self.queue.join()
        if self.error is not None:
            raise self.error

    def series(self):
        self.drain()
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

    @torch.compile(dynamic=False)
    def forward(x, y):
        logits = net(x).squeeze(1)
        return logits, criterion(logits, y)

    folder = tempfile.TemporaryDirectory()
    monitor = Monitor(os.path.join(folder.name, "progress.json"), WARMUP + STEPS)
    stamps = []
    for step in range(WARMUP + STEPS):
        x, y = batches[step % len(batches)]
        logits, loss = forward(x, y)
        ready = torch.cuda.Event()
        ready.record()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        monitor.update(step, loss, logits, y, ready)
        if step >= WARMUP - 1 and (step - WARMUP) % 10 == 9:
            torch.cuda.synchronize()
            monitor.drain()
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
