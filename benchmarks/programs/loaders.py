"""Training that waits for its DataLoader, in eight ways; prints the mean time of a step as a line of
JSON. `python loaders.py KIND [STEPS]`; CAUSES says what a profile has to name for each kind."""

import io
import json
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

SIZE, BATCH = 128, 32
#: Of each kind: what an answer has to name, and what it has to advise.
CAUSES = {
    "workers": ("augment", "num_workers"),
    "transform": ("random_elastic", "num_workers"),
    "collate": ("pad_and_stack", "collate"),
    "decode": ("decode_tile", "num_workers"),
    "in-process": ("normalise", "num_workers"),
    "unpinned": ("to", "pin_memory"),
    "disk": ("read_record", "num_workers"),
    "epochs": ("_MultiProcessingDataLoaderIter.__init__", "persistent_workers"),
}


def augment(image):
    """Ten milliseconds of a core: flips, noise and a blur along both axes."""
    for axis in (0, 1):
        for _ in range(6):
            image = 0.5 * image + 0.25 * (numpy.roll(image, 1, axis) + numpy.roll(image, -1, axis))
    return image + numpy.float32(0.01) * numpy.random.default_rng(1).standard_normal(
        image.shape, numpy.float32
    )


def random_elastic(image):
    """A displacement of each row, in loops of Python."""
    out = numpy.empty_like(image)
    shift = numpy.random.default_rng(2).integers(-3, 4, len(image))
    for row in range(len(image)):
        for channel in range(image.shape[2]):
            out[row, :, channel] = numpy.roll(image[row, :, channel], shift[row])
    return out


def normalise(image):
    """Statistics of each channel by sorting: a robust mean and width."""
    for channel in range(image.shape[2]):
        for _ in range(12):
            values = numpy.sort(image[..., channel] + 0.0, axis=None, kind="stable")
        image[..., channel] -= values[len(values) // 2]
        image[..., channel] /= 1e-3 + values[-len(values) // 10] - values[len(values) // 10]
    return image


def decode_tile(packed):
    """Unpack a tile that is stored in small compressed strips."""
    strips = [numpy.frombuffer(zlib.decompress(strip), numpy.float32) for strip in packed]
    return numpy.stack(strips).reshape(SIZE, SIZE, 3)


def read_record(path):
    """A disk that takes eight milliseconds to answer."""
    time.sleep(0.008)
    return numpy.load(io.BytesIO(path.read_bytes()))


def pad_and_stack(rows):
    """A batch from rows of other lengths, element by element."""
    images = [image for image, _ in rows]
    out = torch.zeros(len(images), 3, SIZE, SIZE)
    for at, image in enumerate(images):
        for channel in range(3):
            for row in range(SIZE):
                out[at, channel, row] = image[channel, row]
    return out, torch.tensor([label for _, label in rows])


class Pictures(Dataset):
    """Pictures that are made, unpacked or read as `kind` says."""

    def __init__(self, kind: str, count: int, folder: Path) -> None:
        self.kind, self.count = kind, count
        self.image = numpy.random.default_rng(0).random((SIZE, SIZE, 3), numpy.float32)
        rough = numpy.round(self.image, 1)
        self.packed = [zlib.compress(row.tobytes(), 9) for row in rough]
        self.path = folder / "record.npy"
        numpy.save(self.path, self.image)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int):
        image = self.image.copy()
        if self.kind == "workers":
            image = augment(image)
        elif self.kind == "transform":
            image = random_elastic(image)
        elif self.kind == "decode":
            for _ in range(4):
                image = decode_tile(self.packed)
        elif self.kind == "in-process":
            image = normalise(image)
        elif self.kind == "disk":
            image = read_record(self.path)
        return torch.from_numpy(numpy.ascontiguousarray(image.transpose(2, 0, 1))), at % 10


def loader_of(kind: str, count: int, folder: Path) -> DataLoader:
    """The loader with what is wrong in it."""
    workers = {"workers": 2, "in-process": 0, "unpinned": 4, "epochs": 4}.get(kind, 3)
    batch = 512 if kind == "unpinned" else BATCH
    data = Pictures(kind, count * batch, folder)
    return DataLoader(
        data, batch, num_workers=workers, pin_memory=kind != "unpinned",
        collate_fn=pad_and_stack if kind == "collate" else None, persistent_workers=False,
    )  # fmt: skip


def main(kind: str, steps: int, device: str = "cuda") -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.BatchNorm2d(64), torch.nn.ReLU(),
        torch.nn.Conv2d(64, 128, 3, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(), torch.nn.Linear(2048, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    epoch = 6 if kind == "epochs" else steps
    with tempfile.TemporaryDirectory() as folder:
        loader = loader_of(kind, epoch, Path(folder))
        times, done = [], 0
        begin = time.perf_counter()
        while done < steps:
            for images, labels in loader:
                images, labels = images.to(device), labels.to(device)
                with torch.autocast(device, torch.bfloat16):
                    loss = torch.nn.functional.cross_entropy(network(images), labels)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                done += 1
                if done == 4:  # after the start
                    loss.item()
                    begin = time.perf_counter()
        value = loss.item()
        times.append((time.perf_counter() - begin) / (done - 4))
    print(
        json.dumps(
            {"program": f"loaders {kind}", "steps": done, "us": 1e6 * times[0], "result": [value]}
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60)
