//! A feed with a plan delivers what the plan says: each record to its lane, at its step and place, whatever
//! the threads do; short, padded and empty batches at the end of an epoch; and the end after the last epoch.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::feed::ConfigError;
use percolator::order::{
    Assignment, AutoShardPolicy, BatchSize, Job, JobWorker, OrderError, Ranks, ShuffleSpec, World,
};
use percolator::reader::ReaderError;
use percolator::record::{RecordId, StepEnd};
use percolator::source::{ImageList, IndexPlace, LevelDb, Lmdb, Source, SourceError};
use percolator::transform::CaffeEra;
use percolator::{
    ColorMode, Device, Epochs, Feed, FeedBuilder, FeedError, LastBatch, Seed, Shuffle, Transform,
};
use proptest::prelude::*;

use crate::common;
use crate::common::process::must_end;
use crate::common::source::MemorySource;

/// What a lane delivered at a step.
type Given = (Option<StepEnd>, Vec<RecordId>);

fn hosts(feed: FeedBuilder, lanes: usize) -> FeedBuilder {
    feed.devices((0..lanes).map(Device::host))
}

fn feed(source: MemorySource, lanes: usize) -> FeedBuilder {
    hosts(Feed::builder().source(source), lanes)
}

/// Everything that the lanes of a feed deliver, step by step; checks that each image is its record's.
fn given(feed: FeedBuilder) -> Vec<Vec<Given>> {
    let mut feed = feed.build().unwrap();
    let steps = feed.steps().map(|step| {
        let of_lane = |batch: percolator::Batch| {
            let pixels = batch.pixels::<f32>().unwrap();
            let each = 4;
            for (record, pixels) in batch.records().iter().zip(pixels.chunks(each)) {
                let due = image(record.index);
                assert!(pixels.iter().zip(&due).all(|(found, due)| *found == f32::from(*due)), "{record}");
            }
            assert_eq!(batch.len(), batch.mask().filter(|&is_record| is_record).count());
            assert_eq!(batch.is_empty(), batch.records().is_empty());
            assert_eq!(pixels.len(), batch.shape().records * each);
            (batch.step(), batch.records().to_vec())
        };
        step.unwrap().into_iter().map(of_lane).collect()
    });
    steps.collect()
}

/// The pixels of a record of `MemorySource::images`, 1x2x2.
fn image(index: u64) -> [u8; 4] {
    std::array::from_fn(|at| common::pixel(usize::try_from(index).unwrap(), at))
}

fn images(records: usize) -> MemorySource {
    MemorySource::images("epochs", records, 1, 2, 2)
}

/// What a plan assigns to these replicas.
fn due(job: &Job, replicas: std::ops::Range<usize>, epochs: u64) -> Vec<Vec<Given>> {
    let plan = job.plan().unwrap();
    let of_epoch = |epoch| {
        let steps = plan.steps(epoch).unwrap();
        let (plan, replicas) = (&plan, replicas.clone());
        (0..steps).map(move |step| {
            let end = StepEnd { epoch, step, is_last: step + 1 == steps };
            let share = |replica| (Some(end), plan.share(epoch, step, replica).unwrap().collect());
            replicas.clone().map(share).collect()
        })
    };
    (0..epochs).flat_map(of_epoch).collect()
}

#[test]
fn an_epoch_has_every_record_once_and_ends() {
    must_end("epochs of a feed", || {
        let steps = given(feed(images(10), 2).batch_size(3).epochs(2));
        let sizes: Vec<Vec<usize>> =
            steps.iter().map(|step| step.iter().map(|(_, ids)| ids.len()).collect()).collect();
        assert_eq!(sizes, [[3, 3], [3, 1], [3, 3], [3, 1]]);
        let ends: Vec<_> = steps.iter().map(|step| step[0].0.unwrap()).collect();
        assert_eq!(
            ends.iter().map(|end| (end.epoch, end.step, end.is_last)).collect::<Vec<_>>(),
            [(0, 0, false), (0, 1, true), (1, 0, false), (1, 1, true)]
        );
        assert_eq!(steps[1][1].1, [RecordId { epoch: 0, index: 9 }]);
    });
}

#[test]
fn a_lane_that_gets_nothing_gets_an_empty_batch_of_the_right_shape() {
    must_end("an empty batch", || {
        let mut feed = feed(images(9), 3).batch_size(BatchSize::Global(8)).epochs(1).build().unwrap();
        let steps: Vec<Vec<_>> = feed.steps().map(|step| step.unwrap()).collect();
        assert_eq!(steps.len(), 2);
        let lens: Vec<usize> = steps[1].iter().map(percolator::Batch::len).collect();
        assert_eq!(lens, [1, 0, 0]);
        let shape = steps[1][2].shape();
        assert_eq!((shape.records, shape.image), (0, feed.batch_shape().image));
        assert!(steps[1][2].is_empty() && steps[1][2].labels().unwrap().is_empty());
        assert_eq!(feed.stats().lanes[2].records, 2);
    });
}

#[test]
fn one_lane_alone_gets_what_it_gets_among_the_others() {
    must_end("feeds of one lane each", || {
        let both =
            |records| feed(images(records), 3).batch_size(2).seed(5).shuffle(Shuffle::Global).epochs(2);
        for records in [11, 13] {
            let together = given(both(records));
            // One after the other: none waits for another.
            for lane in 0..3 {
                let alone: Vec<Given> = given(both(records).only_lane(lane).unwrap()).concat();
                let among: Vec<Given> = together.iter().map(|step| step[lane].clone()).collect();
                assert_eq!(alone, among, "lane {lane} of {records} records");
            }
        }
        let world = World::new(2, 4).unwrap();
        let worker = || feed(images(13), 2).batch_size(2).share(JobWorker { world, number: 1 }).epochs(1);
        let second: Vec<Given> = given(worker()).into_iter().map(|mut step| step.remove(1)).collect();
        assert_eq!(given(worker().only_lane(1).unwrap()).concat(), second);
        // In round-robin order as well.
        let dealt = || feed(images(13), 2).batch_size(2).epochs(Epochs::OnePass);
        let second: Vec<Given> = given(dealt()).into_iter().filter_map(|step| step.get(1).cloned()).collect();
        assert_eq!(given(dealt().only_lane(1).unwrap()).concat(), second);
        let error = worker().only_lane(2).unwrap_err().to_string();
        assert!(error.contains("lane") && error.contains('2'), "{error}");
    });
}

#[test]
fn a_padded_batch_is_as_large_as_any_other_and_says_what_is_real() {
    must_end("a padded batch", || {
        let mut feed = feed(images(7), 2)
            .batch_size(BatchSize::Global(6))
            .last_batch(LastBatch::Pad)
            .epochs(1)
            .build()
            .unwrap();
        let steps: Vec<Vec<_>> = feed.steps().map(|step| step.unwrap()).collect();
        for batch in steps.iter().flatten() {
            assert_eq!((batch.shape().records, batch.labels().unwrap().len()), (3, 3));
        }
        let [short, empty] = &steps[1][..] else { panic!() };
        assert_eq!(short.mask().collect::<Vec<_>>(), [true, false, false]);
        assert_eq!((short.len(), empty.len()), (1, 0));
        assert!(short.pixels::<f32>().unwrap()[4..].iter().all(|&pixel| pixel == 0.0));
        assert!(empty.pixels::<f32>().unwrap().iter().all(|&pixel| pixel == 0.0));
        assert_eq!((&short.labels().unwrap()[1..], empty.labels().unwrap()), (&[0, 0][..], &[0, 0, 0][..]));
    });
}

#[test]
fn a_shuffle_of_a_database_is_that_of_its_records_wherever_they_lie() {
    must_end("a shuffled database", || {
        let data =
            |name: &str| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden").join(name);
        let read = |source: std::sync::Arc<dyn Source>| {
            let mut feed =
                hosts(Feed::builder().source(Shared(source)), 2).batch_size(5).shuffle(Shuffle::Global);
            feed = feed.seed(7).epochs(1).index(IndexPlace::Memory);
            let mut feed = feed.build().unwrap();
            let batches = feed.steps().flat_map(Result::unwrap);
            batches
                .map(|batch| {
                    (batch.records().to_vec(), batch.bytes().to_vec(), batch.labels().unwrap().to_vec())
                })
                .collect::<Vec<_>>()
        };
        let from_lmdb = read(std::sync::Arc::new(Lmdb::open(data("raw_lmdb")).unwrap()));
        for name in ["raw_leveldb_log", "raw_leveldb_ldb"] {
            assert!(read(std::sync::Arc::new(LevelDb::open(data(name)).unwrap())) == from_lmdb, "{name}");
        }
        let mut seen: Vec<u64> =
            from_lmdb.iter().flat_map(|(ids, ..)| ids.iter().map(|id| id.index)).collect();
        assert!(!seen.is_sorted());
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..64));
    });
}

/// The last step of the first epoch has records of the second one, and the first step of that goes on there.
#[test]
fn the_end_of_an_epoch_that_wraps_reads_nothing_ahead() {
    must_end("two epochs that wrap", || {
        let source = MemorySource::images("wraps", 10, 1, 4, 4);
        let probe = source.probe();
        let feed = feed(source, 1).batch_size(8).last_batch(LastBatch::Wrap).epochs(2).resolve().unwrap();
        let before = probe.reads();
        let feed = feed.launch().unwrap();
        assert_eq!(feed.into_iter().map(|batch| batch.unwrap().len()).sum::<usize>(), 24);
        assert_eq!(probe.reads() - before, 24);
    });
}

/// A source whose ownership is shared with the test.
#[derive(Debug)]
struct Shared(std::sync::Arc<dyn Source>);

impl Source for Shared {
    fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    fn records(&self) -> Option<u64> {
        self.0.records()
    }

    fn cursor(&self) -> Result<Box<dyn percolator::source::Cursor>, SourceError> {
        self.0.cursor()
    }

    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.0.index(place)
    }

    fn is_seekable(&self) -> bool {
        self.0.is_seekable()
    }
}

#[test]
fn a_list_that_begins_further_down_is_read_from_its_first_line() {
    must_end("a list of images", || {
        let folder = tempfile::tempdir().unwrap();
        let images = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data/images");
        let names = ["420.jpg", "422.jpg", "exif_6.jpg", "444_restart_progressive.jpg"];
        let lines: String = (0..).zip(names).map(|(label, name)| format!("{name} {label}\n")).collect();
        let list = folder.path().join("list.txt");
        std::fs::write(&list, lines).unwrap();
        let source = ImageList::open(&list).unwrap().relative_to(&images).skipping(1).unwrap();
        let transform = Transform::new().color(ColorMode::Color).resize(8, 8);
        let feed = hosts(Feed::builder().source(source), 1).batch_size(3).transform(transform).epochs(2);
        let mut feed = feed.build().unwrap();
        let lane = feed.take_lanes().unwrap().remove(0);
        let labels: Vec<Vec<i32>> = lane.map(|batch| batch.unwrap().labels().unwrap().to_vec()).collect();
        assert_eq!(labels, [&[0, 1, 2][..], &[3], &[0, 1, 2], &[3]]);
    });
}

/// Random numbers depend on the replica's place in the job, not on the lane's place in its feed.
#[test]
fn workers_with_one_seed_draw_as_one_feed_of_all_replicas() {
    must_end("workers of a job in Caffe's sequence", || {
        let builder = |lanes| {
            let feed = feed(MemorySource::images("drawn", 24, 3, 16, 16), lanes).batch_size(3);
            let transform = Transform::new().crop(5).mirror(true);
            feed.transform(transform)
                .seed(Seed::Caffe { seed: 1701, era: CaffeEra::Today })
                .shuffle(Shuffle::Global)
                .epochs(2)
        };
        let bytes = |builder: FeedBuilder| -> Vec<Vec<(Vec<RecordId>, Vec<u8>)>> {
            let mut feed = builder.build().unwrap();
            let of_lane = |batch: percolator::Batch| (batch.records().to_vec(), batch.bytes().to_vec());
            let steps = feed.steps().map(|step| step.unwrap().into_iter().map(of_lane).collect());
            steps.collect()
        };
        let together = bytes(builder(4).assignment(Assignment::Caffe).last_batch(LastBatch::Drop));
        for worker in 0..2 {
            let alone = builder(2).assignment(Assignment::Caffe).last_batch(LastBatch::Drop);
            let alone = bytes(alone.share(JobWorker { world: World::new(2, 4).unwrap(), number: worker }));
            let due: Vec<_> = together.iter().map(|step| step[2 * worker..2 * worker + 2].to_vec()).collect();
            assert!(alone == due, "worker {worker}");
        }
    });
}

#[test]
fn windows_of_bytes_are_windows_of_as_many_records_as_fill_them() {
    must_end("windows of bytes", || {
        let record = common::image(0, 1, 2, 2).1.len() as u64;
        let describe = || feed(images(40), 1).batch_size(40).epochs(2);
        let order =
            |feed: FeedBuilder| given(feed).concat().into_iter().flat_map(|(_, ids)| ids).collect::<Vec<_>>();
        let by_records = |records| {
            order(
                describe().shuffle(Shuffle::Window { records: std::num::NonZeroU64::new(records).unwrap() }),
            )
        };
        assert_eq!(order(describe().shuffle(ShuffleSpec::WindowsOfBytes(7 * record + 3))), by_records(7));
        assert_eq!(order(describe().shuffle(ShuffleSpec::WindowsOfBytes(1))), by_records(1));
        assert_ne!(by_records(7), by_records(1));
    });
}

#[test]
fn a_consumer_that_leaves_takes_nothing_from_the_others() {
    must_end("a lane that left", || {
        let mut feed = feed(images(20), 2).batch_size(2).epochs(2).build().unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        drop(lanes.pop());
        let seen: Vec<u64> =
            lanes.remove(0).flat_map(|batch| batch.unwrap().records().to_vec()).map(|id| id.index).collect();
        let due: Vec<u64> = (0..20).filter(|index| index % 4 < 2).collect();
        assert_eq!(seen, [&due[..], &due[..]].concat());
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_feed_gives_what_its_plan_says(
        records in 1_usize..40, workers in 1_usize..4, lanes in 1_usize..4, size in 1_usize..7,
        is_global: bool, policy in 0_usize..3,
        is_caffe: bool, last in 0_usize..4, shuffle in 0_usize..3, seed: u64, threads in 1_usize..4,
        prefetch in 1_usize..4,
    ) {
        let world = World::new(workers, workers * lanes).unwrap();
        let (is_global, is_caffe) = (is_global && !is_caffe, is_caffe && policy == 0);
        let policy = [AutoShardPolicy::Data, AutoShardPolicy::Off, AutoShardPolicy::Hint][policy];
        let assignment = if is_caffe { Assignment::Caffe } else { Assignment::TensorFlow };
        let last = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad, LastBatch::Wrap][last];
        let window = Shuffle::Window { records: std::num::NonZeroU64::new(7).unwrap() };
        let shuffle = [Shuffle::No, Shuffle::Global, window][shuffle];
        let batch =
            if is_global { BatchSize::Global(size as u64) } else { BatchSize::PerReplica(size as u64) };
        let job =
            Job::new([records as u64], batch, world).policy(policy).assignment(assignment).last_batch(last);
        let job = job.shuffle(shuffle).seed(seed);
        let plan = job.plan();
        prop_assume!(plan.as_ref().is_ok_and(|plan| plan.steps(0).unwrap() > 0));
        for worker in 0..workers {
            let builder = feed(images(records), lanes)
                .policy(policy)
                .assignment(assignment)
                .last_batch(last)
                .shuffle(shuffle);
            let builder = builder.seed(seed).share(JobWorker { world, number: worker }).epochs(2);
            let builder = builder.threads(threads).prefetch(prefetch).batch_size(batch);
            let found = must_end("a feed of a random job", move || given(builder));
            prop_assert_eq!(found, due(&job, world.replicas_of(worker).unwrap(), 2));
        }
    }
}

#[test]
fn what_is_no_job_is_refused_before_anything_starts() {
    let refusal = |builder: FeedBuilder| builder.build().unwrap_err();
    let world = World::new(2, 4).unwrap();
    let order = |error| FeedError::Config(ConfigError::Order(error));
    assert_eq!(
        refusal(feed(images(10), 2).epochs(0).share(JobWorker { world, number: 2 })),
        order(OrderError::NoSuchMember { kind: "worker", found: 2, of: 2 })
    );
    assert_eq!(
        refusal(feed(images(10), 3).epochs(0).share(JobWorker { world, number: 1 })),
        FeedError::Config(ConfigError::Replicas { devices: 3, replicas: 2 })
    );
    let by_file = feed(images(10), 2).epochs(0).policy(AutoShardPolicy::File);
    assert_eq!(
        refusal(by_file.share(JobWorker { world, number: 1 })),
        order(OrderError::TooFewFiles { files: 1, workers: 2 })
    );
    assert_eq!(
        refusal(feed(images(10), 2).epochs(0).batch_size(6).last_batch(LastBatch::Drop)),
        FeedError::Config(ConfigError::NoSteps { records: 10, step_records: 12 })
    );
    let said = refusal(feed(images(10), 2).share(Ranks { first: 1, of: 4 }).epochs(1)).to_string();
    assert!(said.contains("leave the ranks out, or use share(JobWorker {"), "{said}");
    assert_eq!(
        refusal(feed(images(10), 2).share(Ranks { first: 1, of: 4 }).epochs(1)),
        FeedError::Config(ConfigError::RanksInPlan { first: 1, of: 4 })
    );
    let uneven = feed(images(10), 2).epochs(0).batch_size(BatchSize::Global(5)).assignment(Assignment::Caffe);
    assert_eq!(refusal(uneven), order(OrderError::UnevenBatch { records: 5, replicas: 2 }));
}

#[test]
fn a_source_that_has_fewer_records_than_it_said_is_an_error() {
    must_end("a source that lied", || {
        #[derive(Debug)]
        struct Boasting(MemorySource);
        impl Source for Boasting {
            fn path(&self) -> &std::path::Path {
                self.0.path()
            }

            fn records(&self) -> Option<u64> {
                Some(12)
            }

            fn cursor(&self) -> Result<Box<dyn percolator::source::Cursor>, SourceError> {
                self.0.cursor()
            }
        }
        let mut feed =
            hosts(Feed::builder().source(Boasting(images(10))), 1).batch_size(4).epochs(1).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        assert_eq!(lane.next().unwrap().unwrap().len(), 4);
        assert_eq!(lane.next().unwrap().unwrap().len(), 4);
        match lane.next().unwrap() {
            Err(FeedError::Reader(ReaderError::Source(error @ SourceError::Broken { index: 10, .. }))) => {
                assert!(error.to_string().contains("record 10: expected"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        assert!(lane.next().is_none());
    });
}

#[test]
fn of_two_lengths_the_one_that_is_set_last_counts() {
    let schedule = |feed: FeedBuilder| (feed.spec().schedule.epochs, feed.spec().schedule.once);
    let feed = || feed(images(7), 1);
    assert_eq!(schedule(feed()), schedule(feed().epochs(Epochs::default())));
    assert_eq!(schedule(feed().epochs(2).epochs(Epochs::RoundRobin)), (None, false));
    assert_eq!(schedule(feed().epochs(2).epochs(Epochs::OnePass)), (None, true));
    assert_eq!(schedule(feed().epochs(Epochs::OnePass).epochs(Epochs::RoundRobin)), (None, false));
    assert_eq!(schedule(feed().epochs(Epochs::OnePass).epochs(Epochs::Number(2))), (Some(2), false));
    assert_eq!(schedule(feed().epochs(3).epochs(0)), (Some(0), false));
}

/// Plain data can say both.
#[test]
fn one_pass_and_another_number_of_epochs_contradict_each_other() {
    let of_spec = |epochs| {
        let mut spec = feed(images(7), 1).spec().clone();
        (spec.schedule.once, spec.schedule.epochs) = (true, Some(epochs));
        FeedBuilder::from(spec).source(images(7))
    };
    for epochs in [0, 2] {
        let error = of_spec(epochs).build().unwrap_err();
        assert_eq!(error, FeedError::Config(ConfigError::OnceAndEpochs { epochs }));
    }
    must_end("one pass, said twice", move || {
        for feed in [of_spec(1), of_spec(1).shuffle(Shuffle::Global).last_batch(LastBatch::Keep)] {
            let mut feed = feed.build().unwrap();
            assert!(feed.plan().is_some());
            assert_eq!(feed.steps().map(|step| step.unwrap()[0].len()).sum::<usize>(), 7);
        }
    });
}

/// One layer, one phase, one database: of one [registry](percolator::Registry), such readers would be one.
#[test]
fn two_feeds_of_one_database_at_once_each_have_every_record() {
    must_end("two feeds of one database", || {
        let database = common::repository().join("tests/data/golden/raw_lmdb");
        let feed = || Feed::builder().lmdb(&database).epochs(Epochs::OnePass).build().unwrap();
        let (mut one, mut other) = (feed(), feed());
        let mut seen = [Vec::new(), Vec::new()];
        for (one, other) in one.steps().zip(other.steps()) {
            for (seen, step) in seen.iter_mut().zip([one, other]) {
                seen.extend(step.unwrap()[0].records().iter().map(|record| record.index));
            }
        }
        let records = one.records().unwrap();
        assert_eq!(seen, [(); 2].map(|()| (0..records).collect::<Vec<_>>()));
    });
}
