"""Embeddings of bat echolocation calls.

Stereo detector recordings are cut into 256 x 256 spectrogram windows; a small
convolutional network turns every window into a vector that the species key
and the call-sequence clustering use later.  Weights are random here, the
window statistics are those of the field recorders.
"""
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_batcalls_embed"
DEVICE = "cuda"
BATCH = 32
BANDS = 256
FRAMES = 256
WIDTH = 128
DEPTH = 6
WARMUP = 8
BLOCKS = 8
PER_BLOCK = 5


class ChannelNorm(nn.Module):
    """Layer norm over the channels of an image-like tensor."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.channels = channels

    def forward(self, x):
        y = x.permute(0, 2, 3, 1).contiguous()
        y = F.layer_norm(y, (self.channels,), self.weight, self.bias, 1e-5)
        return y.permute(0, 3, 1, 2).contiguous()


class CallBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.spatial = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = ChannelNorm(channels)
        self.expand = nn.Conv2d(channels, 4 * channels, 1)
        self.reduce = nn.Conv2d(4 * channels, channels, 1)

    def forward(self, x):
        y = self.norm(self.spatial(x))
        y = self.reduce(F.gelu(self.expand(y)))
        return x + y


class CallEncoder(nn.Module):
    def __init__(self, channels, depth, dim=192):
        super().__init__()
        self.stem = nn.Conv2d(2, channels, 4, stride=4)
        self.norm = ChannelNorm(channels)
        self.blocks = nn.ModuleList([CallBlock(channels) for _ in range(depth)])
        self.head = nn.Linear(channels, dim)

    def forward(self, x):
        x = self.norm(self.stem(x))
        for block in self.blocks:
            x = block(x)
        pooled = x.float().mean(dim=(2, 3))
        return F.normalize(self.head(pooled.to(x.dtype)).float(), dim=1)


def make_windows(count, generator):
    """Downward frequency sweeps over a noise floor, two microphones."""
    windows = torch.randn(count, 2, BANDS, FRAMES, generator=generator, device=DEVICE) * 0.3
    t = torch.linspace(0, 1, FRAMES, device=DEVICE)
    f = torch.linspace(0, 1, BANDS, device=DEVICE)
    start = torch.rand(count, 1, generator=generator, device=DEVICE) * 0.3 + 0.6
    rate = torch.rand(count, 1, generator=generator, device=DEVICE) * 0.5 + 0.1
    ridge = start - rate * t
    sweep = torch.exp(-((f[None, :, None] - ridge[:, None, :]) / 0.03) ** 2)
    windows += sweep[:, None] * torch.tensor([2.0, 1.6], device=DEVICE)[None, :, None, None]
    return windows


def build():
    torch.manual_seed(41)
    model = CallEncoder(WIDTH, DEPTH).to(DEVICE, torch.bfloat16)
    model.eval()
    return model


@torch.inference_mode()
def main():
    torch.backends.cudnn.benchmark = True
    model = build()
    generator = torch.Generator(device=DEVICE).manual_seed(7)
    windows = make_windows(BATCH, generator).to(torch.bfloat16)

    steps = 0
    for _ in range(WARMUP):
        embedding = model(windows)
        steps += 1
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(PER_BLOCK):
            embedding = model(windows)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / PER_BLOCK)
        steps += PER_BLOCK

    spread = (embedding @ embedding.T).mean().item()
    result = [spread, embedding.abs().mean().item()]
    print(json.dumps({"program": NAME, "steps": steps,
                      "us": statistics.median(times) * 1e6, "result": result}))


if __name__ == "__main__":
    main()
