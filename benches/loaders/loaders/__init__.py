"""A module for each loader: `batches(data, job, batch, workers)` yields images and labels for ever.

Images are float32 tensors (batch, 3, SIDE, SIDE). Of the jobs `jpeg` and `raw`: blue, green and red or red,
green and blue, a random crop, mirrored or not, less a mean value for each channel. Of `imagenet`: red, green
and blue, a crop of random area and ratio, resized with antialiasing, mirrored or not, divided by 255, less a
mean and divided by a deviation. Labels are int64. Records come in a random order.
"""

JOBS = ["jpeg", "raw", "imagenet"]
# The folder of each job's data: `imagenet` has the images of `jpeg`.
DATA = {"jpeg": "jpeg", "raw": "raw", "imagenet": "jpeg"}
# The sides of the images that come out.
SIDE = {"jpeg": 227, "raw": 227, "imagenet": 224}

MEAN = (104.0, 117.0, 123.0)
CROP = 227
# Of the job `imagenet`.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
