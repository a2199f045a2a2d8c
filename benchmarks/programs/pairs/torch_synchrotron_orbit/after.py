"""Forecast of the closed-orbit drift of a storage ring from its beam position monitors."""
import json
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2031)
torch.set_float32_matmul_precision("high")
DEVICE = torch.device("cuda")

MONITORS = 96
HISTORY = 48
WIDTH = 384
HEADS = 6
DEPTH = 14
BATCH = 48
SHOTS = 960


class OrbitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_a = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_b = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm_a(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm_b(x))))


class OrbitForecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(HISTORY, WIDTH)
        self.place = nn.Parameter(torch.randn(1, MONITORS, WIDTH) * 0.02)
        self.blocks = nn.ModuleList([OrbitBlock(WIDTH, HEADS) for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, history):
        x = self.embed(history) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class AdaBelief(torch.optim.Optimizer):
    """AdaBelief with decoupled weight decay."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.999), eps=1e-12, weight_decay=1e-2):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.count = 0

    @torch.no_grad()
    def step(self):
        self.count += 1
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            lr, eps = group["lr"], group["eps"]
            correction1 = 1.0 - beta1 ** self.count
            correction2 = math.sqrt(1.0 - beta2 ** self.count)
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            for p in params:
                state = self.state[p]
                if len(state) == 0:
                    state["mean"] = torch.zeros_like(p)
                    state["belief"] = torch.zeros_like(p)
            means = [self.state[p]["mean"] for p in params]
            beliefs = [self.state[p]["belief"] for p in params]
            torch._foreach_mul_(params, 1.0 - lr * group["weight_decay"])
            torch._foreach_mul_(means, beta1)
            torch._foreach_add_(means, grads, alpha=1.0 - beta1)
            residuals = torch._foreach_sub(grads, means)
            torch._foreach_mul_(beliefs, beta2)
            torch._foreach_addcmul_(beliefs, residuals, residuals, 1.0 - beta2)
            torch._foreach_add_(beliefs, eps)
            denominators = torch._foreach_sqrt(beliefs)
            torch._foreach_div_(denominators, correction2)
            torch._foreach_add_(denominators, 1e-8)
            torch._foreach_addcdiv_(params, means, denominators, -lr / correction1)


def ring_history():
    """Betatron-like orbit distortions from drifting kicks around the ring."""
    phase = torch.linspace(0.0, 2.0 * math.pi * 14.23, MONITORS, device=DEVICE)
    kicks = torch.randn(SHOTS, 8, device=DEVICE)
    sites = torch.rand(8, device=DEVICE) * phase[-1]
    rates = 0.2 + torch.rand(SHOTS, 8, device=DEVICE)
    clock = torch.arange(HISTORY + 4, device=DEVICE) / HISTORY
    drive = kicks[:, :, None] * torch.cos(2.0 * math.pi * rates[:, :, None] * clock)
    shape = torch.cos((phase[:, None] - sites).abs() - math.pi * 14.23)
    orbit = torch.einsum("mk,skt->smt", shape, drive)
    orbit = orbit + 0.02 * torch.randn(orbit.shape, device=DEVICE)
    target = torch.stack((orbit[:, :, -1], orbit[:, :, -1] - orbit[:, :, HISTORY - 1]), dim=-1)
    return orbit[:, :, :HISTORY].contiguous(), target.contiguous()


def main():
    history, target = ring_history()
    model = OrbitForecaster().to(DEVICE)
    optimizer = AdaBelief(model.parameters())
    batches = SHOTS // BATCH

    def train_step(index):
        part = slice((index % batches) * BATCH, (index % batches + 1) * BATCH)
        loss = F.smooth_l1_loss(model(history[part]), target[part])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    done = 0
    first = train_step(done)
    for _ in range(11):
        done += 1
        train_step(done)
    torch.cuda.synchronize()

    times, losses = [], []
    for _ in range(8):
        start = time.perf_counter()
        for _ in range(8):
            done += 1
            losses.append(train_step(done))
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / 8)

    median = sorted(times)[len(times) // 2] * 1e6
    recent = torch.stack(losses[-20:]).mean()
    print(json.dumps({"program": "torch_synchrotron_orbit", "steps": done + 1, "us": round(median, 1),
                      "result": [round(first.item(), 5), round(recent.item(), 5)]}))


if __name__ == "__main__":
    main()
