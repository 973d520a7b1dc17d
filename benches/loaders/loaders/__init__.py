"""A module for each loader: `batches(data, job, batch, workers)` yields images and labels for ever.

Images are float32 tensors (batch, 3, 227, 227), blue, green and red or red, green and blue: a random crop,
mirrored or not, less a mean value for each channel. Labels are int64. Records come in a random order.
"""

MEAN = (104.0, 117.0, 123.0)
CROP = 227
