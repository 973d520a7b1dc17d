//! Any legal way through a feed (epochs, whole and in part, steps, seeks, resumes in the same world and in
//! another) gives what a plain list of its steps has, whatever the source knows about its records.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::num::NonZeroU64;
use std::path::Path;

use percolator::batch::Field;
use percolator::decoder::Decoded;
use percolator::feed::ConfigError;
use percolator::order::{
    Assignment, AutoShardPolicy, BatchSize, Job, JobWorker, OrderError, Plan, Ranks, World,
};
use percolator::record::{RecordId, StepEnd, StepId};
use percolator::snapshot::SnapshotError;
use percolator::source::{Cursor, FnSource, Record, Source, SourceError};
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::{
    BadRecords, Batch, DecodeFailure, Device, Dtype, Epochs, Feed, FeedBuilder, FeedError, LastBatch, Row,
    Shuffle, Snapshot,
};
use proptest::prelude::*;

use crate::common::process::must_end;
use crate::common::source::MemorySource;

/// Records at these places of the data set cannot be decoded, if there are bad ones.
fn is_bad(index: u64) -> bool {
    index % 7 == 3
}

/// What is read, and who knows how many records there are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The source knows, and reads in order only.
    Counted,
    /// Nobody knows before the end, in order only.
    Uncounted,
    /// The source knows, and seeks.
    Seekable,
    /// Nobody knows without an index.
    TfRecord,
}

/// A source that does not know its number of records.
#[derive(Debug)]
struct Uncounted(MemorySource);

impl Source for Uncounted {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn records(&self) -> Option<u64> {
        None
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.0.cursor()
    }
}

/// How the records of a step are divided.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Dealt {
    /// A batch for each replica, worker by worker.
    Batches(u64),
    /// A batch for all, in contiguous parts.
    Parts(u64),
    /// Record by record, this many for each.
    Turns(u64),
}

/// Who trains, and which of these the feed is for.
#[derive(Clone, Copy, Debug)]
struct Place {
    workers: usize,
    lanes: usize,
    /// The number of the worker. In round-robin order, its lanes are the ranks that a worker's replicas are.
    number: usize,
    size: u64,
    is_global: bool,
}

impl Place {
    fn replicas(self) -> usize {
        self.workers * self.lanes
    }

    fn own(self) -> std::ops::Range<usize> {
        self.number * self.lanes..(self.number + 1) * self.lanes
    }

    fn dealt(self, is_caffe: bool) -> Dealt {
        match (is_caffe, self.is_global) {
            (true, _) => Dealt::Turns(self.size),
            (false, true) => Dealt::Parts(self.size),
            (false, false) => Dealt::Batches(self.size),
        }
    }

    fn step_records(self, is_caffe: bool) -> u64 {
        match self.dealt(is_caffe) {
            Dealt::Parts(all) => all,
            Dealt::Batches(each) | Dealt::Turns(each) => each * self.replicas() as u64,
        }
    }
}

/// A feed's options but for its place.
#[derive(Clone, Debug)]
struct Options {
    kind: Kind,
    /// The records of one or two sources.
    files: Vec<u64>,
    weights: Vec<u64>,
    shuffle: Shuffle,
    seed: u64,
    /// Without a plan: Caffe's round-robin order.
    is_planned: bool,
    is_caffe: bool,
    last: LastBatch,
    /// 0 for no end. Without a plan, 1 is a single pass, and all else has no end.
    epochs: u64,
    skips_bad: bool,
    threads: usize,
    prefetch: usize,
}

impl Options {
    fn end(&self) -> Option<u64> {
        match self.is_planned {
            true => Some(self.epochs).filter(|&epochs| epochs > 0),
            false => (self.epochs == 1).then_some(1),
        }
    }

    fn deals_as_caffe(&self) -> bool {
        self.is_caffe || !self.is_planned
    }

    fn last(&self) -> LastBatch {
        match self.is_planned {
            true => self.last,
            // A single pass ends; otherwise passes follow each other within a batch.
            false if self.epochs == 1 => LastBatch::Keep,
            false => LastBatch::Wrap,
        }
    }

    /// The feed's sources.
    fn sources(&self, folder: &Path) -> FeedBuilder {
        let mut feed = Feed::builder();
        let mut first = 0;
        for (number, &records) in self.files.iter().enumerate() {
            let name = format!("file {number}");
            let values = (first..first + records).map(|index| vec![u8::try_from(index).unwrap()]);
            let memory = |values: Vec<Vec<u8>>| {
                let key = |number: usize| format!("{number:04}").into_bytes();
                let records = values.into_iter().enumerate().map(|(number, value)| (key(number), value));
                MemorySource::new(&name, records)
            };
            feed = match self.kind {
                Kind::Counted => feed.source(memory(values.collect())),
                Kind::Uncounted => feed.source(Uncounted(memory(values.collect()))),
                Kind::Seekable => feed.source(FnSource::new(name, records, move |position, value| {
                    value.push(u8::try_from(first + position).unwrap());
                    Ok(())
                })),
                Kind::TfRecord => {
                    let path = folder.join(&name);
                    let mut writer = TfRecordWriter::create(&path, Compression::Plain).unwrap();
                    values.for_each(|value| writer.write(&value).unwrap());
                    writer.finish().unwrap();
                    feed.tfrecord(path)
                }
            };
            first += records;
        }
        feed
    }

    /// The feed at a place.
    fn feed(&self, sources: &FeedBuilder, place: Place) -> FeedBuilder {
        let skips_bad = self.skips_bad;
        let decode = move |record: &Record<'_>, row: &mut Row<'_>| -> Decoded {
            match record.value[0] {
                index if skips_bad && is_bad(index.into()) => Err(DecodeFailure::new("a bad record")),
                index => Ok(row.set(0, index)?),
            }
        };
        let feed = sources.clone().decode([Field::scalar("index", Dtype::U8)], decode);
        let mut feed = feed.devices((0..place.lanes).map(Device::host)).seed(self.seed);
        feed = feed.threads(self.threads).prefetch(self.prefetch);
        if skips_bad {
            feed = feed.bad_records(BadRecords::skip().at_most_rate(1.0));
        }
        let size = usize::try_from(place.size).unwrap();
        if !self.is_planned {
            let feed = feed.share(Ranks { first: place.own().start, of: place.replicas() }).batch_size(size);
            return if self.epochs == 1 { feed.epochs(Epochs::OnePass) } else { feed };
        }
        let world = World::new(place.workers, place.replicas()).unwrap();
        feed = feed.share(JobWorker { world, number: place.number }).policy(AutoShardPolicy::Data);
        feed = feed.shuffle(self.shuffle).mix(self.weights.clone()).last_batch(self.last).epochs(self.epochs);
        if self.is_caffe {
            feed = feed.assignment(Assignment::Caffe);
        }
        match (place.is_global, self.is_caffe) {
            (false, _) => feed.batch_size(size),
            (true, false) => feed.batch_size(BatchSize::Global(place.size)),
            (true, true) => feed.batch_size(BatchSize::Global(place.size * place.replicas() as u64)),
        }
    }
}

/// A step of the list.
#[derive(Clone, Debug)]
struct Step {
    is_last: bool,
    /// The place of its first record in the stream of all epochs.
    begin: u64,
    /// The records of each of the feed's lanes.
    shares: Vec<Vec<RecordId>>,
}

/// What a step delivers: of each lane that has a batch, its number, the step and the records.
type Given = Vec<(usize, Option<StepEnd>, Vec<RecordId>)>;

/// The list of what there is, and where the feed is in it.
struct List {
    options: Options,
    place: Place,
    /// The order of the records in each epoch, one by one.
    one_by_one: Plan,
    epochs: Vec<Vec<Step>>,
    laid_out_from: u64,
    /// Whether steps are counted from the start, and the last batches may be missing.
    is_round_robin: bool,
    /// The step that comes next.
    next: StepId,
    /// The last epoch without a step that was iterated over since.
    empty: Option<u64>,
}

impl List {
    fn of(options: &Options, place: Place) -> Self {
        let job = Job::new(&*options.files, BatchSize::PerReplica(1), World::ALONE).seed(options.seed);
        let job = match options.is_planned {
            true => job.shuffle(options.shuffle).mix(&*options.weights),
            false => job,
        };
        let mut list = List {
            options: options.clone(),
            place,
            one_by_one: job.plan().unwrap(),
            epochs: Vec::new(),
            laid_out_from: 0,
            is_round_robin: !options.is_planned,
            next: StepId::default(),
            empty: None,
        };
        list.lay_out(0);
        list
    }

    /// The records of an epoch.
    fn records(&self) -> u64 {
        self.one_by_one.steps(0).unwrap()
    }

    fn step_records(&self) -> u64 {
        self.place.step_records(self.options.deals_as_caffe())
    }

    /// Lists the steps from a place in the stream of all epochs on, in which the first step begins.
    fn lay_out(&mut self, from: u64) {
        self.laid_out_from = from;
        // Far enough for the longest program, in steps that each take six epochs.
        let epochs = self.options.end().map_or(160, |end| end + 10);
        let (records, each) = (self.records(), self.step_records());
        self.epochs = (0..epochs).map(|_| Vec::new()).collect();
        let mut begin = from;
        while begin / records < epochs {
            let number = begin / records;
            let epoch_end = (number + 1) * records;
            let end = match self.options.last() {
                LastBatch::Wrap => begin + each,
                LastBatch::Drop if begin + each > epoch_end => {
                    begin = epoch_end;
                    continue;
                }
                _ => epoch_end.min(begin + each),
            };
            let is_last = match self.options.last() {
                LastBatch::Drop => end + each > epoch_end,
                _ => end >= epoch_end,
            };
            let step = Step { is_last, begin, shares: self.shares(begin, end) };
            self.epochs[usize::try_from(number).unwrap()].push(step);
            begin = end;
        }
        if self.is_round_robin {
            let mut steps = std::mem::take(&mut self.epochs).concat();
            if self.options.end().is_some() {
                steps
                    .retain(|step| step.begin < records && step.shares.iter().any(|share| !share.is_empty()));
            }
            self.epochs = vec![steps];
        }
    }

    fn shares(&self, begin: u64, end: u64) -> Vec<Vec<RecordId>> {
        let records = self.records();
        let id = |place: u64| {
            let mut share = self.one_by_one.share(place / records, place % records, 0).unwrap();
            share.next().unwrap()
        };
        let ids: Vec<RecordId> = (begin..end).map(id).collect();
        let Place { workers, lanes, .. } = self.place;
        let share = |replica: usize| -> Vec<RecordId> {
            let chunk = |number: usize, each: usize| ids.iter().skip(number * each).take(each).copied();
            match self.place.dealt(self.options.deals_as_caffe()) {
                Dealt::Turns(_) => ids.iter().skip(replica).step_by(workers * lanes).copied().collect(),
                Dealt::Parts(_) => chunk(replica, ids.len().div_ceil(workers * lanes)).collect(),
                Dealt::Batches(each) => {
                    let (worker, local) = (replica / lanes, replica % lanes);
                    chunk(local * workers + worker, usize::try_from(each).unwrap()).collect()
                }
            }
        };
        self.place.own().map(share).collect()
    }

    fn step(&self, id: StepId) -> Option<&Step> {
        self.epochs.get(usize::try_from(id.epoch).ok()?)?.get(usize::try_from(id.step).ok()?)
    }

    fn ends_before(&self, epoch: u64) -> bool {
        self.options.end().is_some_and(|end| epoch >= end)
    }

    /// The next step there is.
    fn normal(&self) -> StepId {
        let mut next = self.next;
        while !self.is_round_robin && self.step(next).is_none() {
            next = StepId { epoch: next.epoch + 1, step: 0 };
        }
        next
    }

    /// Takes the next step, if there is one.
    fn take(&mut self) -> Option<(Given, bool)> {
        let id = self.normal();
        if !self.is_round_robin && self.ends_before(id.epoch) {
            return None;
        }
        let Step { is_last, shares, .. } = self.step(id)?.clone();
        let lanes = shares.into_iter().enumerate();
        let given =
            lanes.filter(|(_, share)| !self.is_round_robin || !share.is_empty()).map(|(lane, share)| {
                let is_full = share.len() as u64 == self.place.size;
                let end = match self.is_round_robin {
                    true => is_full.then_some(StepEnd { epoch: 0, step: id.step, is_last: false }),
                    false => Some(StepEnd { epoch: id.epoch, step: id.step, is_last }),
                };
                let good = |id: &RecordId| !self.options.skips_bad || !is_bad(id.index);
                (lane, end, share.into_iter().filter(good).collect())
            });
        let given = given.collect();
        self.next = match is_last && !self.is_round_robin {
            true => StepId { epoch: id.epoch + 1, step: 0 },
            false => StepId { step: id.step + 1, ..id },
        };
        Some((given, is_last && !self.is_round_robin))
    }

    fn take_up_to(&mut self, steps: usize) -> Vec<Given> {
        (0..steps).map_while(|_| self.take()).map(|(given, _)| given).collect()
    }

    /// Takes batches of one epoch.
    fn epoch(&mut self, batches: usize) -> Result<Vec<Given>, FeedError> {
        if self.place.lanes > 1 {
            return Err(ConfigError::SeveralLanes { devices: self.place.lanes }.into());
        }
        let epoch = self.next.epoch.max(self.empty.map_or(0, |empty| empty + 1));
        let is_over = match self.is_round_robin {
            true => self.step(self.next).is_none(),
            false => self.ends_before(epoch),
        };
        if is_over {
            self.seek(StepId::default())?;
        } else if !self.is_round_robin && self.epochs[usize::try_from(epoch).unwrap()].is_empty() {
            self.empty = Some(epoch);
            return Ok(Vec::new());
        }
        let mut taken = Vec::new();
        while taken.len() < batches
            && let Some((given, is_last)) = self.take()
        {
            taken.push(given);
            if is_last {
                break;
            }
        }
        Ok(taken)
    }

    fn seek(&mut self, id: StepId) -> Result<(), FeedError> {
        let of_epoch = self.epochs.get(usize::try_from(id.epoch).unwrap()).map_or(0, Vec::len) as u64;
        let no_step = |steps| {
            let StepId { epoch, step } = id;
            let error = OrderError::NoSuchStep { epoch, step, steps };
            Err(FeedError::Snapshot(SnapshotError::Order(error)))
        };
        match self.is_round_robin {
            true if id.epoch > 0 => return no_step(0),
            false if self.ends_before(id.epoch) => return no_step(0),
            false if id.step >= of_epoch => return no_step(of_epoch),
            _ => {}
        }
        (self.next, self.empty) = (id, None);
        Ok(())
    }

    /// Resumes at this place, or another. `false` if that is refused.
    fn resume(&mut self, place: Place) -> bool {
        let is_caffe = self.options.deals_as_caffe();
        let of = |place: Place| (place.workers, place.lanes, place.dealt(is_caffe));
        // Round-robin order knows ranks alone.
        let of_ranks = |place: Place| (place.replicas(), place.size);
        let is_same = match self.options.is_planned {
            true => of(self.place) == of(place),
            false => of_ranks(self.place) == of_ranks(place),
        };
        if self.options.last() == LastBatch::Drop && place.step_records(is_caffe) > self.records() {
            return false;
        }
        let next = self.normal();
        let begin = self.step(next).map(|step| step.begin);
        (self.place, self.empty) = (place, None);
        if is_same {
            self.next = next;
            // It may be another worker's.
            self.lay_out(self.laid_out_from);
            return true;
        }
        let begin = begin.expect("programs go on in another world only where there is something left");
        let is_whole = begin.is_multiple_of(self.records());
        let has_rest = match self.options.last() {
            LastBatch::Wrap => begin > 0,
            _ => !is_whole,
        };
        self.is_round_robin &= !has_rest;
        self.lay_out(if has_rest { begin } else { 0 });
        let epoch = if self.is_round_robin { 0 } else { begin / self.records() };
        self.next = StepId { epoch, step: 0 };
        true
    }
}

/// A part of a program.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// This many batches of an epoch, or all.
    Epoch(Option<usize>),
    Steps(usize),
    Seek(u64, u64),
    Resume,
    /// Resumes in another world.
    Elsewhere(Place),
}

/// What a step gave; checks that each value is its record's.
fn given(step: Vec<Batch>) -> Given {
    let of_lane = |batch: Batch| {
        let values = &batch.get::<u8>("index").unwrap()[..batch.len()];
        let due = batch.records().iter().map(|id| u8::try_from(id.index).unwrap());
        assert!(values.iter().copied().eq(due), "{values:?} for {:?}", batch.records());
        (batch.lane(), batch.step(), batch.records().to_vec())
    };
    step.into_iter().map(of_lane).collect()
}

/// Runs a program on a feed and on the list.
fn run(options: &Options, place: Place, program: &[Op]) {
    let folder = tempfile::tempdir().unwrap();
    let sources = options.sources(folder.path());
    let built = options.feed(&sources, place).build();
    let is_possible = options.last() != LastBatch::Drop
        || place.step_records(options.deals_as_caffe()) <= List::of(options, place).records();
    if !is_possible {
        let error = built.unwrap_err();
        assert!(matches!(error, FeedError::Config(ConfigError::NoSteps { .. })), "{error}");
        return;
    }
    let mut feed = built.unwrap();
    let mut list = List::of(options, place);
    for (number, &op) in program.iter().enumerate() {
        let at = format!("at {number}, {op:?}, from {:?}", list.next);
        match op {
            Op::Epoch(batches) => {
                let is_endless = list.is_round_robin && options.end().is_none() && list.place.lanes == 1;
                let batches = batches.unwrap_or(usize::MAX);
                let due = match is_endless {
                    true => {
                        Err(ConfigError::NeedsEpochs { option: "epoch()", order: Epochs::RoundRobin }.into())
                    }
                    false => list.epoch(batches),
                };
                let found = feed.epoch().map(|epoch| {
                    epoch.take(batches).map(|batch| given(vec![batch.unwrap()])).collect::<Vec<_>>()
                });
                assert_eq!(found, due, "{at}");
            }
            Op::Steps(steps) => {
                let found: Vec<Given> = feed.steps().take(steps).map(|step| given(step.unwrap())).collect();
                assert_eq!(found, list.take_up_to(steps), "{at}");
            }
            Op::Seek(epoch, step) => {
                let id = StepId { epoch, step };
                assert_eq!(feed.seek(id), list.seek(id), "{at}");
            }
            Op::Resume | Op::Elsewhere(_) => {
                let place = match op {
                    // At the end, lanes of one pass may be at different steps.
                    Op::Elsewhere(place) if list.step(list.normal()).is_some() => place,
                    _ => list.place,
                };
                let snapshot: Snapshot = feed.snapshot().unwrap().to_string().parse().unwrap();
                let resumed = options.feed(&sources, place).resume(&snapshot).build();
                match list.resume(place) {
                    true => feed = resumed.unwrap(),
                    false => {
                        let error = resumed.unwrap_err();
                        assert!(matches!(error, FeedError::Config(ConfigError::NoSteps { .. })), "{error}");
                    }
                }
            }
        }
        if !list.is_round_robin {
            let next = feed.snapshot().unwrap().next(list.place.own().start);
            assert_eq!(next, Some(list.next), "{at}");
        }
    }
}

fn places() -> impl Strategy<Value = Place> {
    let lanes = prop_oneof![3 => Just(1_usize), 1 => 2..4_usize];
    (1..4_usize, lanes, 0..3_usize, 1..5_u64, any::<bool>()).prop_map(
        |(workers, lanes, number, size, is_global)| Place {
            // No step takes more than six epochs.
            workers: if lanes > 1 { workers.min(2) } else { workers },
            lanes,
            number: number % if lanes > 1 { workers.min(2) } else { workers },
            size: if lanes > 1 { size.min(3) } else { size },
            is_global,
        },
    )
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => prop::option::of(0..6_usize).prop_map(Op::Epoch),
        2 => (0..5_usize).prop_map(Op::Steps),
        2 => (0..4_u64, 0..6_u64).prop_map(|(epoch, step)| Op::Seek(epoch, step)),
        2 => Just(Op::Resume),
        1 => places().prop_map(Op::Elsewhere),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let kind = prop::sample::select(vec![Kind::Counted, Kind::Uncounted, Kind::Seekable, Kind::TfRecord]);
    let weights = prop::option::of((1..4_u64, 1..4_u64));
    let window = Shuffle::Window { records: NonZeroU64::new(3).unwrap() };
    let shuffle = prop::sample::select(vec![Shuffle::No, Shuffle::Global, window]);
    let last = prop::sample::select(vec![LastBatch::Keep, LastBatch::Drop, LastBatch::Pad, LastBatch::Wrap]);
    let files = (prop_oneof![Just(0_u64), 1..9_u64], 3..12_u64);
    let sizing = (1..4_usize, 1..4_usize);
    let order = (weights, shuffle, any::<u64>(), any::<bool>(), any::<bool>(), last);
    (kind, files, order, 0..4_u64, any::<bool>(), sizing).prop_map(
        |(kind, (one, other), order, epochs, skips_bad, (threads, prefetch))| {
            let (weights, shuffle, seed, is_planned, is_caffe, last) = order;
            let files: Vec<u64> = [one, other].into_iter().filter(|&records| records > 0).collect();
            let is_mixed = is_planned && files.len() == 2;
            let weights = weights.filter(|_| is_mixed).map_or(Vec::new(), |(one, other)| vec![one, other]);
            Options {
                kind,
                files,
                weights,
                shuffle,
                seed,
                is_planned,
                is_caffe,
                last,
                epochs,
                skips_bad,
                threads,
                prefetch,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_way_through_a_feed_gives_what_the_list_has(
        options in options(),
        place in places(),
        program in prop::collection::vec(ops(), 1..7),
    ) {
        must_end("a program of a feed", move || run(&options, place, &program));
    }
}
