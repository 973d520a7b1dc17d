//! What an array looks like: the shape of an image, the type of an element, the order of the axes.

use std::fmt;

use bytemuck::Pod;
use half::{bf16, f16};

/// Whether a feed is for training or for testing, as Caffe's `Phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Phase {
    /// Crops are random.
    #[default]
    Train,
    /// Crops are central. Mirroring stays random, as in Caffe.
    Test,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Train => "TRAIN",
            Phase::Test => "TEST",
        })
    }
}

/// Channels, height and width of one image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageShape {
    /// Number of channels.
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl ImageShape {
    /// The number of elements, or `None` where it does not fit a `usize`.
    #[must_use]
    pub fn checked_elements(self) -> Option<usize> {
        self.channels.checked_mul(self.height)?.checked_mul(self.width)
    }
}

impl fmt::Display for ImageShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.channels, self.height, self.width)
    }
}

/// The type of a batch's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Dtype {
    /// 32-bit IEEE floats, Caffe's own.
    #[default]
    F32,
    /// Bytes as they lie in the record; crop and mirror only.
    U8,
    /// 16-bit IEEE floats, rounded to nearest even from the f32 result.
    F16,
    /// bfloat16, rounded to nearest even from the f32 result.
    Bf16,
}

impl Dtype {
    /// Bytes an element takes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::U8 => 1,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dtype::F32 => "f32",
            Dtype::U8 => "u8",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
        })
    }
}

/// The order of a batch's axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// Record, channel, row, column: Caffe's.
    #[default]
    Nchw,
    /// Record, row, column, channel.
    Nhwc,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::Nchw => "NCHW",
            Layout::Nhwc => "NHWC",
        })
    }
}

/// The shape of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Records in it: the batch size, or fewer in the last batch of a single pass.
    pub records: usize,
    /// Each record's shape after the transform.
    pub image: ImageShape,
    /// The order of the axes.
    pub layout: Layout,
    /// The type of an element.
    pub dtype: Dtype,
}

impl BatchShape {
    /// The extents of the four axes, in the order of the layout.
    #[must_use]
    pub fn dims(&self) -> [usize; 4] {
        let ImageShape { channels, height, width } = self.image;
        match self.layout {
            Layout::Nchw => [self.records, channels, height, width],
            Layout::Nhwc => [self.records, height, width, channels],
        }
    }

    /// Elements of one record.
    #[must_use]
    pub fn record_elements(&self) -> usize {
        self.image.channels * self.image.height * self.image.width
    }

    /// Bytes of one record. Records lie one after the other, without gaps.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.record_elements() * self.dtype.size()
    }

    /// Bytes of the whole batch.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.records * self.record_bytes()
    }

    /// Bytes of the whole batch, or `None` where no memory can be as large.
    pub(crate) fn checked_bytes(&self) -> Option<usize> {
        let record = self.image.checked_elements()?.checked_mul(self.dtype.size())?;
        record.checked_mul(self.records).filter(|&bytes| isize::try_from(bytes).is_ok())
    }
}

impl fmt::Display for BatchShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.dims();
        write!(f, "{a}x{b}x{c}x{d} {} {}", self.layout, self.dtype)
    }
}

/// A type that a batch's elements can be read as.
pub trait Element: Pod {
    /// Its name as a [`Dtype`].
    const DTYPE: Dtype;
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;
}
impl Element for u8 {
    const DTYPE: Dtype = Dtype::U8;
}
impl Element for f16 {
    const DTYPE: Dtype = Dtype::F16;
}
impl Element for bf16 {
    const DTYPE: Dtype = Dtype::Bf16;
}
