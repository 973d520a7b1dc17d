"""PyTorch's DataLoader with worker processes, over image files, or over a mapped array of raw images. What
ImageNet is trained with is torchvision's, with Pillow."""

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from . import CROP, IMAGENET_MEAN, IMAGENET_STD, MEAN, SIDE

MEANS = numpy.array(MEAN, numpy.float32)


def finished(image):
    """What is done to one image: an array of bytes (height, width, channels)."""
    top = int(torch.randint(image.shape[0] - CROP + 1, ()))
    left = int(torch.randint(image.shape[1] - CROP + 1, ()))
    image = image[top:top + CROP, left:left + CROP]
    if torch.rand(()) < 0.5:
        image = image[:, ::-1]
    return torch.from_numpy((image - MEANS).transpose(2, 0, 1).copy())


def imagenet():
    """The transform of one image, of either back end of torchvision."""
    from torchvision.transforms import v2

    side = SIDE["imagenet"]
    return v2.Compose([
        v2.RandomResizedCrop((side, side), antialias=True), v2.RandomHorizontalFlip(), v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD)])


def from_array(image):
    return finished(numpy.asarray(image))


class Files(Dataset):
    def __init__(self, data, job):
        self.files = [(path, int(path.parent.name)) for path in sorted((data / "images").glob("*/*.jpg"))]
        self.finished = imagenet() if job == "imagenet" else from_array

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        return self.finished(Image.open(path).convert("RGB")), label


class Arrays(Dataset):
    def __init__(self, data):
        self.pixels = numpy.load(data / "arrays" / "pixels.npy", mmap_mode="r")
        self.labels = numpy.load(data / "arrays" / "labels.npy")

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return finished(self.pixels[index]), int(self.labels[index])


def batches(data, job, batch, workers):
    yield from endless(Arrays(data) if job == "raw" else Files(data, job), batch, workers)


def endless(records, batch, workers):
    loader = DataLoader(
        records, batch, shuffle=True, num_workers=workers, drop_last=True, persistent_workers=True)
    while True:
        yield from loader
