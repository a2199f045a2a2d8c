"""Speech encoder (small conformer) trained with LAMB on random filterbank features."""

import json
import time

import torch
from torch import nn
from torch.nn import functional as F

DIM, HEADS, LAYERS, KERNEL = 256, 4, 12, 15
FRAMES, MELS, BATCH, TOKENS = 160, 80, 16, 128
WARMUP, STEPS = 8, 48
EAGER = 3  # of the warm-up, before the step is captured
DEVICE = "cuda"


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            for p in params:
                if not self.state[p]:
                    self.state[p] = {"m": torch.zeros_like(p), "v": torch.zeros_like(p)}
            if "step" not in group:
                # on the GPU, so that a captured step counts on
                group["step"] = torch.zeros((), dtype=torch.float64, device=DEVICE)
            group["step"] += 1
            correction1 = (1 - torch.pow(beta1, group["step"])).float()
            correction2 = (1 - torch.pow(beta2, group["step"])).float()
            m = [self.state[p]["m"] for p in params]
            v = [self.state[p]["v"] for p in params]
            torch._foreach_lerp_(m, grads, 1 - beta1)
            torch._foreach_mul_(v, beta2)
            torch._foreach_addcmul_(v, grads, grads, 1 - beta2)
            below = torch._foreach_mul(v, 1 / correction2)
            torch._foreach_sqrt_(below)
            torch._foreach_add_(below, group["eps"])
            update = torch._foreach_mul(m, 1 / correction1)
            torch._foreach_div_(update, below)
            torch._foreach_add_(update, params, alpha=group["weight_decay"])
            size = torch.stack(torch._foreach_norm(params)).clamp(0.01, 10)
            length = torch.stack(torch._foreach_norm(update)).clamp(min=1e-6)
            torch._foreach_mul_(update, list((-group["lr"] * size / length).unbind()))
            torch._foreach_add_(params, update)


class FeedForward(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.LayerNorm(DIM), nn.Linear(DIM, 4 * DIM), nn.SiLU(), nn.Linear(4 * DIM, DIM)
        )


class ConformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ff1, self.ff2 = FeedForward(), FeedForward()
        self.norm_att, self.norm_conv, self.norm = (nn.LayerNorm(DIM) for _ in range(3))
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.expand, self.shrink = nn.Linear(DIM, 2 * DIM), nn.Linear(DIM, DIM)
        self.depth = nn.Conv1d(DIM, DIM, KERNEL, padding=KERNEL // 2, groups=DIM)

    def forward(self, x):
        x = x + 0.5 * self.ff1(x)
        q, k, v = self.qkv(self.norm_att(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        h = F.glu(self.expand(self.norm_conv(x)), -1).transpose(1, 2)
        x = x + self.shrink(F.silu(self.depth(h)).transpose(1, 2))
        return self.norm(x + 0.5 * self.ff2(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Linear(MELS, DIM)
        self.blocks = nn.Sequential(*(ConformerBlock() for _ in range(LAYERS)))
        self.out = nn.Linear(DIM, TOKENS)

    def forward(self, x):
        return self.out(self.blocks(self.front(x)))


def main():
    torch.manual_seed(12)
    torch.set_float32_matmul_precision("high")
    model = Encoder().to(DEVICE)
    optimizer = Lamb(model.parameters(), lr=2e-3)
    feats = torch.randn(3, BATCH, FRAMES, MELS).to(DEVICE)
    targets = torch.randint(0, TOKENS, (3, BATCH, FRAMES)).to(DEVICE)
    losses = []

    feat, target = torch.empty_like(feats[0]), torch.empty_like(targets[0])

    def load(n):
        feat.copy_(feats[n % 3])
        target.copy_(targets[n % 3])

    def work():
        logits = model(feat)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for n in range(EAGER):
            load(n)
            losses.append(work())
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        loss = work()

    def train_step(n):
        load(n)
        graph.replay()
        losses.append(loss.clone())

    for n in range(EAGER, WARMUP):
        train_step(n)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for n in range(WARMUP, WARMUP + STEPS):
        train_step(n)
    torch.cuda.synchronize()
    us = (time.perf_counter() - start) / STEPS * 1e6
    picked = [losses[i].item() for i in (0, 2, 6)]
    print(f"{BATCH * FRAMES / us * 1e6:.0f} frames/s; losses {picked}")
    report = {"program": "torch_lamb_speech", "steps": len(losses), "us": us, "result": picked}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
