"""tf.data over a TFRecord file, tuned by itself; of a JPEG, only the crop is decoded."""

import tensorflow as tf
import torch

from . import CROP, IMAGENET_MEAN, IMAGENET_STD, MEAN
from . import SIDE as SIDES

SIDE = 256
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def pixels(job, image):
    if job == "jpeg":
        height, width = tf.unstack(tf.io.extract_jpeg_shape(image)[:2])
        top = tf.random.uniform([], 0, height - CROP + 1, tf.int32)
        left = tf.random.uniform([], 0, width - CROP + 1, tf.int32)
        return tf.io.decode_and_crop_jpeg(image, [top, left, CROP, CROP], channels=3)
    if job == "imagenet":
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(image), tf.zeros([1, 0, 4]), min_object_covered=0.0,
            aspect_ratio_range=(3 / 4, 4 / 3), area_range=(0.08, 1.0), max_attempts=10,
            use_image_if_no_bounding_boxes=True)
        window = [begin[0], begin[1], size[0], size[1]]
        part = tf.io.decode_and_crop_jpeg(image, window, channels=3, dct_method="INTEGER_ACCURATE")
        return tf.image.resize(part, [SIDES[job], SIDES[job]], antialias=True)
    image = tf.reshape(tf.io.decode_raw(image, tf.uint8), [SIDE, SIDE, 3])
    return tf.image.random_crop(image, [CROP, CROP, 3])


def batches(data, job, batch, workers):
    def finished(record):
        example = tf.io.parse_single_example(record, FEATURES)
        image = tf.image.random_flip_left_right(pixels(job, example["image"]))
        image = tf.cast(image, tf.float32)
        image = (image / 255.0 - IMAGENET_MEAN) / IMAGENET_STD if job == "imagenet" else image - MEAN
        return tf.transpose(image, [2, 0, 1]), example["label"]

    records = tf.data.TFRecordDataset(str(data / "images.tfrecord")).shuffle(1024).repeat()
    loader = records.map(finished, tf.data.AUTOTUNE).batch(batch, drop_remainder=True)
    loader = loader.prefetch(tf.data.AUTOTUNE)
    for images, labels in loader:
        yield (torch.from_dlpack(tf.experimental.dlpack.to_dlpack(images)),
               torch.from_dlpack(tf.experimental.dlpack.to_dlpack(labels)))
