//! How fast a LevelDB is read, beside C++ LevelDB's own iterator (through plyvel) and one memcpy of the same
//! bytes, all in the same run.
//!
//! `cargo bench --bench leveldb`, with a `python3` on the PATH that has plyvel 1.5.1. Rounds alternate,
//! because the machine may slow down or speed up meanwhile; the results are medians.

#![allow(missing_docs, clippy::unwrap_used, clippy::cast_precision_loss, reason = "a bench")]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use percolator::source::{LevelDb, Source as _};
use percolator_measure::limits;

const ROUNDS: usize = 7;

/// Name, records, bytes of a value, and whether half of each value compresses.
const DATABASES: [(&str, usize, usize, bool); 4] = [
    ("3 KB, raw blocks", 100_000, 3083, false),
    ("3 KB, snappy blocks", 100_000, 3083, true),
    ("150 KB, raw blocks", 2_000, 150_542, false),
    ("150 KB, snappy blocks", 2_000, 150_542, true),
];

/// Records per second of each way of reading.
#[derive(Default)]
struct Rates {
    walked: Vec<f64>,
    /// Read, and every byte of every value summed up.
    read: Vec<f64>,
    plyvel: Vec<f64>,
    /// With `verify_checksums`, as our reader always does.
    plyvel_verifying: Vec<f64>,
}

fn python(arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/leveldb/plyvel_twin.py");
    let output = Command::new("python3").arg(script).args(arguments).output().expect("python3 starts");
    assert!(
        output.status.success(),
        "the bench needs a python3 with plyvel (pip install plyvel==1.5.1):\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A database, made once and kept in the target folder.
fn database((name, records, bytes, compresses): (&str, usize, usize, bool)) -> PathBuf {
    let name = format!("leveldb {name}").replace([' ', ','], "_");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !folder.join("complete").exists() {
        let _ = std::fs::remove_dir_all(&folder);
        let kind = if compresses { "half" } else { "noise" };
        python(&["make", folder.to_str().unwrap(), &records.to_string(), &bytes.to_string(), kind]);
        std::fs::write(folder.join("complete"), "").unwrap();
    }
    folder
}

fn sum(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks();
    let words = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(words, |sum, &byte| sum.wrapping_add(u64::from(byte)))
}

/// Records per second of the second pass, when every page is mapped.
fn walk(folder: &Path, reads_values: bool) -> f64 {
    let database = LevelDb::open(folder).unwrap();
    let mut cursor = database.cursor().unwrap();
    let mut rate = 0.0;
    for _pass in 0..2 {
        cursor.rewind().unwrap();
        let start = Instant::now();
        let (mut records, mut sums) = (0_u64, 0_u64);
        while let Some(entry) = cursor.advance().unwrap() {
            records += 1;
            if reads_values {
                sums = sums.wrapping_add(sum(entry.value()));
            }
        }
        black_box(sums);
        rate = records as f64 / start.elapsed().as_secs_f64();
    }
    rate
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    println!(
        "{ROUNDS} rounds, taking turns; medians; one thread; page cache warm; GB = 10^9 bytes of values"
    );
    let folders = DATABASES.map(database);
    let mut copies = Vec::new();
    let mut rates = DATABASES.map(|_| Rates::default());
    for _round in 0..ROUNDS {
        copies.push(limits::copy_bytes_per_second(1, Duration::from_millis(50)));
        for (folder, rates) in folders.iter().zip(&mut rates) {
            rates.walked.push(walk(folder, false));
            rates.read.push(walk(folder, true));
            let printed = python(&["time", folder.to_str().unwrap()]);
            let seconds: Vec<f64> = printed.split_whitespace().map(|word| word.parse().unwrap()).collect();
            rates.plyvel.push(seconds[0]);
            rates.plyvel_verifying.push(seconds[1]);
        }
    }
    let copy = median(&mut copies);
    println!("memcpy, one thread: {:.1} GB/s", copy / 1e9);
    println!(
        "{:<22} {:>12} {:>22} {:>12} {:>18} {:>8} {:>8}",
        "", "walked/s", "and values read/s", "plyvel/s", "plyvel verifying/s", "walked", "read"
    );
    for ((name, _, bytes, _), rates) in DATABASES.into_iter().zip(&mut rates) {
        let [walked, read] = [&mut rates.walked, &mut rates.read].map(|rates| median(rates));
        let [plyvel, verifying] = [&mut rates.plyvel, &mut rates.plyvel_verifying].map(|rates| median(rates));
        println!(
            "{name:<22} {walked:>12.0} {read:>12.0} {:>4.2} memcpy {plyvel:>12.0} {verifying:>18.0} {:>7.1}x \
             {:>7.1}x",
            read * bytes as f64 / copy,
            walked / plyvel,
            read / plyvel
        );
    }
    println!("the last columns: beside plyvel, which verifies no checksum unless configured to");
}
