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
    """Pictures kept as bytes; crop, flip, light and colour set from the index."""

    def __init__(self):
        rng = np.random.default_rng(5)
        self.data = rng.integers(0, 256, (PICTURES, STORED, STORED, 3), dtype=np.uint8)

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, i):
        top, left = (i * 7) % (STORED - CROP), (i * 13) % (STORED - CROP)
        image = self.data[i % PICTURES].astype(np.float32) / 255.0
        image = image[top : top + CROP, left : left + CROP]
        if i % 2:
            image = image[:, ::-1]
        gain = 0.8 + 0.4 * ((i * 29) % 64) / 64
        image = np.clip(image * gain, 0, 1)
        grey = image.mean(axis=2, keepdims=True)
        colour = 0.5 + ((i * 17) % 32) / 32
        image = np.clip(grey + colour * (image - grey), 0, 1)
        image = (image - MEAN) / STD
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))), i % 10


def make_model():
    def stage(cin, cout):
        return [nn.Conv2d(cin, cout, 3, 2, 1), nn.BatchNorm2d(cout), nn.ReLU()]

    layers = stage(3, 32) + stage(32, 64) + stage(64, 128) + stage(128, 256)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


def main():
    torch.manual_seed(5)
    model = make_model().to(DEVICE)
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(Pictures(), batch_size=BATCH, num_workers=WORKERS, pin_memory=True)
    times, sums, losses = [], [], []
    start = None
    for step, (images, labels) in enumerate(loader):
        images = images.to(DEVICE, non_blocking=True)
        labels = labels.to(DEVICE, non_blocking=True)
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
