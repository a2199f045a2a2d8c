"""Train a centre-point detector of vehicles on aerial tiles (heat map of four classes)."""
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "torch_drone_keypoints"
BATCH, SIZE, STRIDE, CLASSES, OBJECTS = 16, 512, 4, 4, 64
MAP = SIZE // STRIDE
WARMUP, BLOCKS, PER_BLOCK = 6, 6, 5


def conv(inp, out, stride=1):
    return nn.Sequential(
        nn.Conv2d(inp, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)
    )


class CentreNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 32, 2), conv(32, 64, 2))
        self.body = nn.Sequential(conv(64, 128), conv(128, 128), conv(128, 128))
        self.deep = nn.Sequential(conv(128, 256, 2), conv(256, 256), conv(256, 128))
        self.head = nn.Sequential(conv(128, 64), nn.Conv2d(64, CLASSES, 1))
        nn.init.constant_(self.head[1].bias, -2.2)

    def forward(self, x):
        x = self.body(self.stem(x))
        x = x + F.interpolate(self.deep(x), scale_factor=2.0, mode="nearest")
        return self.head(x)


def make_annotations(rng, count):
    """Per image: centre (x, y) on the heat map, radius, class."""
    boxes = []
    for _ in range(count):
        centre = rng.integers(8, MAP - 8, (BATCH, OBJECTS, 2))
        radius = rng.integers(5, 14, (BATCH, OBJECTS))
        kind = rng.integers(0, CLASSES, (BATCH, OBJECTS))
        boxes.append((centre, radius, kind))
    return boxes


def heat_targets(centre, radius, kind):
    """All bumps at once on the device; each is cut at its radius."""
    packed = np.concatenate([centre, radius[..., None], kind[..., None]], axis=-1)
    packed = torch.from_numpy(packed.astype(np.float32)).pin_memory().to("cuda", non_blocking=True)
    x, y, r, k = (c[..., None, None] for c in packed.unbind(-1))
    axis = torch.arange(MAP, device="cuda", dtype=torch.float32)
    dx = (axis.view(1, 1, 1, MAP) - x)
    dy = (axis.view(1, 1, MAP, 1) - y)
    sigma = (2 * r + 1) / 6.0
    gx = torch.exp(-dx.square() / (2 * sigma * sigma)) * (dx.abs() <= r)
    gy = torch.exp(-dy.square() / (2 * sigma * sigma)) * (dy.abs() <= r)
    return torch.stack(
        [(gy * (gx * (k == c))).amax(dim=1) for c in range(CLASSES)], dim=1
    )


def jitter(images, centre, step):
    """Random translation of the tile; it wraps around, as do the annotations."""
    dx, dy = np.random.default_rng(1000 + step).integers(-20, 21, 2)
    images = torch.roll(images, (int(dy) * STRIDE, int(dx) * STRIDE), dims=(2, 3))
    return images, (centre + np.array([dx, dy])) % MAP


def focal_loss(logits, heat):
    prob = torch.sigmoid(logits.float()).clamp(1e-4, 1 - 1e-4)
    centre = heat.ge(0.999).float()
    pos = torch.log(prob) * (1 - prob).square() * centre
    neg = torch.log(1 - prob) * prob.square() * (1 - heat).pow(4) * (1 - centre)
    return -(pos.sum() + neg.sum()) / (BATCH * OBJECTS)


def train_step(model, optimizer, images, boxes, step):
    centre, radius, kind = boxes
    images, centre = jitter(images, centre, step)
    heat = heat_targets(centre, radius, kind)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(images)
    loss = focal_loss(logits, heat)
    loss.backward()
    optimizer.step()
    return loss.detach(), heat


def main():
    torch.manual_seed(6)
    torch.backends.cudnn.benchmark = True
    rng = np.random.default_rng(60)
    boxes = make_annotations(rng, 4)
    gen = torch.Generator(device="cuda").manual_seed(61)
    tiles = [
        torch.rand(BATCH, 3, SIZE, SIZE, generator=gen, device="cuda").to(
            memory_format=torch.channels_last)
        for _ in range(4)
    ]
    model = CentreNet().to("cuda", memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)

    done = 0
    for _ in range(WARMUP):
        loss, heat = train_step(model, optimizer, tiles[done % 4], boxes[done % 4], done)
        done += 1
    early = loss
    torch.cuda.synchronize()

    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(PER_BLOCK):
            loss, heat = train_step(model, optimizer, tiles[done % 4], boxes[done % 4], done)
            done += 1
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / PER_BLOCK * 1e6)
    times.sort()
    print(json.dumps({
        "program": NAME, "steps": done, "us": times[len(times) // 2],
        "result": [early.item(), loss.item(), heat.mean().item()],
    }))


if __name__ == "__main__":
    main()
