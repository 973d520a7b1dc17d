//! Which features of TensorFlow's records are fed: options of `feed`, `dump` and `bench`.

use clap::{Args, ValueEnum};
use percolator::FeedBuilder;
use percolator::batch::ImageShape;
use percolator::example::{ExampleFields, ExampleImage, Examples, ImageShapeFrom};

use crate::args::source::Source;
use crate::args::with;

/// Records that are `tf.train.Example`. Without these options, records are Caffe's.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ExampleArgs {
    /// Make fields of these features of tf.train.Examples, or of these parts of another library's records:
    /// NAME:TYPE, separated by commas
    ///
    /// i64              one value
    /// i64[128]         exactly 128 values; f32[3x4]: exactly 12
    /// i64[<=8]         up to 8 values, with offsets
    /// i64[<=8]=-1      up to 8 values, padded with -1, with lengths
    /// bytes            one string of up to 256 bytes, padded with zeros, with its length
    /// bytes(4096)      one string of up to 4096 bytes
    /// bytes[3x32x32]   one string of exactly 3072 bytes
    /// strings[3](16)   exactly 3 strings of up to 16 bytes (256 if not given), and NAME/lengths
    /// strings[<=8]     up to 8 strings
    ///
    /// i8 to i64 and u8 to u64 take integers; f16, bf16, f32 and f64 take floats. A type with one length may
    /// end in =VALUE, which stands in for a missing feature: label:i64=-1. FEATURE as NAME:TYPE gives the
    /// field another name. Quote a feature's name that has characters other than letters, digits, _, - and /:
    /// "a.b" as ab:i64.
    #[arg(long, verbatim_doc_comment, value_name = "FIELDS")]
    pub(crate) fields: Option<ExampleFields>,
    /// Take the image in this feature of tf.train.Examples, or in this part of another library's records: a
    /// JPEG or PNG, or raw pixels with --image-shape. It is transformed as Caffe's images are.
    #[arg(long, value_name = "FEATURE")]
    image: Option<String>,
    /// The image's pixels are raw: their shape, or the feature that has it, in the order of --image-order.
    #[arg(long, value_name = "CxHxW|FEATURE", requires = "image")]
    image_shape: Option<String>,
    /// The order of raw pixels, and of their shape.
    #[arg(long, value_enum, default_value_t, requires = "image_shape")]
    image_order: ImageOrder,
    /// The feature or the part that is the image's label, one integer.
    #[arg(long, value_name = "FEATURE", requires = "image")]
    label: Option<String>,
}

impl ExampleArgs {
    /// Whether records are Examples.
    pub(crate) fn is_given(&self) -> bool {
        self.fields.is_some() || self.image.is_some()
    }

    /// Checks that they are not given with a net, whose records are Caffe's.
    pub(crate) fn check_use(&self, source: &Source) -> anyhow::Result<()> {
        source.check_net("options of tf.train.Examples, such as --fields and --image,", self.is_given())
    }

    /// Whether a batch has images: Caffe's records always do.
    pub(crate) fn has_images(&self) -> bool {
        self.image.is_some() || !self.is_given()
    }

    /// Whether images have labels, if these options say so.
    pub(crate) fn has_labels(&self) -> bool {
        self.label.is_some() || !self.is_given()
    }

    pub(crate) fn with_options(&self, feed: FeedBuilder) -> FeedBuilder {
        if !self.is_given() {
            return feed;
        }
        let image = self.image.as_ref().map(|feature| {
            let image = match (&self.image_shape, self.image_order) {
                (Some(shape), ImageOrder::Chw) => {
                    ExampleImage::raw(feature, shape_from(shape, |[c, h, w]| [c, h, w]))
                }
                (Some(shape), ImageOrder::Hwc) => {
                    ExampleImage::interleaved(feature, shape_from(shape, |[h, w, c]| [c, h, w]))
                }
                (None, _) => ExampleImage::encoded(feature),
            };
            with(image, self.label.as_ref(), ExampleImage::label)
        });
        feed.example(Examples { fields: self.fields.clone().unwrap_or_default(), image })
    }
}

/// The order of the pixels of raw images.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ImageOrder {
    /// Channel by channel, row by row, as in Caffe's Datums and PyTorch's tensors: CxHxW.
    #[default]
    Chw,
    /// Row by row, pixel by pixel, as NumPy's and PIL's images are stored by tobytes: HxWxC.
    Hwc,
}

/// Parses three extents, which `order` makes channels, rows and columns; any other text is the name of a
/// feature.
fn shape_from(text: &str, order: impl Fn([usize; 3]) -> [usize; 3]) -> ImageShapeFrom {
    let extents: Option<Vec<usize>> = text.split('x').map(|extent| extent.parse().ok()).collect();
    match extents.as_deref() {
        Some(&[one, two, three]) => {
            let [channels, height, width] = order([one, two, three]);
            ImageShapeFrom::Fixed(ImageShape { channels, height, width })
        }
        _ => ImageShapeFrom::Feature(text.to_owned()),
    }
}
