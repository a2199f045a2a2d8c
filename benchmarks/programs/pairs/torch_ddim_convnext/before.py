"""Draw images with a DDIM loop over a half-precision ConvNeXt-style denoiser."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
BATCH = 16
SIZE = 64
WIDTH = 192
DEPTH = 8
SAMPLE_STEPS = 40
WARMUP_SAMPLES = 1
SAMPLES = 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.time = nn.Linear(64, WIDTH)

    def forward(self, x, t):
        y = self.mix(x) + self.time(t)[:, :, None, None]
        y = y.permute(0, 2, 3, 1).contiguous()
        y = self.down(F.gelu(self.up(self.norm(y))))
        return x + y.permute(0, 3, 1, 2).contiguous()


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(4, WIDTH, 3, padding=1)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.out = nn.Conv2d(WIDTH, 4, 3, padding=1)

    def forward(self, x, t):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, t)
        return self.out(x)


def time_features(steps):
    t = torch.linspace(1, 0, steps)[:, None] * 1000
    freq = torch.exp(torch.arange(32) * -0.3)
    return torch.cat([torch.sin(t * freq), torch.cos(t * freq)], 1).half().to(DEVICE)


@torch.inference_mode()
def main():
    torch.manual_seed(9)
    torch.backends.cudnn.benchmark = True
    model = Denoiser().eval().to(DEVICE).half()
    features = time_features(SAMPLE_STEPS)
    alpha = torch.cos(torch.linspace(1.5, 0.05, SAMPLE_STEPS + 1)).square().tolist()
    noise = torch.randn(BATCH, 4, SIZE, SIZE).to(DEVICE)

    def sample():
        x = noise.clone()
        for i in range(SAMPLE_STEPS):
            torch.cuda.nvtx.range_push(f"denoise {i}")
            eps = model(x.half(), features[i].expand(BATCH, -1)).float()
            a, b = alpha[i], alpha[i + 1]
            x0 = ((x - (1 - a) ** 0.5 * eps) / a**0.5).clamp(-3, 3)
            x = b**0.5 * x0 + (1 - b) ** 0.5 * eps
            torch.cuda.nvtx.range_pop()
        return x

    for _ in range(WARMUP_SAMPLES):
        image = sample()
    torch.cuda.synchronize()
    times = []
    for n in range(SAMPLES):
        start = time.perf_counter()
        image = sample()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / SAMPLE_STEPS)
        print(f"sample {n}: {times[-1] * 1e3:.2f} ms a step, mean {image.mean().item():.4f}")
    out = {
        "program": "torch_ddim_convnext",
        "steps": SAMPLE_STEPS * (WARMUP_SAMPLES + SAMPLES),
        "us": statistics.median(times) * 1e6,
        "result": [image.abs().mean().item(), image.std().item()],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
