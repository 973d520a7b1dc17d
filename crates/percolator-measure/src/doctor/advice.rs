//! What would help a feed, beyond what was tried: only what it does not do yet, and can do.

use std::fmt;

use percolator::feed::{FeedSpec, SourceSpec};
use percolator::transform::TransformPlace;
use percolator::{Dtype, FeedBuilder};
use serde::Serialize;

use super::Binds;

/// What would help a feed.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// More memory.
    MoreMemory,
    /// A faster disk.
    FasterDisk,
    /// Several databases, each with a reader of its own.
    SeveralDatabases,
    /// Larger records.
    LargerRecords,
    /// Records in an LMDB.
    Lmdb,
    /// More cores.
    MoreCores,
    /// Smaller images, made once.
    ResizeOnce,
    /// [Images decoded at a smaller scale](percolator::Transform::scaled_decode).
    ScaledDecode,
    /// Records of pixels.
    RawRecords,
    /// Smaller, or encoded records.
    SmallerRecords,
    /// Elements of bytes.
    Bytes,
    /// Elements of 16 bits.
    HalfFloats,
    /// The [transform on the device](FeedBuilder::transform_on).
    TransformOnDevice,
    /// A smaller crop.
    SmallerCrop,
    /// Larger batches.
    LargerBatches,
    /// Longer measurements.
    LongerMeasurements,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Advice::MoreMemory => "more memory, so that the files stay in it",
            Advice::FasterDisk => "a faster disk",
            Advice::SeveralDatabases => "several databases read at once",
            Advice::LargerRecords => "larger records",
            Advice::Lmdb => "records in an LMDB",
            Advice::MoreCores => "more cores",
            Advice::ResizeOnce => "images resized once, when they are converted",
            Advice::ScaledDecode => "images decoded at a smaller scale",
            Advice::RawRecords => "records of pixels, which need no decoding",
            Advice::SmallerRecords => "smaller records: resized before they are stored, or encoded",
            Advice::Bytes => "elements of u8",
            Advice::HalfFloats => "elements of f16",
            Advice::TransformOnDevice => "the transform on the device",
            Advice::SmallerCrop => "a smaller crop",
            Advice::LargerBatches => "larger batches",
            Advice::LongerMeasurements => "longer measurements, to see more",
        })
    }
}

impl Advice {
    /// What helps against what binds, whatever the feed is.
    fn against(binds: Binds) -> &'static [Advice] {
        match binds {
            Binds::Consumer => &[],
            Binds::Disk => &[Advice::MoreMemory, Advice::FasterDisk, Advice::SmallerRecords],
            Binds::Reader => &[Advice::SeveralDatabases, Advice::LargerRecords, Advice::Lmdb],
            Binds::Decode => {
                &[Advice::MoreCores, Advice::ResizeOnce, Advice::ScaledDecode, Advice::RawRecords]
            }
            Binds::Reading => &[Advice::SmallerRecords],
            Binds::Memory => {
                &[Advice::Bytes, Advice::HalfFloats, Advice::TransformOnDevice, Advice::SmallerCrop]
            }
            Binds::Copy => &[Advice::Bytes, Advice::HalfFloats, Advice::TransformOnDevice],
            Binds::Processors => &[Advice::MoreCores, Advice::Bytes, Advice::SmallerCrop],
            Binds::Nothing => &[Advice::LargerBatches, Advice::LongerMeasurements],
        }
    }

    /// What would help a feed against what binds it.
    pub(super) fn of(binds: Binds, feed: &FeedBuilder) -> Vec<Advice> {
        let spec = feed.spec();
        let fits = |advice: &Advice| {
            advice.is_new(spec) && advice.applied(feed).is_none_or(|feed| feed.resolve().is_ok())
        };
        Self::against(binds).iter().copied().filter(fits).collect()
    }

    /// Whether the feed does not do it yet.
    fn is_new(self, spec: &FeedSpec) -> bool {
        match self {
            Advice::Lmdb => !spec.sources.iter().all(|source| matches!(source, SourceSpec::Lmdb { .. })),
            Advice::ScaledDecode => {
                // The feed's own choice replaces the transform's.
                let transform = match spec.scaled_decode {
                    Some(scaled) => spec.transform.clone().scaled_decode(scaled),
                    None => spec.transform.clone(),
                };
                transform.resized_to().is_some() && transform.clone().scaled_decode(true) != transform
            }
            Advice::Bytes => spec.dtype != Dtype::U8,
            Advice::HalfFloats => spec.dtype == Dtype::F32,
            Advice::TransformOnDevice => {
                spec.transform_on == TransformPlace::Host
                    && spec.devices.iter().any(|device| !device.starts_with("host"))
            }
            Advice::SmallerCrop => spec.transform.cropped_to().is_some(),
            _ => true,
        }
    }

    /// The feed that does it, if it is a matter of its settings. One that is refused, as u8 elements after a
    /// mean is subtracted, is no advice.
    fn applied(self, feed: &FeedBuilder) -> Option<FeedBuilder> {
        let feed = feed.clone();
        match self {
            Advice::ScaledDecode => {
                let transform = feed.spec().transform.clone().scaled_decode(true);
                Some(feed.transform(transform))
            }
            Advice::Bytes => Some(feed.dtype(Dtype::U8)),
            Advice::HalfFloats => Some(feed.dtype(Dtype::F16)),
            Advice::TransformOnDevice => Some(feed.transform_on(TransformPlace::Device)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use percolator::{Feed, Transform};

    use super::super::changes::tests::lmdb;
    use super::*;

    fn of(binds: Binds, feed: &FeedBuilder) -> Vec<Advice> {
        Advice::of(binds, feed)
    }

    #[test]
    fn what_a_feed_does_already_or_cannot_do_is_no_advice() {
        let folder = tempfile::tempdir().unwrap();
        let feed = lmdb(folder.path());
        assert_eq!(of(Binds::Memory, &feed), [Advice::Bytes, Advice::HalfFloats]);
        assert_eq!(of(Binds::Memory, &feed.clone().dtype(Dtype::F16)), [Advice::Bytes]);
        let cropped = feed.clone().transform(Transform::new().crop(1).mean_value(3.0));
        let due = [Advice::HalfFloats, Advice::SmallerCrop];
        assert_eq!(of(Binds::Memory, &cropped), due, "bytes have no mean");
        assert_eq!(of(Binds::Copy, &feed.clone().dtype(Dtype::U8)), []);
        assert_eq!(of(Binds::Reader, &feed), [Advice::SeveralDatabases, Advice::LargerRecords]);
        let tables = Feed::builder().leveldb(folder.path());
        assert!(of(Binds::Reader, &tables).contains(&Advice::Lmdb));
        let resized = feed.clone().transform(Transform::new().resize(4, 4));
        let has_scaled = |feed: &FeedBuilder| of(Binds::Decode, feed).contains(&Advice::ScaledDecode);
        assert!(has_scaled(&resized) && !has_scaled(&feed));
        let specified = |scaled| {
            let mut spec = resized.spec().clone();
            spec.scaled_decode = Some(scaled);
            FeedBuilder::from(spec)
        };
        assert!(!has_scaled(&specified(true)) && has_scaled(&specified(false)));
        let advised = Advice::ScaledDecode.applied(&specified(false)).unwrap();
        assert!(!has_scaled(&advised));
        assert!(!has_scaled(&feed.transform(Transform::new().resize(4, 4).scaled_decode(true))));
    }

    #[test]
    fn against_whatever_binds_something_helps() {
        let folder = tempfile::tempdir().unwrap();
        let feed = lmdb(folder.path());
        for binds in [Binds::Disk, Binds::Reader, Binds::Decode, Binds::Reading, Binds::Processors] {
            assert!(!of(binds, &feed).is_empty(), "{binds}");
        }
        assert_eq!(of(Binds::Consumer, &feed), []);
    }
}
