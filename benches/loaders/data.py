"""Makes the data of one job in the format that one loader reads, unless they are there.

    python3 data.py LOADER JOB FOLDER PERCOLATOR

`jpeg`, whose images `imagenet` has, too, is 4,000 JPEGs of 500x375 at quality 90 in ten class folders, cut
from four photographs, resized and mirrored. `raw` is the same images, decoded and resized to 256x256, three
bytes a pixel. The numbers that the cuts are drawn from have a fixed seed. What is being made has another name
until it is whole.
"""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from loaders import DATA

PHOTOS = Path(__file__).resolve().parents[2] / "crates" / "percolator-cli" / "src" / "commands" / "bench" / "photos"
IMAGES, CLASSES = 4_000, 10
WIDTH, HEIGHT, QUALITY = 500, 375, 90
SIDE = 256


def once(path, make):
    """Calls `make` with a path beside, and gives what it made its name."""
    if not path.exists():
        partial = path.with_name(path.name + ".partial")
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        make(partial)
        os.rename(partial, path)
    return path


def write_images(folder):
    from PIL import Image

    photos = [Image.open(path).convert("RGB") for path in sorted(PHOTOS.glob("*.jpg"))]
    numbers = random.Random(1701)
    for index in range(IMAGES):
        photo = photos[numbers.randrange(len(photos))]
        share = numbers.uniform(0.5, 1.0)
        width = int(min(photo.width, photo.height * WIDTH / HEIGHT) * share)
        height = width * HEIGHT // WIDTH
        left, top = numbers.randint(0, photo.width - width), numbers.randint(0, photo.height - height)
        image = photo.resize((WIDTH, HEIGHT), box=(left, top, left + width, top + height))
        if numbers.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        target = folder / f"{index % CLASSES}" / f"{index:06}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        image.save(target, quality=QUALITY)


def images(data):
    """The class folders, which the other formats are made from."""
    return once(data / "jpeg" / "images", write_images)


def files(data):
    """Each image file with its label."""
    return [(path, int(path.parent.name)) for path in sorted(images(data).glob("*/*.jpg"))]


def lmdb(data, job, percolator):
    def make(target):
        form = ["--encoded"] if job == "jpeg" else ["--resize-height", SIDE, "--resize-width", SIDE]
        command = [percolator, "convert", "folders", images(data), target, *form]
        subprocess.run([str(part) for part in command], check=True)

    return once(data / job / "lmdb", make)


def arrays(data):
    """The raw images (rows, height, width, channels) as one array, and their labels: those of the LMDB."""
    import numpy
    import percolator

    def make(folder):
        folder.mkdir()
        shape = (IMAGES, SIDE, SIDE, 3)
        pixels = numpy.lib.format.open_memmap(folder / "pixels.npy", "w+", numpy.uint8, shape)
        labels, at = numpy.empty(IMAGES, numpy.int64), 0
        for batch in percolator.Feed(lmdb=str(data / "raw" / "lmdb"), batch_size=100, dtype="uint8",
                                     layout="nhwc", once=True):
            rows = batch.size
            pixels[at:at + rows] = numpy.from_dlpack(batch["data"])[:rows]
            labels[at:at + rows] = numpy.from_dlpack(batch["label"])[:rows]
            at += rows
        assert at == IMAGES, f"{at} records, and {IMAGES} are wanted"
        pixels.flush()
        numpy.save(folder / "labels.npy", labels)

    return once(data / "raw" / "arrays", make)


def records(data, job):
    """Each record's bytes with its label, for formats that hold bytes."""
    if job == "jpeg":
        for path, label in files(data):
            yield path.read_bytes(), label
    else:
        import numpy

        pixels = numpy.load(data / "raw" / "arrays" / "pixels.npy", mmap_mode="r")
        for image, label in zip(pixels, numpy.load(data / "raw" / "arrays" / "labels.npy"), strict=True):
            yield image.tobytes(), int(label)


def tfrecord(data, job):
    import tensorflow

    def feature(value):
        if isinstance(value, bytes):
            return tensorflow.train.Feature(bytes_list=tensorflow.train.BytesList(value=[value]))
        return tensorflow.train.Feature(int64_list=tensorflow.train.Int64List(value=[value]))

    def make(target):
        with tensorflow.io.TFRecordWriter(str(target)) as writer:
            for image, label in records(data, job):
                features = {"image": feature(image), "label": feature(label)}
                example = tensorflow.train.Example(features=tensorflow.train.Features(feature=features))
                writer.write(example.SerializeToString())

    return once(data / job / "images.tfrecord", make)


def beton(data, job):
    import numpy
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from PIL import Image

    class Images:
        def __init__(self):
            if job == "jpeg":
                self.files = files(data)
            else:
                self.pixels = numpy.load(data / "raw" / "arrays" / "pixels.npy", mmap_mode="r")
                self.labels = numpy.load(data / "raw" / "arrays" / "labels.npy")

        def __len__(self):
            return IMAGES

        def __getitem__(self, index):
            if job == "jpeg":
                path, label = self.files[index]
                return Image.open(path), label
            return numpy.array(self.pixels[index]), int(self.labels[index])

    def make(target):
        mode = {"write_mode": "jpg", "jpeg_quality": QUALITY} if job == "jpeg" else {"write_mode": "raw"}
        fields = {"image": RGBImageField(**mode), "label": IntField()}
        DatasetWriter(str(target), fields, num_workers=2).from_indexed_dataset(Images())

    return once(data / job / "images.beton", make)


def dali_index(data, job):
    """DALI's reader of TFRecord files needs an index: where each record begins, and how long it is."""

    def make(target):
        with open(data / job / "images.tfrecord", "rb") as file, open(target, "w", encoding="ascii") as index:
            at = 0
            while head := file.read(8):
                length = 8 + 4 + int.from_bytes(head, "little") + 4
                index.write(f"{at} {length}\n")
                at += length
                file.seek(at)

    return once(data / job / "images.idx", make)


def main():
    loader, job, data, percolator = sys.argv[1], DATA[sys.argv[2]], Path(sys.argv[3]), sys.argv[4]
    if loader == "percolator":
        lmdb(data, job, percolator)
        if job == "raw":
            arrays(data)
    elif loader == "tfdata":
        tfrecord(data, job)
    elif loader == "dali":
        dali_index(data, job)
    elif loader == "ffcv":
        beton(data, job)


if __name__ == "__main__":
    main()
