//! A training run cannot see that a batch is wrong: a record twice, a label beside another record's pixels, a
//! crop that depends on the number of threads. These tests compare what lanes deliver with a plain
//! computation over the same records, for any number of lanes, threads and buffers, and end feeds in every
//! order.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;

use half::{bf16, f16};
use percolator::batch::{FieldError, ImageShape};
use percolator::feed::{ConfigError, TryNext};

use percolator::reader::{ReaderError, Registry};
use percolator::record::RecordId;
use percolator::transform::MeanImage;
use percolator::{
    Batch, Device, DeviceError, Dtype, Feed, FeedBuilder, FeedError, Lane, Layout, Phase, Transform,
};

use crate::common;
use crate::common::process::{is_alone, must_end, open_files, settles, this_test, threads};
use crate::common::source::MemorySource;

const SHAPE: [usize; 3] = [3, 12, 12];

fn pixels(index: usize, [channels, height, width]: [usize; 3]) -> Vec<u8> {
    (0..channels * height * width).map(|at| common::pixel(index, at)).collect()
}

/// A window of an image, cropped and mirrored element by element.
fn cut(
    image: &[u8],
    [channels, height, width]: [usize; 3],
    crop: usize,
    top: usize,
    left: usize,
    mirrored: bool,
) -> Vec<u8> {
    let mut out = Vec::new();
    for channel in 0..channels {
        for row in 0..crop {
            for column in 0..crop {
                let column = if mirrored { crop - 1 - column } else { column };
                out.push(image[(channel * height + top + row) * width + left + column]);
            }
        }
    }
    out
}

fn images(name: &str, count: usize) -> MemorySource {
    let [c, h, w] = SHAPE;
    MemorySource::images(name, count, c, h, w)
}

fn over(source: MemorySource) -> FeedBuilder {
    Feed::builder().source(source).registry(&Registry::new()).threads(2)
}

fn hosts(count: usize) -> Vec<Device> {
    (0..count).map(Device::host).collect()
}

fn only_lane(feed: &mut Feed) -> Lane {
    let mut lanes = feed.take_lanes().unwrap();
    assert_eq!(lanes.len(), 1);
    lanes.remove(0)
}

/// The expected records of a lane, batch by batch, when the first `global` records are dealt in round-robin
/// order.
fn due(records: usize, lane: usize, lanes: usize, batch_size: usize, global: usize) -> Vec<Vec<RecordId>> {
    let name = |g: usize| RecordId { epoch: (g / records) as u64, index: (g % records) as u64 };
    let share: Vec<RecordId> = (0..global).filter(|g| g % lanes == lane).map(name).collect();
    share.chunks(batch_size).map(<[RecordId]>::to_vec).collect()
}

/// Checks labels and untransformed f32 pixels against the records' identifiers.
fn check(batch: &Batch) {
    let elements: usize = SHAPE.iter().product();
    assert_eq!(batch.shape().dims(), [batch.len(), SHAPE[0], SHAPE[1], SHAPE[2]]);
    for (at, id) in batch.records().iter().enumerate() {
        assert_eq!(batch.labels()[at], i32::try_from(id.index).unwrap());
        let found = &batch.pixels::<f32>().unwrap()[at * elements..][..elements];
        let index = usize::try_from(id.index).unwrap();
        assert!(pixels(index, SHAPE).iter().map(|&pixel| f32::from(pixel)).eq(found.iter().copied()), "{id}");
    }
}

/// Drains a lane: the records of its batches, and the error that ended it.
fn drain(lane: &mut Lane) -> (Vec<Vec<RecordId>>, Option<FeedError>) {
    let mut seen = Vec::new();
    while let Some(batch) = lane.next() {
        match batch {
            Ok(batch) => seen.push(batch.records().to_vec()),
            Err(error) => {
                assert!(lane.next().is_none(), "an error comes last, and once");
                assert!(matches!(lane.try_next().unwrap(), TryNext::Ended));
                return (seen, Some(error));
            }
        }
    }
    assert!(lane.next().is_none(), "the end stays the end");
    (seen, None)
}

#[test]
fn one_pass_brings_every_record_once_in_short_last_batches() {
    for lanes in [1, 2, 3] {
        for records in [1, 2, 10, 25, 48] {
            for batch_size in [1, 4, 8, 100] {
                let builder = over(images("once", records)).batch_size(batch_size).devices(hosts(lanes));
                let mut feed = builder.once().build().unwrap();
                std::thread::scope(|scope| {
                    for (number, mut lane) in feed.take_lanes().unwrap().into_iter().enumerate() {
                        assert_eq!((lane.number(), lane.device()), (number, &*format!("host:{number}")));
                        let due = due(records, number, lanes, batch_size, records);
                        scope.spawn(move || {
                            for names in due {
                                let batch = lane.next().unwrap().unwrap();
                                check(&batch);
                                assert_eq!((batch.lane(), batch.records()), (number, &names[..]));
                            }
                            assert!(lane.next().is_none());
                        });
                    }
                });
            }
        }
    }
}

#[test]
fn lanes_on_their_own_threads_get_their_shares() {
    for (lanes, records, batch_size, prefetch) in [(2, 25, 4, 1), (3, 100, 8, 2), (4, 7, 3, 4)] {
        let passes = 6;
        let builder = over(images("threads", records)).batch_size(batch_size).prefetch(prefetch);
        let mut feed = builder.devices(hosts(lanes)).build().unwrap();
        std::thread::scope(|scope| {
            for mut lane in feed.take_lanes().unwrap() {
                scope.spawn(move || {
                    let due = due(records, lane.number(), lanes, batch_size, passes * records);
                    // The end of the expected list may cut its last batch short; the feed does not end there.
                    for names in &due[..due.len() - 1] {
                        let batch = lane.next().unwrap().unwrap();
                        check(&batch);
                        assert_eq!(batch.records(), names);
                    }
                });
            }
        });
    }
}

#[test]
fn batches_run_on_from_the_last_record_to_the_first() {
    let mut feed = over(images("wrap", 10)).batch_size(4).build().unwrap();
    let mut lane = only_lane(&mut feed);
    let third = lane.nth(2).unwrap().unwrap();
    check(&third);
    let names: Vec<_> = third.records().iter().map(|id| (id.epoch, id.index)).collect();
    assert_eq!(names, [(0, 8), (0, 9), (1, 0), (1, 1)]);
}

#[test]
fn steps_bring_all_lanes_together_and_end_short() {
    let mut feed = over(images("steps", 11)).batch_size(2).devices(hosts(3)).once().build().unwrap();
    let steps: Vec<Vec<(usize, Vec<u64>)>> = feed
        .steps()
        .map(|step| {
            let name = |batch: Batch| (batch.lane(), batch.records().iter().map(|id| id.index).collect());
            step.unwrap().into_iter().map(name).collect()
        })
        .collect();
    let lists = |lists: &[(usize, &[u64])]| -> Vec<(usize, Vec<u64>)> {
        lists.iter().map(|(lane, list)| (*lane, list.to_vec())).collect()
    };
    assert_eq!(steps[0], lists(&[(0, &[0, 3]), (1, &[1, 4]), (2, &[2, 5])]));
    assert_eq!(steps[1], lists(&[(0, &[6, 9]), (1, &[7, 10]), (2, &[8])]));
    assert_eq!(steps.len(), 2);
    let mut feed = over(images("steps that run out", 5)).devices(hosts(2)).once().build().unwrap();
    let last = feed.steps().last().unwrap().unwrap();
    assert_eq!(last.iter().map(Batch::lane).collect::<Vec<_>>(), [0]);
    assert!(feed.steps().next().is_none());
}

/// Bytes, labels and records of the first `batches` batches of each lane.
fn stream(
    folder: &std::path::Path,
    configure: impl Fn(FeedBuilder) -> FeedBuilder,
    batches: usize,
) -> Vec<(Vec<u8>, Vec<i32>, Vec<RecordId>)> {
    let transform = Transform::new().crop(9).mirror(true).mean_values([1.0, 2.0, 3.0]).scale(0.5);
    let builder =
        Feed::builder().lmdb(folder).registry(&Registry::new()).batch_size(16).transform(transform).seed(7);
    let mut feed = configure(builder).build().unwrap();
    let mut lanes = feed.take_lanes().unwrap();
    let mut stream = Vec::new();
    for _ in 0..batches {
        for lane in &mut lanes {
            let batch = lane.next().unwrap().unwrap();
            stream.push((batch.bytes().to_vec(), batch.labels().to_vec(), batch.records().to_vec()));
        }
    }
    stream
}

#[test]
fn threads_and_buffers_do_not_change_a_byte() {
    let folder = tempfile::tempdir().unwrap();
    common::write_images(folder.path(), 50, 3, 12, 12);
    let first = stream(folder.path(), |feed| feed.threads(1).prefetch(1), 20);
    for threads in [1, 2, 3, 8] {
        for prefetch in 1..=4 {
            let again = stream(folder.path(), |feed| feed.threads(threads).prefetch(prefetch), 20);
            assert!(first == again, "{threads} threads, {prefetch} buffers");
        }
    }
    let other_seed = stream(folder.path(), |feed| feed.seed(8), 20);
    assert!(
        first.iter().zip(&other_seed).all(|(a, b)| a.0 != b.0 && a.2 == b.2),
        "a seed changes crops alone"
    );
    // With 50 records and batches of 16, batch 25 is batch 0 again, 8 epochs later.
    let long = stream(folder.path(), |feed| feed, 26);
    let names = |at: usize| long[at].2.iter().map(|id| id.index).collect::<Vec<_>>();
    assert_eq!(names(0), names(25));
    assert_ne!(long[0].0, long[25].0, "another epoch, other crops");
}

#[test]
fn lanes_do_not_change_what_becomes_of_a_record() {
    let folder = tempfile::tempdir().unwrap();
    common::write_images(folder.path(), 50, 3, 12, 12);
    let by_record = |lanes: usize| {
        let mut records = std::collections::BTreeMap::new();
        for (bytes, _, names) in stream(folder.path(), |feed| feed.devices(hosts(lanes)), 24 / lanes) {
            for (pixels, name) in bytes.chunks(bytes.len() / names.len()).zip(names) {
                records.insert(name, pixels.to_vec());
            }
        }
        records
    };
    let one = by_record(1);
    assert_eq!(one.len(), 24 * 16);
    for lanes in [2, 3] {
        assert!(one == by_record(lanes), "{lanes} lanes");
    }
}

#[test]
fn a_random_crop_is_a_window_of_its_record_and_every_window_comes() {
    let transform = Transform::new().crop(9).mirror(true);
    let mut feed =
        over(images("crops", 50)).batch_size(10).dtype(Dtype::U8).transform(transform).build().unwrap();
    let mut windows = HashSet::new();
    for batch in only_lane(&mut feed).take(100) {
        let batch = batch.unwrap();
        for (found, id) in batch.bytes().chunks(3 * 9 * 9).zip(batch.records()) {
            let image = pixels(usize::try_from(id.index).unwrap(), SHAPE);
            let all =
                (0..4).flat_map(|top| (0..4).flat_map(move |left| [(top, left, false), (top, left, true)]));
            let mut fits =
                all.filter(|&(top, left, mirrored)| cut(&image, SHAPE, 9, top, left, mirrored) == found);
            windows.insert(fits.next().unwrap_or_else(|| panic!("{id} is no window of its record")));
        }
    }
    assert_eq!(windows.len(), 4 * 4 * 2, "1000 records see all windows");
}

/// The expected f32 pixels of a record in a TEST feed of 10 records, with a centre crop of 9 and a mean.
fn centre(index: usize, mean: impl Fn(usize) -> f32, scale: f32) -> Vec<f32> {
    let image = pixels(index, SHAPE);
    let positions: Vec<usize> = (0..image.len()).collect();
    let mut out = Vec::new();
    for channel in 0..3 {
        for row in 1..10 {
            for column in 1..10 {
                let at = positions[(channel * 12 + row) * 12 + column];
                out.push((f32::from(image[at]) - mean(at)) * scale);
            }
        }
    }
    out
}

fn to_nhwc<T: Copy>(planar: &[T], channels: usize) -> Vec<T> {
    let plane = planar.len() / channels;
    (0..plane).flat_map(|at| (0..channels).map(move |channel| planar[channel * plane + at])).collect()
}

#[test]
fn every_type_and_layout_is_the_plain_computation() {
    let shape = ImageShape { channels: 3, height: 12, width: 12 };
    let mean_pixels: Vec<f32> = (0..432_u16).map(|at| f32::from(at) * 0.37 + 0.1).collect();
    let mean = MeanImage::new(shape, mean_pixels.clone()).unwrap();
    let with_mean = Transform::new().crop(9).mean_image(mean).scale(0.017);
    let with_values = Transform::new().crop(9).mean_values([104.0, 117.5, 123.0]).scale(1.7);
    let by_channel = |at: usize| [104.0, 117.5, 123.0][at / 144];
    type Mean<'a> = &'a dyn Fn(usize) -> f32;
    let by_pixel = |at: usize| mean_pixels[at];
    let cases: [(&Transform, Mean<'_>, f32); 2] =
        [(&with_mean, &by_pixel, 0.017), (&with_values, &by_channel, 1.7)];
    for (transform, mean, scale) in cases {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            let batch = |dtype| {
                let builder =
                    over(images("types", 10)).phase(Phase::Test).batch_size(10).transform(transform.clone());
                only_lane(&mut builder.dtype(dtype).layout(layout).build().unwrap()).next().unwrap().unwrap()
            };
            let mut want: Vec<f32> = Vec::new();
            for index in 0..10 {
                let planar = centre(index, mean, scale);
                want.extend(if layout == Layout::Nhwc { to_nhwc(&planar, 3) } else { planar });
            }
            let found = batch(Dtype::F32);
            let dims = if layout == Layout::Nhwc { [10, 9, 9, 3] } else { [10, 3, 9, 9] };
            assert_eq!(found.shape().dims(), dims);
            assert_eq!(found.pixels::<f32>().unwrap(), want, "{layout}");
            let halves: Vec<f16> = want.iter().map(|&value| f16::from_f32(value)).collect();
            assert_eq!(batch(Dtype::F16).pixels::<f16>().unwrap(), halves, "{layout}");
            let brains: Vec<bf16> = want.iter().map(|&value| bf16::from_f32(value)).collect();
            assert_eq!(batch(Dtype::Bf16).pixels::<bf16>().unwrap(), brains, "{layout}");
        }
    }
}

#[test]
fn bytes_are_cropped_and_left_as_they_are() {
    for layout in [Layout::Nchw, Layout::Nhwc] {
        let builder = over(images("bytes", 10)).phase(Phase::Test).batch_size(10).layout(layout);
        let mut feed = builder.dtype(Dtype::U8).transform(Transform::new().crop(9)).build().unwrap();
        let batch = only_lane(&mut feed).next().unwrap().unwrap();
        let want = (0..10).flat_map(|index| {
            let planar = cut(&pixels(index, SHAPE), SHAPE, 9, 1, 1, false);
            if layout == Layout::Nhwc { to_nhwc(&planar, 3) } else { planar }
        });
        assert!(want.eq(batch.bytes().iter().copied()), "{layout}");
        assert_eq!(batch.pixels::<u8>().unwrap(), batch.bytes());
    }
}

#[test]
fn float_records_feed_as_bytes_do() {
    let records = (0..6).map(|index| {
        let data = pixels(index, [2, 3, 4]).iter().map(|&pixel| f32::from(pixel) - 100.25).collect();
        (common::key(index), common::float_datum(2, 3, 4, 9, data))
    });
    let builder =
        over(MemorySource::new("floats", records)).batch_size(6).transform(Transform::new().scale(2.0));
    let batch = only_lane(&mut builder.build().unwrap()).next().unwrap().unwrap();
    let want =
        (0..6).flat_map(|index| pixels(index, [2, 3, 4])).map(|pixel| (f32::from(pixel) - 100.25) * 2.0);
    assert!(want.eq(batch.pixels::<f32>().unwrap().iter().copied()));
}

#[test]
fn labels_are_whole_and_their_floats_are_caffes() {
    let labels = [-5, i32::MIN, i32::MAX, 0, 16_777_217, -1];
    let records = labels
        .iter()
        .enumerate()
        .map(|(at, &label)| (common::key(at), common::datum(1, 1, 1, label, vec![0])));
    let mut feed = over(MemorySource::new("labels", records)).batch_size(6).build().unwrap();
    let batch = only_lane(&mut feed).next().unwrap().unwrap();
    assert_eq!(batch.labels(), labels);
    assert_eq!(batch.labels_f32(), [-5.0, -2_147_483_648.0, 2_147_483_648.0, 0.0, 16_777_216.0, -1.0]);
}

#[test]
fn a_batch_of_another_type_is_a_typed_mismatch() {
    let mut feed = over(images("mismatch", 3)).build().unwrap();
    let batch = only_lane(&mut feed).next().unwrap().unwrap();
    let mismatch = batch.pixels::<u8>().unwrap_err();
    let (found, wanted) = (Dtype::F32, Dtype::U8);
    assert_eq!(mismatch, FieldError::Dtype { field: "data".to_owned(), found, wanted });
    assert!(mismatch.to_string().contains("holds f32, but u8 was requested"));
}

#[test]
fn a_batch_that_is_held_stays_as_it_is_while_others_come() {
    let mut feed = over(images("held", 30)).batch_size(4).build().unwrap();
    let mut lane = only_lane(&mut feed);
    let held = [lane.next().unwrap().unwrap(), lane.next().unwrap().unwrap()];
    let before: Vec<Vec<u8>> = held.iter().map(|batch| batch.bytes().to_vec()).collect();
    for _ in 0..40 {
        check(&lane.next().unwrap().unwrap());
    }
    assert_eq!(feed.stats().lanes[0].held, 2);
    for (batch, before) in held.iter().zip(before) {
        check(batch);
        assert_eq!(batch.bytes(), before);
    }
}

#[test]
fn batches_may_go_back_in_any_order_and_on_any_thread() {
    let mut feed = over(images("back", 30)).batch_size(4).prefetch(4).build().unwrap();
    let mut lane = only_lane(&mut feed);
    for round in 0..20 {
        let mut held: Vec<Batch> = lane.by_ref().take(4).map(Result::unwrap).collect();
        held.iter().for_each(check);
        assert_eq!(held[0].records()[0].index, round * 16 % 30);
        held.rotate_left(usize::try_from(round % 4).unwrap());
        std::thread::spawn(move || drop(held)).join().unwrap();
    }
}

#[test]
fn a_batch_outlives_its_lane_and_its_feed() {
    let folder = tempfile::tempdir().unwrap();
    let [c, h, w] = SHAPE;
    common::write_images(folder.path(), 10, c, h, w);
    let mut feed = Feed::builder().lmdb(folder.path()).batch_size(4).build().unwrap();
    let mut lane = only_lane(&mut feed);
    let batches: Vec<Batch> = lane.by_ref().take(3).map(Result::unwrap).collect();
    drop(lane);
    drop(feed);
    batches.iter().for_each(check);
}

#[test]
fn lanes_are_handed_over_once_and_whoever_asks_again_is_told() {
    let mut feed = over(images("twice", 10)).devices(hosts(2)).build().unwrap();
    // Using steps leaves the lanes usable.
    assert_eq!(feed.steps().next().unwrap().unwrap().len(), 2);
    let mut lanes = feed.take_lanes().unwrap();
    assert_eq!(lanes[0].next().unwrap().unwrap().records()[0].index, 2);
    let said: Vec<_> = feed.steps().map(Result::err).collect();
    assert_eq!(said, [Some(FeedError::LanesTaken)], "and not a run without steps");
    assert_eq!(feed.take_lanes().unwrap_err(), FeedError::LanesTaken);
    assert!(lanes[1].next().unwrap().is_ok(), "the lanes that there are go on");
    assert_eq!(feed.stats().lanes[1].batches, 2);
    feed.seek((0, 7)).unwrap();
    assert_eq!(feed.steps().next().unwrap().unwrap()[0].records()[0].index, 14 % 10, "seek makes new ones");
}

#[test]
fn a_watch_sees_the_feed_from_anywhere_and_keeps_nothing_open() {
    must_end("a watch beside the steps", || {
        let source = images("watched", 12);
        let probe = source.probe();
        let mut feed = over(source).devices(hosts(2)).batch_size(2).epochs(2).build().unwrap();
        let watch = feed.watch();
        let next = |epoch, step| vec![percolator::record::StepId { epoch, step }; 2];
        assert_eq!(watch.next_steps(), next(0, 0));
        let (to_watcher, steps) = std::sync::mpsc::channel();
        let elsewhere = watch.clone();
        let watcher = std::thread::spawn(move || {
            steps.iter().map(|()| (elsewhere.stats().records(), elsewhere.next_steps())).collect::<Vec<_>>()
        });
        let mut taken = 0;
        for step in feed.steps() {
            drop(step.unwrap());
            taken += 1;
            assert_eq!(watch.stats().records(), 4 * taken);
            assert_eq!(watch.next_steps(), next(taken / 3, taken % 3));
            to_watcher.send(()).unwrap();
        }
        assert_eq!(taken, 6);
        assert_eq!(watch.plan().map(|plan| plan.steps(0).unwrap()), Some(3));
        assert_eq!(feed.plan(), watch.plan());
        drop((to_watcher, feed));
        assert!(probe.is_dropped(), "what only watches keeps no source");
        let seen = watcher.join().unwrap();
        assert_eq!(seen.last(), Some(&(24, next(2, 0))));
        assert_eq!(watch.stats().records(), 24);
    });
}

#[test]
fn try_next_never_waits_and_misses_nothing() {
    must_end("a lane that is polled", || {
        let (source, mut stall) = images("polled", 6).stall_at(4);
        let mut feed = over(source).batch_size(2).once().build().unwrap();
        let mut lane = only_lane(&mut feed);
        let mut seen = Vec::new();
        let mut poll = |until: usize| {
            while seen.len() < until {
                match lane.try_next().unwrap() {
                    TryNext::Batch(batch) => seen.push(batch.records()[0].index),
                    TryNext::NotYet => std::thread::yield_now(),
                    TryNext::Ended => panic!("it ended after {seen:?}"),
                }
            }
        };
        poll(2);
        stall.wait();
        stall.release();
        poll(3);
        assert_eq!(seen, [0, 2, 4]);
        assert!(lane.next().is_none());
        assert!(matches!(lane.try_next().unwrap(), TryNext::Ended));
    });
}

#[test]
fn cancelling_wakes_every_lane_once_after_what_was_complete() {
    must_end("lanes that are cancelled", || {
        let (source, mut stall) = images("cancelled", 20).stall_at(10);
        let mut feed = over(source).batch_size(2).devices(hosts(2)).build().unwrap();
        let canceller = feed.canceller();
        let mut lanes = feed.take_lanes().unwrap();
        std::thread::scope(|scope| {
            let drains: Vec<_> =
                lanes.iter_mut().map(|lane| scope.spawn(|| (lane.number(), drain(lane)))).collect();
            stall.wait();
            // The lanes wait for a source that does not answer: only the cancellation can wake them.
            canceller.cancel();
            canceller.cancel();
            for drain in drains {
                let (number, (seen, error)) = drain.join().unwrap();
                assert_eq!(error, Some(FeedError::Cancelled));
                assert_eq!(seen, due(20, number, 2, 2, 10)[..seen.len()], "the batches before, in order");
            }
        });
        stall.release();
    });
}

#[test]
fn an_error_of_the_source_comes_once_to_every_lane_after_the_batches_before_it() {
    must_end("lanes of a source that fails", || {
        for lanes in [1, 2, 3] {
            for is_panic in [false, true] {
                let source = images("faulty", 20);
                let source = if is_panic { source.panic_at(33) } else { source.fail_at(33) };
                let mut feed = over(source).batch_size(4).devices(hosts(lanes)).build().unwrap();
                let mut lanes_taken = feed.take_lanes().unwrap();
                std::thread::scope(|scope| {
                    for lane in &mut lanes_taken {
                        scope.spawn(move || {
                            let (seen, error) = drain(lane);
                            let error = error.expect("every lane hears of it");
                            match error {
                                FeedError::Reader(ReaderError::Panicked { .. }) => assert!(is_panic),
                                FeedError::Reader(ReaderError::Source(_)) => assert!(!is_panic),
                                other => panic!("{other}"),
                            }
                            let mut due = due(20, lane.number(), lanes, 4, 33);
                            due.retain(|batch| batch.len() == 4);
                            assert!(seen.len() <= due.len() && seen == due[..seen.len()]);
                            if lanes == 1 {
                                assert_eq!(seen, due, "all that were complete");
                            }
                        });
                    }
                });
            }
        }
    });
}

#[test]
fn a_dropped_lane_takes_nothing_from_its_siblings_and_is_accounted_for() {
    for batch_size in [1, 4, 16] {
        let records = 100;
        let mut feed = over(images("dropped", records))
            .batch_size(batch_size)
            .prefetch(1)
            .devices(hosts(3))
            .once()
            .build()
            .unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        let mut leaving = lanes.remove(1);
        let first = leaving.next().unwrap().unwrap();
        assert_eq!(first.records(), due(records, 1, 3, batch_size, records)[0]);
        drop(leaving);
        std::thread::scope(|scope| {
            for mut lane in lanes {
                scope.spawn(move || {
                    let number = lane.number();
                    assert_eq!(drain(&mut lane), (due(records, number, 3, batch_size, records), None));
                });
            }
        });
        let stats = feed.stats();
        assert!(stats.reader.undelivered > 0, "{stats}");
        assert_eq!(
            stats.reader.records + stats.reader.undelivered,
            records as u64,
            "no record is lost: {stats}"
        );
    }
}

#[test]
fn feeds_end_in_every_order_and_leave_no_thread() {
    if !is_alone(this_test!()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    common::write_images(folder.path(), 40, 1, 6, 6);
    // The first feed may open what stays open. The system counts a thread for a moment after its join.
    let threads_before = threads();
    end_a_feed(folder.path(), 0);
    settles(threads, &threads_before, "threads after the first feed");
    let before = (threads_before, open_files());
    let path = folder.path().to_owned();
    must_end("the drop of a feed", move || (0..400).for_each(|number| end_a_feed(&path, number)));
    settles(|| (threads(), open_files()), &before, "threads and open files");
    assert!(Registry::global().is_empty());
}

/// Drops the parts of a feed in an order derived from `number`, some of them while it runs at full speed.
fn end_a_feed(path: &std::path::Path, number: usize) {
    let mut state = number as u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % limit
    };
    let lanes = 1 + below(3);
    let mut builder =
        Feed::builder().lmdb(path).batch_size(1 + below(9)).prefetch(1 + below(4)).threads(1 + below(3));
    if below(4) == 0 {
        builder = builder.once();
    }
    let mut feed = builder.devices(hosts(lanes)).build().unwrap();
    let canceller = feed.canceller();
    let mut parts: Vec<Box<dyn std::any::Any + Send>> = Vec::new();
    for mut lane in feed.take_lanes().unwrap() {
        // At most one batch a lane: a second one might wait for a sibling's consumer.
        if below(2) == 0
            && let Some(batch) = lane.next()
        {
            parts.push(Box::new(batch.unwrap()));
        }
        parts.push(Box::new(lane));
    }
    parts.push(Box::new(feed));
    if below(5) == 0 {
        canceller.cancel();
    }
    while !parts.is_empty() {
        let part = parts.swap_remove(below(parts.len()));
        if below(3) == 0 {
            std::thread::spawn(move || drop(part)).join().unwrap();
        }
    }
}

#[test]
fn records_of_many_sizes_come_out_alike_when_they_are_cropped() {
    let shape = |index: usize| [1, 5 + index % 7, 5 + index % 4];
    let records = (0..28).map(move |index| {
        let [c, h, w] = shape(index);
        common::image(index, c, h, w)
    });
    let builder = over(MemorySource::new("sizes", records)).phase(Phase::Test).batch_size(5).dtype(Dtype::U8);
    let mut feed = builder.transform(Transform::new().crop(4)).once().build().unwrap();
    let mut index = 0;
    for batch in only_lane(&mut feed) {
        for found in batch.unwrap().bytes().chunks(16) {
            let [c, h, w] = shape(index);
            assert_eq!(found, cut(&pixels(index, [c, h, w]), [c, h, w], 4, (h - 4) / 2, (w - 4) / 2, false));
            index += 1;
        }
    }
    assert_eq!(index, 28);
    assert_eq!(feed.stats().lanes[0].growths, 0);
}

#[test]
fn a_batch_larger_than_any_before_grows_its_buffer_and_is_counted() {
    let records = (0..20).map(|index| common::image(index, 1, 4 + index * 30, 40));
    let mut feed =
        over(MemorySource::new("growing", records)).dtype(Dtype::U8).prefetch(2).once().build().unwrap();
    for (index, batch) in only_lane(&mut feed).enumerate() {
        let batch = batch.unwrap();
        assert_eq!(batch.shape().dims(), [1, 1, 4 + index * 30, 40]);
        assert_eq!(batch.bytes(), pixels(index, [1, 4 + index * 30, 40]));
    }
    let growths = feed.stats().lanes[0].growths;
    assert!((1..20).contains(&growths), "{growths}");
}

#[test]
fn the_budget_is_a_limit() {
    let feed = || over(images("budget", 10)).batch_size(8).prefetch(4).devices(hosts(2));
    let budget = feed().build().unwrap().memory_budget().clone();
    let pixels = &budget.lines[0];
    assert_eq!((pixels.count, pixels.bytes_each), (8, 8 * 432 * 4));
    feed().memory_limit(budget.total_bytes()).build().unwrap();
    let error = feed().memory_limit(budget.total_bytes() - 1).build().unwrap_err();
    assert!(matches!(
        error,
        FeedError::Config(ConfigError::OverBudget { needed, .. }) if needed == budget.total_bytes()
    ));
    for line in &budget.lines {
        assert!(error.to_string().contains(line.holder), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let feed = || over(images("refused", 10));
    let cases = [
        (feed().batch_size(0), "batch_size is 0; it must be at least 1"),
        (feed().prefetch(0), "prefetch is 0; it must be at least 1"),
        (feed().threads(0), "threads is 0; it must be at least 1"),
        (feed().devices([]), "a feed needs at least 1 device: name one with .devices(...)"),
        (feed().threads(1_000_000), "1000000 threads are too many; at most 1024 are allowed"),
        (feed().devices(hosts(2000)), "2000 devices are too many; at most 1024 are allowed"),
        (Feed::builder(), "a feed needs a source: .lmdb(path), .leveldb(path), or .source(...)"),
    ];
    for (builder, text) in cases {
        let error = builder.build().unwrap_err();
        assert_eq!(error.to_string(), text);
    }
    let error = feed().batch_size(usize::MAX / 2).build().unwrap_err();
    assert!(matches!(error, FeedError::Reader(ReaderError::PoolTooLarge { .. })), "{error}");
}

#[test]
fn devices_are_read_from_text() {
    assert_eq!("host".parse::<Device>().unwrap().name(), "host:0");
    assert_eq!("host:3".parse::<Device>().unwrap().name(), "host:3");
    for text in ["cuda:0", "cuda"] {
        match text.parse::<Device>() {
            Ok(device) => assert_eq!(device.name(), "cuda:0"),
            // The device may not exist, or the driver may be missing.
            Err(error) if cfg!(feature = "cuda-driver") => {
                let is_known = matches!(&error, DeviceError::NoDriver | DeviceError::NoSuchDevice { .. });
                assert!(is_known, "{error}");
            }
            Err(error) => {
                assert!(matches!(&error, DeviceError::NotBuilt { device } if device == text), "{error}");
            }
        }
    }
    for text in ["", "gpu", "host:", "host:x", "host:-1", "host:0:1", "cuda:x", "HOST", "host: 1"] {
        let error = text.parse::<Device>().unwrap_err();
        assert!(matches!(&error, DeviceError::Unknown { device } if device == text), "{error}");
    }
}

/// The positions of a lane's first records, counted on through all passes.
fn indices(lane: Lane, batches: usize) -> Vec<u64> {
    lane.take(batches)
        .flat_map(|batch| {
            batch.unwrap().records().iter().map(|id| id.epoch * 7 + id.index).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn the_ranks_of_a_job_get_what_caffes_solvers_get() {
    for (first, lanes, of) in [(0, 1, 1), (2, 1, 3), (1, 2, 3), (3, 1, 8), (0, 5, 5)] {
        let mut feed = Feed::builder()
            .source(MemorySource::images("ranks", 7, 1, 2, 2))
            .devices((0..lanes).map(Device::host))
            .ranks(first, of)
            .batch_size(3)
            .build()
            .unwrap();
        let found: Vec<_> = std::thread::scope(|scope| {
            let consumers: Vec<_> =
                feed.take_lanes().unwrap().into_iter().map(|lane| scope.spawn(|| indices(lane, 4))).collect();
            consumers.into_iter().map(|consumer| consumer.join().unwrap()).collect()
        });
        for (lane, found) in found.iter().enumerate() {
            let wanted: Vec<u64> = (0..12).map(|step| (step * of + first + lane) as u64).collect();
            assert_eq!(found, &wanted, "rank {} of {of}", first + lane);
        }
    }
}

#[test]
fn a_rank_that_the_job_does_not_have_is_refused() {
    let error = Feed::builder()
        .source(MemorySource::images("ranks", 7, 1, 2, 2))
        .devices([Device::host(0), Device::host(1)])
        .ranks(2, 3)
        .build()
        .unwrap_err();
    assert_eq!(error.to_string(), "there is no rank 3 in a job of 3: ranks are counted from 0");
}
