"""Retinal vessel segmentation: a U-Net in half precision over tiles of fundus photographs."""

import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda"
TILES = 8
SIZE = 512
WIDTHS = (64, 128, 256, 512)
SETS = 3
WARMUP = 5
BLOCKS = 8
STEPS_PER_BLOCK = 12


class DoubleConv(nn.Module):
    """Two convolutions; batch norms are already folded into their weights."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)

    def forward(self, x):
        x = F.relu_(self.first(x))
        return F.relu_(self.second(x))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList()
        inputs = 8
        for width in WIDTHS:
            self.down.append(DoubleConv(inputs, width))
            inputs = width
        self.up = nn.ModuleList()
        self.merge = nn.ModuleList()
        for width in reversed(WIDTHS[:-1]):
            self.up.append(nn.ConvTranspose2d(inputs, width, 2, stride=2))
            self.merge.append(DoubleConv(2 * width, width))
            inputs = width
        self.head = nn.Conv2d(inputs, 8, 1)

    def forward(self, x):
        skips = []
        for block in self.down[:-1]:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.down[-1](x)
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)


def initialise(model):
    torch.manual_seed(5)
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.normal_(layer.bias, std=0.01)


@torch.inference_mode()
def main():
    torch.backends.cudnn.benchmark = True
    model = UNet()
    initialise(model)
    model = model.to(DEVICE).half().eval()
    generator = torch.Generator(device=DEVICE).manual_seed(9)
    # RGB, green after CLAHE, three vesselness maps and the field-of-view mask
    batches = [
        torch.randn(TILES, 8, SIZE, SIZE, device=DEVICE, generator=generator).half()
        for _ in range(SETS)
    ]

    def segment(i):
        logits = model(batches[i % SETS])
        probability = torch.softmax(logits, dim=1)
        return probability[:, 1], probability.argmax(dim=1)

    for i in range(WARMUP):
        segment(i)
    torch.cuda.synchronize()
    times = []
    for block in range(BLOCKS):
        start = time.perf_counter()
        for i in range(STEPS_PER_BLOCK):
            vessel, label = segment(i)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
        print(f"{TILES / times[-1]:.0f} tiles/s")
    vessel, label = segment(0)
    out = {
        "program": "torch_vessel_unet",
        "steps": WARMUP + BLOCKS * STEPS_PER_BLOCK,
        "us": statistics.median(times) * 1e6,
        "result": [vessel.float().mean().item(), label.float().mean().item()],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
