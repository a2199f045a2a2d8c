"""Genus classification of scanned herbarium sheets with a vision transformer.

Sheets are simulated as branching strokes over a paper tone, one branching angle
and leaf size per genus.  The model is trained from scratch from a ViT config.
"""
import json
import time

import torch
from transformers import ViTConfig, ViTForImageClassification

GENERA = 24
SIZE, PATCH = 224, 16
BATCH = 64
SHEETS = 256
WARMUP_STEPS, TIMED_STEPS, BLOCK = 5, 25, 5


def paint_sheets(device):
    """Leaves along a stem: all sheets at once on the GPU."""
    gen = torch.Generator(device=device).manual_seed(1753)
    genus = torch.randint(0, GENERA, (SHEETS,), generator=gen, device=device)
    y = torch.linspace(-1, 1, SIZE, device=device).view(1, SIZE, 1)
    x = torch.linspace(-1, 1, SIZE, device=device).view(1, 1, SIZE)
    angle = (genus.float() / GENERA * 1.4 + 0.1).view(-1, 1, 1)
    lean = torch.randn(SHEETS, 1, 1, generator=gen, device=device) * 0.15
    stem = torch.exp(-((x - lean * y) / 0.02) ** 2)
    plant = stem
    for node in range(7):
        cy = -0.8 + node * 0.25
        side = 1.0 if node % 2 else -1.0
        cx = lean * cy + side * 0.22 * torch.cos(angle)
        oy = cy - 0.22 * torch.sin(angle)
        u = (x - cx) * torch.cos(angle) - side * (y - oy) * torch.sin(angle)
        v = side * (x - cx) * torch.sin(angle) + (y - oy) * torch.cos(angle)
        leaf = torch.exp(-(u / 0.16) ** 2 - (v / 0.05) ** 2)
        plant = torch.maximum(plant, leaf)
    paper = torch.tensor([0.93, 0.89, 0.78], device=device).view(1, 3, 1, 1)
    green = torch.tensor([0.35, 0.38, 0.18], device=device).view(1, 3, 1, 1)
    image = paper + (green - paper) * plant.unsqueeze(1)
    image = image + 0.03 * torch.randn(image.shape, generator=gen, device=device)
    return ((image - 0.5) / 0.5).contiguous(), genus


def build_model():
    config = ViTConfig(
        hidden_size=768,
        num_hidden_layers=5,
        num_attention_heads=12,
        intermediate_size=3072,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        image_size=SIZE,
        patch_size=PATCH,
        num_labels=GENERA,
    )
    return ViTForImageClassification(config)


def parameter_groups(model, decay):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": matrices, "weight_decay": decay},
            {"params": vectors, "weight_decay": 0.0}]


class Meter:
    """Keeps the training losses on the device until they are wanted."""

    def __init__(self, length, device):
        self.values = torch.zeros(length, device=device)
        self.count = 0

    def add(self, value):
        self.values[self.count] = value.detach()
        self.count += 1

    def mean(self, first, last):
        return self.values[first:last].mean().item()


def main():
    torch.manual_seed(1753)
    device = torch.device("cuda")
    torch.backends.cudnn.benchmark = True
    images, genus = paint_sheets(device)
    model = build_model().to(device)
    model.train()
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.05), lr=2e-5, fused=True)
    total = WARMUP_STEPS + TIMED_STEPS
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 10))
    meter = Meter(total, device)
    per_epoch = SHEETS // BATCH

    def step(i):
        rows = slice((i % per_epoch) * BATCH, (i % per_epoch + 1) * BATCH)
        out = model(pixel_values=images[rows], labels=genus[rows])
        optimizer.zero_grad(set_to_none=True)
        out.loss.backward()
        optimizer.step()
        schedule.step()
        meter.add(out.loss)

    for i in range(WARMUP_STEPS):
        step(i)
    torch.cuda.synchronize()

    timings = []
    i = WARMUP_STEPS
    while i < total:
        begin = time.perf_counter()
        for _ in range(BLOCK):
            step(i)
            i += 1
        torch.cuda.synchronize()
        timings.append((time.perf_counter() - begin) * 1e6 / BLOCK)
    timings.sort()
    print(json.dumps({"program": "hf_herbarium", "steps": total,
                      "us": timings[len(timings) // 2],
                      "result": [meter.mean(0, 1), meter.mean(0, 10), meter.mean(total - 8, total)]}))


if __name__ == "__main__":
    main()
