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
OUT = 224
EAGER = 4  # warm-up steps before the step is recorded as a CUDA graph


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
    """The random choices of each sample's augmentation; the pixels are worked on by the GPU."""

    def __init__(self, photos, length, crop, flip, jitter):
        self.photos = photos
        self.length = length
        self.crop = crop
        self.flip = flip
        self.jitter = jitter

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        torch.default_generator.manual_seed(1000 + index)  # same picture in every run
        number = index % len(self.photos)
        box = self.crop.get_params(self.photos[number], self.crop.scale, self.crop.ratio)
        flip = float(torch.rand(1) < self.flip.p)
        j = self.jitter
        order, *factors = j.get_params(j.brightness, j.contrast, j.saturation, j.hue)
        order = [k for k in order.tolist() if k != 3]  # no change of hue
        return [number, *box, flip, *order, *(factors[k] for k in order)], (index * 7) % CLASSES


def collate(samples):
    choices, labels = zip(*samples)
    return torch.tensor(choices, dtype=torch.float32), torch.tensor(labels)


def resampling(start, size, flip):
    """Weights (batch, OUT, SIDE) of Pillow's bilinear (antialiased) resize of a crop."""
    start, size, flip = (v.view(-1, 1, 1) for v in (start, size, flip))
    out = torch.arange(OUT, device=DEVICE, dtype=torch.float32).view(1, -1, 1)
    out = torch.where(flip > 0, OUT - 1 - out, out)
    pixel = torch.arange(SIDE, device=DEVICE, dtype=torch.float32).view(1, 1, -1) - start
    scale = size / OUT
    weight = 1 - (pixel + 0.5 - (out + 0.5) * scale).abs() / scale.clamp(min=1)
    weight = torch.where((pixel >= 0) & (pixel < size), weight.clamp(min=0), 0.0)
    return weight / weight.sum(-1, keepdim=True)


def augment(photos, choices, mean, std):
    """Crop, resize, flip, jitter and normalise, rounding to whole levels where Pillow does.

    photos: (PHOTOS, row, channel, column), uint8."""
    c = choices.unbind(1)
    across = resampling(c[2], c[4], c[5])
    down = resampling(c[1], c[3], torch.zeros_like(c[5]))
    x = photos[c[0].long()].float().view(-1, SIDE * 3, SIDE)
    x = torch.floor(torch.bmm(x, across.transpose(1, 2)) + 0.5)
    x = torch.floor(torch.bmm(down, x.view(-1, SIDE, 3 * OUT)) + 0.5)
    x = x.view(-1, OUT, 3, OUT).clamp(0, 255)
    for k in range(3):
        op = c[6 + k].view(-1, 1, 1, 1)
        factor = c[9 + k].view(-1, 1, 1, 1)
        grey = x[:, :, 0:1] * 19595.0 + x[:, :, 1:2] * 38470.0 + x[:, :, 2:3] * 7471.0
        grey = torch.floor((grey + 32768.0) / 65536.0)
        level = torch.floor(grey.mean((1, 2, 3), keepdim=True) + 0.5)
        # 0 brightness: towards black, 1 contrast: towards the mean, 2 saturation: towards grey
        other = torch.where(op == 2, grey, torch.where(op == 1, level, 0.0))
        x = torch.floor((other + factor * (x - other)).clamp(0, 255))
    x = x.permute(0, 2, 1, 3) / 255
    return ((x - mean) / std).contiguous(memory_format=torch.channels_last)


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    photos = photographs(1)
    dataset = LeafDataset(
        photos,
        (WARMUP + STEPS) * BATCH,
        transforms.RandomResizedCrop(OUT, scale=(0.3, 1.0)),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(0.3, 0.3, 0.3),
    )
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=4, pin_memory=True, collate_fn=collate)
    pixels = torch.from_numpy(np.stack([np.asarray(p) for p in photos]))
    pixels = pixels.permute(0, 1, 3, 2).contiguous().to(DEVICE)
    mean = torch.tensor((0.485, 0.456, 0.406), device=DEVICE).view(1, 3, 1, 1)
    std = torch.tensor((0.229, 0.224, 0.225), device=DEVICE).view(1, 3, 1, 1)

    model = models.resnet18(num_classes=CLASSES).to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
    compiled = torch.compile(model, dynamic=False)
    prepare = torch.compile(augment, dynamic=False)
    choices = torch.zeros(BATCH, 12, device=DEVICE)
    labels = torch.zeros(BATCH, dtype=torch.long, device=DEVICE)

    def train():
        with torch.no_grad():
            images = prepare(pixels, choices, mean, std)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = F.cross_entropy(compiled(images), labels)
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
        for step, (new_choices, new_labels) in enumerate(loader):
            if step == WARMUP:
                torch.cuda.synchronize()
                begin = time.perf_counter()
            choices.copy_(new_choices, non_blocking=True)
            labels.copy_(new_labels, non_blocking=True)
            if step < EAGER:
                loss, images = train()
            else:
                if graph is None:
                    torch.cuda.synchronize()
                    graph = torch.cuda.CUDAGraph()
                    optimizer.zero_grad(set_to_none=True)
                    # thread_local: the loader's pinning thread may call CUDA meanwhile
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
