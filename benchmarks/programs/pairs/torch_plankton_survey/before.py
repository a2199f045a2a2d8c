"""Train a small classifier on in-situ plankton camera crops.

The survey ships its crops as JPEG; we keep the encoded bytes in memory and
decode and augment on the fly, as the real archive would not fit decoded.
"""
import io
import json
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset

SEED = 20240
NUM_CLASSES = 10
ARCHIVE = 200
BATCH = 32
CROP = 128
WARMUP = 8
BLOCKS = 8
BLOCK_STEPS = 5
STEPS = WARMUP + BLOCKS * BLOCK_STEPS


def draw_organism(rng, label, size=256):
    """A blurry elongated blob with a class-dependent number of lobes."""
    yy, xx = np.mgrid[-1:1:size * 1j, -1:1:size * 1j].astype(np.float32)
    angle = np.arctan2(yy, xx) + rng.uniform(0, np.pi)
    radius = np.hypot(xx * rng.uniform(0.9, 1.4), yy)
    edge = 0.45 + 0.15 * np.cos((label + 2) * angle)
    body = 1.0 / (1.0 + np.exp(18.0 * (radius - edge)))
    noise = rng.standard_normal((size, size, 3), dtype=np.float32)
    tint = rng.uniform(0.6, 1.0, 3).astype(np.float32)
    rgb = 215.0 - 150.0 * body[..., None] * tint + 6.0 * noise
    return Image.fromarray(np.clip(rgb, 0, 255).astype(np.uint8))


class PlanktonCrops(Dataset):
    mean = np.array([0.72, 0.72, 0.72], dtype=np.float32)
    std = np.array([0.20, 0.20, 0.20], dtype=np.float32)

    def __init__(self, count, length):
        rng = np.random.default_rng(SEED)
        self.length = length
        self.labels = rng.integers(0, NUM_CLASSES, count)
        self.blobs = []
        for label in self.labels:
            buf = io.BytesIO()
            draw_organism(rng, int(label)).save(buf, format="JPEG", quality=92)
            self.blobs.append(buf.getvalue())

    def __len__(self):
        return self.length

    def augment(self, img, rng):
        img = img.rotate(float(rng.uniform(-180, 180)), resample=Image.BILINEAR,
                         fillcolor=(215, 215, 215))
        side = int(rng.integers(170, 240))
        left = int(rng.integers(0, img.width - side))
        top = int(rng.integers(0, img.height - side))
        img = img.resize((CROP, CROP), Image.BICUBIC, box=(left, top, left + side, top + side))
        if rng.random() < 0.5:
            img = ImageOps.mirror(img)
        return ImageOps.autocontrast(img, cutoff=1)

    def __getitem__(self, index):
        rng = np.random.default_rng((SEED, index))
        slot = index % len(self.blobs)
        img = Image.open(io.BytesIO(self.blobs[slot])).convert("RGB")
        arr = np.asarray(self.augment(img, rng), dtype=np.float32) / 255.0
        arr = (arr - self.mean) / self.std
        return torch.from_numpy(arr.transpose(2, 0, 1).copy()), int(self.labels[slot])


def make_loader():
    data = PlanktonCrops(ARCHIVE, STEPS * BATCH)
    order = np.random.default_rng(SEED + 1).permutation(len(data)).tolist()
    return DataLoader(data, batch_size=BATCH, sampler=order, num_workers=2,
                      pin_memory=True, drop_last=True)


def train_step(model, opt, images, labels):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(images)
    loss = F.cross_entropy(logits.float(), labels, label_smoothing=0.05)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.detach()


def main():
    torch.manual_seed(SEED)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    loader = make_loader()
    model = torchvision.models.resnet18(weights=None, num_classes=NUM_CLASSES)
    model = model.cuda().to(memory_format=torch.channels_last).train()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.02, fused=True)

    batches = iter(loader)
    total = torch.zeros((), device="cuda")

    def run(count):
        for _ in range(count):
            images, labels = next(batches)
            images = images.to("cuda", non_blocking=True)
            images = images.contiguous(memory_format=torch.channels_last)
            labels = labels.to("cuda", non_blocking=True)
            total.add_(train_step(model, opt, images, labels))

    run(WARMUP)
    torch.cuda.synchronize()
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        run(BLOCK_STEPS)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / BLOCK_STEPS * 1e6)

    print(json.dumps({
        "program": "torch_plankton_survey",
        "steps": STEPS,
        "us": statistics.median(times),
        "result": [total.item() / STEPS],
    }))


if __name__ == "__main__":
    main()
