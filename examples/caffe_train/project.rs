//! A Caffe project with real digits: a LevelDB to train on, an LMDB to test with, and their mean image.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use percolator::proto::BlobProto;
use prost::Message as _;
use rusty_leveldb::{CompressorId as _, DB, compressor::SnappyCompressor};

use crate::digits::Digits;
use crate::report;

/// The net, which names its files relative to the project's folder.
pub(crate) const NET: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/examples/caffe_train/digits_train_test.prototxt");

/// The project's folder, which is kept from run to run for inspection.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/caffe_train");

/// The folder of the project, which is made if it does not exist.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    let folder = PathBuf::from(FOLDER);
    if !folder.is_dir() {
        make(&folder).with_context(|| format!("cannot make the project {}", folder.display()))?;
    }
    Ok(folder)
}

/// Makes the project under a temporary name first, so that a folder with the final name is complete.
fn make(folder: &Path) -> anyhow::Result<()> {
    let parent = folder.parent().context("the folder has no parent")?;
    std::fs::create_dir_all(parent)?;
    let partial = tempfile::Builder::new().prefix("caffe_train.").tempdir_in(parent)?;
    let (train, test) = (Digits::train()?, Digits::test()?);
    write_leveldb(&train, &partial.path().join("digits_train_leveldb")).context("the training database")?;
    test.write_lmdb(&partial.path().join("digits_test_lmdb")).context("the test database")?;
    let mean = mean(&train)?.encode_to_vec();
    std::fs::write(partial.path().join("digits_mean.binaryproto"), mean).context("the mean image")?;
    match std::fs::rename(partial.path(), folder) {
        // Another process was quicker, and made the same.
        Err(_) if folder.is_dir() => Ok(()),
        renamed => {
            renamed?;
            let _ = partial.keep();
            let (train, test) = (train.len(), test.len());
            report::say(format_args!("wrote {}: {train} digits to learn from, {test} to test with", FOLDER))?;
            Ok(())
        }
    }
}

/// Writes the records as Caffe does: all at once, with tables of 64 KiB blocks and Snappy. (Here everything
/// fits into the log.)
fn write_leveldb(digits: &Digits, folder: &Path) -> anyhow::Result<()> {
    let options = rusty_leveldb::Options {
        write_buffer_size: 256 << 20,
        block_size: 64 << 10,
        compressor: SnappyCompressor::ID,
        ..rusty_leveldb::Options::default()
    };
    let mut database = DB::open(folder, options)?;
    for (key, datum) in digits.records()? {
        database.put(key.as_bytes(), &datum.encode_to_vec())?;
    }
    database.close()?;
    Ok(())
}

/// The mean image, in the form that Caffe's `compute_image_mean` writes.
fn mean(digits: &Digits) -> anyhow::Result<BlobProto> {
    let (mut blob, mut sums, mut count) = (BlobProto::default(), Vec::new(), 0.0);
    for (_, datum) in digits.records()? {
        let pixels = datum.data.unwrap_or_default();
        sums.resize(pixels.len(), 0.0);
        sums.iter_mut().zip(&pixels).for_each(|(sum, &pixel)| *sum += f64::from(pixel));
        (blob.channels, blob.height, blob.width) = (datum.channels, datum.height, datum.width);
        count += 1.0;
    }
    ensure!(count > 0.0, "there are no digits");
    blob.num = Some(1);
    #[expect(clippy::cast_possible_truncation, reason = "Caffe's means are single floats")]
    blob.data.extend(sums.iter().map(|sum| (sum / count) as f32));
    Ok(blob)
}
