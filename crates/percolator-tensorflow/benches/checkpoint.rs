//! How fast a checkpoint is opened and loaded, beside what the same threads copy from the page cache.
//!
//! `cargo bench -p percolator-tensorflow --bench checkpoint`; `-- 256` loads 256 MiB instead of 1024.
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a bench that cannot continue has failed"
)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "its files are made here")]

#[path = "../tests/checkpoint/forge.rs"]
#[allow(dead_code, reason = "tests need more of it")]
mod forge;

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use percolator_tensorflow::{Checkpoint, DataType};

use forge::{Bundle, Layout, PLAIN};

const ROUNDS: usize = 7;

fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn open_many(folder: &Path) {
    let mut bundle = Bundle::new();
    // TensorFlow's blocks have 256 KiB.
    bundle.layout = Layout { entries_per_block: 4000, ..PLAIN };
    for number in 0..40_000 {
        let (tower, block, layer) = (number % 7, number / 7 % 100, number / 700);
        let name = format!("model/tower_{tower}/block_{block}/layer_{layer}/attention/kernel");
        bundle.add(name, DataType::Float32, &[2, 3], &[number as u8; 24]);
    }
    let prefix = bundle.write(folder);
    let names: Vec<_> = bundle.entries.keys().map(|key| String::from_utf8(key.clone()).unwrap()).collect();
    let open = || Checkpoint::open(&prefix).unwrap();
    let opened = median((0..ROUNDS * 3).map(|_| time(open)).collect());
    let both = || {
        let checkpoint = open();
        names.iter().map(|name| checkpoint.info(name).unwrap().bytes).sum::<u64>()
    };
    let looked_up = median((0..ROUNDS * 3).map(|_| time(both)).collect());
    println!(
        "open an index of {} tensors: {opened:.2?}; with a lookup of each: {looked_up:.2?}",
        names.len()
    );
}

/// Copies a file with `pread` into memory after memory, as many bytes at a time as a thread of the loader
/// takes.
fn copy(file: &File, memory: Vec<&mut [u8]>, threads: usize) {
    const PART_BYTES: usize = 16 << 20;
    const COPY_BYTES: usize = 1 << 20;
    let mut offset = 0;
    let mut parts = Vec::new();
    for part in memory.into_iter().flat_map(|memory| memory.chunks_mut(PART_BYTES)) {
        let start = offset;
        offset += part.len() as u64;
        parts.push((start, part));
    }
    let parts = Mutex::new(parts.into_iter());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let next = || parts.lock().unwrap().next();
                while let Some((mut offset, part)) = next() {
                    for piece in part.chunks_mut(COPY_BYTES) {
                        file.read_exact_at(piece, offset).unwrap();
                        offset += piece.len() as u64;
                    }
                }
            });
        }
    });
}

fn load(folder: &Path, mebibytes: usize) {
    const TENSORS: usize = 64;
    let elements = (mebibytes << 20) / TENSORS / 4;
    let mut bundle = Bundle::new();
    for number in 0..TENSORS {
        let bytes: Vec<u8> = (0..elements as u32).flat_map(|at| (at ^ number as u32).to_le_bytes()).collect();
        bundle.add(format!("layer_{number}/kernel"), DataType::Float32, &[elements as i64], &bytes);
    }
    let prefix = bundle.write(folder);
    let bytes = bundle.data.len();
    drop(bundle);
    let file = File::open(folder.join("model.data-00000-of-00001")).unwrap();
    let checkpoint = Checkpoint::open(&prefix).unwrap();
    let names: Vec<_> = checkpoint.tensors().map(|tensor| tensor.name.to_owned()).collect();
    let mut memory = vec![1; bytes];
    let cached = &memory[..64 << 10];
    let sums = time(|| (0..1 << 14).map(|_| percolator_files::checksum::crc32c(black_box(cached))).max());
    println!("crc32c of cached memory: {:.2} GB/s", 1.0 / sums.as_secs_f64() * (1_u64 << 30) as f64 / 1e9);
    let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    for threads in [1, thread::available_parallelism().unwrap().get()] {
        let mut times: [Vec<Duration>; 5] = Default::default();
        for _ in 0..ROUNDS {
            times[0].push(time(|| {
                let mut new: Vec<_> = names.iter().map(|_| vec![0; elements * 4]).collect();
                copy(&file, new.iter_mut().map(|one| &mut one[..]).collect(), threads);
                new
            }));
            times[1].push(time(|| Checkpoint::open(&prefix).unwrap().load_all(threads).unwrap()));
            times[2].push(time(|| copy(&file, memory.chunks_mut(elements * 4).collect(), threads)));
            let into = names.iter().map(|name| &name[..]).zip(memory.chunks_mut(elements * 4));
            let mut into: Vec<_> = into.collect();
            times[3].push(time(|| Checkpoint::open(&prefix).unwrap().load_into(&mut into, threads).unwrap()));
            times[4].push(time(|| Checkpoint::open(&prefix).unwrap().verify(threads)));
        }
        let [copied, loaded, copied_into, loaded_into, verified] = times.map(|times| rate(median(times)));
        println!(
            "{mebibytes} MiB, {threads} threads, GB/s: new memory: copy {copied:.2}, load {loaded:.2} \
             (x{:.2}); memory in use: copy {copied_into:.2}, load {loaded_into:.2} (x{:.2}); verify \
             {verified:.2}",
            loaded / copied,
            loaded_into / copied_into,
        );
    }
}

fn main() {
    let mebibytes = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(1024);
    let folder = tempfile::tempdir().unwrap();
    open_many(folder.path());
    load(folder.path(), mebibytes);
}
