//! Runs a scenario: its workers at the same time, with faults; what is left of it, as another job perhaps and
//! with the faults once more; and what is left then, without.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use percolator::bad::Quarantined;
use percolator::example::ExampleFields;
use percolator::feed::{Building, FeedHandle};
use percolator::order::{AutoShardPolicy, Block, JobWorker, Ranks, World};
use percolator::record::RecordId;
use percolator::source::{IndexPlace, Source as _};
use percolator::{
    DecodeFailure, Device, Dtype, Epochs, Feed, FeedBuilder, FeedError, Field, Receipt, Snapshot, Target,
};
use percolator_chaos::{Chaos, Effect, Faults};
use percolator_proof::Verdict;
use percolator_tfrecord::Reader;

use crate::blocks::{Listed, drawn_blocks};
use crate::consume::{Consuming, Seen};
use crate::limits::Count;
use crate::model::{self, Due, Torn};
use crate::scenario::{Consumer, Job, Order, Scenario};
use crate::stores::{BYTES, Coding, Stores, checksum, is_what_is_left_of};

/// What a worker's lanes got, and how they ended.
#[derive(Default)]
struct Leg {
    due: Due,
    lanes: Vec<Seen>,
    /// Why there is no feed.
    refused: Option<Refused>,
    snapshot: Option<Snapshot>,
    receipt: Option<Receipt>,
    budget_bytes: usize,
}

#[derive(Debug)]
enum Refused {
    Error(Box<FeedError>),
    Panic,
}

/// What was done of a scenario, and what is left.
#[derive(Default)]
struct Account {
    /// Where the next feeds go on; the beginning if there is none.
    snapshot: Option<Snapshot>,
    /// What the workers of this job are due; `None` if the feeds say so themselves.
    left: Option<(Job, Vec<Due>)>,
    /// What each replica had of its epoch.
    counts: Vec<Count>,
    delivered: Vec<RecordId>,
    bad: BTreeSet<u64>,
    receipts: Vec<Receipt>,
    /// The steps that all lanes of each worker had, block by block.
    steps: Vec<usize>,
    /// Whether a lane has had more steps than another one, which then come again.
    is_uneven: bool,
}

/// What the feeds of one scenario share.
struct Run<'a> {
    scenario: &'a Scenario,
    stores: &'a Stores,
    /// The file that names bad records.
    quarantine: &'a Path,
}

/// Feeds that run at one time.
struct Phase<'a> {
    run: &'a Run<'a>,
    job: Job,
    has_faults: bool,
    has_limits: bool,
    chaos: Chaos,
    /// Counts what belongs to the lanes that are not struck.
    calm: Chaos,
    handle: Mutex<Option<FeedHandle>>,
}

/// Makes the stores of a scenario, if they are not there yet.
pub(crate) fn open_stores(scenario: &Scenario, stores: &Stores) {
    let Scenario { kind, coding, records, access, .. } = *scenario;
    drop(stores.open(kind, coding, records, access, &Chaos::new(Faults::none())));
}

/// Runs a scenario, checks everything, and returns the most bytes that its feeds announced at a time.
pub(crate) fn run(scenario: &Scenario, stores: &Stores) -> usize {
    let quarantine = stores.quarantine(scenario.seed);
    let run = Run { scenario, stores, quarantine: &quarantine };
    let mut account = Account::default();
    let budget_bytes = run.all_phases(&mut account);
    run.check_quarantine(&account);
    budget_bytes
}

impl Run<'_> {
    fn all_phases(&self, account: &mut Account) -> usize {
        let s = self.scenario;
        let last = s.resumes_as.unwrap_or(s.job);
        let mut budget_bytes = self.phase(account, s.job, true, true).0;
        let is_like_another = !s.torn().is_empty() && s.is_armed_early;
        if is_like_another && account.left.is_some() {
            // Damaged bytes were sampled: the data set is not the one of the snapshot.
            return budget_bytes;
        }
        if s.strikes_again && !is_like_another {
            budget_bytes = budget_bytes.max(self.phase(account, last, true, true).0);
        }
        let (bytes, is_whole) = self.phase(account, last, false, true);
        budget_bytes = budget_bytes.max(bytes);
        if !is_whole {
            // Too many were bad: whoever looks after the run allows more.
            let (bytes, is_whole) = self.phase(account, last, false, false);
            budget_bytes = budget_bytes.max(bytes);
            assert!(is_whole, "the rest does not come");
        }
        if !account.is_uneven {
            model::check_once(s, &account.delivered);
            self.prove(account);
        }
        budget_bytes
    }

    /// Runs the feeds of a job at one time. Returns what they announced, and whether nothing is left.
    fn phase(&self, account: &mut Account, job: Job, has_faults: bool, has_limits: bool) -> (usize, bool) {
        let faults = if has_faults { self.scenario.faults.clone() } else { Faults::none() };
        let phase = Phase {
            run: self,
            job,
            has_faults,
            has_limits,
            chaos: Chaos::new(faults),
            calm: Chaos::new(Faults::none()),
            handle: Mutex::default(),
        };
        if !self.scenario.is_armed_early {
            phase.chaos.disarm();
        }
        let legs = phase.with_releaser(|| phase.all_workers(account));
        legs.iter().enumerate().for_each(|(worker, leg)| phase.check(leg, worker));
        // A reader that is left would hold its source and its cursor.
        phase.chaos.wait_until_gone();
        phase.calm.wait_until_gone();
        assert_eq!((phase.chaos.overwritten(), phase.calm.overwritten()), (0, 0));
        let budget_bytes = legs.iter().map(|leg| leg.budget_bytes).sum();
        let bad = legs.iter().flat_map(|leg| leg.lanes.iter().flat_map(|lane| lane.bad.iter().copied()));
        account.bad.extend(bad);
        // Without a feed of each worker, what the others had does not count.
        let is_accepted = legs.iter().all(|leg| leg.refused.is_none());
        (budget_bytes, is_accepted && account.accept(&phase, legs))
    }

    fn prove(&self, account: &Account) {
        let Order::Plan { epochs, .. } = self.scenario.order else { return };
        if account.receipts.is_empty() {
            return;
        }
        let verdict = Verdict::of(account.receipts.iter().map(|receipt| ("a leg", receipt))).unwrap();
        assert!(verdict.is_sound(), "{verdict:?}");
        assert!(verdict.first_not_covered(epochs).is_none(), "{verdict:?}");
    }

    /// Checks that the file names each bad record that came once, and nothing that was not torn. A record
    /// that is torn on the disk, and by a fault in one of the legs, has two forms, and is named in each that
    /// came.
    fn check_quarantine(&self, account: &Account) {
        let s = self.scenario;
        if !s.has_quarantine || !self.quarantine.exists() {
            return assert!(!s.has_quarantine || account.bad.is_empty(), "no file names {:?}", account.bad);
        }
        let calm = Chaos::new(Faults::none());
        let whole = |number: u64| -> Vec<u8> {
            let source = self.stores.open(s.kind, s.coding, s.records, s.access, &calm);
            let mut cursor = source.cursor().unwrap();
            (0..number).for_each(|_| assert!(cursor.skip().unwrap()));
            cursor.advance().unwrap().unwrap().value().to_vec()
        };
        let mut named = BTreeMap::<u64, BTreeSet<Vec<u8>>>::new();
        for entry in Quarantined::read(self.quarantine).unwrap() {
            let number = entry.number;
            let forms_max = usize::from(s.worn.contains(&number)) + usize::from(s.torn().contains(&number));
            assert!(is_what_is_left_of(&whole(number), &entry.value), "the bytes of record {number}");
            let forms = named.entry(number).or_default();
            assert!(forms.insert(entry.value), "record {number} is named twice");
            assert!(forms.len() <= forms_max, "record {number} has {} forms of {forms_max}", forms.len());
        }
        let is_named = |number: &u64| named.contains_key(number);
        assert!(account.bad.iter().all(is_named), "{:?} came, and {:?} are named", account.bad, named.keys());
        let mut reader = Reader::open(self.quarantine).unwrap();
        let entries = std::iter::from_fn(|| reader.advance().unwrap().map(drop));
        let forms: usize = named.values().map(BTreeSet::len).sum();
        assert_eq!(entries.count(), forms, "there is more than entries");
        drop(reader);
        std::fs::remove_file(self.quarantine).unwrap();
    }
}

impl Account {
    /// Takes in what the workers of a job had, and whether nothing is left.
    fn accept(&mut self, phase: &Phase<'_>, legs: Vec<Leg>) -> bool {
        let (job, scenario) = (phase.job, phase.run.scenario);
        // Damaged bytes that were sampled make it another data set, for one worker.
        let is_like_another = phase.has_faults && !scenario.torn().is_empty() && scenario.is_armed_early;
        let snapshots: Option<Vec<&Snapshot>> = match is_like_another {
            true => None,
            false => legs.iter().map(|leg| leg.snapshot.as_ref()).collect(),
        };
        self.snapshot =
            snapshots.map(|snapshots| Snapshot::join(snapshots).expect("the snapshots are of one run"));
        self.counts = legs.iter().flat_map(|leg| leg.lanes.iter().map(|lane| lane.count)).collect();
        self.receipts.extend(legs.iter().filter_map(|leg| leg.receipt.clone()));
        let mut left = Vec::new();
        self.steps.resize(legs.len(), 0);
        for (Leg { due, lanes, .. }, steps) in legs.iter().zip(&mut self.steps) {
            for (due, lane) in due.iter().zip(lanes) {
                self.delivered.extend(due[..lane.taken].iter().flat_map(|share| &share.records));
            }
            let together = lanes.iter().map(|lane| lane.taken).min().unwrap_or_default();
            *steps += together;
            let is_uneven = lanes.iter().any(|lane| lane.taken > together);
            self.is_uneven |= scenario.blocks.is_some() && is_uneven;
            let from = |lane: &Seen| if scenario.blocks.is_some() { together } else { lane.taken };
            left.push(due.iter().zip(lanes).map(|(due, lane)| due[from(lane)..].to_vec()).collect::<Due>());
        }
        let is_whole = left.iter().flatten().all(Vec::is_empty);
        self.left = Some((job, left));
        is_whole
    }

    /// The records that are to come, of those that the scenario asks for.
    fn missing(&self, scenario: &Scenario) -> usize {
        let all = model::all(scenario);
        let is_one = |id: &&RecordId| {
            let records = u128::from(id.epoch) * scenario.records as u128 + u128::from(id.index);
            records < all as u128
        };
        all - self.delivered.iter().filter(is_one).count()
    }
}

impl Phase<'_> {
    /// Does what it is told, while a thread releases whatever sticks, or cancels the feed first.
    fn with_releaser<T>(&self, act: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            scope.spawn(|| {
                self.chaos.wait_until_stuck();
                if let Some(handle) = self.handle.lock().unwrap().as_ref()
                    && self.run.scenario.may_cancel()
                {
                    // Its consumers see the end while the source is still stuck, and release it then.
                    return handle.cancel();
                }
                self.chaos.release();
            });
            let done = act();
            self.chaos.release();
            done
        })
    }

    fn all_workers(&self, account: &Account) -> Vec<Leg> {
        thread::scope(|scope| {
            let leg = |worker: usize| scope.spawn(move || self.leg(worker, account));
            let workers: Vec<_> = (0..self.job.workers).map(leg).collect();
            workers.into_iter().map(|worker| worker.join().expect("its checks hold")).collect()
        })
    }

    fn is_struck(&self, worker: usize) -> bool {
        self.has_faults && worker == 0
    }

    fn torn(&self, worker: usize) -> Torn {
        match (self.is_struck(worker), self.run.scenario.is_armed_early) {
            (false, _) => Torn::No,
            (true, false) => Torn::Perhaps,
            (true, true) => Torn::Yes,
        }
    }

    /// Runs the feed of one worker.
    fn leg(&self, worker: usize, account: &Account) -> Leg {
        let scenario = self.run.scenario;
        let is_struck = self.is_struck(worker);
        let chaos = if is_struck { &self.chaos } else { &self.calm };
        let builder = self.describe(worker, chaos, account);
        let builder = account.snapshot.iter().fold(builder, FeedBuilder::resume);
        // A source that panics at a record that is sampled, and a device that panics when it is asked for
        // memory, panic in `build`.
        let mut feed = match catch_unwind(AssertUnwindSafe(|| self.build(builder))) {
            Ok(Ok(feed)) => feed,
            Ok(Err(error)) => {
                return Leg { refused: Some(Refused::Error(Box::new(error))), ..Leg::default() };
            }
            Err(_) => return Leg { refused: Some(Refused::Panic), ..Leg::default() },
        };
        if is_struck {
            *self.handle.lock().unwrap() = Some(feed.handle());
            chaos.arm();
        }
        let due = self.due(worker, account, &feed);
        let (cut, torn) = (if self.has_faults { scenario.cut } else { None }, self.torn(worker));
        let counts = self.counts(worker, account, &feed);
        let lanes = Consuming {
            scenario,
            due: &due,
            counts,
            has_limits: self.has_limits,
            cut,
            torn,
            chaos: is_struck.then_some(chaos),
        }
        .consume(&mut feed);
        if is_struck {
            self.handle.lock().unwrap().take();
            chaos.release();
        }
        let (snapshot, receipt) = (feed.snapshot().ok(), feed.receipt());
        let budget_bytes = feed.memory_budget().total_bytes();
        Leg { due, lanes, refused: None, snapshot, receipt, budget_bytes }
    }

    fn build(&self, builder: FeedBuilder) -> Result<Feed, FeedError> {
        match self.run.scenario.consumer {
            Consumer::Streams => crate::common::tasks::block_on(Building::start(builder)),
            _ => builder.build(),
        }
    }

    /// What a worker's lanes are due.
    fn due(&self, worker: usize, account: &Account, feed: &Feed) -> Due {
        let scenario = self.run.scenario;
        match &account.left {
            Some((job, left)) if *job == self.job => left[worker].clone(),
            _ if scenario.blocks.is_some() => {
                let plan = feed.plan().unwrap();
                model::due_of_blocks(scenario, self.job, plan, &self.blocks(worker, account, plan))
            }
            _ => model::due(scenario, self.job, feed, worker, account.missing(scenario)),
        }
    }

    /// What a worker's lanes had of their epoch before.
    fn counts(&self, worker: usize, account: &Account, feed: &Feed) -> Vec<Count> {
        let replicas = worker * self.job.lanes..(worker + 1) * self.job.lanes;
        let Some(start) = account.snapshot.as_ref().map(|_| feed.snapshot().unwrap()) else {
            return vec![Count::default(); self.job.lanes];
        };
        let of = |replica| {
            let (counts, epoch) = (&account.counts, start.next(replica).unwrap().epoch);
            let own = counts.get(replica).filter(|_| counts.len() == self.job.replicas());
            let goes_on = account.left.as_ref().is_some_and(|(job, _)| *job == self.job);
            let own = own.filter(|own| goes_on || own.epoch <= epoch);
            own.copied().unwrap_or_else(|| Count::mean(counts, epoch))
        };
        replicas.map(of).collect()
    }

    /// The blocks that are left for a worker.
    fn blocks(&self, worker: usize, account: &Account, plan: &percolator::order::Plan) -> Vec<Block> {
        let done = account.steps.get(worker).copied().unwrap_or_default();
        drawn_blocks(self.run.scenario, plan, worker, done)
    }

    fn describe(&self, worker: usize, chaos: &Chaos, account: &Account) -> FeedBuilder {
        let (s, job) = (self.run.scenario, self.job);
        let worn = Chaos::new(s.wear());
        let source = chaos.source(self.run.stores.open(s.kind, s.coding, s.records, s.access, &worn));
        let device = |lane: usize| {
            let chaos = if lane == 0 { chaos } else { &self.calm };
            chaos.device(Device::host(lane))
        };
        let bad_records = s.bad_records(self.has_limits);
        let bad_records =
            if s.has_quarantine { bad_records.quarantine(self.run.quarantine) } else { bad_records };
        let feed = Feed::builder().source(source);
        let feed = feed.devices((0..job.lanes).map(device)).batch_size(job.size);
        let feed = s.threads.into_iter().fold(feed, FeedBuilder::threads);
        let feed = feed.prefetch(s.prefetch).receipts(s.has_receipts);
        let feed = feed.give_up_after(None).index(IndexPlace::Memory).bad_records(bad_records);
        let feed = match s.order {
            Order::Once => feed.epochs(Epochs::OnePass),
            Order::RoundRobin { .. } => feed,
            Order::Plan { epochs, shuffle, last, assignment } => {
                let last = job.last.unwrap_or(last);
                let feed = feed.epochs(epochs).shuffle(shuffle).last_batch(last).assignment(assignment);
                let feed = feed.seed(s.seed).policy(AutoShardPolicy::Data);
                let feed = s.mix.into_iter().fold(feed, FeedBuilder::mix);
                return self.decoded(match s.blocks {
                    None => feed.share(JobWorker {
                        world: World::new(job.workers, job.replicas()).unwrap(),
                        number: worker,
                    }),
                    Some(blocks) => {
                        let done = account.steps.get(worker).copied().unwrap_or_default();
                        let fail_after = blocks.fail_after.filter(|_| self.is_struck(worker));
                        feed.blocks(Listed::of(s, worker, done, fail_after))
                    }
                });
            }
        };
        self.decoded(feed.share(Ranks { first: worker * job.lanes, of: job.replicas() }))
    }

    fn decoded(&self, feed: FeedBuilder) -> FeedBuilder {
        let s = self.run.scenario;
        if s.coding == Coding::Datum {
            let feed = match model::transform(s.change) {
                Some((transform, phase)) => feed.transform(transform).phase(phase),
                None => feed,
            };
            if !s.has_target {
                return feed;
            }
            let targets = self.run.stores.open(s.kind, s.coding, s.records, s.access, &self.calm);
            return feed.target(Target::paired(targets, s.matching));
        }
        if s.coding == Coding::Example {
            let fields = format!("content:bytes[{BYTES}]");
            return feed.example(fields.parse::<ExampleFields>().expect("the fields are well formed"));
        }
        feed.decode([Field::new("content", Dtype::U8, [BYTES])], |record, row| {
            let wrong = || DecodeFailure::new(format!("{} bytes fail their checksum", record.value.len()));
            let (position, rest) = record.value.split_first_chunk::<8>().ok_or_else(wrong)?;
            let (sum, content) = rest.split_first_chunk::<8>().ok_or_else(wrong)?;
            let is_right = checksum(u64::from_le_bytes(*position), content) == u64::from_le_bytes(*sum);
            if !is_right || content.len() != BYTES {
                return Err(wrong());
            }
            row.write("content", content)?;
            Ok(())
        })
    }

    /// Checks how a worker's leg ended.
    fn check(&self, leg: &Leg, worker: usize) {
        let (scenario, is_struck) = (self.run.scenario, self.is_struck(worker));
        let explained = |error: &FeedError| {
            let by = |fault| model::explains(scenario, fault, error);
            is_struck && (scenario.faults.iter().any(by) || model::is_of_blocks(scenario, error))
        };
        match &leg.refused {
            Some(Refused::Error(error)) => {
                return assert!(explained(error), "no fault explains this: worker {worker}: {error}");
            }
            Some(Refused::Panic) => {
                let panics = scenario.faults.iter().any(|fault| fault.effect == Effect::Panic);
                return assert!(is_struck && panics, "the build panicked");
            }
            None => assert!(!is_struck || !model::must_be_refused(scenario), "there was no memory"),
        }
        for (number, (lane, due)) in leg.lanes.iter().zip(&leg.due).enumerate() {
            let is_whole = lane.taken == due.len();
            match &lane.error {
                Some(FeedError::TooManyBad(error)) => {
                    assert!(self.has_limits && error.bad > error.allowed, "{error}");
                    // A step that another lane has not completed when the error comes is not delivered.
                    if error.lane == number && (self.job.lanes == 1 || scenario.consumer != Consumer::Steps) {
                        let share = due.get(lane.taken).expect("it is of a batch");
                        lane.count.check_error(scenario, share, self.torn(worker), error);
                    }
                }
                Some(error) => {
                    let is_cancelled = *error == FeedError::Cancelled && scenario.may_cancel();
                    assert!(is_struck && is_cancelled || explained(error), "no fault explains this: {error}");
                    let is_of_device = matches!(error, FeedError::Device(_));
                    let together = scenario.consumer == Consumer::Steps;
                    assert!(number == 0 || !is_of_device || together, "another lane's device ended this one");
                }
                None => {
                    let may_leave = self.has_faults && lane.has_left;
                    assert!(
                        is_whole || may_leave,
                        "lane {number} of worker {worker}: {lane:?} of {}",
                        due.len()
                    );
                }
            }
            if let Some(error) = &lane.arrival {
                assert!(explained(error), "no fault explains this: {error}");
            }
        }
        if let (true, Some(batches)) = (is_struck, model::batches_before(scenario, &leg.due)) {
            let lane = &leg.lanes[0];
            assert_eq!((lane.taken, lane.error.is_some()), (batches, true), "the batches before the error");
        }
    }
}
