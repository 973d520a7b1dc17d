"""tf.data over a TFRecord file, tuned by itself; of a JPEG, only the crop is decoded."""

import tensorflow as tf
import torch

from . import CROP, MEAN

SIDE = 256
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def pixels(job, image):
    if job == "jpeg":
        height, width = tf.unstack(tf.io.extract_jpeg_shape(image)[:2])
        top = tf.random.uniform([], 0, height - CROP + 1, tf.int32)
        left = tf.random.uniform([], 0, width - CROP + 1, tf.int32)
        return tf.io.decode_and_crop_jpeg(image, [top, left, CROP, CROP], channels=3)
    image = tf.reshape(tf.io.decode_raw(image, tf.uint8), [SIDE, SIDE, 3])
    return tf.image.random_crop(image, [CROP, CROP, 3])


def batches(data, job, batch, workers):
    def finished(record):
        example = tf.io.parse_single_example(record, FEATURES)
        image = tf.image.random_flip_left_right(pixels(job, example["image"]))
        image = tf.transpose(tf.cast(image, tf.float32) - MEAN, [2, 0, 1])
        return image, example["label"]

    records = tf.data.TFRecordDataset(str(data / "images.tfrecord")).shuffle(1024).repeat()
    loader = records.map(finished, tf.data.AUTOTUNE).batch(batch, drop_remainder=True)
    loader = loader.prefetch(tf.data.AUTOTUNE)
    for images, labels in loader:
        yield (torch.from_dlpack(tf.experimental.dlpack.to_dlpack(images)),
               torch.from_dlpack(tf.experimental.dlpack.to_dlpack(labels)))
