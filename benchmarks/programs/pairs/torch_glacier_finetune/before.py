"""Fine-tune a pretrained-style transformer on glacier surface-elevation time series.

Layer-wise learning-rate decay as for masked-autoencoder fine-tuning: layers near
the input move slowly, the regression head moves fastest.
"""
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEPTH, DIM, HEADS = 16, 512, 8
TOKENS, FEATS = 256, 24            # fortnightly composites, altimetry + climate features
BATCH = 32
BASE_LR, DECAY, WD = 2e-4, 0.8, 0.05
WARMUP, BLOCKS, PER_BLOCK = 8, 6, 6


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.norm2 = nn.LayerNorm(DIM)
        self.fc1 = nn.Linear(DIM, 4 * DIM)
        self.fc2 = nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class GlacierModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(FEATS, DIM)
        self.pos = nn.Parameter(0.02 * torch.randn(1, TOKENS, DIM))
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, 2)          # mass balance, front position

    def forward(self, x):
        x = self.embed(x) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(dim=1))


def depth_of(name):
    if name.startswith(("embed", "pos")):
        return 0
    if name.startswith("layers."):
        return int(name.split(".")[1]) + 1
    return DEPTH + 1


def parameter_groups(model):
    """Scale the rate by depth; no weight decay for biases, norms and positions."""
    groups = []
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        scale = DECAY ** (DEPTH + 1 - depth_of(name))
        wd = 0.0 if p.ndim == 1 or name == "pos" else WD
        groups.append({"params": [p], "name": name, "lr": BASE_LR * scale,
                       "weight_decay": wd, "scale": scale})
    return groups


def synth_glaciers(dev, count, seed=5):
    g = torch.Generator(device=dev).manual_seed(seed)
    t = torch.linspace(0, 10, TOKENS, device=dev)
    trend = torch.randn(count, 1, 1, device=dev, generator=g)
    phase = torch.rand(count, 1, FEATS, device=dev, generator=g)
    season = torch.sin(6.2832 * (t[None, :, None] + phase))
    noise = 0.3 * torch.randn(count, TOKENS, FEATS, device=dev, generator=g)
    x = 0.1 * trend * t[None, :, None] + season + noise
    y = torch.stack([trend[:, 0, 0], trend[:, 0, 0] * phase[:, 0, 0]], dim=1)
    return x, y


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    dev = torch.device("cuda")
    model = GlacierModel().to(dev)
    opt = torch.optim.AdamW(parameter_groups(model), lr=BASE_LR, betas=(0.9, 0.98))
    x_all, y_all = synth_glaciers(dev, 16 * BATCH)
    total_steps = WARMUP + BLOCKS * PER_BLOCK
    loss_sum = torch.zeros((), device=dev)

    def schedule(step):
        ramp = min(1.0, (step + 1) / 20)
        for group in opt.param_groups:
            group["lr"] = BASE_LR * ramp * group["scale"]

    def train_step(step):
        i = (step % 16) * BATCH
        x, y = x_all[i:i + BATCH], y_all[i:i + BATCH]
        schedule(step)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.smooth_l1_loss(model(x).float(), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        loss_sum.add_(loss.detach())

    step = 0
    for _ in range(WARMUP):
        train_step(step)
        step += 1
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        t0 = time.perf_counter()
        for _ in range(PER_BLOCK):
            train_step(step)
            step += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - t0) / PER_BLOCK)
    us = 1e6 * sorted(times)[len(times) // 2]
    with torch.no_grad():
        size = sum(p.double().square().sum() for p in model.parameters()).sqrt()
    print(json.dumps({"program": "torch_glacier_finetune", "steps": total_steps, "us": round(us, 1),
                      "result": [float(loss_sum) / total_steps, float(size)]}))


if __name__ == "__main__":
    main()
