//! What a checkpoint costs: how long updates wait, in copies of the same state; and at which rate it is
//! written, beside `dd` with `fsync` of a file of as many bytes, and the MD5 of one core, in the same run.
//!
//! `cargo bench -p percolator-cluster --bench checkpoint -- [FOLDER] [GIGABYTES] [ROUNDS]`. The folder says
//! which file system is measured: the default is the one of temporary files.

use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use md5::{Digest as _, Md5};
use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{Checkpoints, Mode, Parts, Tensors};
use percolator_cluster::metadata::MemoryMetadata;
use percolator_cluster::store::FolderStore;
use sha2::Sha256;

/// A few large tensors, as a language model has.
const TENSORS: usize = 4;
const GIGABYTE: f64 = 1e9;

/// Seconds of each round.
#[derive(Default)]
struct Times {
    copy: Vec<f64>,
    md5: Vec<f64>,
    sha256: Vec<f64>,
    dd: Vec<f64>,
    pause: Vec<f64>,
    write: Vec<f64>,
    held: Vec<f64>,
}

fn seconds(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

fn dd(source: &Path, target: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("dd");
    command.arg(format!("if={}", source.display())).arg(format!("of={}", target.display()));
    let done = command.args(["bs=8M", "conv=fsync", "status=none"]).status()?;
    anyhow::ensure!(done.success(), "dd failed");
    Ok(())
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The state, and how it is kept in this mode.
fn begin(folder: &Path, mode: Mode, values: usize) -> anyhow::Result<Checkpoints<Parts>> {
    let store = Arc::new(FolderStore::open(folder)?);
    let how = Checkpointer::new(store, Arc::new(MemoryMetadata::new()), "bench")?.mode(mode);
    Ok(how.restore(|| {
        let mut model = Tensors::new();
        for tensor in 0..TENSORS {
            let mixed = |number: usize| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            let values: Vec<u8> =
                (0..values / TENSORS / 8).flat_map(|number| mixed(number + tensor)).collect();
            model.insert(format!("tensor {tensor}"), &[values.len()], &values).expect("it is its length");
        }
        Parts::new().with("model", model).with("feed", "step 7".to_owned())
    })?)
}

/// The tensors' bytes into memory that is there.
fn copy(state: &Parts, memory: &mut [u8]) {
    let mut rest = memory;
    for (_, tensor) in state.get::<Tensors>("model").into_iter().flat_map(Tensors::iter) {
        let (now, later) = rest.split_at_mut(tensor.bytes().len());
        now.copy_from_slice(tensor.bytes());
        rest = later;
    }
    black_box(rest);
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
    let bytes = (gigabytes * GIGABYTE) as usize / TENSORS / 8 * TENSORS * 8;

    let checkpoints = begin(folder.path(), Mode::Copy, bytes)?;
    let mut memory = vec![1_u8; bytes];
    copy(&checkpoints.state().read(), &mut memory);
    let source = folder.path().join("source");
    std::fs::write(&source, &memory)?;
    File::open(&source)?.sync_all()?;
    // The first one finds memory.
    checkpoints.save_now()?;
    let first = checkpoints.stats().lock_held_last.as_secs_f64();
    let mut times = Times::default();
    for _ in 0..rounds {
        times.copy.push(seconds(|| {
            copy(&checkpoints.state().read(), &mut memory);
            Ok(())
        })?);
        times.md5.push(seconds(|| {
            black_box(Md5::digest(&memory));
            Ok(())
        })?);
        times.sha256.push(seconds(|| {
            black_box(Sha256::digest(&memory));
            Ok(())
        })?);
        // A virtual machine may lose free pages to the machine below it: both find pages in the same way.
        let target = folder.path().join("copy");
        dd(&source, &target)?;
        std::fs::remove_file(&target)?;
        checkpoints.save_now()?;
        let stats = checkpoints.stats();
        times.pause.push(stats.lock_held_last.as_secs_f64());
        times.write.push((stats.last_duration - stats.lock_held_last).as_secs_f64());
        times.dd.push(seconds(|| dd(&source, &target))?);
        std::fs::remove_file(&target)?;
    }
    let growths = checkpoints.stats().growths;
    drop((checkpoints, memory));
    std::fs::remove_dir_all(folder.path().join("bench"))?;
    let checkpoints = begin(folder.path(), Mode::Hold, bytes)?;
    for _ in 0..rounds.min(3) {
        checkpoints.save_now()?;
        times.held.push(checkpoints.stats().lock_held_last.as_secs_f64());
    }

    let rate = |times: &[f64]| bytes as f64 / GIGABYTE / median(times);
    println!("{gigabytes} GB in {TENSORS} tensors, {rounds} rounds, {}", folder.path().display());
    let (md5, sha256) = (rate(&times.md5), rate(&times.sha256));
    println!("memcpy {:.2} GB/s; of one core: MD5 {md5:.2} GB/s, SHA-256 {sha256:.2}", rate(&times.copy));
    let (pause, copied) = (median(&times.pause), median(&times.copy));
    println!(
        "copy: updates wait {:.3} s, {:.2} memcpys ({first:.3} s at first, {growths} growths)",
        pause,
        pause / copied
    );
    let (dd, ours) = (rate(&times.dd), rate(&times.write));
    let (of_dd, of_md5) = (ours / dd, ours / md5);
    println!("dd with fsync {dd:.2} GB/s, checkpoint {ours:.2}: {of_dd:.2} of dd, {of_md5:.2} of MD5 alone");
    println!("hold: updates wait {:.3} s", median(&times.held));
    Ok(())
}
