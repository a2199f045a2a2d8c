"""Train a ResNet-18 to tell leaf diseases apart (synthetic photographs)."""

import json
import os
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
EAGER = 3  # steps before the step is captured as a CUDA graph, in the warm-up
FIELDS = 13


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
    """Draws what the transforms of a picture draw, in their order; the GPU applies it to the batch."""

    def __init__(self, photos, length):
        self.photos = photos
        self.length = length
        self.crop = transforms.RandomResizedCrop(CROP, scale=(0.3, 1.0))
        self.flip = transforms.RandomHorizontalFlip()
        self.jitter = transforms.ColorJitter(0.3, 0.3, 0.3)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        torch.manual_seed(1000 + index)  # same picture in every run
        which = index % len(self.photos)
        top, left, height, width = self.crop.get_params(self.photos[which], self.crop.scale, self.crop.ratio)
        flip = float(torch.rand(1).item() < self.flip.p)
        jitter = self.jitter
        order, *factors = jitter.get_params(jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue)
        order = [int(n) for n in order if int(n) < 3]  # 0 brightness, 1 contrast, 2 saturation; hue stays
        factors = [float(factors[n]) for n in order]
        label = (index * 7) % CLASSES
        return torch.tensor([which, label, top, left, height, width, flip, *order, *factors], dtype=torch.float32)


class Augment:
    """Crop, resize, flip, jitter and normalize a batch on the GPU, with the rounding of PIL."""

    def __init__(self, photos):
        pixels = torch.from_numpy(np.stack([np.asarray(photo) for photo in photos]))
        # photograph, row, channel, column; whole numbers up to 255 are exact in half precision
        self.photos = pixels.permute(0, 1, 3, 2).contiguous().to(DEVICE).half()
        self.source = (torch.arange(SIDE, device=DEVICE, dtype=torch.float32) + 0.5).view(1, 1, SIDE)
        self.target = torch.arange(CROP, device=DEVICE, dtype=torch.float32).view(1, CROP, 1)
        gray = torch.tensor((19595.0, 38470.0, 7471.0)) / 65536
        mean = torch.tensor((0.485, 0.456, 0.406))
        std = torch.tensor((0.229, 0.224, 0.225))
        self.gray = gray.view(1, 1, 3, 1).to(DEVICE)
        self.gain = (1 / (255 * std)).view(1, 1, 3, 1).to(DEVICE)
        self.shift = (-mean / std).view(1, 1, 3, 1).to(DEVICE)

    def weights(self, start, length, target):
        """Antialiased bilinear resize of an interval of each picture, as matrices of CROP by SIDE."""
        length = length.view(-1, 1, 1)
        scale = length / CROP
        at = self.source - start.view(-1, 1, 1)
        weight = 1 - (at - (target + 0.5) * scale).abs() / scale.clamp(min=1)
        weight = weight.clamp(min=0) * ((at > 0) & (at < length))
        return (weight / weight.sum(2, keepdim=True)).half()

    @torch.no_grad()
    def __call__(self, drawn):
        which, label, top, left, height, width, flip = drawn[:, :7].unbind(1)
        size = drawn.shape[0]
        columns = self.target + flip.view(-1, 1, 1) * (CROP - 1 - 2 * self.target)
        across = self.weights(left, width, columns)
        down = self.weights(top, height, self.target)
        image = self.photos.index_select(0, which.long()).view(size, SIDE * 3, SIDE)
        image = torch.bmm(image, across.transpose(1, 2)).round_().view(size, SIDE, 3 * CROP)
        image = torch.bmm(down, image).float().round_().view(size, CROP, 3, CROP)
        for n in range(3):
            kind = drawn[:, 7 + n].view(-1, 1, 1, 1)
            factor = drawn[:, 10 + n].view(-1, 1, 1, 1)
            luma = (image * self.gray).sum(2, keepdim=True).add_(0.5).floor_()
            mean = luma.mean((1, 2, 3), keepdim=True).add_(0.5).floor_()
            base = luma * (kind == 2) + mean * (kind == 1)
            image = torch.lerp(base, image, factor).clamp_(0, 255).floor_()
        image = torch.addcmul(self.shift, image, self.gain)
        image = image.permute(0, 2, 1, 3).contiguous(memory_format=torch.channels_last)
        return image, label.long()


def main():
    torch.manual_seed(0)
    photos = photographs(1)
    dataset = LeafDataset(photos, (WARMUP + STEPS) * BATCH)
    workers = max(2, min(4, len(os.sched_getaffinity(0)) - 1))
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=workers, pin_memory=True)

    model = models.resnet18(num_classes=CLASSES).to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
    augment = Augment(photos)
    drawn = torch.zeros(BATCH, FIELDS, device=DEVICE)

    def train():
        images, labels = augment(drawn)
        with torch.autocast(DEVICE, dtype=torch.bfloat16, cache_enabled=False):
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return images, loss.detach()

    first = []
    begin = 0.0
    graph = None
    images = loss = None
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for step, batch in enumerate(loader):
            if step == WARMUP:
                torch.cuda.synchronize()
                begin = time.perf_counter()
            drawn.copy_(batch, non_blocking=True)
            if step < EAGER:
                images, loss = train()
            else:
                if graph is None:
                    images = loss = None
                    optimizer.zero_grad(set_to_none=True)
                    graph = torch.cuda.CUDAGraph()
                    # the thread of pin_memory may call CUDA meanwhile
                    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                        images, loss = train()
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
