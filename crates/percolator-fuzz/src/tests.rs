//! The bodies on the stable toolchain, with inputs of a fixed number: the corpus, each file of it damaged in
//! turn at each place of a raster, and inputs that proptest makes with a seed of its own.
//!
//! A failure prints the target, the input and where it came from. `PERCOLATOR_FUZZ_CASES=10000` makes as many
//! inputs for each target.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::Target;
use crate::accepted::count;
use crate::replay::files_of;

/// The inputs that proptest makes for each target.
const CASES: u32 = 500;
/// The damaged inputs of each target.
const DAMAGED: usize = 1000;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// The corpus of a target: names and bytes.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let files = files_of(&corpus(target));
    let seed =
        |path: &PathBuf| (path.display().to_string(), std::fs::read(path).expect("a seed can be read"));
    files.iter().map(seed).collect()
}

/// Runs a body, and prints the input if a property does not hold.
fn run(target: Target, bytes: &[u8], origin: &dyn Fn() -> String) {
    let (name, body) = target;
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(bytes))) {
        let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        eprintln!("target {name}: {}\ninput: {hex}", origin());
        resume_unwind(panic);
    }
}

/// What a byte becomes, in turn.
fn damage(bytes: &mut Vec<u8>, at: usize, kind: usize) {
    match kind % 8 {
        0 => bytes[at] ^= 1,
        1 => bytes[at] = 0xff,
        2 => bytes[at] = 0,
        3 => bytes.truncate(at),
        4 => bytes[at] ^= 0x80,
        5 => drop(bytes.remove(at)),
        6 => bytes.insert(at, 0x7f),
        // A number of eight bytes, as large as can be.
        _ => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0xff),
    }
}

fn corpus_and_damage(target: Target) {
    let seeds = seeds(target.0);
    assert!(!seeds.is_empty(), "the target {} has no corpus", target.0);
    let all: usize = seeds.iter().map(|(_, bytes)| bytes.len()).sum();
    // As many places as there are inputs, evenly over all seeds; of each, the next kind of damage.
    let step = all.div_ceil(DAMAGED).max(1);
    let (mut kind, mut accepted) = (0, 0);
    for (path, bytes) in &seeds {
        let before = count();
        run(target, bytes, &|| path.clone());
        accepted += usize::from(count() > before);
        for at in (kind % step..bytes.len()).step_by(step) {
            let mut damaged = bytes.clone();
            damage(&mut damaged, at, kind);
            run(target, &damaged, &|| format!("{path}, damage {} at byte {at}", kind % 8));
            kind += 1;
        }
    }
    assert!(2 * accepted >= seeds.len(), "of {} seeds, {accepted} are accepted", seeds.len());
}

/// A change of bytes.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// Bytes from one place to another.
    Repeat(Index, Index, usize),
    Number(Index, u64),
}

fn change() -> impl Strategy<Value = Change> {
    let byte = || prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(0x80), Just(1)];
    prop_oneof![
        4 => (any::<Index>(), byte()).prop_map(|(at, byte)| Change::Set(at, byte)),
        2 => (any::<Index>(), prop::collection::vec(byte(), 1..9))
            .prop_map(|(at, new)| Change::Insert(at, new)),
        2 => (any::<Index>(), 1..40_usize).prop_map(|(at, count)| Change::Remove(at, count)),
        1 => (any::<Index>(), any::<Index>(), 1..60_usize)
            .prop_map(|(from, to, count)| Change::Repeat(from, to, count)),
        1 => (any::<Index>(), prop_oneof![any::<u64>(), 0..70_000_u64, Just(1 << 31), Just(1 << 62)])
            .prop_map(|(at, number)| Change::Number(at, number)),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        _ if bytes.is_empty() => {}
        Change::Set(at, byte) => {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        Change::Insert(at, new) => {
            let at = at.index(bytes.len() + 1);
            bytes.splice(at..at, new.iter().copied());
        }
        Change::Remove(at, count) => {
            let at = at.index(bytes.len());
            bytes.drain(at..bytes.len().min(at + count));
        }
        Change::Repeat(from, to, count) => {
            let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
            let part = bytes[from..bytes.len().min(from + count)].to_vec();
            bytes.splice(to..to, part);
        }
        Change::Number(at, number) => {
            let at = at.index(bytes.len());
            for (to, from) in bytes[at..].iter_mut().zip(number.to_le_bytes()) {
                *to = from;
            }
        }
    }
}

fn made(target: Target) {
    let seeds = seeds(target.0);
    let cases = std::env::var("PERCOLATOR_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok());
    let config = Config { cases: cases.unwrap_or(CASES), failure_persistence: None, ..Config::default() };
    // One seed for all: what fails once fails each time.
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let changed =
        (any::<Index>(), prop::collection::vec(change(), 1..6)).prop_map(move |(which, changes)| {
            let mut bytes = seeds[which.index(seeds.len())].1.clone();
            changes.iter().for_each(|change| apply(&mut bytes, change));
            bytes
        });
    let input = prop_oneof![5 => changed, 1 => prop::collection::vec(any::<u8>(), 0..200)];
    let result = TestRunner::new_with_rng(config, random).run(&input, |bytes| {
        run(target, &bytes, &|| "made by proptest".to_owned());
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("target {}: {failure}", target.0));
}

macro_rules! tests {
    ($($(#[$condition:meta])? $module:ident::$name:ident)*) => { $(
        $(#[$condition])?
        mod $name {
            const TARGET: crate::Target = (stringify!($name), crate::$module::$name);

            #[test]
            fn corpus_and_damage() {
                super::corpus_and_damage(TARGET);
            }

            #[test]
            fn made() {
                super::made(TARGET);
            }
        }
    )* };
}

each_target!(tests);

#[test]
fn targets_are_sorted() {
    assert!(crate::TARGETS.is_sorted_by_key(|(name, _)| name));
}
