//! Mean files. Protobuf has no checksums, and Caffe added none: what the bytes say is read, as prost and
//! Caffe's rules have it, or refused.

use std::path::Path;

use percolator::proto::{BlobProto, BlobShape};
use percolator::transform::{MeanImage, MeanImageError};
use prost::Message as _;

use crate::common::process::this_test;
use crate::harness::{self, Case, Format, Guard, Number, Reading, Stated, Way};

const BARE: Guard = Guard::Bare("a BlobProto has no checksum");
const FILE: &str = "mean.binaryproto";

/// The extents, and the bits of the pixels.
type Mean = ([usize; 3], Vec<u32>);

/// How the file states the shape.
#[derive(Clone, Copy, Debug)]
enum Means {
    Legacy,
    Shaped,
}

impl Means {
    fn stated(self, pixel: f32) -> Vec<Stated> {
        let data = (0..12_u8).map(|at| pixel + f32::from(at)).collect();
        let blob = BlobProto { data, ..BlobProto::default() };
        let blob = match self {
            Means::Legacy => {
                let [num, channels, height, width] = [1, 3, 2, 2].map(Some);
                BlobProto { num, channels, height, width, ..blob }
            }
            Means::Shaped => BlobProto { shape: Some(BlobShape { dim: vec![3, 2, 2] }), ..blob },
        };
        let bytes = blob.encode_to_vec();
        let mut file = Stated::of(FILE, bytes, BARE);
        let at = file.bytes.iter().position(|byte| *byte == 0x2a).unwrap();
        for field in 0..at / 2 {
            file.mark_number("extent", BARE, Number::Varint, 2 * field + 1..2 * field + 2);
        }
        file.mark_number("length", BARE, Number::Varint, at + 1..at + 2);
        file.mark("pixels", BARE, at + 2..at + 2 + 48);
        if let Means::Shaped = self {
            let at = at + 2 + 48;
            file.mark("tag of the shape", BARE, at..at + 1);
            file.mark_number("length of the shape", BARE, Number::Varint, at + 1..at + 2);
            file.mark("extents", BARE, at + 2..file.bytes.len());
        }
        vec![file]
    }

    /// Caffe's rules, on what prost decodes.
    fn twin(bytes: &[u8]) -> Option<Mean> {
        let blob = BlobProto::decode(bytes).ok()?;
        let legacy = [blob.num, blob.channels, blob.height, blob.width];
        let extents: Vec<i64> = match legacy.iter().any(Option::is_some) {
            true => legacy.map(|extent| i64::from(extent.unwrap_or(0))).into(),
            false => blob.shape.as_ref()?.dim.clone(),
        };
        let extents = if extents.len() == 4 { extents.strip_prefix(&[1])? } else { &extents };
        let extents: [i64; 3] = extents.try_into().ok()?;
        let pixels: Vec<f32> = match &blob.double_data[..] {
            [] => blob.data.clone(),
            doubles => doubles.iter().map(|&double| double as f32).collect(),
        };
        let count = extents.iter().try_fold(1_i64, |product, extent| product.checked_mul(*extent))?;
        let is_image = extents.iter().all(|extent| *extent > 0) && count == pixels.len() as i64;
        is_image
            .then(|| (extents.map(|extent| extent as usize), pixels.iter().map(|x| x.to_bits()).collect()))
    }
}

impl Format for Means {
    type Item = Mean;

    fn name(&self) -> String {
        format!("mean file, {self:?}")
    }

    fn files(&self) -> Vec<Stated> {
        self.stated(0.5)
    }

    fn donor(&self) -> Vec<Stated> {
        self.stated(100.0)
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way::of("opened")]
    }

    fn read(&self, folder: &Path, _way: &'static str) -> Reading<Mean> {
        Reading::whole(MeanImage::open(folder.join(FILE)).map(|mean| {
            let shape = mean.shape();
            let bits = mean.pixels().iter().map(|pixel| pixel.to_bits()).collect();
            ([shape.channels, shape.height, shape.width], bits)
        }))
    }

    fn allows(&self, case: &Case, _way: &'static str, found: &Reading<Mean>) -> bool {
        let due = case.bytes(FILE).and_then(Means::twin);
        *found == Reading::whole(due.ok_or("")) && found.error.is_none()
    }
}

#[test]
fn mean_files_with_the_extents_of_old() {
    harness::check(this_test!(), 2000, || Means::Legacy);
}

#[test]
fn mean_files_with_a_shape() {
    harness::check(this_test!(), 2000, || Means::Shaped);
}

/// A file with holes takes no room on the disk.
#[test]
fn a_mean_file_has_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    std::fs::File::create(&path).unwrap().set_len(1 << 31).unwrap();
    let error = MeanImage::open(&path).unwrap_err();
    assert!(
        matches!(&error, MeanImageError::File { error, .. } if matches!(**error, MeanImageError::TooLarge))
    );
}
