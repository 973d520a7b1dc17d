//! The unsafe code of a feed, small enough for Miri, which sees what no ordinary run does: a row that two
//! threads write at once, bytes that nobody wrote, a borrow that outlives its owner, memory orderings that
//! this machine's processor never shows. The tests run everywhere; `.ci/run` also runs them under Miri if the
//! toolchain has it. Sources are in memory, or files that are read: Miri calls no C library and maps no file.

#![expect(unsafe_code, reason = "a tensor's deleter is called as a framework does")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::io::Write as _;
use std::path::Path;

use common::source::MemorySource;
use percolator::reader::{DataReader, Registry};
use percolator::source::{Access, LevelDb, Matching, Source as _};
use percolator::tfrecord::write_record;
use percolator::{
    Batch, Device, Dtype, Epochs, Feed, FeedBuilder, LastBatch, Phase, RawBytes, Shuffle, Target, Transform,
};

const EXTENT: usize = 3;

fn feed(records: usize) -> FeedBuilder {
    Feed::builder()
        .source(MemorySource::images("miri", records, 2, EXTENT, EXTENT))
        .threads(2)
        .prefetch(2)
        .batch_size(3)
}

/// Each row holds its own record.
fn check(batch: &Batch) {
    let row_elements = batch.shape().dims()[1..].iter().product();
    let rows = batch.bytes().chunks(batch.bytes().len() / batch.shape().records);
    let expected = |id: u64| (0..row_elements).map(move |at| common::pixel(usize::try_from(id).unwrap(), at));
    for ((row, id), label) in rows.zip(batch.records()).zip(batch.labels().unwrap()) {
        assert_eq!(u64::try_from(*label).unwrap(), id.index);
        match batch.shape().dtype {
            Dtype::U8 => assert!(row.iter().copied().eq(expected(id.index))),
            Dtype::F32 => {
                let row = row.chunks(4).map(bytemuck::pod_read_unaligned::<f32>);
                assert!(row.eq(expected(id.index).map(f32::from)));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn lanes_of_a_feed_end_and_their_batches_outlive_them() {
    for dtype in [Dtype::U8, Dtype::F32] {
        let devices = [0, 1].map(Device::host);
        let mut feed = feed(10).dtype(dtype).devices(devices).build().unwrap();
        let handle = feed.handle();
        for step in feed.steps().take(3) {
            step.unwrap().iter().for_each(check);
        }
        let lanes = feed.take_lanes().unwrap().into_iter();
        let held: Vec<_> = lanes
            .map(|mut lane| std::thread::spawn(move || lane.next().unwrap().unwrap()))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        drop(feed);
        held.iter().for_each(check);
        assert_eq!(handle.stats().records(), 24);
    }
}

/// All records come, once, and in their order if they are not shuffled.
fn check_order(mut ids: Vec<u64>, records: u64, shuffle: Shuffle) {
    if shuffle != Shuffle::No {
        ids.sort_unstable();
    }
    assert!(ids.iter().copied().eq(0..records), "{ids:?} of {records}, {shuffle:?}");
}

#[test]
fn a_tfrecord_file_is_read_in_order_and_by_position() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, packed) = (folder.path().join("plain"), folder.path().join("packed"));
    let mut bytes = Vec::new();
    (0..7).for_each(|at| write_record(&mut bytes, &common::image(at, 2, EXTENT, EXTENT).1).unwrap());
    std::fs::write(&plain, &bytes).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes).unwrap();
    std::fs::write(&packed, gzip.finish().unwrap()).unwrap();
    for (path, shuffle) in [(&plain, Shuffle::No), (&plain, Shuffle::Global), (&packed, Shuffle::No)] {
        let feed = Feed::builder().tfrecord(path).access(Access::Read);
        let feed = feed.threads(2).prefetch(2).batch_size(3).epochs(1).shuffle(shuffle).build().unwrap();
        let mut ids = Vec::new();
        for batch in feed {
            let batch = batch.unwrap();
            check(&batch);
            ids.extend(batch.records().iter().map(|id| id.index));
        }
        check_order(ids, 7, shuffle);
    }
}

#[test]
fn a_leveldb_is_read_in_order_and_by_position() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/leveldb/bloom");
    let source = LevelDb::options().access(Access::Read).open(&path).unwrap();
    let (mut cursor, mut due) = (source.cursor().unwrap(), Vec::new());
    while let Some(entry) = cursor.advance().unwrap() {
        due.push(entry.value().to_vec());
    }
    let longest = due.iter().map(Vec::len).max().unwrap();
    for shuffle in [Shuffle::No, Shuffle::Global] {
        let feed = Feed::builder().leveldb(&path).access(Access::Read);
        let feed = feed.decoder(RawBytes::up_to(longest)).threads(2).prefetch(2).batch_size(64);
        let mut ids = Vec::new();
        for batch in feed.epochs(1).shuffle(shuffle).build().unwrap() {
            let batch = batch.unwrap();
            let values = batch.ragged::<u8>("data").unwrap();
            for (id, value) in batch.records().iter().zip(values.rows()) {
                assert_eq!(value, due[usize::try_from(id.index).unwrap()], "{id}");
                ids.push(id.index);
            }
        }
        check_order(ids, due.len() as u64, shuffle);
    }
}

#[test]
fn padding_is_zeros_and_targets_lie_beside_their_records() {
    let transform = Transform::new().crop(2).mirror(true);
    let masks = MemorySource::images("masks", 4, 2, EXTENT, EXTENT);
    let target = Target::paired(masks, Matching::Keys).dtype(Dtype::U8).transform(transform.clone());
    let builder = feed(4).target(target).transform(transform).phase(Phase::Train);
    let mut feed = builder.last_batch(LastBatch::Pad).epochs(2).build().unwrap();
    let steps: Vec<_> = feed
        .steps()
        .map(|step| step.unwrap().remove(0))
        .map(|batch| {
            // Cropped and mirrored like its record, the target equals the record.
            let pixels: Vec<f32> =
                batch.target_pixels::<u8>().unwrap().iter().map(|&byte| byte.into()).collect();
            assert_eq!(batch.pixels::<f32>().unwrap(), pixels);
            let records = batch.len();
            let row = pixels.len() / batch.shape().records;
            assert!(pixels[records * row..].iter().all(|&pixel| pixel == 0.0));
            assert!(batch.labels().unwrap()[records..].iter().all(|&label| label == 0));
            records
        })
        .collect();
    assert_eq!(steps, [3, 1, 3, 1]);
}

#[test]
fn tensors_give_their_batch_back_from_another_thread() {
    let mut feed = feed(4).prefetch(1).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    for round in 0..3 {
        let mut tensors = lane.next().unwrap().unwrap().into_dlpack().unwrap();
        let labels = tensors.get("label").unwrap().tensor();
        // SAFETY: there are three labels, of 32 bits.
        let label = unsafe { *labels.data.cast::<i32>() };
        assert_eq!(label, 3 * round % 4);
        let raw = tensors.take("data").unwrap().into_raw();
        // SAFETY: the tensor lives until its deleter is called.
        let deleter = unsafe { (*raw).deleter }.unwrap();
        let address = raw.expose_provenance();
        drop(tensors);
        // SAFETY: it is called once.
        let give_back = move || unsafe { deleter(std::ptr::with_exposed_provenance_mut(address)) };
        std::thread::spawn(give_back).join().unwrap();
    }
    // The last tensor is released after the lane is gone.
    let tensors = lane.next().unwrap().unwrap().into_dlpack().unwrap();
    drop((lane, feed));
    drop(tensors);
}

#[test]
fn a_batch_that_is_let_go_of_while_its_lane_ends_is_no_lost_slot() {
    // Debug builds assert that a slot is dropped only after its ring has ended, so the thread that drops it
    // must see that end.
    for _ in 0..4 {
        let mut feed = feed(6).epochs(Epochs::OnePass).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        let batches: Vec<_> = lane.by_ref().take(2).map(Result::unwrap).collect();
        let dropping = std::thread::spawn(move || drop(batches));
        drop(lane);
        dropping.join().unwrap();
    }
}

#[test]
fn leases_come_home_while_both_ends_close() {
    let source = MemorySource::numbered("leases", 20, 16);
    let reader = DataReader::builder("data", source)
        .batch_size(2)
        .prefetch(2)
        .passes(1)
        .open_in(&Registry::new())
        .unwrap();
    let mut seen = 0;
    let mut held = Vec::new();
    while let Some(run) = reader.full().pop().unwrap() {
        seen += run.len();
        if held.is_empty() {
            held.push(run);
        } else {
            std::thread::spawn(move || drop(run)).join().unwrap();
        }
    }
    assert_eq!(seen, 20);
    let first = held.pop().unwrap();
    let dropping = std::thread::spawn(move || {
        assert_eq!(first.get(0).unwrap().value[..8], 0_u64.to_le_bytes());
        drop(first);
    });
    drop(reader);
    dropping.join().unwrap();
}
