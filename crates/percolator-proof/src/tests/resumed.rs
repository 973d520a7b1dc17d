//! Runs that went on as another job, with another world or another rule for last batches.

use super::*;

#[test]
fn a_run_may_go_on_with_another_number_of_ranks() {
    let (before, after) = (plan(40, 8, 2), plan(40, 4, 4));
    let cut = |plan: &Plan, steps: Range<u64>| -> Vec<Given> {
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

/// A step of 18 places takes 18 epochs of one record. Replicas 0 and 3 were given the first six of them; what
/// the others had not reached comes by replica: epochs 6 to 8, 12 to 14, 9 to 11 and 15 to 17.
#[test]
fn an_epoch_that_comes_after_later_ones_is_not_absent_until_it_is_passed_over() {
    let job = Job::new([1], BatchSize::PerReplica(3), World::new(2, 6).unwrap());
    let job = job.policy(AutoShardPolicy::Data);
    let before = job.clone().last_batch(LastBatch::Wrap).plan().unwrap();
    let (found, next) = begun(&before, 0, &[1, 0, 0]);
    let job = job.batch(BatchSize::PerReplica(2)).world(World::ALONE).last_batch(LastBatch::Pad);
    let (after, next) = before.resumed(&job, &next).unwrap();
    let later = given_from(&after, 0, next[0], usize::MAX, 1).0;
    let of = |steps: &[usize]| {
        let given: Vec<_> = steps.iter().map(|&step| later[step].clone()).collect();
        verdict(&[receipts(&before, &found), receipts(&after, &given)].concat())
    };
    let epochs = |verdict: &Verdict| verdict.epochs.iter().map(|epoch| epoch.epoch).collect::<Vec<_>>();
    let stopped = of(&[0, 1]);
    assert_eq!(epochs(&stopped), [0, 1, 2, 3, 4, 5, 6, 7, 8, 12]);
    assert!(stopped.is_sound(), "{stopped:?}");
    assert_eq!(stopped.first_not_covered(13), Some(9));
    let lacking = of(&[0, 2]);
    assert_eq!((lacking.is_sound(), lacking.absent_epochs), (false, vec![8..9, 12..13]));
    let ended = of(&[0, 1, 2, 3, 5]);
    assert!(!ended.is_sound(), "{ended:?}");
    let whole = of(&[0, 1, 2, 3, 4, 5]);
    assert!(whole.is_sound() && whole.first_not_covered(18).is_none(), "{whole:?}");
    // A third job goes on after three steps, of which the last one is in no receipt.
    let job = after.job().clone().batch(BatchSize::PerReplica(4));
    let (third, next) = after.resumed(&job, &[StepId { epoch: 0, step: 3 }]).unwrap();
    let given = given_from(&third, 0, next[0], 1, 1).0;
    let all = [receipts(&before, &found), receipts(&after, &later[..2]), receipts(&third, &given)].concat();
    let lacking = verdict(&all);
    assert!(!lacking.is_sound());
    assert_eq!((lacking.absent_epochs.len(), &lacking.absent_epochs[0]), (1, &(13..15)));
}

/// With OFF each worker has all records, and what is left of them is one stream. Steps of five records leave
/// replica 3 nothing, and the last step, of four, gives it one.
#[test]
fn a_replica_that_gave_nothing_is_not_made_up_for_by_a_step_that_came_twice() {
    let world = World::new(4, 4).unwrap();
    let job = Job::new([9], BatchSize::Global(2), world).policy(AutoShardPolicy::Off);
    let before = job.plan().unwrap();
    let (found, next) = begun(&before, 1, &[0]);
    let (after, next) = before.resumed(&job.batch(BatchSize::Global(5)), &next).unwrap();
    let later: Vec<_> =
        (0..4).flat_map(|replica| given_from(&after, replica, next[replica], usize::MAX, 1).0).collect();
    let whole = verdict(&[receipts(&before, &found), receipts(&after, &later)].concat());
    assert!(whole.is_sound() && whole.first_not_covered(1).is_none(), "{whole:?}");
    // Replica 2 has the same record in step 4.
    let (of_replica_3, mut others): (Vec<_>, Vec<_>) =
        later.into_iter().partition(|given| given.replica == 3);
    let is_step_4 = |given: &&Given| (given.replica, given.end.step) == (2, 4);
    let doubled = others.iter().find(is_step_4).unwrap().clone();
    assert_eq!(doubled.records, of_replica_3[6].records);
    assert!(of_replica_3[..6].iter().all(|given| given.records.is_empty()));
    others.push(doubled);
    let lacking = verdict(&[receipts(&before, &found), receipts(&after, &others)].concat());
    let epoch = &lacking.epochs[0];
    assert_eq!((epoch.missing.count, epoch.doubled.count, epoch.state), (0, 0, EpochState::Broken));
    // That replica 3 has steps of this run, and not of the one before, is not known.
    assert!(epoch.missing_steps.is_empty());
    let doubled: Vec<_> = epoch.doubled_steps.iter().map(|of| (of.replica, of.steps.clone())).collect();
    assert_eq!(doubled, [(2, 4..5)]);
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
