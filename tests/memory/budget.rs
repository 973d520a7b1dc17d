//! A feed that takes more memory than it announced ends a training run in the night. This test, alone in its
//! process, runs two lanes for many batches and compares the process's anonymous memory with the budget. It
//! finds a holder that the budget forgot, and a buffer that grows from pass to pass.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::batch::ImageShape;
use percolator::transform::MeanImage;
use percolator::{Device, Feed, FeedBuilder, Transform};

use crate::allocator::one_at_a_time;
use crate::common;
use crate::common::process::{anonymous_bytes, is_alone, this_test};
use crate::common::source::MemorySource;

/// The allowed difference: stacks, queues, and the allocator's own memory.
const SLACK_BYTES: u64 = 16 << 20;

fn run(what: &str, builder: FeedBuilder, steps: usize) {
    let before = anonymous_bytes();
    let mut feed = builder.build().unwrap();
    let budget = feed.memory_budget().total_bytes() as u64;
    let mut most = 0;
    // Both lanes hold their batches for a step, so that every buffer of the rings is in use.
    let mut held = Vec::new();
    for step in feed.steps().take(steps) {
        held = step.unwrap();
        most = most.max(anonymous_bytes().saturating_sub(before));
    }
    drop(held);
    println!("{what}: {most} bytes of {budget} announced:\n{}", feed.memory_budget());
    assert_eq!(feed.stats().lanes.iter().map(|lane| lane.growths).sum::<u64>(), 0);
    assert!(most <= budget + SLACK_BYTES, "{what}: {most} bytes are more than {budget} and 16 MiB");
    assert!(most >= budget / 4, "{what}: {most} bytes of {budget}: the budget or the measure is wrong");
}

#[test]
fn a_feed_keeps_to_its_budget() {
    let _one = one_at_a_time();
    if !is_alone(this_test!()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    common::write_images(folder.path(), 500, 3, 128, 128);
    let shape = ImageShape { channels: 3, height: 128, width: 128 };
    let mean = MeanImage::new(shape, vec![100.0; 3 * 128 * 128]).unwrap();
    let transform = Transform::new().crop(112).mirror(true).mean_image(mean).scale(0.01);
    let two = || Feed::builder().devices([0, 1].map(Device::host)).threads(2);
    run("lent records", two().lmdb(folder.path()).batch_size(64).transform(transform.clone()), 60);
    let source = MemorySource::images("copied", 200, 3, 128, 128);
    run("copied records", two().source(source).batch_size(64).transform(transform), 60);
    // Many small records a run, all of them copied.
    let source = MemorySource::images("small", 5000, 3, 71, 77);
    run(
        "runs of copied records",
        two().source(source).batch_size(512).transform(Transform::new().crop(16)),
        40,
    );
}
