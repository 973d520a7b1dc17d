//! What is known about a data set, as plain data.

use percolator::batch::ImageShape;
use serde::{Serialize, Serializer};

use super::duplicates::Duplicates;
use super::features::FeatureReport;
use super::keys::Keys;
use crate::content::{Content, Label, PictureEncoding};
use crate::open::Kind;

/// A data set's report.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Its path, with what is not UTF-8 replaced.
    pub path: String,
    /// How its records are stored.
    pub kind: Kind,
    /// The number of its files, if they are TFRecords; otherwise 1.
    pub files: usize,
    /// The bytes of its files.
    pub file_bytes: u64,
    /// The number of its records.
    pub records: u64,
    /// How many of them were read, evenly spread: everything that follows is about these.
    pub looked_at: u64,
    /// What their values are.
    pub content: Content,
    /// Their keys; `None` if there is no record.
    pub keys: Option<Keys>,
    /// The lengths of their values.
    pub sizes: Sizes,
    /// The shapes of their images, the most frequent first.
    pub shapes: Vec<ShapeCount>,
    /// How many images have none of these shapes, because there are too many shapes to list.
    pub other_shapes: u64,
    /// How their images are stored, the most frequent first.
    pub encodings: Vec<EncodingCount>,
    /// Whether raw images seem to have the channels of a pixel side by side, as `tobytes` of an image stores
    /// them, and not channel by channel, as a Datum has them.
    pub is_interleaved: bool,
    /// How many records have no image.
    pub without_image: u64,
    /// How many records are damaged.
    pub damaged: u64,
    /// The first damaged record, and what is wrong with it.
    pub first_damaged: Option<String>,
    /// Their labels; `None` if they have none.
    pub labels: Option<Labels>,
    /// The features of TensorFlow's records that have image files: `image/encoded`, then the others. The
    /// images above are those of the first.
    pub image_features: Vec<String>,
    /// The features of TensorFlow's records: the first 1000, in the order of the names' bytes.
    pub features: Vec<FeatureReport>,
    /// How often a record has a feature that is not among these, because there are too many to list.
    pub other_features: u64,
    /// Records whose values are the same, whatever their keys; `None` unless all records were read.
    pub same_values: Option<Duplicates>,
    /// Records whose pixels are the same, however they are stored; `None` unless all were decoded.
    pub same_pixels: Option<Duplicates>,
    /// How a net or a feed would name it.
    pub net: String,
}

/// The lengths of values, in bytes.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// Their sum.
    pub total: u64,
    /// The shortest.
    pub min: u64,
    /// The longest.
    pub max: u64,
    /// How many are below each power of two, and not below the one before.
    pub histogram: Vec<SizeCount>,
}

/// How many values are of about a length.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeCount {
    /// They are shorter than this, and at least half as long.
    pub below: u64,
    /// How many.
    pub records: u64,
}

/// How many images have a shape.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ShapeCount {
    /// Channels, rows and columns.
    #[serde(serialize_with = "as_array")]
    pub shape: ImageShape,
    /// How many.
    pub records: u64,
}

/// How many images are stored in a way.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EncodingCount {
    /// The way.
    pub encoding: PictureEncoding,
    /// How many.
    pub records: u64,
}

/// A histogram of labels.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Labels {
    /// How many records have each label, in the order of the labels.
    pub counts: Vec<LabelCount>,
    /// How many records have yet other labels, because there are too many to count each.
    pub others: u64,
    /// How many records have no label.
    pub without: u64,
}

/// How many records have a label.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LabelCount {
    /// The label.
    pub label: Label,
    /// How many.
    pub records: u64,
}

impl Sizes {
    pub(super) fn add(&mut self, bytes: u64) {
        self.min = if self.histogram.is_empty() { bytes } else { self.min.min(bytes) };
        self.max = self.max.max(bytes);
        self.total += bytes;
        let below = bytes.checked_add(1).and_then(u64::checked_next_power_of_two).unwrap_or(u64::MAX);
        match self.histogram.binary_search_by_key(&below, |count| count.below) {
            Ok(place) => self.histogram[place].records += 1,
            Err(place) => self.histogram.insert(place, SizeCount { below, records: 1 }),
        }
    }
}

fn as_array<S: Serializer>(shape: &ImageShape, serializer: S) -> Result<S::Ok, S::Error> {
    [shape.channels, shape.height, shape.width].serialize(serializer)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_size_is_in_its_bin(sizes in proptest::collection::vec(0u64..10_000, 1..50)) {
            let mut found = Sizes::default();
            sizes.iter().for_each(|&bytes| found.add(bytes));
            prop_assert_eq!(found.total, sizes.iter().sum::<u64>());
            prop_assert_eq!(Some(&found.min), sizes.iter().min());
            prop_assert_eq!(Some(&found.max), sizes.iter().max());
            for bin in &found.histogram {
                let within = |bytes: &&u64| **bytes < bin.below && (**bytes >= bin.below / 2);
                prop_assert_eq!(bin.records, sizes.iter().filter(within).count() as u64, "{:?}", bin);
            }
            prop_assert_eq!(found.histogram.iter().map(|bin| bin.records).sum::<u64>(), sizes.len() as u64);
        }
    }
}
