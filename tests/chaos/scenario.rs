//! A scenario: a feed, how it is consumed, what goes wrong, and as what it resumes; all of it drawn from one
//! seed.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU64;

use percolator::bad::{BadAction, BadRecords};
use percolator::order::Assignment;
use percolator::source::{Access, Matching};
use percolator::{LastBatch, Shuffle};
use percolator_chaos::{Effect, Fault, Faults, Place, Reach};

use crate::common::lmdb_forge::Numbers;
use crate::stores::{Coding, KINDS, Kind};

/// How records are dealt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Order {
    /// Caffe's order, for this many batches of each lane.
    RoundRobin { batches: usize },
    /// One pass in Caffe's order.
    Once,
    /// A plan.
    Plan { epochs: u64, shuffle: Shuffle, last: LastBatch, assignment: Assignment },
}

/// The processes of a job, the lanes of each, and the records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// Each has a feed of its own.
    pub workers: usize,
    pub lanes: usize,
    pub size: usize,
    /// What happens to the last records of an epoch, if that is another rule than the order's.
    pub last: Option<LastBatch>,
}

impl Job {
    pub(crate) fn replicas(self) -> usize {
        self.workers * self.lanes
    }

    /// The records of a step.
    pub(crate) fn step(self) -> usize {
        self.replicas() * self.size
    }
}

/// Who takes the batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consumer {
    /// A thread for each lane.
    Lanes,
    /// One thread, step by step.
    Steps,
    /// One thread that polls all lanes.
    Polls,
    /// One thread that waits for a millisecond at a time.
    Waits,
    /// One task, to which lanes are streams. Without the feature `stream`, they are polled.
    Streams,
}

/// What is done to an image of a Datum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// A crop of its centre, less the mean, scaled.
    Centre,
    /// The same of a crop that is drawn, and perhaps mirrored.
    Random,
}

/// Steps that are handed out block by block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandedOut {
    /// The steps of a block, at most.
    pub steps: u64,
    /// Whether the blocks of the last epoch come first.
    pub is_reversed: bool,
    /// The blocks after which no more are to be had, in the feed that faults strike.
    pub fail_after: Option<usize>,
}

/// Everything that is drawn.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub seed: u64,
    pub kind: Kind,
    pub coding: Coding,
    pub access: Access,
    pub records: usize,
    pub job: Job,
    /// The threads of a feed; `None` if it chooses them.
    pub threads: Option<usize>,
    pub prefetch: usize,
    pub order: Order,
    pub consumer: Consumer,
    /// A second array from a second store, read in step.
    pub has_target: bool,
    /// How the second store's records are matched.
    pub matching: Matching,
    /// What is done to each image.
    pub change: Change,
    /// The weights of the files of a plan's joined data set, if they are mixed.
    pub mix: Option<[u64; 3]>,
    pub has_receipts: bool,
    /// What is done with records that cannot be used.
    pub(crate) bad: BadAction,
    /// Whether the feed is paused and has other threads on the way.
    pub is_controlled: bool,
    /// The steps after which it is cut and resumed, faults or not.
    pub cut: Option<usize>,
    /// Whether a stuck feed is cancelled, and not released.
    pub cancels: bool,
    /// Whether faults may strike while it is built.
    pub is_armed_early: bool,
    /// They strike the first worker, and there its first lane.
    pub faults: Faults,
    /// Only a plan's. No feed has all of the steps then, and none takes a snapshot.
    pub blocks: Option<HandedOut>,
    /// The records that are bad for everybody, always.
    pub worn: Vec<u64>,
    pub at_most: Option<u64>,
    pub at_most_rate: f64,
    /// Whether a file names bad records.
    pub has_quarantine: bool,
    /// The other job as which it resumes.
    pub resumes_as: Option<Job>,
    /// Whether the faults strike once more then.
    pub strikes_again: bool,
}

impl Scenario {
    pub(crate) fn drawn(seed: u64) -> Self {
        let mut draws = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let kind = draws.of(&KINDS);
        let coding = match kind {
            Kind::Images => Coding::Datum,
            _ => draws.of(&[Coding::Datum, Coding::Checked]),
        };
        let records = draws.of(&[1, 2, 5, 13, 30, 60, 150]);
        let records = if kind == Kind::Joined { records.max(3) } else { records };
        let (lanes, size) = (1 + draws.below(3), 1 + draws.below(9));
        let order = order(&mut draws, records >= lanes * size);
        let is_planned = matches!(order, Order::Plan { .. });
        let workers = if draws.below(3) == 0 { 2 + draws.below(2) } else { 1 };
        // All of them must have the records of a step.
        let workers = if records >= 3 * lanes * size { workers } else { 1 };
        let reach = Reach::records(records as u64).and_batches(12);
        let drawn = Scenario {
            seed,
            kind,
            coding,
            access: draws.of(&[Access::Mapped, Access::Read]),
            records,
            job: Job { workers, lanes, size, last: None },
            threads: Some(1 + draws.below(4)),
            prefetch: 1 + draws.below(4),
            order,
            consumer: draws.of(&[Consumer::Lanes, Consumer::Steps, Consumer::Polls, Consumer::Waits]),
            has_target: coding == Coding::Datum && kind != Kind::Images && draws.below(4) == 0,
            matching: Matching::Order,
            change: Change::Nothing,
            mix: None,
            has_receipts: is_planned && draws.below(2) == 0,
            bad: draws.of(&[BadAction::Fail, BadAction::Fail, BadAction::Skip, BadAction::Replace]),
            is_controlled: draws.below(3) == 0,
            cut: (draws.below(3) == 0).then(|| draws.below(6)),
            cancels: draws.below(3) == 0,
            is_armed_early: draws.below(3) > 0,
            faults: if draws.below(8) == 0 { Faults::none() } else { Faults::drawn(seed, reach) },
            blocks: None,
            worn: Vec::new(),
            at_most: None,
            at_most_rate: 1.0,
            has_quarantine: false,
            resumes_as: None,
            strikes_again: false,
        };
        drawn.and_more(&mut draws)
    }

    /// Draws the rest. What was drawn before it stays what it was of old for each seed, mostly.
    fn and_more(mut self, draws: &mut Numbers) -> Self {
        if draws.below(5) == 0 {
            self.consumer = Consumer::Streams;
        }
        if let (Order::Plan { .. }, 0) = (self.order, draws.below(4)) {
            self.blocks = Some(HandedOut {
                steps: 1 + draws.below(4) as u64,
                is_reversed: draws.below(2) == 0,
                fail_after: (draws.below(3) == 0).then(|| draws.below(5)),
            });
        }
        if self.bad != BadAction::Fail {
            let worn = if draws.below(3) == 0 { 0 } else { draws.below(1 + (self.records / 3).min(14)) };
            let worn: BTreeSet<u64> = (0..worn).map(|_| draws.below(self.records) as u64).collect();
            self.worn = worn.into_iter().collect();
            self.at_most = (draws.below(3) == 0).then(|| draws.below(5) as u64);
            self.at_most_rate = draws.of(&[0.01, 0.01, 0.003, 1.0]);
            self.has_quarantine = draws.below(3) > 0;
        }
        // Without a good record nobody knows what a batch is.
        let torn = self.torn();
        if (0..self.records as u64).all(|record| torn.contains(&record) || self.worn.contains(&record)) {
            self.worn.clear();
        }
        if draws.below(3) > 0 && self.blocks.is_none() {
            self.resumes_as = self.other_job(draws);
            self.strikes_again = draws.below(3) == 0;
        }
        self.and_how_records_are_read(draws);
        self
    }

    fn and_how_records_are_read(&mut self, draws: &mut Numbers) {
        if self.kind == Kind::Gzip && draws.below(2) == 0 {
            self.kind = Kind::Zlib;
        }
        if self.coding == Coding::Checked && draws.below(3) == 0 {
            self.coding = Coding::Example;
        }
        if self.coding == Coding::Datum && !self.has_target {
            self.change = draws.of(&[Change::Nothing, Change::Centre, Change::Random]);
        }
        if draws.below(2) == 0 {
            self.matching = Matching::Keys;
        }
        if draws.below(5) == 0 {
            self.threads = None;
        }
        // There are no receipts of a mixture.
        if let (Order::Plan { .. }, Kind::Joined, true) = (self.order, self.kind, draws.below(2) == 0) {
            self.mix = Some(std::array::from_fn(|_| 1 + draws.below(4) as u64));
            self.has_receipts = false;
        }
        // A compressed file is read in order alone.
        if let (Kind::Gzip | Kind::Zlib, Order::Plan { shuffle, .. }) = (self.kind, &mut self.order) {
            self.blocks = None;
            if *shuffle != Shuffle::Files {
                *shuffle = Shuffle::No;
            }
        }
    }

    fn other_job(&self, draws: &mut Numbers) -> Option<Job> {
        let (workers, lanes, size) = (1 + draws.below(3), 1 + draws.below(3), 1 + draws.below(9));
        let workers = if self.records >= 3 * lanes * size { workers } else { 1 };
        let last = match self.order {
            Order::Plan { .. } if draws.below(2) == 0 => Some(draws.of(&LAST_BATCHES)),
            _ => None,
        };
        let job = Job { workers, lanes, size, last };
        let needs_a_step = matches!(self.last_batch(job), Some(LastBatch::Drop | LastBatch::Wrap));
        (job != self.job && (!needs_a_step || self.records >= job.step())).then_some(job)
    }

    /// What a job does with the last records of an epoch, if it has a plan.
    pub(crate) fn last_batch(&self, job: Job) -> Option<LastBatch> {
        match self.order {
            Order::Plan { last, .. } => Some(job.last.unwrap_or(last)),
            Order::RoundRobin { .. } | Order::Once => None,
        }
    }

    /// Whether the job that begins the run, or the one that ends it, does this with the last records.
    pub(crate) fn has_last_batch(&self, last: LastBatch) -> bool {
        std::iter::once(self.job).chain(self.resumes_as).any(|job| self.last_batch(job) == Some(last))
    }

    /// The records that are cut or damaged, so that the data set looks like another one.
    pub(crate) fn torn(&self) -> Vec<u64> {
        let tears = |fault: &&Fault| matches!(fault.effect, Effect::Cut(_) | Effect::Damage);
        self.faults.iter().filter(tears).filter_map(|fault| fault.number).collect()
    }

    /// What makes the worn ones bad.
    pub(crate) fn wear(&self) -> Vec<Fault> {
        let tear = |&number: &u64| {
            let record = Fault::record(number);
            if number % 2 == 0 { record.is_damaged() } else { record.is_cut_to(9) }
        };
        self.worn.iter().map(tear).collect()
    }

    /// What is done with bad records, without limits if they are off.
    pub(crate) fn bad_records(&self, has_limits: bool) -> BadRecords {
        let policy = match self.bad {
            BadAction::Skip => BadRecords::skip(),
            BadAction::Replace => BadRecords::replace(),
            _ => return BadRecords::fail(),
        };
        let policy = policy.at_most_rate(if has_limits { self.at_most_rate } else { 1.0 });
        match self.at_most {
            Some(most) if has_limits => policy.at_most(most),
            _ => policy,
        }
    }

    /// The only fault, if there is one alone.
    pub(crate) fn only_fault(&self) -> Option<&Fault> {
        if let [fault] = &self.faults.list[..] { Some(fault) } else { None }
    }

    /// Whether nothing else can be stuck than the source at a record, so that cancelling ends the feed.
    pub(crate) fn may_cancel(&self) -> bool {
        let sticks = |fault: &&Fault| fault.effect == Effect::Stick;
        let mut places = self.faults.iter().filter(sticks).map(|fault| fault.place);
        self.cancels && places.all(|place| place == Place::Record)
    }
}

/// All but the first two need the records of a step.
const LAST_BATCHES: [LastBatch; 4] = [LastBatch::Keep, LastBatch::Pad, LastBatch::Drop, LastBatch::Wrap];

fn order(draws: &mut Numbers, fills_a_step: bool) -> Order {
    match draws.below(4) {
        0 => Order::RoundRobin { batches: draws.below(20) },
        1 => Order::Once,
        _ => {
            let window = Shuffle::Window { records: NonZeroU64::new(7).expect("it is not 0") };
            let last = if fills_a_step { &LAST_BATCHES[..] } else { &LAST_BATCHES[..2] };
            Order::Plan {
                epochs: 1 + draws.below(3) as u64,
                shuffle: draws.of(&[Shuffle::No, Shuffle::Global, window, Shuffle::Files]),
                last: draws.of(last),
                assignment: draws.of(&[Assignment::TensorFlow, Assignment::Caffe]),
            }
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scenario of seed {}: {self:?}; faults: {}", self.seed, self.faults)
    }
}
