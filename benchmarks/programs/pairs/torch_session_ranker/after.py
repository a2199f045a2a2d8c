"""Rank shop items within a session; sessions arrive as dictionaries of features."""

import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda")
SESSIONS, ITEMS, DIM = 80, 24, 128
FIELDS = {"brand": 500, "category": 60, "colour": 20, "size": 30, "shop": 200, "season": 8}
NUMBERS = ["price", "discount", "rating", "stock", "age", "dwell"]
WARMUP, STEPS = 10, 60


def make_session(generator):
    session = {
        name: torch.randint(0, count, (ITEMS,), generator=generator)
        for name, count in FIELDS.items()
    }
    session |= {name: torch.randn(ITEMS, generator=generator) for name in NUMBERS}
    session["clicked"] = torch.randint(0, ITEMS, (), generator=generator)
    return session


def to_device(batch):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: to_device(value) for key, value in batch.items()}
    return [to_device(value) for value in batch]


def collate(sessions):
    return {key: torch.stack([s[key] for s in sessions]) for key in sessions[0]}


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleDict({k: nn.Embedding(n, 32) for k, n in FIELDS.items()})
        self.inner = nn.Linear(32 * len(FIELDS) + len(NUMBERS), DIM)
        self.mix = nn.TransformerEncoderLayer(DIM, 4, 256, dropout=0.0, batch_first=True)
        self.score = nn.Linear(DIM, 1)

    def forward(self, batch):
        parts = [table(batch[name]) for name, table in self.tables.items()]
        parts.append(torch.stack([batch[name] for name in NUMBERS], -1))
        h = self.mix(F.relu(self.inner(torch.cat(parts, -1))))
        return self.score(h).squeeze(-1)


def main():
    torch.manual_seed(6)
    generator = torch.Generator().manual_seed(6)
    days = [[make_session(generator) for _ in range(SESSIONS)] for _ in range(4)]
    model = Ranker().to(device)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.01, foreach=True)
    losses, marks = [], []

    for n in range(WARMUP + STEPS):
        if n >= WARMUP and (n - WARMUP) % 10 == 0:
            torch.cuda.synchronize()
            marks.append(time.perf_counter())
        batch = to_device(collate(days[n % 4]))
        loss = F.cross_entropy(model(batch), batch["clicked"])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    marks.append(time.perf_counter())

    spans = sorted(b - a for a, b in zip(marks, marks[1:]))
    us = spans[len(spans) // 2] / 10 * 1e6
    values = torch.stack(losses).tolist()
    print(f"loss {values[0]:.4f} -> {values[-1]:.4f}")
    result = [values[0], values[3], values[10]]
    print(
        json.dumps(
            {"program": "torch_session_ranker", "steps": len(values), "us": us, "result": result}
        )
    )


if __name__ == "__main__":
    main()
