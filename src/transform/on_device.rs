//! The part of a transform that a device does: all of it, but for the crop.

use super::transformer::Mean;
use super::{MeanImage, Transformer};
use crate::base::shape::{BatchShape, Dtype, Layout};

/// Where a batch's pixels are transformed.
///
/// ```no_run
/// use percolator::{Device, Feed, Place, Transform};
///
/// let feed = Feed::builder()
///     .lmdb("ilsvrc12_train_lmdb")
///     .batch_size(256)
///     .transform(Transform::new().crop(227).mirror(true).mean_file("ilsvrc12_mean.binaryproto"))
///     .transform_on(TransformPlace::Device)
///     .devices([Device::cuda(0)?])
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum TransformPlace {
    /// On the host, by the workers: what crosses to a device is what is trained on.
    #[default]
    Host,
    /// On the lane's device. The workers decode, resize and crop; what crosses is each record's window as it is
    /// stored, a byte a pixel where records hold bytes. The device mirrors, subtracts the mean, scales, and writes
    /// the elements in the batch's type and order. The result is the host's, bit for bit (of a NaN, that it is one).
    ///
    /// The first record of a batch says what crosses: after one of bytes, one that holds floats ends the feed, though the
    /// host would take both. [Targets](crate::Target) are transformed on the host even so.
    Device,
}

/// What is cut out of one record's image, and whether it is mirrored.
///
/// The layout is C's, for kernels to read.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Cut {
    /// The first row, in pixels of the image.
    pub top: u32,
    /// The first column.
    pub left: u32,
    /// 1 if the window is to be mirrored left to right, 0 if not.
    pub mirrored: u32,
}

/// What a device does to the pixels of every batch of a lane, after the host has cut the records' windows:
/// `(pixel - mean) * scale` in f32, both operations rounded, then rounded to nearest even where the element has 16
/// bits.
#[derive(Clone, Debug)]
pub struct DeviceTransform {
    mean: Mean,
    scale: f32,
    dtype: Dtype,
    layout: Layout,
}

/// A batch as the host sends it, to be transformed on its device.
#[derive(Clone, Copy, Debug)]
pub struct Staged<'a> {
    /// The shape of the pixels that are to be made. The records' windows, which are the
    /// [batch's](crate::device::HostBatch::arrays) first array, are of the same height and width, in [`Layout::Nchw`], and of
    /// the type that the batch's first record holds: [`Dtype::U8`] or [`Dtype::F32`].
    pub transformed: BatchShape,
    /// One a record. They lie in the batch's memory.
    pub cuts: &'a [Cut],
    /// Where they begin in the batch's memory.
    pub cuts_offset: usize,
}

impl DeviceTransform {
    /// Of an image whose shape, before the crop, is the mean image's: what is subtracted from each pixel.
    #[must_use]
    pub fn mean_image(&self) -> Option<&MeanImage> {
        match &self.mean {
            Mean::Image(image) => Some(image),
            Mean::Values(_) => None,
        }
    }

    /// Where there is no mean image: what is subtracted, one value for all channels or one for each.
    #[must_use]
    pub fn mean_values(&self) -> &[f32] {
        match &self.mean {
            Mean::Image(_) => &[],
            Mean::Values(values) => values,
        }
    }

    /// What is multiplied by, after that.
    #[must_use]
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// The type of the elements. Where it is [`Dtype::U8`], nothing is subtracted, and the scale is 1.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The order of the axes.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }
}

/// What the workers do to a record whose pixels a device transforms.
#[derive(Debug)]
pub(crate) struct Cutter {
    bytes: Transformer,
    floats: Transformer,
}

impl Cutter {
    /// The first half of a transform. The second is [`Transformer::on_device`].
    pub(crate) fn of(transformer: &Transformer) -> Self {
        let only_cuts = |dtype| Transformer {
            mirror: false,
            mean: Mean::Values(vec![0.0]),
            scale: 1.0,
            dtype,
            layout: Layout::Nchw,
            ..transformer.clone()
        };
        Cutter { bytes: only_cuts(Dtype::U8), floats: only_cuts(Dtype::F32) }
    }

    /// Cuts windows that are sent as elements of this type: what the first record of a batch holds.
    pub(crate) fn to(&self, dtype: Dtype) -> &Transformer {
        match dtype {
            Dtype::U8 => &self.bytes,
            _ => &self.floats,
        }
    }
}

impl Transformer {
    /// The second half of the transform.
    pub(crate) fn on_device(&self) -> DeviceTransform {
        DeviceTransform { mean: self.mean.clone(), scale: self.scale, dtype: self.dtype, layout: self.layout }
    }
}
