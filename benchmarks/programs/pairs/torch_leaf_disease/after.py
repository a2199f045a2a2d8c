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
    def __init__(self, photos, length, transform):
        self.photos = photos
        self.length = length
        self.transform = transform

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        torch.manual_seed(1000 + index)  # same picture in every run
        photo = self.photos[index % len(self.photos)]
        return self.transform(photo), (index * 7) % CLASSES


def main():
    torch.manual_seed(0)
    train_tf = transforms.Compose(
        [
            transforms.RandomResizedCrop(224, scale=(0.3, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.3, 0.3, 0.3),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    dataset = LeafDataset(photographs(1), (WARMUP + STEPS) * BATCH, train_tf)
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=14, pin_memory=True)

    model = models.resnet18(num_classes=CLASSES).to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
    first = []
    begin = 0.0
    for step, (images, labels) in enumerate(loader):
        if step == WARMUP:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        images = images.to(DEVICE, non_blocking=True, memory_format=torch.channels_last)
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
