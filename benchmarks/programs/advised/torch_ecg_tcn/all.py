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
EAGER = 3  # of these, before the step is captured
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
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            if "step" not in group:
                # on the GPU, so that a captured step counts on
                group["step"] = torch.zeros((), dtype=torch.float64, device=DEVICE)
                for p in params:
                    self.state[p]["mean"] = torch.zeros_like(p)
                    self.state[p]["belief"] = torch.zeros_like(p)
            group["step"] += 1
            correction1 = (1 - torch.pow(beta1, group["step"])).float()
            correction2 = (1 - torch.pow(beta2, group["step"])).float()
            means = [self.state[p]["mean"] for p in params]
            beliefs = [self.state[p]["belief"] for p in params]
            torch._foreach_mul_(params, 1 - lr * group["weight_decay"])
            torch._foreach_mul_(means, beta1)
            torch._foreach_add_(means, grads, alpha=1 - beta1)
            surprises = torch._foreach_sub(grads, means)
            torch._foreach_mul_(beliefs, beta2)
            torch._foreach_addcmul_(beliefs, surprises, surprises, value=1 - beta2)
            torch._foreach_add_(beliefs, eps)
            denominators = torch._foreach_mul(beliefs, 1 / correction2)
            torch._foreach_sqrt_(denominators)
            torch._foreach_add_(denominators, eps)
            torch._foreach_mul_(denominators, correction1)
            torch._foreach_addcdiv_(params, means, denominators, value=-lr)


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

    signal, label = (torch.empty_like(each) for each in pool[0])

    def work():
        loss = F.cross_entropy(model(signal), label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def load(i):
        signal.copy_(pool[i % POOL][0])
        label.copy_(pool[i % POOL][1])

    losses = []
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(EAGER):
            load(i)
            losses.append(work())
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        loss = work()

    def train(i):
        load(i)
        graph.replay()
        return loss.clone()

    losses += [train(i) for i in range(EAGER, WARMUP)]
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
