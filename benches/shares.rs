//! What share of this machine's own limit whole feeds reach, both measured in the same run.
//!
//! `cargo bench --bench shares`. Rounds of limit and feed take turns, because the machine may slow down or
//! speed up meanwhile; each round gives a ratio, and the median of the ratios is the result.

#![allow(missing_docs, clippy::unwrap_used, clippy::cast_precision_loss, reason = "a bench")]

#[path = "../tests/common/mod.rs"]
mod common;
mod databases;

use std::hint::black_box;
use std::time::{Duration, Instant};

use databases::{Case, cases};
use percolator::{Feed, Lane};

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(700);

/// How often `step` runs a second, over one round.
fn rate(mut step: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut steps = 0_u32;
    while start.elapsed() < ROUND {
        step();
        steps += 1;
    }
    f64::from(steps) / start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Half of the copy on each of two threads, which are as many as the feeds have workers.
fn copy_on_two_threads(source: &[u8], target: &mut [u8]) {
    let half = source.len() / 2;
    let (first, second) = target.split_at_mut(half);
    std::thread::scope(|scope| {
        scope.spawn(|| black_box(first).copy_from_slice(&source[..half]));
        black_box(second).copy_from_slice(&source[half..]);
    });
}

/// A feed that has been through its source once, so that every page is mapped.
fn warm(case: &Case) -> (Feed, Lane) {
    let mut feed = case.builder().build().unwrap();
    let mut lane = feed.lanes().pop().unwrap();
    for _ in 0..case.records.div_ceil(case.batch_size) {
        drop(lane.next().unwrap().unwrap());
    }
    (feed, lane)
}

fn main() {
    println!("{ROUNDS} rounds of {ROUND:?} each; medians; 2 worker threads; GB = 10^9 bytes written");
    println!(
        "{:<16} {:>12} {:>8} {:>10} {:>10} {:>24} {:>14}",
        "feed", "records/s", "GB/s", "1 memcpy", "2 memcpys", "feed / 1 (min..max)", "feed / 2"
    );
    for case in cases() {
        let bytes = case.batch_size * case.record_bytes;
        let source = vec![1_u8; bytes];
        let mut ring: Vec<Vec<u8>> = (0..4).map(|_| vec![2_u8; bytes]).collect();
        let (_feed, mut lane) = warm(&case);
        let (mut copies, mut copies_2, mut feeds, mut turn) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for _ in 0..ROUNDS {
            copies.push(rate(|| {
                turn = (turn + 1) % ring.len();
                ring[turn].copy_from_slice(black_box(&source));
                black_box(&ring[turn]);
            }));
            copies_2.push(rate(|| {
                turn = (turn + 1) % ring.len();
                copy_on_two_threads(black_box(&source), &mut ring[turn]);
            }));
            // What was filled while the copies ran is not this round's work.
            for _ in 0..4 {
                drop(lane.next().unwrap().unwrap());
            }
            feeds.push(rate(|| drop(black_box(lane.next().unwrap().unwrap()))));
        }
        let ratios_to = |copies: &[f64]| {
            let mut ratios: Vec<f64> = feeds.iter().zip(copies).map(|(feed, copy)| feed / copy).collect();
            ratios.sort_by(f64::total_cmp);
            ratios
        };
        let (ratios, ratios_2) = (ratios_to(&copies), ratios_to(&copies_2));
        let (copy, copy_2, feed) = (median(copies), median(copies_2), median(feeds));
        println!(
            "{:<16} {:>12.0} {:>8.2} {:>10.2} {:>10.2} {:>10.2} ({:.2}..{:.2}) {:>14.2}",
            case.name,
            feed * case.batch_size as f64,
            feed * bytes as f64 / 1e9,
            copy * bytes as f64 / 1e9,
            copy_2 * bytes as f64 / 1e9,
            ratios[ratios.len() / 2],
            ratios[0],
            ratios[ratios.len() - 1],
            ratios_2[ratios_2.len() / 2],
        );
    }
}
