"""Rank shop items within a session; sessions arrive as dictionaries of features."""

import json
import time
from operator import itemgetter

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

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


ROWS = SESSIONS * ITEMS
SLOTS = 4
WIDE = 200  # 192 embedded + 6 numbers + a one for the bias + a zero
get_fields, get_numbers = itemgetter(*FIELDS), itemgetter(*NUMBERS)


class Batch:
    """One buffer for a whole batch: fields, clicked, numbers; each (session, feature, item)."""

    def __init__(self, **where):
        ints, clicked, floats = SESSIONS * len(FIELDS) * ITEMS, SESSIONS, SESSIONS * len(NUMBERS) * ITEMS
        a, b = ints * 8, (ints + clicked) * 8
        self.raw = torch.zeros(b + floats * 4, dtype=torch.uint8, **where)
        self.fields = self.raw[:a].view(torch.int64).view(-1, ITEMS)
        self.clicked = self.raw[a:b].view(torch.int64)
        self.numbers = self.raw[b:].view(torch.float32).view(-1, ITEMS)

    def collate(self, sessions):
        fields, numbers = [], []
        for session in sessions:
            fields.extend(get_fields(session))
            numbers.extend(get_numbers(session))
        torch.stack(fields, out=self.fields)
        torch.stack(numbers, out=self.numbers)
        torch.stack([session["clicked"] for session in sessions], out=self.clicked)


@triton.jit
def gather_kernel(table, starts, fields, numbers, out, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    col = tl.arange(0, 256)
    at = (row // 24) * 144 + row % 24
    embedded = col < 192
    number = (col >= 192) & (col < 198)
    everywhere = row[:, None] >= 0
    index = tl.load(
        fields + at[:, None] + ((col // 32) * 24)[None, :],
        mask=everywhere & embedded[None, :],
        other=0,
    )
    start = tl.load(starts + col // 32, mask=embedded, other=0)
    value = tl.load(
        table + (index + start[None, :]) * 32 + (col % 32)[None, :],
        mask=everywhere & embedded[None, :],
        other=0.0,
    )
    value += tl.load(
        numbers + at[:, None] + ((col - 192) * 24)[None, :],
        mask=everywhere & number[None, :],
        other=0.0,
    )
    value = tl.where((col == 198)[None, :], 1.0, value)
    tl.store(
        out + row[:, None] * 200 + col[None, :], value, mask=everywhere & (col < 200)[None, :]
    )


@triton.jit
def scatter_kernel(grad, starts, fields, out, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    col = tl.arange(0, 256)
    at = (row // 24) * 144 + row % 24
    embedded = col < 192
    mask = (row[:, None] >= 0) & embedded[None, :]
    index = tl.load(fields + at[:, None] + ((col // 32) * 24)[None, :], mask=mask, other=0)
    start = tl.load(starts + col // 32, mask=embedded, other=0)
    value = tl.load(grad + row[:, None] * 200 + col[None, :], mask=mask, other=0.0)
    tl.atomic_add(
        out + (index + start[None, :]) * 32 + (col % 32)[None, :], value, mask=mask, sem="relaxed"
    )


@triton.jit
def colsum_kernel(grad, out, N: tl.constexpr):
    row = tl.program_id(0) * 64 + tl.arange(0, 64)
    col = tl.program_id(1) * 64 + tl.arange(0, 64)
    tile = tl.load(grad + row[:, None] * N + col[None, :])
    tl.atomic_add(out + col, tl.sum(tile, axis=0), sem="relaxed")


@triton.jit
def attention_kernel(qkv, out, SCALE: tl.constexpr):
    """One session and head: 24 items (padded to 32) of 32 channels."""
    session = tl.program_id(0)
    head = tl.program_id(1)
    i = tl.arange(0, 32)
    j = tl.arange(0, 32)
    row = session * 24 + i
    mask = (i < 24)[:, None] & (j >= 0)[None, :]
    spot = row[:, None] * 384 + head * 32 + j[None, :]
    q = tl.load(qkv + spot, mask=mask, other=0.0)
    k = tl.load(qkv + spot + 128, mask=mask, other=0.0)
    v = tl.load(qkv + spot + 256, mask=mask, other=0.0)
    s = tl.dot(q, tl.trans(k)) * SCALE
    s = tl.where((j < 24)[None, :], s, -1.0e30)
    p = tl.exp(s - tl.max(s, axis=1)[:, None])
    p = p / tl.sum(p, axis=1)[:, None]
    o = tl.dot(p, v)
    tl.store(out + row[:, None] * 128 + head * 32 + j[None, :], o, mask=mask)


@triton.jit
def attention_backward_kernel(qkv, grad, out, SCALE: tl.constexpr):
    session = tl.program_id(0)
    head = tl.program_id(1)
    i = tl.arange(0, 32)
    j = tl.arange(0, 32)
    row = session * 24 + i
    mask = (i < 24)[:, None] & (j >= 0)[None, :]
    spot = row[:, None] * 384 + head * 32 + j[None, :]
    q = tl.load(qkv + spot, mask=mask, other=0.0)
    k = tl.load(qkv + spot + 128, mask=mask, other=0.0)
    v = tl.load(qkv + spot + 256, mask=mask, other=0.0)
    do = tl.load(grad + row[:, None] * 128 + head * 32 + j[None, :], mask=mask, other=0.0)
    s = tl.dot(q, tl.trans(k)) * SCALE
    s = tl.where((j < 24)[None, :], s, -1.0e30)
    p = tl.exp(s - tl.max(s, axis=1)[:, None])
    p = p / tl.sum(p, axis=1)[:, None]
    dv = tl.dot(tl.trans(p), do)
    dp = tl.dot(do, tl.trans(v))
    ds = p * (dp - tl.sum(p * dp, axis=1)[:, None]) * SCALE
    dq = tl.dot(ds, k)
    dk = tl.dot(tl.trans(ds), q)
    tl.store(out + spot, dq, mask=mask)
    tl.store(out + spot + 128, dk, mask=mask)
    tl.store(out + spot + 256, dv, mask=mask)


@triton.jit
def adagrad_kernel(param, grad, total, count, LR: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < count
    g = tl.load(grad + offs, mask=mask, other=0.0)
    t = tl.load(total + offs, mask=mask, other=0.0) + g * g
    p = tl.load(param + offs, mask=mask, other=0.0)
    tl.store(total + offs, t, mask=mask)
    tl.store(param + offs, p - LR * (g / (tl.sqrt(t) + 1e-10)), mask=mask)


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, starts, fields, numbers):
        ctx.save_for_backward(starts, fields)
        ctx.table_shape = table.shape
        out = torch.empty(ROWS, WIDE, device=device)
        gather_kernel[(ROWS // 8,)](table, starts, fields, numbers, out, BLOCK=8)
        return out

    @staticmethod
    def backward(ctx, grad):
        starts, fields = ctx.saved_tensors
        out = torch.zeros(ctx.table_shape, device=device)
        scatter_kernel[(ROWS // 8,)](grad.contiguous(), starts, fields, out, BLOCK=8)
        return out, None, None, None


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.t())

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        width = grad.shape[1]
        bias = torch.zeros(width, device=device)
        colsum_kernel[(ROWS // 64, width // 64)](grad, bias, N=width)
        return grad @ weight, grad.t() @ x, bias


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, qkv):
        ctx.save_for_backward(qkv)
        out = torch.empty(ROWS, DIM, device=device)
        attention_kernel[(SESSIONS, 4)](qkv, out, SCALE=32**-0.5, num_warps=2)
        return out

    @staticmethod
    def backward(ctx, grad):
        (qkv,) = ctx.saved_tensors
        out = torch.empty_like(qkv)
        attention_backward_kernel[(SESSIONS, 4)](
            qkv, grad.contiguous(), out, SCALE=32**-0.5, num_warps=2
        )
        return out


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


class Trainer:
    """Ranker's parameters in one flat buffer; forward, backward and Adagrad on it."""

    def __init__(self, model, lr):
        self.lr = lr
        mix, inner = model.mix, model.inner
        wide = torch.zeros(DIM, WIDE, device=device)
        wide[:, :198] = inner.weight.detach()
        wide[:, 198] = inner.bias.detach()
        values = [
            torch.cat([table.weight for table in model.tables.values()]),
            wide,
            mix.self_attn.in_proj_weight,
            mix.self_attn.in_proj_bias,
            mix.self_attn.out_proj.weight,
            mix.self_attn.out_proj.bias,
            mix.norm1.weight,
            mix.norm1.bias,
            mix.linear1.weight,
            mix.linear1.bias,
            mix.linear2.weight,
            mix.linear2.bias,
            mix.norm2.weight,
            mix.norm2.bias,
            model.score.weight,
            model.score.bias,
        ]
        self.eps = mix.norm1.eps
        self.flat = torch.cat([value.detach().reshape(-1) for value in values])
        self.total = torch.zeros_like(self.flat)
        self.params, at = [], 0
        for value in values:
            part = self.flat[at : at + value.numel()].view(value.shape)
            self.params.append(part.detach().requires_grad_())
            at += value.numel()
        starts, at = [], 0
        for count in FIELDS.values():
            starts.append(at)
            at += count
        self.starts = torch.tensor(starts, dtype=torch.int64, device=device)

    def forward(self, batch):
        table, wide, wqkv, bqkv, wo, bo, g1, c1, w1, b1, w2, b2, g2, c2, ws, bs = self.params
        x = Gather.apply(table, self.starts, batch.fields, batch.numbers)
        h = F.relu(F.linear(x, wide))
        a = Linear.apply(Attention.apply(Linear.apply(h, wqkv, bqkv)), wo, bo)
        h = F.layer_norm(h + a, (DIM,), g1, c1, self.eps)
        a = Linear.apply(F.relu(Linear.apply(h, w1, b1)), w2, b2)
        h = F.layer_norm(h + a, (DIM,), g2, c2, self.eps)
        return F.linear(h, ws, bs).view(SESSIONS, ITEMS)

    def step(self, batch):
        loss = F.cross_entropy(self.forward(batch), batch.clicked)
        grads = torch.autograd.grad(loss, self.params)
        grad = torch.cat([g.reshape(-1) for g in grads])
        count = self.flat.numel()
        adagrad_kernel[(triton.cdiv(count, 1024),)](
            self.flat, grad, self.total, count, LR=self.lr, BLOCK=1024
        )
        return loss.detach()


def main():
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(6)
    generator = torch.Generator().manual_seed(6)
    days = [[make_session(generator) for _ in range(SESSIONS)] for _ in range(4)]
    trainer = Trainer(Ranker().to(device), lr=0.01)
    batch = Batch(device=device)
    staging = [Batch(pin_memory=True) for _ in range(SLOTS)]
    copied = [torch.cuda.Event() for _ in range(SLOTS)]
    losses, marks = [], []

    # compile and capture the step on a dummy batch, then put the parameters back
    initial = trainer.flat.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            trainer.step(batch)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_loss = trainer.step(batch)
    trainer.flat.copy_(initial)
    trainer.total.zero_()

    for n in range(WARMUP + STEPS):
        if n >= WARMUP and (n - WARMUP) % 10 == 0:
            torch.cuda.synchronize()
            marks.append(time.perf_counter())
        slot = n % SLOTS
        copied[slot].synchronize()
        staging[slot].collate(days[n % 4])
        batch.raw.copy_(staging[slot].raw, non_blocking=True)
        copied[slot].record()
        graph.replay()
        losses.append(static_loss.clone())
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
