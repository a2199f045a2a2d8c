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
EAGER = 3
LR, EPS = 0.01, 1e-10


def make_session(generator):
    session = {
        name: torch.randint(0, count, (ITEMS,), generator=generator)
        for name, count in FIELDS.items()
    }
    session |= {name: torch.randn(ITEMS, generator=generator) for name in NUMBERS}
    session["clicked"] = torch.randint(0, ITEMS, (), generator=generator)
    return session


def views(buffer):
    """Identifiers, clicks and numbers as slices of one buffer of bytes."""
    cells = SESSIONS * ITEMS
    first = len(FIELDS) * cells * 8
    second = first + SESSIONS * 8
    return (
        buffer[:first].view(torch.int64),
        buffer[first:second].view(torch.int64),
        buffer[second:].view(torch.float32),
    )


def new_buffer(**where):
    size = SESSIONS * ITEMS * (8 * len(FIELDS) + 4 * len(NUMBERS)) + SESSIONS * 8
    return torch.empty(size, dtype=torch.uint8, **where)


class Loader:
    """Collates sessions into pinned memory and copies them to the GPU as one tensor."""

    def __init__(self, depth=4):
        self.slots = []
        for _ in range(depth):
            pinned = new_buffer(pin_memory=True)
            self.slots.append((pinned, views(pinned), torch.cuda.Event()))
        self.target = new_buffer(device=device)
        ids, clicked, numbers = views(self.target)
        self.batch = {
            "ids": ids.view(len(FIELDS), SESSIONS, ITEMS),
            "clicked": clicked,
            "numbers": numbers.view(len(NUMBERS), SESSIONS, ITEMS),
        }
        self.turn = 0

    def load(self, sessions):
        pinned, (ids, clicked, numbers), copied = self.slots[self.turn % len(self.slots)]
        self.turn += 1
        copied.synchronize()
        torch.cat([s[name] for name in FIELDS for s in sessions], out=ids)
        torch.stack([s["clicked"] for s in sessions], out=clicked)
        torch.cat([s[name] for name in NUMBERS for s in sessions], out=numbers)
        self.target.copy_(pinned, non_blocking=True)
        copied.record()


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        tables = [nn.Embedding(n, 32).weight.detach() for n in FIELDS.values()]
        starts = [0]
        for n in list(FIELDS.values())[:-1]:
            starts.append(starts[-1] + n)
        self.table = nn.Parameter(torch.cat(tables))
        self.register_buffer("starts", torch.tensor(starts)[:, None, None])
        self.inner = nn.Linear(32 * len(FIELDS) + len(NUMBERS), DIM)
        self.mix = nn.TransformerEncoderLayer(DIM, 4, 256, dropout=0.0, batch_first=True)
        self.score = nn.Linear(DIM, 1)

    def forward(self, batch):
        rows = (batch["ids"] + self.starts).permute(1, 2, 0).reshape(-1)
        embedded = self.table.index_select(0, rows).view(SESSIONS, ITEMS, -1)
        numbers = batch["numbers"].permute(1, 2, 0)
        h = self.mix(F.relu(self.inner(torch.cat([embedded, numbers], -1))))
        return self.score(h).squeeze(-1)


def main():
    torch.manual_seed(6)
    generator = torch.Generator().manual_seed(6)
    days = [[make_session(generator) for _ in range(SESSIONS)] for _ in range(4)]
    model = Ranker().to(device)
    params = list(model.parameters())
    sums = [torch.zeros_like(p) for p in params]
    loader = Loader()
    losses, marks = [], []

    def train():
        """Forward, backward and Adagrad (as torch.optim.Adagrad, foreach) on the loader's batch."""
        loss = F.cross_entropy(model(loader.batch), loader.batch["clicked"])
        grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            torch._foreach_addcmul_(sums, grads, grads, value=1.0)
            std = torch._foreach_sqrt(sums)
            torch._foreach_add_(std, EPS)
            torch._foreach_addcdiv_(params, torch._foreach_mul(grads, -LR), std)
        return loss.detach()

    side = torch.cuda.Stream()
    graph, graph_loss = None, None

    for n in range(WARMUP + STEPS):
        if n >= WARMUP and (n - WARMUP) % 10 == 0:
            torch.cuda.synchronize()
            marks.append(time.perf_counter())
        loader.load(days[n % 4])
        if n < EAGER:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                losses.append(train())
            torch.cuda.synchronize()
            continue
        if graph is None:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                graph_loss = train()
        graph.replay()
        losses.append(graph_loss.clone())
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
