"""FFCV over a .beton file. Its random crop always resizes: here by the factor 1, up to the rounding."""

import numpy
import torch
from ffcv.fields.basics import IntDecoder
from ffcv.fields.decoders import RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import Convert, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

from . import CROP, IMAGENET_MEAN, IMAGENET_STD, MEAN, SIDE

AREA = {"jpeg": 500 * 375, "raw": 256 * 256}


def of_channels(values):
    return torch.from_numpy(numpy.array(values, numpy.float32)).view(1, 3, 1, 1)


def batches(data, job, batch, workers):
    if job == "imagenet":
        crop = {"scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)}
    else:
        share = CROP * CROP / AREA[job]
        crop = {"scale": (share, share), "ratio": (1.0, 1.0)}
    images = [
        RandomResizedCropRGBImageDecoder((SIDE[job], SIDE[job]), **crop),
        RandomHorizontalFlip(), ToTensor(), ToTorchImage(channels_last=False), Convert(torch.float32),
    ]
    labels = [IntDecoder(), ToTensor(), Squeeze(1)]
    loader = Loader(
        str(data / "images.beton"), batch_size=batch, num_workers=workers, order=OrderOption.RANDOM,
        drop_last=True, os_cache=True, pipelines={"image": images, "label": labels})
    is_divided = job == "imagenet"
    means = 255 * of_channels(IMAGENET_MEAN) if is_divided else of_channels(MEAN)
    factors = 1 / (255 * of_channels(IMAGENET_STD))
    while True:
        for found, numbers in loader:
            # Its memory is FFCV's, and is filled again later: subtracting gives the step a tensor of its own.
            images = found - means
            yield images.mul_(factors) if is_divided else images, numbers.to(torch.int64)
