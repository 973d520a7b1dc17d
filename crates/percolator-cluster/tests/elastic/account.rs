//! The account of a job, compared with what its workers have written down.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use percolator::Receipt;
use percolator::receipt::Digest;
use percolator::record::RecordId;
use percolator_cluster::leases::Job;
use percolator_cluster::metadata::Metadata;
use percolator_proof::{EpochState, Verdict};

use crate::notes::{BlockKey, Entry, Notes};
use crate::role::{JOB, JobOptions, RECORDS, Role};

/// A process that was started.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) role: Role,
    pub(crate) is_killed: bool,
}

/// One process, and what it wrote down.
struct History {
    role: Role,
    entries: Vec<Entry>,
}

/// A block in the hands of a worker.
#[derive(Debug)]
struct Taking {
    worker: String,
    lease: i64,
    revision: i64,
    /// The lease lasted until the worker had nothing more to do.
    has_lasted: bool,
}

/// Checks that the job is done and each record counts once, and that the account says what happened.
pub(crate) fn check(metadata: &Arc<dyn Metadata>, options: &JobOptions, told: &[Told]) {
    let job = Job::open(metadata.clone(), JOB).unwrap();
    let status = job.status().unwrap();
    assert!(status.is_done() && status.open.is_empty(), "{status:?}");
    assert!(job.verdict(None).unwrap().is_sound());
    let receipts = job.receipts().unwrap();
    let verdict = Verdict::of(receipts.iter().map(|(name, receipt)| (&**name, receipt))).unwrap();
    let states: Vec<_> = verdict.epochs.iter().map(|epoch| (epoch.state, epoch.delivered)).collect();
    assert_eq!(states, [(EpochState::Covered, RECORDS)], "{verdict:?}");

    let history = |told: &Told| History { role: told.role.clone(), entries: Notes::read(&told.role.notes) };
    let histories: Vec<_> = told.iter().map(history).collect();
    let counted = counted(&receipts, options, status.steps_per_epoch);
    let handed_over = HandedOver::of(&histories);
    check_receipts(&receipts, &handed_over);
    check_confirmed(&histories, options, status.steps_per_epoch, &counted);
    let blocks = Blocks::of(&histories, options);
    blocks.check(status.blocks_per_epoch);
    check_repeated(&counted, &handed_over, &blocks);
    histories.iter().for_each(check_held);
    let killed = told.iter().filter(|told| told.is_killed).count();
    let takings: usize = blocks.takings.values().map(Vec::len).sum();
    let times: usize = handed_over.times.values().sum();
    println!(
        "{} processes, {killed} killed; {} blocks, taken {takings} times; {} steps, given {times} times",
        told.len(),
        status.blocks_per_epoch,
        status.steps_per_epoch,
    );
}

/// The worker of a receipt of this name, `EPOCH/WORKER`, or more after that if a worker has several.
fn worker_of(name: &str) -> &str {
    name.split('/').nth(1).unwrap()
}

/// The steps that count for each worker: all steps of the epoch, each for one of them.
fn counted(
    receipts: &[(String, Receipt)],
    options: &JobOptions,
    steps: u64,
) -> BTreeMap<String, BTreeSet<u64>> {
    let mut all = BTreeSet::new();
    let mut counted: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for (name, receipt) in receipts {
        let own = steps_of(receipt, options.lanes);
        for &step in &own {
            assert!(all.insert(step), "step {step} counts twice");
        }
        counted.entry(worker_of(name).to_owned()).or_default().extend(own);
    }
    assert!(all.into_iter().eq(0..steps));
    counted
}

/// The steps in a receipt's text, one by one: each lane has the same.
fn steps_of(receipt: &Receipt, lanes: usize) -> Vec<u64> {
    let text = receipt.to_string();
    let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("steps ")).collect();
    let ranges: Vec<_> = lines.iter().map(|line| line.split_once(' ').unwrap().1).collect();
    assert!(ranges.len() == lanes && ranges.iter().all(|lane| *lane == ranges[0]), "{receipt}");
    let steps = ranges[0].split(' ').flat_map(|range| {
        // Twice would be `0..3*2`, which is no number.
        let (start, end) = range.split_once("..").unwrap();
        start.parse::<u64>().unwrap()..end.parse().unwrap()
    });
    steps.collect()
}

/// What was handed over to workers, by their names: a name may have had several processes.
struct HandedOver<'a> {
    times: BTreeMap<(&'a str, u64), usize>,
    records: BTreeMap<(&'a str, u64), &'a [u64]>,
}

impl<'a> HandedOver<'a> {
    fn of(histories: &'a [History]) -> Self {
        let mut found = HandedOver { times: BTreeMap::new(), records: BTreeMap::new() };
        for History { role, entries } in histories {
            for entry in entries {
                let Entry::Step { epoch: 0, step, records, .. } = entry else { continue };
                *found.times.entry((&role.name, *step)).or_default() += 1;
                let before = found.records.insert((&role.name, *step), records);
                assert!(before.is_none_or(|before| before == records), "step {step} has two contents");
            }
        }
        found
    }
}

/// Each record that counts for a worker was handed over to it.
fn check_receipts(receipts: &[(String, Receipt)], handed_over: &HandedOver<'_>) {
    for (name, receipt) in receipts {
        let worker = worker_of(name);
        let mut digest = Digest::default();
        for step in steps_of(receipt, receipt.replicas().count()) {
            let records = handed_over.records.get(&(worker, step));
            let records = records.unwrap_or_else(|| panic!("{worker} never got step {step}, which counts"));
            records.iter().for_each(|&index| digest.add_record(RecordId { epoch: 0, index }));
        }
        let found: Vec<_> = receipt.epochs().map(|account| (account.epoch(), account.digest())).collect();
        assert_eq!(found, [(0, digest)], "{name}: other records count than were handed over");
    }
}

/// What counts was confirmed, and what was confirmed for certain counts.
fn check_confirmed(
    histories: &[History],
    options: &JobOptions,
    steps: u64,
    counted: &BTreeMap<String, BTreeSet<u64>>,
) {
    let last_of_block = |step: u64| {
        let block = step / options.steps_per_block;
        ((block + 1) * options.steps_per_block).min(steps) - 1
    };
    let mut may_count: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for History { role, entries } in histories {
        let name = &*role.name;
        let counts = counted.get(name);
        let may_count = may_count.entry(name).or_default();
        let (mut new, mut confirmed) = (Vec::new(), BTreeSet::new());
        for entry in entries {
            match entry {
                Entry::Step { step, .. } => new.push(*step),
                Entry::Confirms => confirmed.extend(new.drain(..)),
                // Of the block under way, only what is acknowledged counts.
                Entry::Confirmed { lost: 0, .. } => {
                    let is_whole = |step: &u64| confirmed.contains(&last_of_block(*step));
                    let whole: Vec<_> = confirmed.iter().copied().filter(is_whole).collect();
                    for step in whole {
                        let is_counted = counts.is_some_and(|counts| counts.contains(&step));
                        assert!(is_counted, "{name}: step {step} was confirmed, and does not count");
                        confirmed.remove(&step);
                        may_count.insert(step);
                    }
                }
                _ => {}
            }
        }
        may_count.extend(confirmed);
    }
    for (name, counts) in counted {
        let mut others = counts.difference(&may_count[&**name]);
        assert_eq!(others.next(), None, "{name}: a step counts that was not confirmed");
    }
}

/// Who had which block.
struct Blocks {
    steps_per_block: u64,
    /// Two workers may have a block.
    duplicates: bool,
    takings: BTreeMap<BlockKey, Vec<Taking>>,
    /// How often a worker did not know what became of a block.
    unsure: BTreeMap<BlockKey, usize>,
    done: BTreeMap<BlockKey, usize>,
}

impl Blocks {
    fn of(histories: &[History], options: &JobOptions) -> Self {
        let JobOptions { steps_per_block, duplicates, .. } = *options;
        let (takings, unsure, done) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut blocks = Blocks { steps_per_block, duplicates, takings, unsure, done };
        for History { role, entries } in histories {
            let mut leases = entries.iter().filter_map(|entry| match entry {
                Entry::Granted { lease } => Some(*lease),
                _ => None,
            });
            // A lease may end when its worker has nothing more to take, and needs no other.
            let has_lost = entries.iter().rev().find_map(|entry| match entry {
                Entry::Confirmed { lost, .. } => Some(*lost > 0),
                _ => None,
            });
            let has_lasted = entries.contains(&Entry::Over) && has_lost != Some(true);
            let last = leases.next_back().filter(|_| has_lasted);
            for entry in entries {
                match entry {
                    Entry::Took { block, lease, revision } => {
                        let (lease, revision) = (*lease, *revision);
                        let (worker, has_lasted) = (role.name.clone(), last == Some(lease));
                        let taking = Taking { worker, lease, revision, has_lasted };
                        blocks.takings.entry(block.clone()).or_default().push(taking);
                    }
                    Entry::Unsure { block } => *blocks.unsure.entry(block.clone()).or_default() += 1,
                    Entry::Done { block } => *blocks.done.entry(block.clone()).or_default() += 1,
                    _ => {}
                }
            }
        }
        blocks
    }

    /// As it is in keys.
    fn of_step(&self, step: u64) -> BlockKey {
        format!("{:010}-{:012}", 0, step / self.steps_per_block)
    }

    fn is_sure(&self, block: &BlockKey) -> bool {
        !self.unsure.contains_key(block)
    }

    /// Each loss of a block lets it be dealt anew once.
    fn check(&self, count: u64) {
        for (block, takings) in &self.takings {
            let leases: BTreeSet<_> = takings.iter().map(|taking| taking.lease).collect();
            assert_eq!(leases.len(), takings.len(), "{block}: a lease took it twice: {takings:?}");
            let lasted = takings.iter().filter(|taking| taking.has_lasted).count();
            assert!(
                lasted <= 1 || !self.is_sure(block) || self.duplicates,
                "{block}: nobody had lost it: {takings:?}"
            );
        }
        let twice = self.done.iter().find(|&(_, &times)| times > 1);
        assert!(twice.is_none(), "a block was done twice: {twice:?}");
        // A process may be killed before it can write that it has one.
        assert!(self.takings.len() as u64 <= count && self.done.len() as u64 <= count);
    }
}

/// A step comes once for each time that its block was taken, and no more once it counts.
fn check_repeated(counted: &BTreeMap<String, BTreeSet<u64>>, handed_over: &HandedOver<'_>, blocks: &Blocks) {
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    handed_over.times.iter().for_each(|((_, step), count)| *times.entry(*step).or_default() += count);
    for (&step, &count) in &times {
        let block = blocks.of_step(step);
        let takings = blocks.takings.get(&block).map_or(0, Vec::len);
        let unsure = blocks.unsure.get(&block).copied().unwrap_or(0);
        assert!(
            count <= takings + unsure,
            "step {step} came {count} times, {block} was taken {takings} times"
        );
    }
    let counts_for: BTreeMap<u64, &str> =
        counted.iter().flat_map(|(worker, steps)| steps.iter().map(move |&step| (step, &**worker))).collect();
    for &(worker, step) in handed_over.times.keys() {
        let (block, counts_for) = (blocks.of_step(step), counts_for[&step]);
        if worker == counts_for || !blocks.is_sure(&block) || blocks.duplicates {
            continue;
        }
        let of = |name: &str| {
            let takings = blocks.takings[&block].iter().filter(|taking| taking.worker == name);
            takings.map(|taking| taking.revision).collect::<Vec<_>>()
        };
        let (lost, counts) = (of(worker), of(counts_for));
        assert!(lost.iter().min() < counts.iter().max(), "step {step} came to {worker} after it counted");
    }
}

/// A worker that dies has no more blocks than it needs: at most these are done again.
fn check_held(history: &History) {
    let (mut under, mut held, mut all) = (None, BTreeSet::new(), BTreeSet::new());
    let max = history.role.blocks_held_max();
    for entry in &history.entries {
        match entry {
            Entry::Took { block, lease, .. } => {
                if under != Some(*lease) {
                    (under, held) = (Some(*lease), BTreeSet::new());
                }
                held.insert(block);
                all.insert(&**block);
                // One that another worker has finished is given back.
                let is_allowed = held.len() as u64 <= max || history.role.job.duplicates;
                assert!(is_allowed, "it may have {max}: {held:?}, {:?}", history.role);
            }
            // It may have got it, or, if it had it, have finished it.
            Entry::Unsure { block } => {
                held.remove(block);
                all.insert(block);
            }
            Entry::Done { block } => drop(held.remove(block)),
            Entry::Step { epoch, block, .. } => {
                let key = format!("{epoch:010}-{block:012}");
                assert!(all.contains(&*key), "{} got a step of {key}, which it had not", history.role.name);
            }
            _ => {}
        }
    }
}
