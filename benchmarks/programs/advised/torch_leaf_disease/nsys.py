"""Train a ResNet-18 to tell leaf diseases apart (synthetic photographs)."""

import json
import time

import numpy as np
import torch
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
CROP = 224
EAGER = 4  # of the warm-up steps, run before the step is recorded as a CUDA graph


def photographs(seed):
    """Smooth coloured blobs with some grain, as PIL images."""
    rng = np.random.default_rng(seed)
    photos = []
    for _ in range(PHOTOS):
        coarse = Image.fromarray(rng.integers(0, 256, (10, 10, 3), dtype=np.uint8))
        photo = np.asarray(coarse.resize((SIDE, SIDE), Image.BICUBIC), dtype=np.int16)
        grain = rng.integers(-12, 12, photo.shape, dtype=np.int16)
        photos.append(Image.fromarray((photo + grain).clip(0, 255).astype(np.uint8)))
    return photos


class LeafDataset(Dataset):
    """The random choices for each photograph; the GPU applies them (augment)."""

    def __init__(self, photos, length, crop, flip, jitter):
        self.photos = photos
        self.length = length
        self.crop = crop
        self.flip = flip
        self.jitter = jitter

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        torch.manual_seed(1000 + index)  # same picture in every run
        number = index % len(self.photos)
        # the draws of RandomResizedCrop, RandomHorizontalFlip and ColorJitter, in their order
        box = self.crop.get_params(self.photos[number], self.crop.scale, self.crop.ratio)
        flip = float(torch.rand(1) < self.flip.p)
        j = self.jitter
        order, *factors = j.get_params(j.brightness, j.contrast, j.saturation, j.hue)
        order = [int(k) for k in order if int(k) < 3]  # 0 brightness, 1 contrast, 2 saturation
        choices = [number, *box, flip, *order, *(factors[k] for k in order)]
        return torch.tensor(choices, dtype=torch.float32), (index * 7) % CLASSES


def resize_weights(start, length, flip):
    """For each picture a matrix of Pillow's bilinear filter: CROP numbers from a part of SIDE ones."""
    start, length, flip = start[:, None], length[:, None], flip[:, None]
    out = torch.arange(CROP, device=DEVICE, dtype=torch.float32)[None]
    out = torch.where(flip > 0, CROP - 1 - out, out)
    scale = length / CROP
    centre = (out + 0.5) * scale
    place = torch.arange(SIDE, device=DEVICE, dtype=torch.float32)[None] - start
    distance = (place[:, None, :] + 0.5 - centre[:, :, None]).abs()
    weights = (1.0 - distance / scale.clamp(min=1.0)[:, :, None]).clamp(min=0.0)
    weights = weights * ((place >= 0) & (place < length)).float()[:, None, :]
    return weights / weights.sum(-1, keepdim=True)


def augment(photos, choices, scale, shift):
    """Crop and resize, flip, jitter and normalise, with Pillow's rounding to whole numbers."""
    number, top, left, height, width, flip = choices[:, :6].unbind(1)
    x = photos[number.long()].float()
    n = x.shape[0]
    across = resize_weights(left, width, flip)
    down = resize_weights(top, height, torch.zeros_like(flip))
    x = torch.bmm(x.reshape(n, 3 * SIDE, SIDE), across.transpose(1, 2))
    x = x.add_(0.5).floor_().view(n, 3, SIDE, CROP)
    x = torch.matmul(down[:, None], x).add_(0.5).floor_()
    for k in range(3):
        kind = choices[:, 6 + k].view(n, 1, 1, 1)
        factor = choices[:, 9 + k].view(n, 1, 1, 1)
        grey = x[:, 0:1] * 19595.0 + x[:, 1:2] * 38470.0 + x[:, 2:3] * 7471.0
        grey = grey.add_(32768.0).mul_(1.0 / 65536.0).floor_()
        mean = (grey.mean((2, 3), keepdim=True) + 0.5).floor()
        base = grey * (kind == 2).float() + mean * (kind == 1).float()
        x = torch.addcmul(base, factor, x - base).clamp_(0.0, 255.0).floor_()
    x = x.mul_(scale).add_(shift)
    return x.contiguous(memory_format=torch.channels_last)


def main():
    torch.manual_seed(0)
    crop = transforms.RandomResizedCrop(CROP, scale=(0.3, 1.0))
    flip = transforms.RandomHorizontalFlip()
    jitter = transforms.ColorJitter(0.3, 0.3, 0.3)
    photos = photographs(1)
    dataset = LeafDataset(photos, (WARMUP + STEPS) * BATCH, crop, flip, jitter)
    # as many batches ahead as two workers with two each
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=4, prefetch_factor=1)

    model = models.resnet18(num_classes=CLASSES).to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)

    album = torch.from_numpy(np.stack([np.asarray(p) for p in photos])).permute(0, 3, 1, 2).contiguous().to(DEVICE)
    std = torch.tensor((0.229, 0.224, 0.225), device=DEVICE).view(1, 3, 1, 1)
    mean = torch.tensor((0.485, 0.456, 0.406), device=DEVICE).view(1, 3, 1, 1)
    scale, shift = 1.0 / (255.0 * std), -mean / std
    choices_in = torch.zeros(BATCH, 12, device=DEVICE)
    labels_in = torch.zeros(BATCH, dtype=torch.long, device=DEVICE)

    def train():
        images = augment(album, choices_in, scale, shift)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels_in)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach(), images

    first = []
    begin = 0.0
    graph = None
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for step, (choices, labels) in enumerate(loader):
            if step == WARMUP:
                torch.cuda.synchronize()
                begin = time.perf_counter()
            choices_in.copy_(choices, non_blocking=True)
            labels_in.copy_(labels, non_blocking=True)
            if step < EAGER:
                loss, images = train()
            else:
                if graph is None:  # records the step without running it
                    del loss, images
                    optimizer.zero_grad(set_to_none=True)
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                        loss, images = train()
                graph.replay()
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
