"""PyTorch's DataLoader with worker processes, over image files, or over a mapped array of raw images."""

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from . import CROP, MEAN

MEANS = numpy.array(MEAN, numpy.float32)


def finished(image):
    """What is done to one image: an array of bytes (height, width, channels)."""
    top = int(torch.randint(image.shape[0] - CROP + 1, ()))
    left = int(torch.randint(image.shape[1] - CROP + 1, ()))
    image = image[top:top + CROP, left:left + CROP]
    if torch.rand(()) < 0.5:
        image = image[:, ::-1]
    return torch.from_numpy((image - MEANS).transpose(2, 0, 1).copy())


class Files(Dataset):
    def __init__(self, data):
        self.files = [(path, int(path.parent.name)) for path in sorted((data / "images").glob("*/*.jpg"))]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        return finished(numpy.asarray(Image.open(path).convert("RGB"))), label


class Arrays(Dataset):
    def __init__(self, data):
        self.pixels = numpy.load(data / "arrays" / "pixels.npy", mmap_mode="r")
        self.labels = numpy.load(data / "arrays" / "labels.npy")

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return finished(self.pixels[index]), int(self.labels[index])


def batches(data, job, batch, workers):
    records = Files(data) if job == "jpeg" else Arrays(data)
    loader = DataLoader(
        records, batch, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=True)
    while True:
        yield from loader
