"""DALI on the processor: image files, of which only the crop is decoded, or raw images in a TFRecord file."""

from nvidia.dali import fn, pipeline_def, tfrecord, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

from . import CROP, IMAGENET_MEAN, IMAGENET_STD, MEAN
from . import SIDE as SIDES

SIDE = 256


@pipeline_def
def pipeline(data, job):
    x, y = fn.random.uniform(range=[0.0, 1.0]), fn.random.uniform(range=[0.0, 1.0])
    mean, std, cropped = list(MEAN), [1.0] * 3, {}
    if job != "raw":
        files, labels = fn.readers.file(file_root=str(data / "images"), random_shuffle=True, name="records")
    if job == "imagenet":
        mean, std = [255 * value for value in IMAGENET_MEAN], [255 * value for value in IMAGENET_STD]
        images = fn.decoders.image_random_crop(
            files, device="cpu", random_area=(0.08, 1.0), random_aspect_ratio=(3 / 4, 4 / 3), num_attempts=10)
        images = fn.resize(images, size=(SIDES[job], SIDES[job]), antialias=True)
    elif job == "jpeg":
        images = fn.decoders.image_crop(files, device="cpu", crop=(CROP, CROP), crop_pos_x=x, crop_pos_y=y)
    else:
        features = {
            "image": tfrecord.FixedLenFeature((), tfrecord.string, ""),
            "label": tfrecord.FixedLenFeature([1], tfrecord.int64, 0),
        }
        found = fn.readers.tfrecord(path=str(data / "images.tfrecord"), index_path=str(data / "images.idx"),
                                    features=features, random_shuffle=True, name="records")
        images = fn.reinterpret(found["image"], shape=[SIDE, SIDE, 3], layout="HWC")
        labels = found["label"]
        cropped = {"crop": (CROP, CROP), "crop_pos_x": x, "crop_pos_y": y}
    images = fn.crop_mirror_normalize(images, mean=mean, std=std, mirror=fn.random.coin_flip(),
                                      dtype=types.FLOAT, output_layout="CHW", **cropped)
    return images, fn.cast(labels, dtype=types.INT64)


def batches(data, job, batch, workers):
    loader = DALIGenericIterator(
        [pipeline(data, job, batch_size=batch, num_threads=workers, device_id=None, seed=1701)],
        ["images", "labels"], reader_name="records", last_batch_policy=LastBatchPolicy.DROP, auto_reset=True)
    while True:
        for found in loader:
            yield found[0]["images"], found[0]["labels"].squeeze(1)
