//! Receipts of synthetic runs: what went wrong in them is known and must be found; nothing else must be.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::base::checked_text::TextWriter;
use crate::base::splitmix;
use crate::order::{Assignment, AutoShardPolicy, BatchSize, Job, LastBatch, Shuffle, World};
use crate::receipt::content::ContentHash;
use crate::record::{RecordId, StepEnd, StepId};
use crate::source::Identity;

/// A batch that a replica was given.
#[derive(Clone, Debug)]
struct Given {
    replica: usize,
    end: StepEnd,
    records: Vec<RecordId>,
}

/// What a plan gives in these epochs, step by step.
fn given(plan: &Plan, epochs: std::ops::Range<u64>) -> Vec<Given> {
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
    let receipt = |worker| {
        let mut receipt = Receipt::new("made/up", &Identity::new(), plan);
        for replica in plan.world().replicas_of(worker).unwrap() {
            let mut ledger = Ledger::of(replica);
            given
                .iter()
                .filter(|given| given.replica == replica)
                .for_each(|given| ledger.fold(Some(given.end), &given.records, &[], &[]));
            receipt.add(&ledger);
        }
        let read = receipt.to_string().parse::<Receipt>().unwrap();
        assert_eq!(read, receipt);
        read
    };
    (0..plan.world().workers()).map(receipt).collect()
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

proptest! {
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
        let merged = |parts: &mut dyn Iterator<Item = &Receipt>| {
            let mut merged = parts.next().unwrap().clone();
            parts.for_each(|part| merged.merge(part).unwrap());
            merged
        };
        let one = merged(&mut parts.iter());
        prop_assert_eq!(&merged(&mut parts.iter().rev()), &one);
        prop_assert!(verdict(&parts).is_sound());
        prop_assert_eq!(verdict(&parts), verdict(&[one]));
    }
}

fn plan(records: u64, global: u64, replicas: usize) -> Plan {
    let job = Job::new([records], BatchSize::Global(global), World::new(replicas, replicas).unwrap());
    job.shuffle(Shuffle::Global).seed(7).plan().unwrap()
}

#[test]
fn a_run_may_go_on_with_another_number_of_ranks() {
    let (before, after) = (plan(40, 8, 2), plan(40, 4, 4));
    let cut = |plan: &Plan, steps: std::ops::Range<u64>| -> Vec<Given> {
        given(plan, 0..1).into_iter().filter(|given| steps.contains(&given.end.step)).collect()
    };
    // Three steps of 8, then steps of 4 from the 24th record on.
    let first = receipts(&before, &cut(&before, 0..3));
    let second = receipts(&after, &[cut(&after, 6..10), given(&after, 1..2)].concat());
    let whole = verdict(&[first.clone(), second.clone()].concat());
    assert!(whole.is_sound() && whole.first_not_covered(2).is_none(), "{whole:?}");
    // The same, one step too late.
    let late = receipts(&after, &[cut(&after, 7..10), given(&after, 1..2)].concat());
    let lacking = verdict(&[first, late].concat());
    assert_eq!((lacking.epochs[0].state, lacking.epochs[0].missing.count), (EpochState::Broken, 4));
}

#[test]
fn a_run_that_goes_on_with_less_than_a_step_has_covered_its_epoch() {
    let before = plan(13, 4, 1);
    let job = before.job().clone().batch(BatchSize::Global(9)).last_batch(LastBatch::Drop);
    let (after, next) = before.resumed(&job, &[StepId { epoch: 0, step: 2 }]).unwrap();
    assert_eq!((after.steps(0), next[0]), (Ok(0), StepId::default()));
    let found: Vec<Given> = given(&before, 0..1).into_iter().take(2).collect();
    let begun = receipts(&before, &found);
    let under_way = verdict(&begun);
    assert_eq!((under_way.epochs[0].state, under_way.epochs[0].pending), (EpochState::UnderWay, 5));
    // Its receipt has no step, and says as whose run it went on.
    let whole = verdict(&[begun, receipts(&after, &[])].concat());
    assert_eq!((whole.epochs[0].state, whole.epochs[0].dropped), (EpochState::Covered, 5), "{whole:?}");
    assert_eq!(whole.first_not_covered(1), None);
}

/// Some replicas were ahead by a step that wraps, and the rest of two epochs is less than a step each.
#[test]
fn an_epoch_of_which_everything_is_dropped_is_covered() {
    let world = World::new(2, 4).unwrap();
    let job = Job::new([20], BatchSize::PerReplica(4), world).policy(AutoShardPolicy::Data);
    let before = job.clone().last_batch(LastBatch::Wrap).plan().unwrap();
    let taken = [1, 1, 3, 1].into_iter().enumerate();
    let taken =
        taken.map(|(replica, batches)| given_from(&before, replica, StepId::default(), batches, 1000));
    let (found, next): (Vec<_>, Vec<_>) = taken.unzip();
    let (after, next) = before.resumed(&job.last_batch(LastBatch::Drop), &next).unwrap();
    assert_eq!((after.steps(2), after.steps(3)), (Ok(0), Ok(1)));
    let later = (0..4).flat_map(|replica| given_from(&after, replica, next[replica], usize::MAX, 4).0);
    let of_both = [receipts(&before, &found.concat()), receipts(&after, &later.collect::<Vec<_>>())].concat();
    let whole = verdict(&of_both);
    assert!(whole.is_sound() && whole.first_not_covered(4).is_none(), "{whole:?}");
    assert_eq!((whole.epochs[2].epoch, whole.epochs[2].dropped), (2, 20));
}

/// Of each step of 6 places, replica 1 was given the second half, and replica 0 nothing.
#[test]
fn what_a_step_had_of_a_later_epoch_is_dropped_with_the_rest() {
    let job = Job::new([2], BatchSize::PerReplica(3), World::new(1, 2).unwrap());
    let before = job.last_batch(LastBatch::Wrap).plan().unwrap();
    let found = given_from(&before, 1, StepId::default(), 1, 1000).0;
    let job = Job::new([2], BatchSize::PerReplica(2), World::ALONE).last_batch(LastBatch::Drop);
    let (after, next) = before.resumed(&job, &[(0, 0), (0, 1)].map(Into::into)).unwrap();
    assert_eq!((after.steps(0), after.steps(1), after.steps(2)), (Ok(1), Ok(0), Ok(0)));
    let later = given_from(&after, 0, next[0], usize::MAX, 2).0;
    let whole = verdict(&[receipts(&before, &found), receipts(&after, &later)].concat());
    assert!(whole.is_sound(), "{whole:?}");
    assert_eq!((whole.epochs[1].state, whole.epochs[1].dropped), (EpochState::Covered, 1), "{whole:?}");
    assert_eq!(whole.first_not_covered(2), None);
}

/// Neither what replica 1 had not reached nor the end of the second epoch fills a batch.
#[test]
fn an_epoch_after_all_steps_of_which_everything_is_dropped_is_covered() {
    let job = Job::new([3], BatchSize::PerReplica(2), World::new(1, 2).unwrap());
    let before = job.last_batch(LastBatch::Wrap).plan().unwrap();
    let found = given_from(&before, 0, StepId::default(), 1, 1000).0;
    let job = Job::new([3], BatchSize::PerReplica(3), World::ALONE).last_batch(LastBatch::Drop);
    let (after, next) = before.resumed(&job, &[(0, 1), (0, 0)].map(Into::into)).unwrap();
    assert_eq!((after.steps(0), after.steps(1), after.steps(2)), (Ok(0), Ok(0), Ok(1)));
    let later = given_from(&after, 0, next[0], usize::MAX, 2).0;
    assert!(later.is_empty());
    let whole = verdict(&[receipts(&before, &found), receipts(&after, &[])].concat());
    let dropped: Vec<_> = whole.epochs.iter().map(|epoch| (epoch.state, epoch.dropped)).collect();
    assert_eq!(dropped, [(EpochState::Covered, 1), (EpochState::Covered, 3)], "{whole:?}");
    assert_eq!(whole.first_not_covered(2), None);
}

/// What a replica is given from a step on, for at most this many batches and until an epoch begins; and its
/// next step.
fn given_from(
    plan: &Plan,
    replica: usize,
    mut next: StepId,
    batches: usize,
    until: u64,
) -> (Vec<Given>, StepId) {
    let (mut given, mut idle) = (Vec::new(), 0);
    while given.len() < batches && next.epoch < until && idle < 60 {
        let steps = plan.steps(next.epoch).unwrap();
        if next.step >= steps {
            next = StepId { epoch: next.epoch + 1, step: 0 };
            idle += 1;
            continue;
        }
        let end = StepEnd { epoch: next.epoch, step: next.step, is_last: next.step + 1 == steps };
        given.push(Given {
            replica,
            end,
            records: plan.share(next.epoch, next.step, replica).unwrap().collect(),
        });
        (next.step, idle) = (next.step + 1, 0);
    }
    (given, next)
}

/// Another job over the same data, in which each record is due as often.
fn another(
    plan: &Plan,
    world: (usize, usize),
    size: u64,
    is_global: bool,
    is_caffe: bool,
    last: usize,
) -> Job {
    let is_off = plan.policy().0 == AutoShardPolicy::Off;
    let workers = if is_off { plan.world().workers() } else { world.0 };
    let policy = if is_off { AutoShardPolicy::Off } else { AutoShardPolicy::Data };
    let is_one = !is_off || workers == 1;
    let batch = if is_global { BatchSize::Global(size) } else { BatchSize::PerReplica(size) };
    // Workers with their own streams do not wrap.
    let last = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad, LastBatch::Wrap][last];
    let last = if is_one || last != LastBatch::Wrap { last } else { LastBatch::Keep };
    let assignment = if is_caffe && is_one { Assignment::Caffe } else { Assignment::TensorFlow };
    let job = plan.job().clone().policy(policy).batch(batch).last_batch(last).assignment(assignment);
    job.world(World::new(workers, workers * world.1).unwrap())
}

/// What each replica of a run was given, `cut` batches and some more; and their next steps.
fn begun(plan: &Plan, cut: usize, ahead: &[usize]) -> (Vec<Given>, Vec<StepId>) {
    let (mut begun, mut next) = (Vec::new(), Vec::new());
    for replica in 0..plan.world().replicas() {
        let ahead = ahead[replica % ahead.len()];
        let (given, at) = given_from(plan, replica, StepId::default(), cut + ahead, 1000);
        begun.extend(given);
        next.push(at);
    }
    (begun, next)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Cut anywhere, with replicas at different steps, and resumed as any other job.
    #[test]
    fn a_run_that_went_on_as_another_job_is_sound_and_one_that_lost_a_batch_is_not(
        plan in plans(), cut in 0_usize..12, ahead in prop::collection::vec(0_usize..3, 3),
        world in (1_usize..4, 1_usize..4), size in 1_u64..7, is_global: bool, is_caffe: bool,
        last in 0_usize..4, lost: Index,
    ) {
        prop_assume!(plan.job().records() > 0);
        let job = another(&plan, world, size, is_global, is_caffe, last);
        prop_assume!(job.plan().is_ok_and(|plan| plan.steps(0).unwrap() > 0));
        let (before, next) = begun(&plan, cut, &ahead);
        let (after_plan, next) = plan.resumed(&job, &next).unwrap();
        // With an epoch more, should a step have taken whole ones.
        let mut later = next[0].epoch + 1..;
        let until = later.find(|&epoch| after_plan.steps(epoch).unwrap() > 0).unwrap() + 1;
        let replicas = 0..after_plan.world().replicas();
        let given_after = |replica| given_from(&after_plan, replica, next[replica], usize::MAX, until).0;
        let after: Vec<Given> = replicas.flat_map(given_after).collect();
        let of = |before: &[Given], after: &[Given]| {
            verdict(&[receipts(&plan, before), receipts(&after_plan, after)].concat())
        };
        let found = of(&before, &after);
        let said: String = found.epochs.iter().map(|epoch| format!("{epoch}\n")).collect();
        prop_assert!(found.is_sound(), "{:?} and {:?}: {}", plan, after_plan, said);
        let mut epochs: Vec<u64> = found.epochs.iter().map(|epoch| epoch.epoch).collect();
        epochs.dedup();
        prop_assert_eq!(epochs.len(), found.epochs.len(), "each epoch is judged once");
        // Lose a batch of the epoch in which the run resumed, or of the one before.
        let of_change: Vec<usize> =
            (0..before.len()).filter(|&batch| !before[batch].records.is_empty()).collect();
        if !of_change.is_empty() && after.iter().any(|given| given.end.epoch > next[0].epoch) {
            let mut lacking = before.clone();
            lacking.remove(of_change[lost.index(of_change.len())]);
            // An epoch that is now in no receipt is missed only if it is asked for.
            let found = of(&lacking, &after);
            prop_assert!(!found.is_sound() || found.first_not_covered(next[0].epoch + 1).is_some());
        }
    }

    /// Whatever it drops, and whichever epochs its batches had wrapped into.
    #[test]
    fn a_run_that_went_on_as_another_job_has_covered_its_epochs_and_is_sound_wherever_it_stops(
        plan in plans(), cut in 0_usize..12, ahead in prop::collection::vec(0_usize..3, 3),
        world in (1_usize..4, 1_usize..4), size in 1_u64..7, is_global: bool, is_caffe: bool,
        last in 0_usize..4, more in 1_u64..3, stop in 0_usize..8,
    ) {
        prop_assume!(plan.job().records() > 0);
        let job = another(&plan, world, size, is_global, is_caffe, last);
        prop_assume!(job.plan().is_ok_and(|plan| plan.steps(0).unwrap() > 0));
        let (before, next) = begun(&plan, cut, &ahead);
        let (after, next) = plan.resumed(&job, &next).unwrap();
        // A replica may be an epoch ahead of others, and all get to the end of that one.
        let until = next.iter().map(|next| next.epoch).max().unwrap() + more;
        let later = |batches| -> Vec<Given> {
            let of_replica = |replica| given_from(&after, replica, next[replica], batches, until).0;
            (0..after.world().replicas()).flat_map(of_replica).collect()
        };
        let of = |later: &[Given]| {
            let found = verdict(&[receipts(&plan, &before), receipts(&after, later)].concat());
            let said: String = found.epochs.iter().map(|epoch| format!("{epoch}\n")).collect();
            (found, format!("{plan:?} and {after:?}: {said}"))
        };
        let (whole, said) = of(&later(usize::MAX));
        prop_assert!(whole.is_sound(), "{}", said);
        prop_assert_eq!(whole.first_not_covered(until), None, "{}", said);
        // If a replica of a job got to the end of an epoch, what others had not reached is missing until it
        // is delivered.
        let given = later(stop);
        let ended = given.iter().filter(|given| given.end.is_last).map(|given| given.end.epoch);
        let is_even = ended.clone().all(|epoch| {
            ended.clone().filter(|&other| other == epoch).count() == after.world().replicas()
        });
        if is_even && verdict(&receipts(&plan, &before)).is_sound() {
            let (stopped, said) = of(&given);
            prop_assert!(stopped.is_sound(), "{}", said);
        }
    }
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
    assert_eq!(Verdict::of([]), Err(ReceiptError::None));
}

/// The content hash of a record in these tests.
fn content(index: u64) -> ContentHash {
    let [low, high] = [1, 2].map(|half| splitmix::fold(half, &[index]));
    ContentHash(u128::from(high) << 64 | u128::from(low))
}

/// The digest of a data set of this many records, parsed from its text.
fn data(records: u64, detail: DigestDetail) -> DataDigest {
    let sum = (0..records).fold(0, |sum: u128, index| sum.wrapping_add(content(index).0));
    let mut text = TextWriter::new("digest", 1);
    text.fact("source", "made/up");
    text.fact("contents", format_args!("{sum:032x} of {records}"));
    let each: Vec<u64> = (0..records).map(|index| content(index).low()).collect();
    if detail == DigestDetail::EachRecord {
        for line in each.chunks(64) {
            text.fact("each", line.iter().map(|low| format!("{low:016x}")).collect::<String>());
        }
    }
    let text = text.checksum();
    let data: DataDigest = text.parse().unwrap();
    assert_eq!((data.to_string(), data.detail()), (text, detail));
    data
}

/// One receipt per worker, with contents; `holds` gives each record's content hash.
fn receipts_of_contents(
    plan: &Plan,
    given: &[Given],
    holds: impl Fn(RecordId, usize) -> ContentHash,
) -> Vec<Receipt> {
    let receipt = |worker| {
        let mut receipt = Receipt::new("made/up", &Identity::new(), plan);
        for replica in plan.world().replicas_of(worker).unwrap() {
            let mut ledger = Ledger::of(replica);
            for (number, given) in given.iter().enumerate().filter(|(_, given)| given.replica == replica) {
                let contents: Vec<_> = given.records.iter().map(|&record| holds(record, number)).collect();
                ledger.fold(Some(given.end), &given.records, &contents, &[]);
            }
            receipt.add(&ledger);
        }
        let read = receipt.to_string().parse::<Receipt>().unwrap();
        assert_eq!(read, receipt);
        read
    };
    (0..plan.world().workers()).map(receipt).collect()
}

fn verdict_by(data: &DataDigest, receipts: &[Receipt]) -> Verdict {
    let names: Vec<String> = (0..receipts.len()).map(|number| format!("receipt {number}")).collect();
    Verdict::with_digest(("data", data), names.iter().map(String::as_str).zip(receipts)).unwrap()
}

proptest! {
    #[test]
    fn bytes_are_proven_wherever_a_run_stops_and_one_record_of_others_is_found(
        plan in plans(), epochs in 0_u64..3, stop: Index, which: Index, place: Index, bit in 0_u32..128,
    ) {
        let mut found = given(&plan, 0..epochs);
        let last = given(&plan, epochs..epochs + 1);
        let stop = if last.is_empty() { 0 } else { stop.index(last.len() + 1) };
        let stop = if last.get(stop).is_some_and(|given| given.end.is_last) { last.len() } else { stop };
        found.extend_from_slice(&last[..stop]);
        prop_assume!(found.iter().any(|given| !given.records.is_empty()));
        let records = plan.job().records();
        let [sum, each] = [DigestDetail::Sum, DigestDetail::EachRecord].map(|detail| data(records, detail));
        let right = receipts_of_contents(&plan, &found, |record, _| content(record.index));
        let (by_sum, by_each) = (verdict_by(&sum, &right), verdict_by(&each, &right));
        prop_assert!(by_each.is_sound(), "{by_each:?}");
        prop_assert!(by_each.epochs.iter().all(|epoch| epoch.contents == Some(ContentsVerdict::Proven)));
        for epoch in &by_sum.epochs {
            let is_whole = epoch.state == EpochState::Covered && epoch.dropped == 0;
            let due = if is_whole { ContentsVerdict::Proven } else { ContentsVerdict::NotKnown };
            prop_assert_eq!(epoch.contents.as_ref(), Some(&due));
        }
        let is_provable =
            by_sum.epochs.iter().all(|epoch| epoch.state != EpochState::Covered || epoch.dropped == 0);
        prop_assert_eq!(by_sum.is_sound(), is_provable);

        let full: Vec<usize> = (0..found.len()).filter(|&number| !found[number].records.is_empty()).collect();
        let number = full[which.index(full.len())];
        let changed = found[number].records[place.index(found[number].records.len())];
        let holds = |record: RecordId, at: usize| {
            let flip = if (record, at) == (changed, number) { 1 << bit } else { 0 };
            ContentHash(content(record.index).0 ^ flip)
        };
        let wrong = receipts_of_contents(&plan, &found, holds);
        let whole = verdict_by(&sum, &wrong);
        for (before, epoch) in by_sum.epochs.iter().zip(&whole.epochs) {
            let is_of_changed =
                epoch.epoch == changed.epoch && before.contents == Some(ContentsVerdict::Proven);
            let differs = matches!(&epoch.contents, Some(ContentsVerdict::Differ(_)));
            prop_assert_eq!(differs, is_of_changed);
        }
        // For an incomplete epoch, the low halves alone are compared.
        let each = verdict_by(&each, &wrong);
        prop_assert_eq!(each.is_sound(), bit >= 64 && whole == by_sum);
        if bit < 64 {
            let epoch = each.epochs.iter().find(|epoch| epoch.epoch == changed.epoch).unwrap();
            let Some(ContentsVerdict::Differ(differ)) = &epoch.contents else { panic!("{epoch:?}") };
            let worker = found[number].replica / plan.world().replicas_per_worker();
            prop_assert_eq!(&differ[0].receipts, &[format!("receipt {worker}")]);
            prop_assert_eq!((differ.len(), differ[0].found.records()), (1, differ[0].due.records()));
        }
    }
}

#[test]
fn bytes_that_differ_are_told_with_both_sums() {
    let plan = plan(40, 8, 1);
    let other = |record: RecordId, _| content(record.index + u64::from(record.index == 39));
    let wrong = receipts_of_contents(&plan, &given(&plan, 0..1), other);
    let verdict = verdict_by(&data(40, DigestDetail::Sum), &wrong);
    assert!(!verdict.is_sound());
    let said = verdict.epochs[0].to_string();
    let found = wrong[0].contents().next().unwrap().1;
    let due = data(40, DigestDetail::Sum).contents();
    let told = format!("\n  receipt 0: bytes differ from the data set's: digest {found}, expected {due}");
    assert!(said.starts_with("epoch 0: covered: 40 records") && said.ends_with(&told), "{said}");
}

#[test]
fn receipts_without_all_contents_prove_none() {
    let plan = plan(40, 8, 2);
    let all = given(&plan, 0..1);
    let with = receipts_of_contents(&plan, &all, |record, _| content(record.index));
    let without = receipts(&plan, &all);
    let data = data(40, DigestDetail::EachRecord);
    let found = verdict_by(&data, &[with[0].clone(), without[1].clone()]);
    assert!(!found.is_sound());
    let receipts = vec!["receipt 1".to_owned()];
    assert_eq!(found.epochs[0].contents, Some(ContentsVerdict::NotSaid { receipts }));
    assert!(verdict(&[with[0].clone(), without[1].clone()]).is_sound(), "nobody asked");
}

#[test]
fn a_digest_of_another_length_and_one_that_contradicts_itself_are_refused() {
    let plan = plan(40, 8, 1);
    let receipt =
        receipts_of_contents(&plan, &given(&plan, 0..1), |record, _| content(record.index)).remove(0);
    let error = Verdict::with_digest(("d", &data(41, DigestDetail::Sum)), [("r", &receipt)]).unwrap_err();
    let said = "d has \"41 records\", and r has \"40 records\": they do not belong to the same data set";
    assert!(error.to_string().starts_with(said), "{error}");
    let text = data(40, DigestDetail::EachRecord).to_string();
    for (from, to, due) in [
        (" of 40\n", " of 39\n", "hashes of 39 records"),
        ("each ", "each 0", "16 hexadecimal digits"),
        ("each ", "each +", "16 hexadecimal digits"),
        (" of 40\n", " of many\n", "a sum and how many"),
        ("source ", "sauce ", "\"source ...\""),
    ] {
        let body = text.replacen(from, to, 1);
        let body = &body[..body.rfind("checksum").unwrap()];
        let unverified = format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()));
        let error = unverified.parse::<DataDigest>().unwrap_err();
        assert!(error.to_string().contains(due), "{error}");
    }
}

/// Receipts of earlier releases have neither samples nor contents.
#[test]
fn receipts_of_the_first_version_are_read() {
    let plan = plan(40, 8, 1);
    let receipt = receipts(&plan, &given(&plan, 0..1)).remove(0);
    let text = receipt.to_string().replace("receipt 2\n", "receipt 1\n");
    let body = &text[..text.rfind("checksum").unwrap()];
    let text = format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()));
    assert_eq!(text.parse::<Receipt>().unwrap(), receipt);
}
