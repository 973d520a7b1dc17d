//! The databases and feeds that the benches measure.
#![allow(dead_code, unreachable_pub, reason = "every bench uses its own part of this")]

use std::path::{Path, PathBuf};

use percolator::batch::ImageShape;
use percolator::transform::MeanImage;
use percolator::{Dtype, Feed, FeedBuilder, Transform};

use crate::common;

/// A database, made once and kept in the target folder, and warm in the page cache.
fn database(name: &str, count: usize, channels: usize, sizing: usize) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !folder.join("complete").exists() {
        let _ = std::fs::remove_dir_all(&folder);
        common::write_images(&folder, count, channels, sizing, sizing);
        std::fs::write(folder.join("complete"), "").unwrap();
    }
    std::hint::black_box(std::fs::read(folder.join("data.mdb")).unwrap().len());
    folder
}

/// 1 GB of 3x256x256 records.
pub fn raw256() -> (PathBuf, usize) {
    (database("raw256", 5300, 3, 256), 5300)
}

/// 3 KB records.
pub fn small() -> (PathBuf, usize) {
    (database("small", 100_000, 3, 32), 100_000)
}

/// Records of 150 KB, 450 MB in all.
pub fn raw224() -> (PathBuf, usize) {
    (database("raw224", 3000, 3, 224), 3000)
}

/// A million tiny records.
pub fn million() -> (PathBuf, usize) {
    (database("million", 1_000_000, 3, 4), 1_000_000)
}

/// Crop, mirror, mean image and scale: every transform of a raw record.
pub fn transform(sizing: usize, crop: u32) -> Transform {
    let shape = ImageShape { channels: 3, height: sizing, width: sizing };
    let mean = MeanImage::new(shape, vec![117.5_f32; 3 * sizing * sizing]).unwrap();
    Transform::new().crop(crop).mirror(true).mean_image(mean).scale(0.017)
}

/// A feed to be measured.
pub struct Case {
    pub name: &'static str,
    pub path: PathBuf,
    /// Records in the database.
    pub records: usize,
    pub batch_size: usize,
    pub transform: Transform,
    pub dtype: Dtype,
    /// Bytes of a record in a batch.
    pub record_bytes: usize,
}

impl Case {
    pub fn builder(&self) -> FeedBuilder {
        Feed::builder()
            .lmdb(&self.path)
            .batch_size(self.batch_size)
            .transform(self.transform.clone())
            .dtype(self.dtype)
            .threads(2)
    }
}

pub fn cases() -> [Case; 3] {
    let ((raw256, raw256_records), (small, small_records)) = (raw256(), small());
    [
        Case {
            name: "raw256 to f32",
            path: raw256.clone(),
            records: raw256_records,
            batch_size: 64,
            transform: transform(256, 227),
            dtype: Dtype::F32,
            record_bytes: 3 * 227 * 227 * 4,
        },
        Case {
            name: "raw256 to u8",
            path: raw256,
            records: raw256_records,
            batch_size: 64,
            transform: Transform::new().crop(227).mirror(true),
            dtype: Dtype::U8,
            record_bytes: 3 * 227 * 227,
        },
        Case {
            name: "small to f32",
            path: small,
            records: small_records,
            batch_size: 256,
            transform: transform(32, 28),
            dtype: Dtype::F32,
            record_bytes: 3 * 28 * 28 * 4,
        },
    ]
}
