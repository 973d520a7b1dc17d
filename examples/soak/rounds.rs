//! What is done again and again: each round runs feeds in one way, checks every batch and every receipt, and
//! leaves nothing behind.

use std::collections::{BTreeSet, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use percolator::bad::{BadRecords, Quarantined};
use percolator::feed::Receipts;
use percolator::order::{JobWorker, World};
use percolator::reader::{DataReader, Registry};
use percolator::record::RecordId;
use percolator::source::Lmdb;
use percolator::{Device, FeedBuilder, FeedError, LastBatch, Receipt, Shuffle, Snapshot};
use percolator_chaos::{Chaos, Effect, Fault, Faults, Reach};
use percolator_proof::Verdict;

use crate::data::{DataSet, PART, POLICY, RECORDS, check, sourceless};

/// What was done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) rounds: u64,
    pub(crate) records: u64,
    pub(crate) receipts: u64,
    pub(crate) resumes: u64,
    pub(crate) faults: u64,
    pub(crate) worlds: u64,
    pub(crate) registrations: u64,
    pub(crate) bad: u64,
}

/// Draws the numbers of a round (`SplitMix64`).
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn number(&mut self, first: usize, last: usize) -> usize {
        first + usize::try_from(self.next() % (last - first + 1) as u64).expect("a small number")
    }

    fn shuffle(&mut self) -> Shuffle {
        let window = Shuffle::Window { records: 37.try_into().expect("it is not 0") };
        [Shuffle::No, Shuffle::Global, window, Shuffle::Files][self.number(0, 3)]
    }
}

/// The rounds, in turn.
pub(crate) const KINDS: [(&str, Round); 8] = [
    ("lanes", lanes),
    ("epochs", epochs),
    ("resumes", resumes),
    ("worlds", worlds),
    ("faults", faults),
    ("registrations", registrations),
    ("bad records", bad_records),
    ("mixtures", mixtures),
];

type Round = fn(&DataSet, &mut Draws, &mut Counts) -> anyhow::Result<()>;

/// Lanes on threads of their own, in round-robin order; one of them leaves early.
fn lanes(data: &DataSet, draws: &mut Draws, counts: &mut Counts) -> anyhow::Result<()> {
    let lanes = draws.number(2, 4);
    let size = draws.number(1, 24);
    let leaves_after = draws.number(1, 10);
    let mut feed = data.feed(lanes).batch_size(size).threads(draws.number(1, 4)).build()?;
    let drained = thread::scope(|scope| {
        let drain = |lane: percolator::Lane| {
            let batches = if lane.number() == 0 { leaves_after } else { 60 };
            scope.spawn(move || {
                let mut records = 0;
                for batch in lane.take(batches) {
                    records += check(&batch?)?;
                }
                anyhow::Ok(records)
            })
        };
        let threads: Vec<_> = feed.take_lanes()?.into_iter().map(drain).collect();
        let joined =
            threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a lane panicked"))?);
        joined.sum::<anyhow::Result<u64>>()
    })?;
    let due = size as u64 * (leaves_after as u64 + 60 * (lanes as u64 - 1));
    ensure!(drained == due, "{drained} records came, and not {due}");
    counts.records += drained;
    Ok(())
}

/// A whole run by a plan, paused and with other threads on the way.
fn epochs(data: &DataSet, draws: &mut Draws, counts: &mut Counts) -> anyhow::Result<()> {
    let mut feed = planned(data, data.feed(draws.number(1, 3)), draws).build()?;
    let handle = feed.handle();
    let mut steps = feed.steps();
    for number in 1.. {
        // Paused, it delivers what was dealt before, and then nothing.
        if handle.is_paused() && !steps.wait_timeout(Duration::from_millis(1)) {
            handle.resume();
        }
        let Some(step) = steps.next() else { break };
        counts.records += step?.iter().map(check).sum::<anyhow::Result<u64>>()?;
        match number % 16 {
            3 => handle.pause(),
            9 => drop(handle.set_threads(draws.number(1, 4))?),
            _ => {}
        }
    }
    prove(data, counts, &[feed.receipt().context("receipts are on")?])
}

const EPOCHS: u64 = 2;

/// A feed by a plan of two epochs, with receipts of its records' bytes.
fn planned(data: &DataSet, feed: FeedBuilder, draws: &mut Draws) -> FeedBuilder {
    scheduled(feed, draws).receipts(Receipts::Contents).with_digest(&data.digest)
}

/// This feed by a plan of two epochs.
fn scheduled(feed: FeedBuilder, draws: &mut Draws) -> FeedBuilder {
    let last = [LastBatch::Keep, LastBatch::Pad][draws.number(0, 1)];
    let feed = feed.batch_size(draws.number(1, 24)).shuffle(draws.shuffle()).seed(draws.next());
    feed.epochs(EPOCHS).last_batch(last).threads(draws.number(1, 3))
}

/// Verifies that these receipts cover all epochs, each record once, with its own bytes.
fn prove(data: &DataSet, counts: &mut Counts, receipts: &[Receipt]) -> anyhow::Result<()> {
    let names: Vec<String> = (0..receipts.len()).map(|number| format!("receipt {number}")).collect();
    let named = names.iter().map(String::as_str).zip(receipts);
    let verdict = Verdict::with_digest(("the data set", &data.digest), named)?;
    let is_proven = verdict.is_sound() && verdict.first_not_covered(EPOCHS).is_none();
    ensure!(is_proven, "the receipts do not prove the run: {verdict:?}");
    counts.receipts += receipts.len() as u64;
    Ok(())
}

/// A run that is cut several times, and resumes from the files that it saved.
fn resumes(data: &DataSet, draws: &mut Draws, counts: &mut Counts) -> anyhow::Result<()> {
    let described = planned(data, data.feed(draws.number(1, 3)), draws);
    let at = |name: String| data.folder.path().join(name);
    let snapshot_path = at("snapshot".to_owned());
    let mut receipts = Vec::new();
    let mut snapshot: Option<Snapshot> = None;
    loop {
        let builder = described.clone();
        let builder = snapshot.iter().fold(builder, FeedBuilder::resume);
        let mut feed = builder.build()?;
        let cut = if receipts.len() < 3 { draws.number(0, 12) } else { usize::MAX };
        for step in feed.steps().take(cut) {
            counts.records += step?.iter().map(check).sum::<anyhow::Result<u64>>()?;
        }
        let path = at(format!("{}.receipt", receipts.len()));
        let receipt = feed.receipt().context("receipts are on")?;
        feed.snapshot()?.save_with_receipt(&snapshot_path, &receipt, &path)?;
        receipts.push(Receipt::load(&path)?);
        if cut == usize::MAX {
            return prove(data, counts, &receipts);
        }
        snapshot = Some(Snapshot::recover(&snapshot_path)?);
        counts.resumes += 1;
    }
}

/// A run that goes on in other worlds: with other workers, and other lanes.
fn worlds(data: &DataSet, draws: &mut Draws, counts: &mut Counts) -> anyhow::Result<()> {
    let described = planned(data, data.feed(1), draws).policy(POLICY);
    let mut receipts = Vec::new();
    let mut snapshot: Option<Snapshot> = None;
    let legs = draws.number(2, 4);
    for leg in 1..=legs {
        let (workers, lanes) = (draws.number(1, 3), draws.number(1, 2));
        let world = World::new(workers, workers * lanes)?;
        let steps = if leg == legs { usize::MAX } else { draws.number(1, 8) };
        let of_worker = |worker| {
            let feed = described
                .clone()
                .devices((0..lanes).map(Device::host))
                .share(JobWorker { world, number: worker });
            run(snapshot.iter().fold(feed, FeedBuilder::resume), steps)
        };
        let ran: Vec<_> = thread::scope(|scope| {
            let of_worker = &of_worker;
            let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(move || of_worker(worker))).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().map_err(|_| anyhow!("a worker panicked"))?
            };
            threads.into_iter().map(join).collect::<anyhow::Result<_>>()
        })?;
        let mut snapshots = Vec::new();
        for (records, receipt, next) in ran {
            counts.records += records;
            receipts.push(receipt);
            snapshots.push(next);
        }
        snapshot = Some(Snapshot::join(&snapshots)?);
        counts.worlds += 1;
    }
    prove(data, counts, &receipts)
}

/// Runs a feed for this many steps: its records, its receipt, and where it is.
fn run(feed: FeedBuilder, steps: usize) -> anyhow::Result<(u64, Receipt, Snapshot)> {
    let mut feed = feed.build()?;
    let mut records = 0;
    for step in feed.steps().take(steps) {
        records += step?.iter().map(check).sum::<anyhow::Result<u64>>()?;
    }
    Ok((records, feed.receipt().context("receipts are on")?, feed.snapshot()?))
}

/// A run whose source, device and consumer fail. What was delivered before, and what comes after a resume
/// without faults, is the whole, once.
fn faults(data: &DataSet, draws: &mut Draws, counts: &mut Counts) -> anyhow::Result<()> {
    let chaos = Chaos::new(Faults::drawn(draws.next(), Reach::records(RECORDS).and_batches(40)));
    let lanes = draws.number(1, 2);
    let described = planned(data, sourceless(lanes), draws);
    let builds_unharmed = draws.number(0, 1) == 0;
    let source = joined(data)?;
    let devices = (0..lanes).map(|lane| chaos.device(Device::host(lane)));
    let harmed = described.clone().source(chaos.source(source)).devices(devices);
    let outcome = thread::scope(|scope| {
        let releaser = scope.spawn(|| {
            chaos.wait_until_stuck();
            chaos.release();
        });
        if builds_unharmed {
            chaos.disarm();
        }
        let outcome = suffer(harmed, &chaos);
        chaos.release();
        releaser.join().map_err(|_| anyhow!("the releaser panicked"))?;
        outcome
    });
    let suffered = outcome.with_context(|| chaos.faults().to_string())?;
    chaos.wait_until_gone();
    ensure!(chaos.overwritten() == 0, "{}: a batch was overwritten in use", chaos.faults());
    counts.faults += chaos.struck();
    // A snapshot of damaged bytes is one of another data set.
    let is_torn = |effect: &Effect| matches!(effect, Effect::Cut(_) | Effect::Damage);
    let tears = chaos.faults().iter().any(|fault| is_torn(&fault.effect));
    let Some((records, receipt, snapshot)) = suffered.filter(|_| builds_unharmed || !tears) else {
        return Ok(());
    };
    counts.records += records;
    let rest = described.source(joined(data)?).resume(&snapshot);
    let (records, rest, _) = run(rest, usize::MAX).with_context(|| chaos.faults().to_string())?;
    counts.records += records;
    counts.resumes += 1;
    prove(data, counts, &[receipt, rest]).with_context(|| chaos.faults().to_string())
}

/// The three parts as one source.
fn joined(data: &DataSet) -> anyhow::Result<percolator::source::Joined> {
    let path = data.folder.path();
    Ok(percolator::source::Joined::new(Lmdb::open(path.join("lmdb"))?)
        .and(percolator::source::LevelDb::open(path.join("leveldb"))?)
        .and(percolator::source::TfRecord::open(path.join("part.tfrecord"))?))
}

type Suffered = Option<(u64, Receipt, Snapshot)>;

/// Runs until the end or the error, which must be one of the faults; `None` if nothing was built.
fn suffer(feed: FeedBuilder, chaos: &Chaos) -> anyhow::Result<Suffered> {
    // A source that panics at a record that is sampled panics in `build`, on the thread of its caller.
    let built = match catch_unwind(AssertUnwindSafe(|| feed.build())) {
        Ok(built) => built,
        Err(_) if chaos.faults().iter().any(|fault| fault.effect == Effect::Panic) => return Ok(None),
        Err(_) => bail!("the build panicked"),
    };
    chaos.arm();
    let mut feed = match built {
        Ok(feed) => feed,
        Err(error) => return explained(&error, chaos).map(|()| None),
    };
    let mut records = 0;
    let mut errors = 0;
    for step in chaos.consumer(feed.steps()) {
        match step {
            Ok(batches) => records += batches.iter().map(check).sum::<anyhow::Result<u64>>()?,
            Err(error) => {
                errors += 1;
                explained(&error, chaos)?;
            }
        }
    }
    ensure!(errors <= 1, "an error came {errors} times");
    let receipt = feed.receipt().context("receipts are on")?;
    let snapshot = feed.snapshot()?;
    feed.close();
    Ok(Some((records, receipt, snapshot)))
}

/// Whether an error is one that the faults explain.
fn explained(error: &FeedError, chaos: &Chaos) -> anyhow::Result<()> {
    let text = error.to_string();
    let is_torn = |effect: &Effect| matches!(effect, Effect::Cut(_) | Effect::Damage);
    let has_torn = chaos.happened().iter().any(|(fault, _)| is_torn(&fault.effect));
    let is_known = text.contains("a fault that was drawn") || text.contains("panics, as a fault says");
    // A record that is torn may be one of those by which a data set is recognised.
    let is_of_torn = error.record().is_some() || text.contains("the digest is of other data");
    ensure!(is_known || has_torn && is_of_torn, "no fault explains this: {text}");
    Ok(())
}

/// Readers that come and go under the same name, as Caffe's nets do.
fn registrations(data: &DataSet, draws: &mut Draws, counts: &mut Counts) -> anyhow::Result<()> {
    let consumers = draws.number(1, 3);
    for again in 0..draws.number(2, 6) {
        let path = data.folder.path().join("lmdb");
        let open = || {
            let reader = DataReader::builder("data", Lmdb::open(&path)?).group("net").consumers(consumers);
            anyhow::Ok(reader.passes(2).batch_size(7).open()?)
        };
        let readers = (0..consumers).map(|_| open()).collect::<anyhow::Result<Vec<_>>>()?;
        let leaves_early = again % 2 == 1;
        let read = thread::scope(|scope| {
            let read = |reader: DataReader| {
                scope.spawn(move || {
                    let (mut records, mut next) = (0_u64, reader.number() as u64);
                    while let Some(run) = reader.full().pop()? {
                        for record in run.iter() {
                            let number = record.id.epoch * RECORDS / 3 + record.id.index;
                            ensure!(number == next, "record {number} came, and not {next}");
                            next += consumers as u64;
                            records += 1;
                        }
                        if leaves_early && records > 20 {
                            break;
                        }
                    }
                    anyhow::Ok(records)
                })
            };
            let threads: Vec<_> = readers.into_iter().map(read).collect();
            let joined =
                threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a reader panicked"))?);
            joined.sum::<anyhow::Result<u64>>()
        })?;
        ensure!(leaves_early || read == 2 * RECORDS / 3, "{read} records were read");
        counts.records += read;
        counts.registrations += consumers as u64;
    }
    ensure!(Registry::global().is_empty(), "a reader is left");
    Ok(())
}

/// A run over records some of which are damaged, cut once and resumed. It leaves them out or replaces them,
/// says so in its receipts, and names each of them once in a file.
fn bad_records(data: &DataSet, draws: &mut Draws, counts: &mut Counts) -> anyhow::Result<()> {
    let damaged = draws.number(1, 12);
    let damaged: BTreeSet<u64> = (0..damaged).map(|_| draws.next() % RECORDS).collect();
    let wear =
        Chaos::new(damaged.iter().map(|&number| Fault::record(number).is_damaged()).collect::<Vec<_>>());
    let path = data.folder.path().join("bad.tfrecord");
    let policy = [BadRecords::skip, BadRecords::replace][draws.number(0, 1)]();
    let policy = policy.at_most_rate(1.0).quarantine(&path);
    let described = scheduled(sourceless(draws.number(1, 2)), draws).receipts(true).bad_records(policy);
    let leg = || anyhow::Ok(described.clone().source(wear.source(joined(data)?)));
    let (records, first, snapshot) = run(leg()?, draws.number(1, 8))?;
    let (rest, last, _) = run(leg()?.resume(&snapshot), usize::MAX)?;
    let verdict = Verdict::of([("the first leg", &first), ("the last one", &last)])?;
    let are_bad = verdict.epochs.iter().all(|epoch| epoch.bad.count == damaged.len() as u64);
    let is_proven = verdict.is_sound() && verdict.first_not_covered(EPOCHS).is_none() && are_bad;
    ensure!(is_proven, "the receipts do not prove the run without {damaged:?}: {verdict:?}");
    let mut named: Vec<u64> = Quarantined::read(&path)?.iter().map(|entry| entry.number).collect();
    named.sort_unstable();
    ensure!(named.iter().eq(&damaged), "{named:?} are named, and {damaged:?} are bad");
    std::fs::remove_file(&path)?;
    counts.records += records + rest;
    counts.receipts += 2;
    counts.resumes += 1;
    counts.bad += EPOCHS * damaged.len() as u64;
    Ok(())
}

/// A run over a mixture of the three parts, cut once and resumed. It has as many records of each part as its
/// weights say, and none twice in a pass over its part.
fn mixtures(data: &DataSet, draws: &mut Draws, counts: &mut Counts) -> anyhow::Result<()> {
    let weights = [1, 2, 3].map(|most| draws.number(1, most) as u64);
    let described = scheduled(data.feed(draws.number(1, 2)), draws).last_batch(LastBatch::Keep).mix(weights);
    let (mut seen, mut records) = (HashSet::<RecordId>::new(), 0);
    let mut snapshot: Option<Snapshot> = None;
    for cut in [draws.number(1, 8), usize::MAX] {
        let mut feed = snapshot.iter().fold(described.clone(), FeedBuilder::resume).build()?;
        for step in feed.steps().take(cut) {
            for batch in step? {
                check(&batch)?;
                records += batch.records().len();
                seen.extend(batch.records());
            }
        }
        snapshot = Some(feed.snapshot()?);
    }
    ensure!(records == seen.len(), "{} of {records} records come twice", records - seen.len());
    // The parts have the same length, and the first of them the weight 1.
    for (part, weight) in weights.into_iter().enumerate() {
        let passes: Vec<u64> =
            seen.iter().filter(|id| id.index / PART == part as u64).map(|id| id.epoch).collect();
        let is_whole = passes.len() as u64 == EPOCHS * PART * weight
            && passes.iter().all(|pass| *pass < EPOCHS * weight);
        ensure!(is_whole, "{} records of part {part} come, by weights {weights:?}", passes.len());
    }
    counts.records += records as u64;
    counts.resumes += 1;
    Ok(())
}
