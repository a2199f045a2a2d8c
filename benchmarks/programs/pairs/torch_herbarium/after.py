"""Species classifier for scanned herbarium sheets (ResNet-18, small crops)."""
import io
import json
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision.models import resnet18

SHEETS = 128
SPECIES = 8
SIDE = 128
BATCH = 32
WARMUP = 10
BLOCK = 5
BLOCKS = 8
STEPS = WARMUP + BLOCK * BLOCKS


def make_scans(count, seed=11):
    """Synthetic sheets as the archive delivers them: JPEG, 800 x 600."""
    rng = np.random.default_rng(seed)
    grain = rng.integers(-14, 15, size=(600, 800, 3), dtype=np.int16)
    scans, species = [], []
    for k in range(count):
        kind = k % SPECIES
        coarse = rng.integers(90, 200, size=(15, 20, 3), dtype=np.uint8)
        coarse[..., kind % 3] = np.minimum(coarse[..., kind % 3], 60 + 20 * kind)
        sheet = Image.fromarray(coarse).resize((800, 600), Image.BICUBIC)
        pixels = np.asarray(sheet).astype(np.int16) + np.roll(grain, 37 * k, axis=1)
        buffer = io.BytesIO()
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
        scans.append(buffer.getvalue())
        species.append(kind)
    return scans, species


class SheetDataset(Dataset):
    """Sheets are decoded and shrunk once; an item is a ready SIDE x SIDE picture."""

    def __init__(self, scans, species):
        self.pixels = torch.stack([self.shrink(scan) for scan in scans])
        self.species = species

    @staticmethod
    def shrink(scan):
        sheet = Image.open(io.BytesIO(scan)).convert("RGB")
        sheet = sheet.resize((SIDE, SIDE), Image.BICUBIC)
        return torch.from_numpy(np.array(sheet, dtype=np.uint8))

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return self.pixels[index], self.species[index]


def build_loader(dataset):
    order = torch.Generator().manual_seed(5)
    sampler = RandomSampler(dataset, replacement=True, num_samples=STEPS * BATCH, generator=order)
    return DataLoader(dataset, batch_size=BATCH, sampler=sampler, num_workers=4,
                      pin_memory=True, persistent_workers=True, prefetch_factor=2)


def prepare(pixels, mean, std, generator):
    """uint8 NHWC from the loader to normalised, randomly mirrored NCHW (channels last in memory)."""
    pixels = pixels.cuda(non_blocking=True)
    images = pixels.permute(0, 3, 1, 2).float()
    images = (images - mean) / std
    mirror = torch.rand(images.shape[0], 1, 1, 1, device="cuda", generator=generator) < 0.5
    return torch.where(mirror, images.flip(3), images)


def train():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    scans, species = make_scans(SHEETS)
    loader = build_loader(SheetDataset(scans, species))

    model = resnet18(num_classes=SPECIES).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3, momentum=0.9, weight_decay=1e-4, fused=True)
    mean = torch.tensor([123.7, 116.3, 103.5], device="cuda").view(1, 3, 1, 1)
    std = torch.tensor([58.4, 57.1, 57.4], device="cuda").view(1, 3, 1, 1)
    generator = torch.Generator(device="cuda").manual_seed(3)
    total_loss = torch.zeros((), device="cuda")

    times = []
    mark = None
    for step, (pixels, target) in enumerate(loader):
        if step >= WARMUP and (step - WARMUP) % BLOCK == 0:
            torch.cuda.synchronize()
            now = time.perf_counter()
            if mark is not None:
                times.append((now - mark) / BLOCK)
            mark = now
        images = prepare(pixels, mean, std, generator)
        target = target.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(images)
            loss = F.cross_entropy(logits, target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total_loss += loss.detach()
    torch.cuda.synchronize()
    times.append((time.perf_counter() - mark) / BLOCK)
    return times, (total_loss / STEPS).item()


def main():
    times, mean_loss = train()
    print(json.dumps({"program": "torch_herbarium", "steps": STEPS,
                      "us": float(np.median(times)) * 1e6, "result": [mean_loss]}))


if __name__ == "__main__":
    main()
