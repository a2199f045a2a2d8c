"""Rank shop items within a session; sessions arrive as dictionaries of features."""

import json
import time

import torch
import torch._dynamo
import torch.nn as nn
import torch.nn.functional as F

torch._dynamo.config.suppress_errors = True  # eager where the compiler cannot
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


class Loader:
    """Collates on the host into pinned buffers, and copies a batch in two transfers."""

    SLOTS = 4
    INTS = len(FIELDS) * SESSIONS

    def __init__(self):
        size, rows = self.INTS * ITEMS + SESSIONS, len(NUMBERS) * SESSIONS
        self.ints = torch.zeros(size, dtype=torch.int64, device=device)
        self.floats = torch.zeros(rows, ITEMS, device=device)
        self.slots = []
        for _ in range(self.SLOTS):
            ints = torch.zeros(size, dtype=torch.int64).pin_memory()
            floats = torch.zeros(rows, ITEMS).pin_memory()
            fields = ints[: self.INTS * ITEMS].view(self.INTS, ITEMS)
            clicked = ints[self.INTS * ITEMS :]
            self.slots.append((ints, floats, fields, clicked, torch.cuda.Event()))
        self.turn = 0

    def load(self, sessions):
        ints, floats, fields, clicked, copied = self.slots[self.turn]
        self.turn = (self.turn + 1) % self.SLOTS
        copied.synchronize()  # the copy that last read this slot
        torch.stack([s[key] for key in FIELDS for s in sessions], out=fields)
        torch.stack([s[key] for key in NUMBERS for s in sessions], out=floats)
        torch.stack([s["clicked"] for s in sessions], out=clicked)
        self.ints.copy_(ints, non_blocking=True)
        self.floats.copy_(floats, non_blocking=True)
        copied.record()


class Adagrad:
    """torch.optim.Adagrad's update (no decay), without host state: it can be captured."""

    def __init__(self, params, lr, eps=1e-10):
        self.params, self.lr, self.eps = list(params), lr, eps
        self.sums = [torch.zeros_like(p) for p in self.params]

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        grads = [p.grad for p in self.params]
        torch._foreach_addcmul_(self.sums, grads, grads, value=1.0)
        std = torch._foreach_sqrt(self.sums)
        torch._foreach_add_(std, self.eps)
        torch._foreach_addcdiv_(self.params, grads, std, value=-self.lr)


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleDict({k: nn.Embedding(n, 32) for k, n in FIELDS.items()})
        self.inner = nn.Linear(32 * len(FIELDS) + len(NUMBERS), DIM)
        self.mix = nn.TransformerEncoderLayer(DIM, 4, 256, dropout=0.0, batch_first=True)
        self.score = nn.Linear(DIM, 1)

    def forward(self, fields, numbers):
        parts = [table(fields[i]) for i, table in enumerate(self.tables.values())]
        parts.append(numbers.permute(1, 2, 0))
        h = self.mix(F.relu(self.inner(torch.cat(parts, -1))))
        return self.score(h).squeeze(-1)


def main():
    torch.cuda.set_stream(torch.cuda.Stream())  # one stream for warm-up, capture and replay
    torch.manual_seed(6)
    generator = torch.Generator().manual_seed(6)
    days = [[make_session(generator) for _ in range(SESSIONS)] for _ in range(4)]
    model = Ranker().to(device)
    opt = Adagrad(model.parameters(), lr=0.01)
    loader = Loader()
    losses, marks = [], []
    graph = torch.cuda.CUDAGraph()

    @torch.compile
    def loss_of(ints, floats):
        split = len(FIELDS) * SESSIONS * ITEMS
        fields = ints[:split].view(len(FIELDS), SESSIONS, ITEMS)
        numbers = floats.view(len(NUMBERS), SESSIONS, ITEMS)
        return F.cross_entropy(model(fields, numbers), ints[split:])

    def train():
        loss = loss_of(loader.ints, loader.floats)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    for n in range(WARMUP + STEPS):
        if n == WARMUP:  # capturing runs nothing
            opt.zero_grad()
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                captured = train()
        if n >= WARMUP and (n - WARMUP) % 10 == 0:
            torch.cuda.synchronize()
            marks.append(time.perf_counter())
        loader.load(days[n % 4])
        if n < WARMUP:
            loss = train()
        else:
            graph.replay()
            loss = captured
        losses.append(loss.clone())
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
