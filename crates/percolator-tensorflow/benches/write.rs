//! The rate at which a checkpoint is written, beside `cp` of a file of as many bytes in the same run: into
//! the page cache, and on to the disk.
//!
//! `cargo bench -p percolator-tensorflow --bench write -- [FOLDER] [GIGABYTES] [ROUNDS]`. The folder says
//! which file system is measured: the default is the one of temporary files.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use percolator_tensorflow::{CheckpointWriter, DataType, Tensor};

/// A few large tensors, as a language model has.
const TENSORS: usize = 4;
const GIGABYTE: f64 = 1e9;

/// Seconds until the bytes are in the page cache, and until they are on the disk.
struct Took {
    cached: f64,
    synced: f64,
}

fn copy(source: &Path, target: &Path) -> anyhow::Result<Took> {
    let start = Instant::now();
    anyhow::ensure!(Command::new("cp").args([source, target]).status()?.success(), "cp failed");
    let cached = start.elapsed().as_secs_f64();
    File::open(target)?.sync_all()?;
    let synced = start.elapsed().as_secs_f64();
    std::fs::remove_file(target)?;
    Ok(Took { cached, synced })
}

fn write(prefix: &Path, bytes: &[u8]) -> anyhow::Result<Took> {
    let start = Instant::now();
    let mut writer = CheckpointWriter::create(prefix)?;
    for (number, bytes) in bytes.chunks_exact(bytes.len() / TENSORS).enumerate() {
        writer.add(format!("tensor {number}"), &Tensor::new(DataType::Uint8, [bytes.len()], bytes)?)?;
    }
    let cached = start.elapsed().as_secs_f64();
    writer.finish()?;
    let synced = start.elapsed().as_secs_f64();
    for ending in [".index", ".data-00000-of-00001"] {
        std::fs::remove_file(format!("{}{ending}", prefix.display()))?;
    }
    Ok(Took { cached, synced })
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bench"
)]
fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let folder = match arguments.next() {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let gigabytes: f64 = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let bytes: Vec<u8> = (0..(gigabytes * GIGABYTE) as u64 / 8)
        .flat_map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    let source = folder.path().join("source");
    std::fs::write(&source, &bytes)?;
    // What is written back meanwhile would slow down whoever comes first.
    File::open(&source)?.sync_all()?;
    let (mut copied, mut written) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        copied.push(copy(&source, &folder.path().join("copy"))?);
        written.push(write(&folder.path().join("model"), &bytes)?);
    }
    let rate = |took: &[Took], seconds: fn(&Took) -> f64| {
        bytes.len() as f64 / GIGABYTE / median(took.iter().map(seconds))
    };
    println!("{gigabytes} GB in {TENSORS} tensors, {rounds} rounds, {}", folder.path().display());
    for (what, seconds) in [
        ("into the page cache", (|took| took.cached) as fn(&Took) -> f64),
        ("on the disk", |took| took.synced),
    ] {
        let (cp, ours) = (rate(&copied, seconds), rate(&written, seconds));
        println!("{what}: cp {cp:.2} GB/s, checkpoint {ours:.2} GB/s, {:.2} of cp", ours / cp);
    }
    Ok(())
}
