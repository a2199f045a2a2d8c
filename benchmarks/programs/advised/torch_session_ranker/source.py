"""Rank shop items within a session; sessions arrive as dictionaries of features."""

import json
import time
from operator import itemgetter

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


IDS = SESSIONS * len(FIELDS) * ITEMS
VALUES = SESSIONS * len(NUMBERS) * ITEMS
ID_BYTES = 8 * (IDS + SESSIONS)
SLOTS = 4


class Packed:
    """A batch in one buffer: field ids, clicked items, then numbers; session by session."""

    def __init__(self, **where):
        self.buffer = torch.zeros(ID_BYTES + 4 * VALUES, dtype=torch.uint8, **where)
        whole = self.buffer[:ID_BYTES].view(torch.int64)
        self.ids, self.clicked = whole[:IDS], whole[IDS:]
        self.numbers = self.buffer[ID_BYTES:].view(torch.float32)


class Feeder:
    """Collates on the host into pinned memory and sends the batch in one copy."""

    def __init__(self):
        self.batch = Packed(device=device)
        self.slots = [(Packed(pin_memory=True), torch.cuda.Event()) for _ in range(SLOTS)]
        self.fields, self.values = itemgetter(*FIELDS), itemgetter(*NUMBERS)
        self.count = 0

    def send(self, sessions):
        slot, sent = self.slots[self.count % SLOTS]
        if self.count >= SLOTS:
            sent.synchronize()
        self.count += 1
        ids, numbers = [], []
        for session in sessions:
            ids.extend(self.fields(session))
            numbers.extend(self.values(session))
        torch.cat(ids, out=slot.ids)
        torch.cat(numbers, out=slot.numbers)
        torch.stack([session["clicked"] for session in sessions], out=slot.clicked)
        self.batch.buffer.copy_(slot.buffer, non_blocking=True)
        sent.record()


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleDict({k: nn.Embedding(n, 32) for k, n in FIELDS.items()})
        self.inner = nn.Linear(32 * len(FIELDS) + len(NUMBERS), DIM)
        self.mix = nn.TransformerEncoderLayer(DIM, 4, 256, dropout=0.0, batch_first=True)
        self.score = nn.Linear(DIM, 1)

    def merge(self):
        """Join the tables into one, looked up once; take out the dropouts, which drop nothing."""
        sizes = [0, *FIELDS.values()][:-1]
        self.register_buffer("offsets", torch.tensor(sizes, device=device).cumsum(0))
        self.table = nn.Parameter(torch.cat([t.weight.detach() for t in self.tables.values()]))
        del self.tables
        self.mix.dropout = self.mix.dropout1 = self.mix.dropout2 = nn.Identity()

    def forward(self, batch):
        ids = batch.ids.view(SESSIONS, len(FIELDS), ITEMS).transpose(1, 2) + self.offsets
        parts = self.table.index_select(0, ids.reshape(-1)).view(SESSIONS, ITEMS, -1)
        numbers = batch.numbers.view(SESSIONS, len(NUMBERS), ITEMS).transpose(1, 2)
        h = self.mix(F.relu(self.inner(torch.cat([parts, numbers], -1))))
        return self.score(h).squeeze(-1)


@torch.no_grad()
def adagrad(params, sums, grads, lr=0.01, eps=1e-10):
    torch._foreach_addcmul_(sums, grads, grads, value=1)
    std = torch._foreach_sqrt(sums)
    torch._foreach_add_(std, eps)
    torch._foreach_addcdiv_(params, grads, std, value=-lr)


def capture(model, batch):
    """Record forward, backward and update as a CUDA graph; leaves the parameters as they are."""
    params = list(model.parameters())
    sums = [torch.zeros_like(p) for p in params]

    def gradients():
        loss = F.cross_entropy(model(batch), batch.clicked)
        return loss.detach(), list(torch.autograd.grad(loss, params))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            _, grads = gradients()
            copies = [p.detach().clone() for p in params]
            adagrad(copies, [torch.zeros_like(p) for p in params], grads)
        del grads, copies
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss, grads = gradients()
        adagrad(params, sums, grads)
    return graph, loss, (params, sums, grads)


def main():
    torch.manual_seed(6)
    generator = torch.Generator().manual_seed(6)
    days = [[make_session(generator) for _ in range(SESSIONS)] for _ in range(4)]
    model = Ranker().to(device)
    model.merge()
    feeder = Feeder()
    graph, loss, _kept = capture(model, feeder.batch)
    losses, marks = [], []

    for n in range(WARMUP + STEPS):
        if n >= WARMUP and (n - WARMUP) % 10 == 0:
            torch.cuda.synchronize()
            marks.append(time.perf_counter())
        feeder.send(days[n % 4])
        graph.replay()
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
