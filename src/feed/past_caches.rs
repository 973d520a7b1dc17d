//! Tests that a feed delivers the same bytes whether or not it writes past the caches. That choice depends on
//! the size of the machine's caches, and affects only speed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Feed;
use super::batch::Batch;
use super::builder::FeedBuilder;
use super::resolve::ResolvedFeed;
use super::target::Target;
use crate::base::shape::{Dtype, Layout};
use crate::device::Device;
use crate::source::Matching;
use crate::source::lmdb::Lmdb;
use crate::transform::Transform;

/// The batches taken of each lane: the ring is used several times.
const BATCHES: usize = 9;

fn database(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(name)
}

/// Every byte that is delivered: pixels, targets and labels.
type Contents = (Vec<u8>, Vec<u8>, Vec<i32>);

fn contents(batch: &Batch) -> Contents {
    let targets = batch.target_pixels::<u8>().unwrap_or_default();
    (batch.bytes().to_vec(), targets.to_vec(), batch.labels().unwrap().to_vec())
}

/// What a feed delivers when the test makes the choice.
fn deliver(described: &FeedBuilder, is_past_caches: bool) -> Vec<Contents> {
    let mut resolved = ResolvedFeed::of(described.clone()).unwrap();
    let processor = Arc::get_mut(&mut resolved.processor).expect("nobody shares it before the start");
    processor.setup.is_past_caches = is_past_caches;
    let mut feed = resolved.launch().unwrap();
    let steps = feed.steps().take(BATCHES).map(Result::unwrap);
    steps.flat_map(|step| step.iter().map(contents).collect::<Vec<_>>()).collect()
}

fn compare(described: &FeedBuilder, name: &str) {
    let [streamed, ordinary] = [true, false].map(|is_past_caches| deliver(described, is_past_caches));
    assert!(streamed.len() >= BATCHES && streamed == ordinary, "{name}");
    assert!(streamed.iter().all(|(pixels, ..)| pixels.iter().any(|&byte| byte != 0)), "{name}");
}

/// Batches whose records are not whole numbers of cache lines, which workers write side by side.
fn described(database_name: &str) -> FeedBuilder {
    Feed::builder().lmdb(database(database_name)).batch_size(5).threads(3).prefetch(3).seed(1701)
}

#[test]
#[cfg_attr(miri, ignore = "it opens an LMDB")]
fn a_feed_written_past_the_caches_delivers_the_same_bytes() {
    let crop = Transform::new().crop(27).mirror(true);
    let mean = crop.clone().mean_values([104.0, 117.0, 123.0]).scale(0.017);
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::U8] {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            let transform = if dtype == Dtype::U8 { &crop } else { &mean };
            let feed = described("raw_lmdb").transform(transform.clone()).dtype(dtype).layout(layout);
            compare(&feed, &format!("{dtype:?}, {layout:?}"));
        }
    }
    compare(&described("raw_lmdb"), "whole images");
    compare(&described("float_lmdb"), "floats");
    compare(&described("jpg_color_lmdb").transform(crop.clone()), "encoded");
    compare(&described("gray_lmdb").transform(crop), "records of less than a stage");
}

#[test]
#[cfg_attr(miri, ignore = "it opens an LMDB")]
fn lanes_and_targets_written_past_the_caches_deliver_the_same_bytes() {
    let crop = Transform::new().crop(27).mirror(true);
    let masks = Target::paired(Lmdb::open(database("raw_lmdb")).unwrap(), Matching::Keys);
    let feed = described("raw_lmdb").transform(crop.clone().scale(0.5));
    let feed = feed.target(masks.transform(crop).dtype(Dtype::U8));
    compare(&feed.clone().devices([Device::host(0)]), "one lane");
    compare(&feed.devices([Device::host(0), Device::host(1)]), "two lanes");
}
