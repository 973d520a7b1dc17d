//! Whatever can be built is read as it was written: the snapshot of any feed, and its receipt, however many
//! ranks it has, however large its numbers are, and however long its names.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::num::NonZeroU64;
use std::path::Path;

use percolator::batch::Field;
use percolator::decoder::Decoded;
use percolator::feed::{ConfigError, Receipts};
use percolator::order::{Assignment, AutoShardPolicy, BatchSize, JobWorker, Ranks, ShuffleSpec, World};
use percolator::record::StepId;
use percolator::snapshot::SnapshotError;
use percolator::source::{Cursor, FnSource, Identity, Record, Source, SourceError};
use percolator::transform::CaffeEra;
use percolator::{
    BadRecords, DecodeFailure, Device, Dtype, Epochs, Feed, FeedBuilder, FeedError, LastBatch, Receipt, Row,
    Seed, Shuffle, Snapshot,
};
use proptest::prelude::*;

use crate::common::process::must_end;
use crate::common::source::MemorySource;

/// Numbers of all sizes, and those around the limits.
fn numbers() -> impl Strategy<Value = u64> {
    let limit = prop::sample::select(vec![16_u32, 32, 43, 63]);
    let near = (limit, 0..3_u64).prop_map(|(bits, above)| (1_u64 << bits) - 1 + above);
    prop_oneof![4 => 0..60_u64, 2 => near, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

/// Who the feed is for.
#[derive(Clone, Debug)]
struct Place {
    lanes: usize,
    /// The ranks in round-robin order, or the workers of a plan.
    first: usize,
    of: usize,
    size: u64,
    is_global: bool,
}

fn places() -> impl Strategy<Value = Place> {
    let count = || prop_oneof![2 => (1..4_u64).boxed(), 1 => numbers().boxed()];
    let size = prop_oneof![3 => (1..40_u64).boxed(), 1 => numbers().boxed()];
    (1..3_usize, count(), count(), size, any::<bool>()).prop_map(|(lanes, first, of, size, is_global)| {
        let [first, of] = [first, of].map(|number| usize::try_from(number).unwrap());
        Place { lanes, first: first % of.max(1), of, size, is_global }
    })
}

#[derive(Clone, Debug)]
struct Options {
    name: String,
    files: Vec<u64>,
    weights: Vec<u64>,
    is_planned: bool,
    epochs: u64,
    is_once: bool,
    shuffle: Option<Shuffle>,
    window_bytes: Option<u64>,
    last: Option<LastBatch>,
    assignment: Option<Assignment>,
    policy: Option<AutoShardPolicy>,
    seed: u64,
    caffe: Option<u32>,
    receipts: u8,
    skips_bad: bool,
}

fn options() -> impl Strategy<Value = Options> {
    let files = prop::collection::vec(numbers(), 1..4);
    let weights = prop::option::weighted(0.3, prop::collection::vec(numbers(), 3));
    let window = numbers()
        .prop_map(|records| Shuffle::Window { records: NonZeroU64::new(records).unwrap_or(NonZeroU64::MIN) });
    let shuffle = prop_oneof![Just(Shuffle::No), Just(Shuffle::Global), Just(Shuffle::Files), window];
    let last = prop::sample::select(vec![LastBatch::Keep, LastBatch::Drop, LastBatch::Pad, LastBatch::Wrap]);
    let assignment = prop::sample::select(vec![Assignment::TensorFlow, Assignment::Caffe]);
    let policy = prop::sample::select(vec![
        AutoShardPolicy::Auto,
        AutoShardPolicy::File,
        AutoShardPolicy::Data,
        AutoShardPolicy::Off,
        AutoShardPolicy::Hint,
    ]);
    let order = (
        prop::option::of(shuffle),
        prop::option::weighted(0.1, numbers()),
        prop::option::of(last),
        prop::option::of(assignment),
        prop::option::of(policy),
    );
    let name = prop_oneof![".{0,40}", "(.|\n|\r){0,300}", "[a-z\n/]{4000}"];
    let random = (numbers(), prop::option::weighted(0.2, any::<u32>()), 0..3_u8, any::<bool>());
    ((name, files, weights), any::<bool>(), numbers(), any::<bool>(), order, random).prop_map(
        |((name, files, weights), is_planned, epochs, is_once, order, random)| {
            let (shuffle, window_bytes, last, assignment, policy) = order;
            let (seed, caffe, receipts, skips_bad) = random;
            let weights = weights.map_or(Vec::new(), |weights| weights[..files.len()].to_vec());
            Options {
                name,
                files,
                weights,
                is_planned,
                epochs: if is_once { 1 } else { epochs },
                is_once,
                shuffle,
                window_bytes,
                last,
                assignment,
                policy,
                seed,
                caffe,
                receipts: if is_planned { receipts } else { 0 },
                skips_bad,
            }
        },
    )
}

impl Options {
    fn feed(&self, place: &Place) -> FeedBuilder {
        let mut feed = Feed::builder().threads(1).prefetch(1).memory_limit(64 << 20).seed(self.seed);
        for (number, &records) in self.files.iter().enumerate() {
            let name = format!("{}{number}", self.name);
            feed = feed.source(FnSource::new(name, records, |position, value| {
                value.extend(position.to_le_bytes());
                Ok(())
            }));
        }
        let skips_bad = self.skips_bad;
        let decode = move |record: &Record<'_>, row: &mut Row<'_>| -> Decoded {
            match record.value[0] {
                index if skips_bad && index % 3 == 1 => Err(DecodeFailure::new("a bad record")),
                index => Ok(row.set(0, index)?),
            }
        };
        feed = feed.decode([Field::scalar("index", Dtype::U8)], decode);
        feed = feed.devices((0..place.lanes).map(Device::host));
        if skips_bad {
            feed = feed.bad_records(BadRecords::skip().at_most_rate(1.0));
        }
        if let Some(seed) = self.caffe {
            feed = feed.seed(Seed::Caffe { seed, era: CaffeEra::Today });
        }
        feed = feed.batch_size(match place.is_global {
            true => BatchSize::Global(place.size),
            false => BatchSize::PerReplica(place.size),
        });
        if !self.is_planned {
            feed = feed.epochs(if self.is_once { Epochs::OnePass } else { Epochs::RoundRobin });
            return feed.share(Ranks { first: place.first, of: place.of });
        }
        feed = feed.epochs(self.epochs).mix(self.weights.clone());
        feed = feed
            .receipts([Receipts::Off, Receipts::Positions, Receipts::Contents][usize::from(self.receipts)]);
        if let Ok(world) = World::new(place.of, place.of.saturating_mul(place.lanes)) {
            feed = feed.share(JobWorker { world, number: place.first });
        }
        if let Some(shuffle) = self.shuffle {
            feed = feed.shuffle(shuffle);
        }
        if let Some(bytes) = self.window_bytes {
            feed = feed.shuffle(ShuffleSpec::WindowsOfBytes(bytes));
        }
        if let Some(last) = self.last {
            feed = feed.last_batch(last);
        }
        if let Some(assignment) = self.assignment {
            feed = feed.assignment(assignment);
        }
        // With a stream for each, many workers take long to count.
        if let Some(policy) = self.policy.filter(|_| place.of < 64) {
            feed = feed.policy(policy);
        }
        feed
    }
}

/// Checks that what a feed writes is read, and returns its snapshot as it was read.
fn check(feed: &Feed, folder: &Path) -> Snapshot {
    let snapshot = feed.snapshot().unwrap();
    let text = snapshot.to_string();
    let read: Snapshot = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(read.to_string(), text);
    let path = folder.join("snapshot");
    snapshot.save(&path).unwrap();
    assert_eq!(Snapshot::load(&path).unwrap(), read);
    if let Some(receipt) = feed.receipt() {
        let text = receipt.to_string();
        let read: Receipt = text.parse().unwrap_or_else(|fault| panic!("{fault}\n{text}"));
        assert_eq!(read, receipt);
        let receipt_path = folder.join("receipt");
        snapshot.save_with_receipt(&path, &receipt, &receipt_path).unwrap();
        assert_eq!(Receipt::load(&receipt_path).unwrap(), receipt);
    }
    read
}

/// Returns how far it came: how many feeds were built.
fn run(options: &Options, places: &[Place; 2], seeks: &[(u64, u64)], steps: usize) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let Ok(mut feed) = options.feed(&places[0]).build() else { return 0 };
    check(&feed, folder.path());
    // A rank passes over the records of all others.
    let passed_over = places[0].size.saturating_mul(places[0].of as u64);
    for _ in 0..if options.is_planned || passed_over < 1 << 18 { steps } else { 0 } {
        // A far end of the plan is an error of its own.
        if feed.steps().next().is_none_or(|step| step.is_err()) {
            break;
        }
        check(&feed, folder.path());
    }
    let mut built = 1;
    for &(epoch, step) in seeks {
        let Ok(mut feed) = options.feed(&places[0]).build() else { panic!("it was built before") };
        if feed.seek(StepId { epoch, step }).is_err() {
            continue;
        }
        let snapshot = check(&feed, folder.path());
        if let Ok(resumed) = options.feed(&places[1]).resume(&snapshot).build() {
            check(&resumed, folder.path());
            built += 1;
        }
    }
    built
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_can_be_built_is_read_as_it_was_written(
        options in options(),
        places in [places(), places()],
        seeks in prop::collection::vec((numbers(), numbers()), 0..3),
        steps in 0..3_usize,
    ) {
        must_end("a feed that is written down", move || run(&options, &places, &seeks, steps));
    }
}

#[test]
fn more_ranks_than_a_snapshot_has_are_refused_before_the_run() {
    let feed = |of| {
        let source = MemorySource::images("ranks", 5, 1, 2, 2);
        Feed::builder().source(source).share(Ranks { first: 0, of }).memory_limit(64 << 20).build()
    };
    let folder = tempfile::tempdir().unwrap();
    check(&feed(65_536).unwrap(), folder.path());
    for found in [65_537, usize::MAX] {
        let error = feed(found).unwrap_err();
        let due = ConfigError::TooMany { option: "ranks", found, allowed: 65_536 };
        assert_eq!(error, FeedError::Config(due));
    }
}

/// A source that says a lot about itself.
#[derive(Debug)]
struct Talkative(MemorySource, usize);

impl Source for Talkative {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn records(&self) -> Option<u64> {
        self.0.records()
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.0.cursor()
    }

    fn identity(&self) -> Identity {
        Identity::new().with("talk", "x".repeat(self.1))
    }
}

/// Who takes no snapshot may run all the same, and a text of any length can be kept elsewhere.
#[test]
fn more_than_a_snapshots_file_can_say_is_an_error_of_whoever_saves_it() {
    let feed = |bytes| {
        let source = Talkative(MemorySource::images("talk", 5, 1, 2, 2), bytes);
        Feed::builder().source(source).epochs(1)
    };
    let folder = tempfile::tempdir().unwrap();
    check(&feed(1 << 20).build().unwrap(), folder.path());
    let mut talkative = feed(64 << 20).build().unwrap();
    assert_eq!(talkative.steps().map(|step| step.unwrap().len()).sum::<usize>(), 5);
    let snapshot = talkative.snapshot().unwrap();
    let error = snapshot.save(folder.path().join("snapshot")).unwrap_err();
    assert!(matches!(error, SnapshotError::TooLarge { allowed: 67_108_864, .. }), "{error}");
    assert!(error.to_string().contains("report less in Source::identity"), "{error}");
    assert_eq!(snapshot.to_string().parse::<Snapshot>().unwrap(), snapshot);
}
