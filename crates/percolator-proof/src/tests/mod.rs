//! Receipts of synthetic runs: what went wrong in them is known and must be found; nothing else must be.

mod contents;
mod resumed;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::ops::Range;

use percolator::Receipt;
use percolator::bench_support::ReceiptBench;
use percolator::order::{Assignment, AutoShardPolicy, BatchSize, Job, LastBatch, Plan, Shuffle, World};
use percolator::record::{RecordId, StepEnd, StepId};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::*;

/// A batch that a replica was given.
#[derive(Clone, Debug)]
struct Given {
    replica: usize,
    end: StepEnd,
    records: Vec<RecordId>,
}

/// What a plan gives in these epochs, step by step.
fn given(plan: &Plan, epochs: Range<u64>) -> Vec<Given> {
    let mut given = Vec::new();
    for epoch in epochs {
        let steps = plan.steps(epoch).unwrap();
        for step in 0..steps {
            let end = StepEnd { epoch, step, is_last: step + 1 == steps };
            for replica in 0..plan.world().replicas() {
                let records = plan.share(epoch, step, replica).unwrap().collect();
                given.push(Given { replica, end, records });
            }
        }
    }
    given
}

/// One receipt per worker, parsed from its text.
fn receipts(plan: &Plan, given: &[Given]) -> Vec<Receipt> {
    receipts_of(plan, given, |receipt, _, given| receipt.fold(Some(given.end), &given.records))
}

/// One receipt per worker, parsed from its text, to which `fold` adds each batch, by its number.
fn receipts_of(
    plan: &Plan,
    given: &[Given],
    fold: impl Fn(&mut ReceiptBench<'_>, usize, &Given),
) -> Vec<Receipt> {
    let receipt = |worker| {
        let of_replica = |replica| {
            let mut receipt = ReceiptBench::new(plan, replica);
            let given = given.iter().enumerate().filter(|(_, given)| given.replica == replica);
            given.for_each(|(number, given)| fold(&mut receipt, number, given));
            receipt.receipt()
        };
        let receipt = merged(plan.world().replicas_of(worker).unwrap().map(of_replica));
        let read = receipt.to_string().parse::<Receipt>().unwrap();
        assert_eq!(read, receipt);
        read
    };
    (0..plan.world().workers()).map(receipt).collect()
}

fn merged(mut receipts: impl Iterator<Item = Receipt>) -> Receipt {
    let mut merged = receipts.next().unwrap();
    receipts.for_each(|receipt| merged.merge(&receipt).unwrap());
    merged
}

fn verdict(receipts: &[Receipt]) -> Verdict {
    let names: Vec<String> = (0..receipts.len()).map(|number| format!("receipt {number}")).collect();
    Verdict::of(names.iter().map(String::as_str).zip(receipts)).unwrap()
}

/// The naive twin: how often each record was delivered.
fn counts(given: &[Given]) -> BTreeMap<RecordId, i64> {
    let mut counts = BTreeMap::new();
    given.iter().flat_map(|given| &given.records).for_each(|record| *counts.entry(*record).or_default() += 1);
    counts
}

/// How many of an epoch's records are missing, and how many came too often, compared with what was due.
fn naive(epoch: u64, due: &[Given], found: &[Given]) -> (u64, u64) {
    let (due, found) = (counts(due), counts(found));
    let beyond = |one: &BTreeMap<RecordId, i64>, other: &BTreeMap<RecordId, i64>| {
        let of_epoch = one.iter().filter(|(record, _)| record.epoch == epoch);
        of_epoch.map(|(record, times)| (times - other.get(record).unwrap_or(&0)).max(0).unsigned_abs()).sum()
    };
    (beyond(&due, &found), beyond(&found, &due))
}

fn plans() -> impl Strategy<Value = Plan> {
    let files = prop::collection::vec(0_u64..25, 1..5);
    let world = (1_usize..4, 1_usize..4);
    (files, world, 1_u64..7, any::<bool>(), 0_usize..5, any::<bool>(), 0_usize..4, 0_usize..3, any::<u64>())
        .prop_filter_map(
            "a job that cannot be divided",
            |(files, world, size, is_global, policy, is_caffe, last, shuffle, seed)| {
                let world = World::new(world.0, world.0 * world.1).unwrap();
                let batch = if is_global { BatchSize::Global(size) } else { BatchSize::PerReplica(size) };
                let policies = [
                    AutoShardPolicy::Auto,
                    AutoShardPolicy::File,
                    AutoShardPolicy::Data,
                    AutoShardPolicy::Off,
                    AutoShardPolicy::Hint,
                ];
                let last = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad, LastBatch::Wrap][last];
                let window = Shuffle::Window { records: NonZeroU64::new(7).unwrap() };
                let assignment = if is_caffe { Assignment::Caffe } else { Assignment::TensorFlow };
                let job = Job::new(files, batch, world)
                    .policy(policies[policy])
                    .assignment(assignment)
                    .last_batch(last);
                let plan =
                    job.shuffle([Shuffle::No, Shuffle::Global, window][shuffle]).seed(seed).plan().ok()?;
                (plan.steps(0).unwrap() > 0).then_some(plan)
            },
        )
}

/// The receipt of one replica, as if these had been given these steps of its only epoch as well.
fn with_steps(of_one: &ReceiptBench<'_>, replicas: Range<usize>, steps: Range<u64>) -> Receipt {
    let text = of_one.receipt().to_string();
    let text = text.replace("\nreplicas 0..1\n", &format!("\nreplicas 0..{}\n", replicas.end));
    let mut body = text[..text.rfind("checksum").unwrap()].to_owned();
    replicas.for_each(|replica| writeln!(body, "steps {replica} {}..{}", steps.start, steps.end).unwrap());
    format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes())).parse().unwrap()
}

/// Every replica was given its share of each step, and nearly all of these are of no records: because all
/// records are one worker's, or because a step has fewer records than there are replicas.
#[test]
#[cfg_attr(miri, ignore = "takes Miri hours")]
fn steps_in_which_a_replica_has_no_records_take_no_time() {
    const REPLICAS: usize = 4096;
    const RECORDS: u64 = 1 << 20;
    let (many, two) = (World::new(REPLICAS, REPLICAS).unwrap(), World::new(2, REPLICAS).unwrap());
    let mut files = vec![0; REPLICAS];
    files[0] = RECORDS;
    let by_file = |files: Vec<u64>, batch, world| Job::new(files, batch, world).policy(AutoShardPolicy::File);
    let halves = vec![RECORDS / 2; 2];
    for job in [
        by_file(files, BatchSize::PerReplica(1), many),
        by_file(halves, BatchSize::Global(1), two),
        Job::new([RECORDS], BatchSize::Global(1), World::new(1, REPLICAS).unwrap()),
    ] {
        // Step by step, it would be four thousand million shares.
        process::must_end("a receipt of steps without records is verified", move || {
            let plan = job.plan().unwrap();
            let steps = plan.steps(0).unwrap();
            assert!(steps >= RECORDS, "{steps}");
            let (mut of_records, mut of_none) = (ReceiptBench::new(&plan, 0), ReceiptBench::new(&plan, 0));
            for replica in 0..REPLICAS {
                for step in plan.steps_with_records(0, 0..steps, replica).unwrap() {
                    let records: Vec<_> = plan.share(0, step, replica).unwrap().collect();
                    of_records.fold(None, &records);
                }
            }
            let receipt = with_steps(&of_records, 0..REPLICAS, 0..steps);
            of_none.fold(Some(StepEnd { epoch: 0, step: steps - 2, is_last: false }), &[]);
            let torn = with_steps(&of_none, 1..REPLICAS, steps - 2..steps - 1);
            let whole = verdict(&[receipt]);
            assert!(whole.is_sound() && whole.epochs[0].state == EpochState::Covered, "{whole:?}");
            // Where nearly all steps are missing, they are looked at for what they pass over.
            let torn = verdict(&[torn]);
            assert!(torn.epochs[0].state != EpochState::Covered, "{torn:?}");
        });
    }
}

proptest! {
    #[test]
    fn the_steps_with_records_are_those_whose_share_has_any(
        plan in plans(), epoch in 0_u64..3, first: Index, last: Index,
    ) {
        let steps = plan.steps(epoch).unwrap();
        prop_assume!(steps > 0);
        let steps = usize::try_from(steps).unwrap();
        let (first, last) = (first.index(steps + 1) as u64, last.index(steps + 1) as u64);
        for replica in 0..plan.world().replicas() {
            let found: Vec<_> = plan.steps_with_records(epoch, first..last, replica).unwrap().collect();
            let has_records = |&step: &u64| plan.share(epoch, step, replica).unwrap().len() > 0;
            prop_assert_eq!(found, (first..last).filter(has_records).collect::<Vec<_>>());
        }
        let beyond = plan.steps_with_records(epoch, first..steps as u64 + 7, 0).err();
        prop_assert_eq!(beyond, plan.share(epoch, steps as u64, 0).err());
    }

    #[test]
    fn a_run_by_its_plan_is_sound_wherever_it_stops(plan in plans(), epochs in 0_u64..4, stop: Index) {
        let mut found = given(&plan, 0..epochs);
        let last = given(&plan, epochs..epochs + 1);
        let stop = if last.is_empty() { 0 } else { stop.index(last.len() + 1) };
        // The last step goes to all or to none: an epoch that has ended for one must have ended for all.
        let stop = if last.get(stop).is_some_and(|given| given.end.is_last) { last.len() } else { stop };
        found.extend_from_slice(&last[..stop]);
        prop_assume!(!found.is_empty());
        let verdict = verdict(&receipts(&plan, &found));
        prop_assert!(verdict.is_sound(), "{verdict:?}");
        for epoch in &verdict.epochs {
            let found = counts(&found);
            let of_epoch = found.iter().filter(|(record, _)| record.epoch == epoch.epoch);
            let delivered: i64 = of_epoch.map(|(_, times)| times).sum();
            prop_assert_eq!(epoch.delivered, delivered.unsigned_abs());
            prop_assert_eq!(epoch.due, epoch.delivered + epoch.dropped + epoch.pending);
            if epoch.epoch < epochs {
                prop_assert_eq!(epoch.state, EpochState::Covered);
            }
        }
        if plan.steps(epochs).unwrap() > 0 {
            prop_assert_eq!(verdict.first_not_covered(epochs), None);
        }
    }

    #[test]
    fn a_record_that_is_not_of_its_step_is_named(
        plan in plans(), which: Index, place: Index, change in 0..3, other: Index,
    ) {
        let due = given(&plan, 0..2);
        let mut found = due.clone();
        let full: Vec<usize> = (0..found.len()).filter(|&number| !found[number].records.is_empty()).collect();
        let records = &mut found[full[which.index(full.len())]].records;
        let place = place.index(records.len());
        let record = records[place];
        let total = plan.job().records();
        let mut differs = BTreeMap::new();
        match change {
            0 => {
                records.remove(place);
                differs.insert(record.index, -1);
            }
            1 => {
                records.push(record);
                differs.insert(record.index, 1);
            }
            _ => {
                records[place].index = other.index(usize::try_from(total).unwrap()) as u64;
                *differs.entry(record.index).or_insert(0) -= 1;
                *differs.entry(records[place].index).or_insert(0) += 1;
                differs.retain(|_, times| *times != 0);
            }
        }
        let verdict = verdict(&receipts(&plan, &found));
        prop_assert_eq!(verdict.is_sound(), differs.is_empty());
        let said: Vec<_> = verdict.epochs.iter().flat_map(|epoch| &epoch.deviations).collect();
        if differs.is_empty() {
            prop_assert!(said.is_empty());
        } else {
            let [Deviation { records: Some(named), .. }] = &said[..] else { panic!("{said:?}") };
            prop_assert_eq!(named.iter().copied().collect::<BTreeMap<_, _>>(), differs);
        }
        let of_first = verdict.epochs.iter().filter(|epoch| epoch.epoch == 0 && plan.steps(1).unwrap() > 0);
        for epoch in of_first {
            prop_assert_eq!((epoch.missing.count, epoch.doubled.count), naive(0, &due, &found));
        }
    }

    #[test]
    fn a_step_that_is_missing_or_doubled_is_named(plan in plans(), which: Index, is_doubled: bool) {
        let due = given(&plan, 0..3);
        let mut found = due.clone();
        let which = which.index(due.len());
        if is_doubled {
            found.push(due[which].clone());
        } else {
            found.remove(which);
        }
        let end = due[which].end;
        let last_claimed = due.last().unwrap().end.epoch;
        prop_assume!(end.epoch < last_claimed);
        let verdict = verdict(&receipts(&plan, &found));
        for epoch in verdict.epochs.iter().filter(|epoch| epoch.epoch < last_claimed) {
            let counts = (epoch.missing.count, epoch.doubled.count);
            prop_assert_eq!(counts, naive(epoch.epoch, &due, &found), "{}", epoch);
            prop_assert!(epoch.deviations.is_empty());
            let (missing, doubled) = (&epoch.missing_steps, &epoch.doubled_steps);
            let steps = end.step..end.step + 1;
            match (epoch.epoch == end.epoch, is_doubled) {
                (false, _) => prop_assert!(missing.is_empty() && doubled.is_empty()),
                // Nothing more can be known of an epoch without any step.
                (true, false) if found.iter().all(|given| given.end.epoch != end.epoch) => {}
                (true, false) => {
                    let replicas = due[which].replica..due[which].replica + 1;
                    prop_assert_eq!(missing, &[MissingSteps { replicas, steps }]);
                }
                (true, true) => {
                    let replica = due[which].replica;
                    let worker = replica / plan.world().replicas_per_worker();
                    let receipts = vec![format!("receipt {worker}")];
                    prop_assert_eq!(doubled, &[DoubledSteps { replica, steps, receipts }]);
                }
            }
        }
        // An epoch before all those in the receipts is missed only if it is asked for.
        prop_assert!(verdict.epochs[0].epoch == 0 || verdict.first_not_covered(1) == Some(0));
        if !due[which].records.is_empty() && verdict.epochs[0].epoch == 0 {
            prop_assert_eq!(verdict.is_sound(), false);
        }
    }

    #[test]
    fn receipts_of_ranks_and_sessions_may_be_merged_in_any_order(plan in plans(), cut: Index) {
        let found = given(&plan, 0..2);
        let (first, second) = found.split_at(cut.index(found.len()));
        let parts = [receipts(&plan, first), receipts(&plan, second)].concat();
        let one = merged(parts.iter().cloned());
        prop_assert_eq!(&merged(parts.iter().rev().cloned()), &one);
        prop_assert!(verdict(&parts).is_sound());
        prop_assert_eq!(verdict(&parts), verdict(&[one]));
    }
}

fn plan(records: u64, global: u64, replicas: usize) -> Plan {
    let job = Job::new([records], BatchSize::Global(global), World::new(replicas, replicas).unwrap());
    job.shuffle(Shuffle::Global).seed(7).plan().unwrap()
}

#[test]
fn a_rank_without_a_receipt_is_named() {
    let plan = plan(40, 8, 4);
    let receipts = receipts(&plan, &given(&plan, 0..1)[..4]);
    let verdict = verdict(&[receipts[0].clone(), receipts[3].clone()]);
    assert!(!verdict.is_sound());
    assert_eq!(verdict.absent_replicas, [AbsentReplicas { replicas: 1..3, of: 4 }]);
    let said = verdict.absent_replicas[0].to_string();
    assert_eq!(said, "no receipt of replicas 1..3 of 4: give those of all ranks");
}

/// With OFF each worker has all records: how often they came in total does not show who had them.
#[test]
fn a_worker_that_had_everything_twice_does_not_make_up_for_another() {
    let world = World::new(2, 2).unwrap();
    let job = Job::new([10], BatchSize::PerReplica(5), world).policy(AutoShardPolicy::Off);
    let plan = job.plan().unwrap();
    let all = given(&plan, 0..1);
    assert!(verdict(&receipts(&plan, &all)).is_sound());
    let of_first: Vec<Given> = all.into_iter().filter(|given| given.replica == 0).collect();
    let verdict = verdict(&receipts(&plan, &[&of_first[..], &of_first].concat()));
    let epoch = &verdict.epochs[0];
    assert_eq!((epoch.missing.count, epoch.doubled.count, epoch.state), (0, 0, EpochState::Broken));
    assert_eq!(epoch.missing_steps, [MissingSteps { replicas: 1..2, steps: 0..2 }]);
    assert_eq!(epoch.doubled_steps[0].steps, 0..2);
}

/// What has no records can neither be missing nor come twice.
#[test]
fn with_everything_for_each_worker_an_empty_step_may_be_missing_or_come_twice() {
    let world = World::new(2, 4).unwrap();
    let job = Job::new([3], BatchSize::PerReplica(3), world).policy(AutoShardPolicy::Off);
    let plan = job.plan().unwrap();
    let all = given(&plan, 0..1);
    let (full, empty): (Vec<_>, Vec<_>) = all.into_iter().partition(|given| !given.records.is_empty());
    assert_eq!((full.len(), empty.len()), (2, 2));
    for found in [full.clone(), [&full[..], &empty, &empty].concat()] {
        let verdict = verdict(&receipts(&plan, &found));
        assert_eq!(verdict.epochs[0].state, EpochState::Covered, "{verdict:?}");
    }
    assert!(!verdict(&receipts(&plan, &full[1..])).is_sound());
}

/// A step that takes thousands of epochs makes counters for each of them.
#[test]
#[cfg_attr(miri, ignore = "it makes counters of thousands of epochs")]
fn a_step_of_more_epochs_than_are_counted_is_refused() {
    let of = |records| {
        let job = Job::new([1], BatchSize::Global(records), World::ALONE).last_batch(LastBatch::Wrap);
        let end = StepEnd { epoch: 0, step: 0, is_last: true };
        receipts(&job.plan().unwrap(), &[Given { replica: 0, end, records: Vec::new() }]).remove(0)
    };
    assert_eq!(Verdict::of([("r", &of(4096))]).map(|verdict| verdict.epochs.len()), Ok(4096));
    let error = Verdict::of([("r", &of(4097))]).unwrap_err().to_string();
    assert!(
        error.starts_with("r: at epoch 0, records of more than 4096 epochs would have to be counted"),
        "{error}"
    );
}

#[test]
fn a_gap_in_an_epoch_under_way_is_missing_and_its_end_is_not() {
    let plan = plan(40, 8, 1);
    let mut steps = given(&plan, 0..1);
    steps.truncate(3);
    steps.remove(1);
    let verdict = verdict(&receipts(&plan, &steps));
    let epoch = &verdict.epochs[0];
    assert_eq!((epoch.state, epoch.missing.count, epoch.pending), (EpochState::Broken, 8, 16));
    assert_eq!(epoch.missing_steps, [MissingSteps { replicas: 0..1, steps: 1..2 }]);
    assert_eq!(epoch.steps, Some(GivenSteps { of: 5, by_all: 1, by_some: 3 }));
}

#[test]
fn epochs_between_others_that_are_in_no_receipt_are_named() {
    let plan = plan(40, 8, 1);
    let verdict = verdict(&receipts(&plan, &[given(&plan, 2..3), given(&plan, 5..6)].concat()));
    assert!(!verdict.is_sound());
    assert_eq!((verdict.absent_epochs.len(), &verdict.absent_epochs[0]), (1, &(3..5)));
    assert_eq!(verdict.first_not_covered(1), Some(0));
}

#[test]
fn more_differences_than_can_be_named_are_said_to_be() {
    let plan = plan(1000, 1000, 1);
    let mut found = given(&plan, 0..1);
    found[0].records.truncate(300);
    let verdict = verdict(&receipts(&plan, &found));
    assert!(!verdict.is_sound());
    assert_eq!(verdict.epochs[0].deviations, [Deviation { receipt: "receipt 0".to_owned(), records: None }]);
}

#[test]
fn receipts_of_other_runs_are_told_apart_by_what_differs() {
    let of = |job: Job| receipts(&job.plan().unwrap(), &[]).remove(0);
    let job = || Job::new([40], BatchSize::Global(8), World::ALONE);
    let said = |other: Job| {
        let (one, other) = (of(job()), of(other));
        Verdict::of([("a", &one), ("b", &other)]).map_err(|error| error.to_string())
    };
    let difference = |one: &str, other: &str| {
        Err(format!(
            "a has {one:?}, and b has {other:?}: they do not belong to the same run; leave one of them out"
        ))
    };
    assert_eq!(said(job().seed(3)), difference("seed 0", "seed 3"));
    assert_eq!(said(job().shuffle(Shuffle::Global)), difference("shuffle no", "shuffle global"));
    assert_eq!(said(Job::new([41], BatchSize::Global(8), World::ALONE)), difference("files 40", "files 41"));
    assert!(said(Job::new([40], BatchSize::Global(5), World::ALONE)).is_ok());
    let everything =
        Job::new([40], BatchSize::Global(8), World::new(2, 2).unwrap()).policy(AutoShardPolicy::Off);
    assert_eq!(
        said(everything),
        difference("each record 1 time(s) in an epoch", "each record 2 time(s) in an epoch")
    );
    let mut receipt = of(job());
    let error = receipt.merge(&of(Job::new([40], BatchSize::Global(5), World::ALONE))).unwrap_err();
    assert!(error.to_string().contains("\"batch global 8\""), "{error}");
    assert_eq!(Verdict::of([]), Err(ProofError::None));
}
