"""Train a ResNet-18 to tell leaf diseases apart (synthetic photographs)."""

import json
import os
import time

import numpy as np
import torch
import torch._dynamo
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import models, transforms

DEVICE = "cuda"
CLASSES = 38
PHOTOS = 96
BATCH = 64
WARMUP = 8
STEPS = 40
SIDE = 320
OUT = 224


def photographs(seed):
    """Smooth coloured blobs with some grain, as bytes of 3 x SIDE x SIDE."""
    rng = np.random.default_rng(seed)
    photos = []
    for _ in range(PHOTOS):
        coarse = Image.fromarray(rng.integers(0, 256, (10, 10, 3), dtype=np.uint8))
        photo = np.asarray(coarse.resize((SIDE, SIDE), Image.BICUBIC), dtype=np.int16)
        grain = rng.integers(-12, 12, photo.shape, dtype=np.int16)
        photo = (photo + grain).clip(0, 255).astype(np.uint8)
        photos.append(torch.from_numpy(photo).permute(2, 0, 1).contiguous())
    return photos


class LeafDataset(Dataset):
    """The photographs, and for each what the random transforms draw; the GPU applies them."""

    def __init__(self, photos, length):
        self.photos = photos
        self.length = length
        self.crop = transforms.RandomResizedCrop(OUT, scale=(0.3, 1.0))
        self.flip = transforms.RandomHorizontalFlip()
        self.jitter = transforms.ColorJitter(0.3, 0.3, 0.3)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        torch.default_generator.manual_seed(1000 + index)  # same picture in every run
        photo = self.photos[index % len(self.photos)]
        top, left, height, width = self.crop.get_params(photo, self.crop.scale, self.crop.ratio)
        flip = torch.rand(1).item() < self.flip.p
        jitter = self.jitter
        order, bright, contrast, saturation, _ = jitter.get_params(
            jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue
        )
        order = [k for k in order.tolist() if k < 3]  # 3 is the hue, which stays
        drawn = [top, left, height, width, flip, bright, contrast, saturation, *order]
        return photo, torch.tensor([float(d) for d in drawn]), (index * 7) % CLASSES


def resize_weights(start, length, flip):
    """Pillow's antialiased bilinear filter for a crop, as matrices of batch x OUT x SIDE."""
    start, length = start[:, None, None], length[:, None, None]
    at = torch.arange(OUT, device=start.device, dtype=torch.float32)[None, :, None] + 0.5
    if flip is not None:
        at = torch.where(flip[:, None, None] > 0.5, OUT - at, at)
    scale = length / OUT
    x = torch.arange(SIDE, device=start.device, dtype=torch.float32)[None, None, :] - start
    weight = (1 - ((x + 0.5 - at * scale) / scale.clamp(min=1.0)).abs()).clamp(min=0.0)
    weight = torch.where((x >= 0) & (x < length), weight, 0.0)
    return weight / weight.sum(dim=2, keepdim=True)


def augment(photos, drawn, mean, std):
    """Crop, resize, flip, jitter and normalize a batch, with Pillow's rounding to bytes."""
    n = photos.shape[0]
    top, left, height, width, flip = drawn[:, :5].unbind(1)
    across = resize_weights(left, width, flip)
    down = resize_weights(top, height, None)
    x = photos.float().reshape(n, 3 * SIDE, SIDE) @ across.transpose(1, 2)
    x = (x + 0.5).floor().clamp(0.0, 255.0).reshape(n, 3, SIDE, OUT)
    x = down[:, None] @ x
    x = (x + 0.5).floor().clamp(0.0, 255.0)
    factors, order = drawn[:, 5:8], drawn[:, 8:11].long()
    for k in range(3):
        which = order[:, k : k + 1]
        factor = factors.gather(1, which)[:, :, None, None]
        which = which[:, :, None, None]
        red, green, blue = x[:, 0:1], x[:, 1:2], x[:, 2:3]
        grey = ((red * 19595.0 + green * 38470.0 + blue * 7471.0 + 32768.0) / 65536.0).floor()
        level = (grey.mean(dim=(2, 3), keepdim=True) + 0.5).floor()
        base = torch.where(which == 2, grey, torch.where(which == 1, level, 0.0))
        x = (base + factor * (x - base)).clamp(0.0, 255.0).floor()
    x = (x / 255.0 - mean) / std
    return x.contiguous(memory_format=torch.channels_last)


def main():
    torch.manual_seed(0)
    torch._dynamo.config.suppress_errors = True  # run eagerly where compiling fails
    mean = torch.tensor((0.485, 0.456, 0.406), device=DEVICE).view(1, 3, 1, 1)
    std = torch.tensor((0.229, 0.224, 0.225), device=DEVICE).view(1, 3, 1, 1)
    transform = torch.compile(augment)
    dataset = LeafDataset(photographs(1), (WARMUP + STEPS) * BATCH)
    workers = max(2, min(8, len(os.sched_getaffinity(0)) - 2))
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=workers, pin_memory=True)

    model = models.resnet18(num_classes=CLASSES).to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
    first = []
    begin = 0.0
    for step, (photos, drawn, labels) in enumerate(loader):
        if step == WARMUP:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        photos = photos.to(DEVICE, non_blocking=True)
        drawn = drawn.to(DEVICE, non_blocking=True)
        with torch.no_grad():
            images = transform(photos, drawn, mean, std)
        labels = labels.to(DEVICE, non_blocking=True)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step < 2:
            first += [loss.item(), images.float().std().item()]
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - begin) / STEPS
    print(f"{BATCH / seconds:.0f} photographs a second")
    print(
        json.dumps(
            {
                "program": "torch_leaf_disease",
                "steps": WARMUP + STEPS,
                "us": seconds * 1e6,
                "result": first,
            }
        )
    )


if __name__ == "__main__":
    main()
