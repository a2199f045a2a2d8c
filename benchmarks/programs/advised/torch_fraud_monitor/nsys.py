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

    The figures are computed on the GPU, on a stream of their own; a thread waits for them and
    writes the file once a step, at most DEPTH steps behind. flush() waits for what is pending.
    """

    DEPTH = 8
    BINS = 20

    def __init__(self, path):
        self.path = path
        self.history = []
        self.encoded = []
        self.error = None
        self.constants = {}
        self.stream = torch.cuda.Stream()
        self.free = queue.Queue()
        for _ in range(self.DEPTH):
            row = torch.empty(4, dtype=torch.float64, pin_memory=True)
            self.free.put((row, torch.cuda.Event(blocking=True)))
        self.pending = queue.Queue()
        self.writer = threading.Thread(target=self._write_rows, daemon=True)
        self.writer.start()

    def _constants(self, rows, device):
        if rows not in self.constants:
            place = np.linspace(0, 1, self.BINS + 1)[1:-1] * (rows - 1)
            low = np.floor(place).astype(np.int64)
            self.constants[rows] = (
                torch.from_numpy(low).to(device),
                torch.from_numpy(np.minimum(low + 1, rows - 1)).to(device),
                torch.from_numpy(place - low).to(device),
                torch.zeros(1, dtype=torch.int64, device=device),
                torch.full((1,), rows, dtype=torch.int64, device=device),
                torch.zeros(1, dtype=torch.float64, device=device),
            )
        return self.constants[rows]

    def _figures(self, loss, logits, labels):
        rows = labels.numel()
        low, high, part, first, last, nothing = self._constants(rows, labels.device)
        scores, order = torch.sort(torch.sigmoid(logits.float()))
        scores = scores.double()
        truth = labels[order].double()
        falling = truth.flip(0)
        hits = torch.cumsum(falling, 0)
        positives = hits[-1]
        auc = torch.dot(hits, 1 - falling) / (positives * (rows - positives))
        recall = hits[rows // 100] / positives
        below = scores[low]
        edges = below + (scores[high] - below) * part
        bounds = torch.cat([first, torch.searchsorted(scores, edges), last])
        running = torch.cat([nothing, torch.cumsum(truth - scores, 0)])
        gaps = (torch.diff(running[bounds]) / torch.diff(bounds)).abs()
        return torch.stack([loss.double(), auc, recall, gaps.mean()])

    @torch.no_grad()
    def update(self, step, loss, logits, labels):
        if self.error is not None:
            raise self.error
        loss, logits = loss.detach(), logits.detach()
        row, ready = self.free.get()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            row.copy_(self._figures(loss, logits, labels), non_blocking=True)
            ready.record(self.stream)
        for used in (loss, logits, labels):
            used.record_stream(self.stream)
        self.pending.put((step, row, ready))

    def _write_rows(self):
        while True:
            item = self.pending.get()
            if item is None:
                self.pending.task_done()
                return
            step, row, ready = item
            try:
                ready.synchronize()
                loss, auc, recall, calibration = row.tolist()
                self._write(
                    {
                        "step": step,
                        "loss": loss,
                        "auc": auc,
                        "recall": recall,
                        "calibration": calibration,
                    }
                )
            except Exception as error:
                self.error = error
            finally:
                self.free.put((row, ready))
                self.pending.task_done()

    def _write(self, row):
        self.history.append(row)
        text = json.dumps(row, indent=1)
        self.encoded.append("\n".join(" " + line for line in text.split("\n")))
        with open(self.path, "w") as out:
            out.write("[\n" + ",\n".join(self.encoded) + "\n]")
            out.flush()
            os.fsync(out.fileno())

    def flush(self):
        self.pending.join()
        if self.error is not None:
            raise self.error

    def close(self):
        self.pending.put(None)
        self.writer.join()
        self.flush()

    def series(self):
        self.flush()
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
            monitor.flush()  # the rows of all these steps are on disk
            stamps.append(time.perf_counter())
    series = monitor.series()
    monitor.close()
    folder.cleanup()
    print(f"AUC {series[0][1]:.4f} -> {series[-1][1]:.4f}")
    us = float(np.median(np.diff(stamps))) / 10 * 1e6
    result = [*series[0], *series[5]]
    summary = {"program": "torch_fraud_monitor", "steps": len(series), "us": us, "result": result}
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
