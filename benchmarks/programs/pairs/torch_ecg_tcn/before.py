"""Arrhythmia classifier on 12-lead ECG: a temporal convolution network trained with AdaBelief."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
LEADS = 12
SAMPLES = 1000
CLASSES = 9
WIDTH = 48
LAYERS = 24
BATCH = 32
POOL = 8
WARMUP = 10
BLOCKS = 10
STEPS_PER_BLOCK = 16


class AdaBelief(torch.optim.Optimizer):
    """Zhuang et al. 2020, with decoupled weight decay."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            lr, eps = group["lr"], group["eps"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["mean"] = torch.zeros_like(p)
                    state["belief"] = torch.zeros_like(p)
                state["step"] += 1
                correction1 = 1 - beta1 ** state["step"]
                correction2 = 1 - beta2 ** state["step"]
                mean, belief = state["mean"], state["belief"]
                p.mul_(1 - lr * group["weight_decay"])
                mean.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                surprise = p.grad - mean
                belief.mul_(beta2).addcmul_(surprise, surprise, value=1 - beta2).add_(eps)
                denominator = (belief / correction2).sqrt_().add_(eps)
                p.addcdiv_(mean, denominator, value=-lr / correction1)


class Block(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.dilated = nn.Conv1d(WIDTH, WIDTH, 5, padding=2 * dilation, dilation=dilation)
        self.norm = nn.GroupNorm(6, WIDTH)
        self.mix = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x):
        return x + self.mix(F.gelu(self.norm(self.dilated(x))))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(LEADS, WIDTH, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(*[Block(2 ** (i % 6)) for i in range(LAYERS)])
        self.head = nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, x):
        h = self.blocks(self.stem(x))
        return self.head(torch.cat([h.mean(dim=-1), h.amax(dim=-1)], dim=-1))


def recordings(generator):
    """Beats at a rate that depends on the class, with noise and wander."""
    label = torch.randint(CLASSES, (BATCH,), device=DEVICE, generator=generator)
    t = torch.linspace(0, 10, SAMPLES, device=DEVICE)
    rate = 0.8 + 0.2 * label.float()
    shift = torch.rand(BATCH, 1, 1, device=DEVICE, generator=generator)
    beat = torch.cos(torch.pi * (rate[:, None, None] * t + shift)).abs().pow(40)
    gain = torch.randn(BATCH, LEADS, 1, device=DEVICE, generator=generator)
    noise = torch.randn(BATCH, LEADS, SAMPLES, device=DEVICE, generator=generator)
    return gain * beat + 0.1 * noise, label


def main():
    torch.manual_seed(31)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    model = Network().to(DEVICE)
    generator = torch.Generator(device=DEVICE).manual_seed(32)
    pool = [recordings(generator) for _ in range(POOL)]
    optimizer = AdaBelief(model.parameters(), lr=1e-4)

    def train(i):
        signal, label = pool[i % POOL]
        loss = F.cross_entropy(model(signal), label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [train(i) for i in range(WARMUP)]
    torch.cuda.synchronize()
    times = []
    count = WARMUP
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            losses.append(train(count))
            count += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"loss {losses[-1].item():.4f}, {BATCH / times[-1]:.0f} recordings/s")
    out = {
        "program": "torch_ecg_tcn",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [torch.stack(losses).mean().item()],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
