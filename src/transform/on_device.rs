//! The part of a transform that a device does: everything except the crop.

use super::transformer::Mean;
use super::{MeanImage, Transformer};
use crate::base::shape::{BatchShape, Dtype, Layout};

/// Where a batch's pixels are transformed.
///
/// ```no_run
/// use percolator::{Device, Feed, Transform};
/// use percolator::transform::TransformPlace;
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum TransformPlace {
    /// On the host, by the workers. The finished elements cross to the device.
    #[default]
    Host,
    /// On the lane's device. The workers decode, resize and crop. Each record's window crosses as it is
    /// stored, one byte per pixel if records hold bytes. The device mirrors, subtracts the mean, scales, and
    /// writes the elements in the batch's type and layout. The result equals the host's bit for bit, except
    /// that a NaN may be a different NaN.
    ///
    /// The first record of a batch determines the type that crosses. After a first record of bytes, a record
    /// that holds floats ends the feed, though the host would accept both. [Targets](crate::Target) are
    /// always transformed on the host.
    Device,
}

/// The window cut out of one record's image, and whether it is mirrored.
///
/// The layout is C's, for kernels to read.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Cut {
    /// The window's first row, in pixels of the image.
    pub top: u32,
    /// The window's first column, in pixels of the image.
    pub left: u32,
    /// 1 if the window is to be mirrored left to right, 0 if not.
    pub mirrored: u32,
}

/// What a device does to the pixels of each batch of a lane, after the host has cut out the records' windows:
/// `(pixel - mean) * scale` in f32, both operations rounded. A 16-bit element is then rounded to nearest
/// even.
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
    /// The shape of the transformed pixels. The records' windows are the
    /// [batch's](crate::device::HostBatch::arrays) first array. They have the same height and width, in
    /// [`Layout::Nchw`], and the type that the batch's first record holds: [`Dtype::U8`] or [`Dtype::F32`].
    pub transformed: BatchShape,
    /// One cut per record, stored in the batch's memory.
    pub cuts: &'a [Cut],
    /// The offset of the cuts in the batch's memory, in bytes.
    pub cuts_offset: usize,
}

impl DeviceTransform {
    /// The mean image, if any, which is subtracted from each pixel. It has the shape of the images before the
    /// crop.
    #[must_use]
    pub fn mean_image(&self) -> Option<&MeanImage> {
        match &self.mean {
            Mean::Image(image) => Some(image),
            Mean::Values(_) | Mean::Normalized(..) => None,
        }
    }

    /// The mean values if there is no mean image: one value for all channels, or one for each.
    #[must_use]
    pub fn mean_values(&self) -> &[f32] {
        match &self.mean {
            Mean::Image(_) | Mean::Normalized(..) => &[],
            Mean::Values(values) => values,
        }
    }

    /// The factor applied after the mean is subtracted.
    #[must_use]
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// The element type. If it is [`Dtype::U8`], nothing is subtracted and the scale is 1.
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

    /// The transformer that cuts windows of this element type, which is that of the batch's first record.
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
