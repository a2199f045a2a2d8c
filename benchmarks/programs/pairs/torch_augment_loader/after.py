"""Image classification with augmentation in a DataLoader, synthetic pictures."""

import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda"
PICTURES = 512
STORED = 160
CROP = 128
BATCH = 64
WORKERS = 4
STEPS = 64
WARMUP = 16
BLOCK = 8
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


class Pictures(Dataset):
    """Pictures kept as bytes; what is done with them happens on the GPU."""

    def __init__(self):
        rng = np.random.default_rng(5)
        self.data = rng.integers(0, 256, (PICTURES, STORED, STORED, 3), dtype=np.uint8)

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, i):
        return i

    def __getitems__(self, indices):
        """The bytes of a whole batch, cropped, with its indices."""
        out = np.empty((len(indices), CROP, CROP, 3), dtype=np.uint8)
        for k, i in enumerate(indices):
            top, left = (i * 7) % (STORED - CROP), (i * 13) % (STORED - CROP)
            out[k] = self.data[i % PICTURES, top : top + CROP, left : left + CROP]
        return torch.from_numpy(out), torch.tensor(indices)


def augment(raw, i):
    """Flip, light and colour for a batch on the GPU; crop was done by the loader."""
    image = raw.permute(0, 3, 1, 2).float() / 255.0
    image = torch.where((i % 2 == 1).view(-1, 1, 1, 1), image.flip(3), image)
    gain = (0.8 + 0.4 * ((i * 29) % 64) / 64).view(-1, 1, 1, 1)
    image = (image * gain).clamp(0, 1)
    grey = image.mean(1, keepdim=True)
    colour = (0.5 + ((i * 17) % 32) / 32).view(-1, 1, 1, 1)
    image = (grey + colour * (image - grey)).clamp(0, 1)
    mean = torch.as_tensor(MEAN, device=raw.device).view(1, 3, 1, 1)
    std = torch.as_tensor(STD, device=raw.device).view(1, 3, 1, 1)
    return ((image - mean) / std).contiguous()


def keep(batch):
    return batch


def make_model():
    def stage(cin, cout):
        return [nn.Conv2d(cin, cout, 3, 2, 1), nn.BatchNorm2d(cout), nn.ReLU()]

    layers = stage(3, 32) + stage(32, 64) + stage(64, 128) + stage(128, 256)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


def main():
    torch.manual_seed(5)
    model = make_model().to(DEVICE)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(
        Pictures(), batch_size=BATCH, num_workers=WORKERS, pin_memory=True, collate_fn=keep
    )
    times, sums, losses = [], [], []
    start = None
    for step, (raw, index) in enumerate(loader):
        index = index.to(DEVICE, non_blocking=True)
        images = augment(raw.to(DEVICE, non_blocking=True), index)
        labels = index % 10
        loss = F.cross_entropy(model(images), labels)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step < 4:
            sums.append(images.double().square().mean())
            losses.append(loss.detach())
        if (step + 1) % BLOCK == 0:
            torch.cuda.synchronize()
            now = time.perf_counter()
            if start is not None and step >= WARMUP:
                times.append((now - start) / BLOCK)
            start = now
    print(f"{BATCH / statistics.median(times):.0f} images/s, last loss {loss.item():.4f}")
    out = {
        "program": "torch_augment_loader",
        "steps": STEPS,
        "us": statistics.median(times) * 1e6,
        "result": [float(x) for x in sums[:2] + losses[:2]],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
