"""FFCV over a .beton file. Its random crop always resizes: here by the factor 1, up to the rounding."""

import numpy
import torch
from ffcv.fields.basics import IntDecoder
from ffcv.fields.decoders import RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import Convert, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

from . import CROP, MEAN

AREA = {"jpeg": 500 * 375, "raw": 256 * 256}


def batches(data, job, batch, workers):
    share = CROP * CROP / AREA[job]
    images = [
        RandomResizedCropRGBImageDecoder((CROP, CROP), scale=(share, share), ratio=(1.0, 1.0)),
        RandomHorizontalFlip(), ToTensor(), ToTorchImage(channels_last=False), Convert(torch.float32),
    ]
    labels = [IntDecoder(), ToTensor(), Squeeze(1)]
    loader = Loader(
        str(data / "images.beton"), batch_size=batch, num_workers=workers, order=OrderOption.RANDOM,
        drop_last=True, os_cache=True, pipelines={"image": images, "label": labels})
    means = torch.from_numpy(numpy.array(MEAN, numpy.float32)).view(1, 3, 1, 1)
    while True:
        for found, numbers in loader:
            # Its memory is FFCV's, and is filled again later: subtracting gives the step a tensor of its own.
            yield found - means, numbers.to(torch.int64)
