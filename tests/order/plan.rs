//! Who gets which record, and when, is arithmetic. It is compared with TensorFlow's own results
//! (`golden/distribute.json`), with a naive twin that cuts up lists, and with the invariants of every job.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::Path;

use percolator::order::{
    Assignment, AutoShardPolicy, BatchSize, Job, OrderError, Plan, World, batch_sizes_for_worker, rebatch,
};
use percolator::record::{RecordId, StepId};
use percolator::{LastBatch, Shuffle};
use proptest::prelude::*;
use serde_json::Value;

/// The records of each replica at each step.
type Steps = Vec<Vec<Vec<u64>>>;

fn golden(kind: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden/distribute.json");
    let mut cases: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let cases: Vec<Value> = serde_json::from_value(cases[kind].take()).unwrap();
    assert!(!cases.is_empty());
    cases
}

fn number(case: &Value, name: &str) -> u64 {
    case[name].as_u64().unwrap()
}

fn size(case: &Value, name: &str) -> usize {
    usize::try_from(number(case, name)).unwrap()
}

fn lists<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn ids(plan: &Plan, epoch: u64) -> Vec<Vec<Vec<RecordId>>> {
    let replicas = 0..plan.world().replicas();
    let shares =
        |step| replicas.clone().map(|replica| plan.share(epoch, step, replica).unwrap().collect()).collect();
    (0..plan.steps(epoch).unwrap()).map(shares).collect()
}

fn steps(plan: &Plan, epoch: u64) -> Steps {
    let indices = |records: Vec<RecordId>| records.into_iter().map(|record| record.index).collect();
    let of_step = |step: Vec<Vec<RecordId>>| step.into_iter().map(indices).collect();
    ids(plan, epoch).into_iter().map(of_step).collect()
}

#[test]
fn a_global_batch_is_divided_as_tensorflow_divides_it() {
    for case in golden("mirrored") {
        let world = World::new(1, size(&case, "replicas")).unwrap();
        let job =
            Job::new([number(&case, "records")], BatchSize::Global(number(&case, "global_batch")), world);
        let drops = case["drop_remainder"].as_bool().unwrap();
        let job = job.last_batch(if drops { LastBatch::Drop } else { LastBatch::Keep });
        assert_eq!(steps(&job.plan().unwrap(), 0), lists::<Steps>(&case["steps"]), "{case}");
    }
}

#[test]
fn batches_from_a_function_go_to_replicas_as_tensorflow_gives_them() {
    for case in golden("from_function") {
        let world = World::new(1, size(&case, "replicas")).unwrap();
        let batch = BatchSize::PerReplica(number(&case, "per_replica_batch"));
        let plan = Job::new([number(&case, "records")], batch, world).plan().unwrap();
        assert_eq!(steps(&plan, 0), lists::<Steps>(&case["steps"]), "{case}");
    }
}

#[test]
fn records_are_rebatched_as_tensorflow_does_it() {
    for case in golden("rebatch") {
        let sizes = match &case["batch_sizes"] {
            Value::Number(size) => vec![size.as_u64().unwrap()],
            sizes => lists(sizes),
        };
        let (mut records, batch) = (number(&case, "records"), number(&case, "batch"));
        if case["batch_drop_remainder"].as_bool().unwrap() {
            records -= records % batch;
        }
        let batches = rebatch(records, &sizes, case["drop_remainder"].as_bool().unwrap()).unwrap();
        let batches: Vec<Vec<u64>> = batches.map(Iterator::collect).collect();
        assert_eq!(batches, lists::<Vec<Vec<u64>>>(&case["out"]), "{case}");
    }
}

#[test]
fn workers_batch_sizes_are_tensorflows() {
    for case in golden("batch_sizes_for_worker") {
        let workers = size(&case, "workers");
        let world = World::new(workers, workers * size(&case, "replicas_per_worker")).unwrap();
        let sizes =
            (0..workers).map(|worker| batch_sizes_for_worker(world, number(&case, "global_batch"), worker));
        assert_eq!(
            sizes.collect::<Result<Vec<_>, _>>().unwrap(),
            lists::<Vec<Vec<u64>>>(&case["sizes"]),
            "{case}"
        );
    }
}

/// The data set of a sharding case: the number of records in each file, and TensorFlow's name for each
/// record.
fn files_of(case: &Value) -> (Vec<u64>, Vec<u64>) {
    if case["source"] == "files" {
        let files: Vec<Vec<u64>> = lists(&case["files"]);
        (files.iter().map(|file| file.len() as u64).collect(), files.concat())
    } else {
        let records = number(case, "records");
        (vec![records], (0..records).collect())
    }
}

#[test]
fn workers_read_what_tensorflows_read() {
    let (mut compared, mut refused) = (0, 0);
    for case in golden("auto_shard") {
        let (files, names) = files_of(&case);
        let workers = size(&case, "workers");
        let policy = match case["policy"].as_str().unwrap() {
            "AUTO" => AutoShardPolicy::Auto,
            "FILE" => AutoShardPolicy::File,
            "DATA" => AutoShardPolicy::Data,
            "OFF" => AutoShardPolicy::Off,
            other => panic!("{other}"),
        };
        // TensorFlow refuses workers that would get no batch; here they get empty ones.
        if case["out"].as_array().unwrap().iter().any(Value::is_string) {
            refused += 1;
            continue;
        }
        compared += 1;
        let out: Vec<Vec<Vec<u64>>> = lists(&case["out"]);
        // The batches of a worker, in order, do not depend on how many replicas it deals them to.
        for each in 1..4 {
            let world = World::new(workers, workers * each).unwrap();
            let batch = BatchSize::PerReplica(number(&case, "batch"));
            let plan = Job::new(&*files, batch, world).policy(policy).plan().unwrap();
            let steps = steps(&plan, 0);
            for (worker, due) in out.iter().enumerate() {
                let replicas = world.replicas_of(worker).unwrap();
                let batches = steps.iter().flat_map(|step| step[replicas.clone()].iter());
                let name = |position: &u64| names[usize::try_from(*position).unwrap()];
                let mut read: Vec<Vec<u64>> = batches.map(|batch| batch.iter().map(name).collect()).collect();
                read.truncate(read.iter().rposition(|batch| !batch.is_empty()).map_or(0, |last| last + 1));
                assert_eq!(read, *due, "worker {worker} of {case}");
            }
        }
    }
    assert!(compared >= 20, "{compared} compared, {refused} refused");
}

/// The naive way: lists that are cut up, as the rules say.
fn naive(files: &[u64], batch: BatchSize, world: World, policy: AutoShardPolicy, last: LastBatch) -> Steps {
    let (workers, replicas, locals) = (world.workers(), world.replicas(), world.replicas_per_worker());
    let mut next = 0;
    let files = files.iter().map(|&records| {
        next += records;
        (next - records..next).collect::<Vec<u64>>()
    });
    let files: Vec<_> = files.collect();
    let all = files.concat();
    let every =
        |list: &[u64], worker| list.iter().copied().skip(worker).step_by(workers).collect::<Vec<u64>>();
    let chunks = |list: &[u64], size: u64| -> Vec<Vec<u64>> {
        let size = usize::try_from(size).unwrap();
        let chunks = list.chunks(size).filter(|chunk| last != LastBatch::Drop || chunk.len() == size);
        chunks.map(<[u64]>::to_vec).collect()
    };
    let shares = policy == AutoShardPolicy::Data || workers == 1;
    // For each worker, the batches of its replicas, concatenated.
    let of_worker = |worker: usize| -> Vec<Vec<u64>> {
        let stream = match policy {
            AutoShardPolicy::File if !shares => {
                files.iter().skip(worker).step_by(workers).flatten().copied().collect()
            }
            AutoShardPolicy::Hint if !shares => every(&all, worker),
            _ => all.clone(),
        };
        match batch {
            BatchSize::Global(global) if shares => {
                let divide = |batch: Vec<u64>| {
                    let each = batch.len().div_ceil(replicas).max(1);
                    let mut parts: Vec<_> = batch.chunks(each).map(<[u64]>::to_vec).collect();
                    parts.resize(replicas, Vec::new());
                    parts[worker * locals..(worker + 1) * locals].to_vec()
                };
                chunks(&stream, global).into_iter().flat_map(divide).collect()
            }
            BatchSize::Global(global) => {
                let stream = chunks(&stream, global).concat();
                let sizes = batch_sizes_for_worker(world, global, worker).unwrap();
                let batches = rebatch(stream.len() as u64, &sizes, false).unwrap();
                let at = |number: u64| usize::try_from(number).unwrap();
                batches.map(|batch| stream[at(batch.start)..at(batch.end)].to_vec()).collect()
            }
            BatchSize::PerReplica(each) if shares => {
                let batches = chunks(&stream, each);
                batches.into_iter().skip(worker).step_by(workers).collect()
            }
            BatchSize::PerReplica(each) => chunks(&stream, each),
            _ => unreachable!(),
        }
    };
    let of_workers: Vec<_> = (0..workers).map(of_worker).collect();
    let mut steps = Steps::new();
    loop {
        let begin = steps.len() * locals;
        let batch = |worker: usize, local: usize| of_workers[worker].get(begin + local).cloned();
        let seats = (0..workers).flat_map(|worker| (0..locals).map(move |local| (worker, local)));
        let step: Vec<Option<Vec<u64>>> = seats.map(|(worker, local)| batch(worker, local)).collect();
        let is_over = match last {
            LastBatch::Drop => step.iter().any(Option::is_none),
            _ => of_workers.iter().all(|batches| batches.iter().skip(begin).all(Vec::is_empty)),
        };
        if is_over {
            return steps;
        }
        steps.push(step.into_iter().map(Option::unwrap_or_default).collect());
    }
}

fn batch_size() -> impl Strategy<Value = BatchSize> {
    prop_oneof![(1_u64..20).prop_map(BatchSize::Global), (1_u64..8).prop_map(BatchSize::PerReplica)]
}

fn shuffle() -> impl Strategy<Value = Shuffle> {
    let window =
        (1_u64..20).prop_map(|records| Shuffle::Window { records: NonZeroU64::new(records).unwrap() });
    prop_oneof![Just(Shuffle::No), Just(Shuffle::Global), window]
}

fn policy() -> impl Strategy<Value = AutoShardPolicy> {
    use AutoShardPolicy::{Data, File, Hint, Off};
    prop::sample::select(vec![File, Data, Off, Hint])
}

/// How often each record comes.
fn counts(steps: &Steps) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for &record in steps.iter().flatten().flatten() {
        *counts.entry(record).or_insert(0) += 1;
    }
    counts
}

/// A leg of a run: the world it runs in, and where its replicas are when the world changes.
#[derive(Clone, Debug)]
struct Leg {
    batch: BatchSize,
    world: World,
    policy: AutoShardPolicy,
    assignment: Assignment,
    last: LastBatch,
    steps: u64,
    /// How many steps the replicas are ahead; replicas take turns through the list.
    ahead: Vec<u64>,
}

impl Leg {
    fn job(&self, run: &Job) -> Option<Job> {
        let Leg { batch, world, policy, assignment, last, .. } = self;
        let job = run.clone().policy(*policy).assignment(*assignment).last_batch(*last);
        let job = job.batch(*batch).world(*world);
        job.plan().is_ok().then_some(job)
    }
}

fn leg() -> impl Strategy<Value = Leg> {
    let sizes = (batch_size(), 1_usize..4, 1_usize..4);
    let rules = (policy(), prop::bool::weighted(0.2), 0_usize..4);
    let stop = (0_u64..25, prop::collection::vec(prop_oneof![3 => Just(0_u64), 1 => 0_u64..4], 1..4));
    (sizes, rules, stop).prop_map(|((batch, workers, locals), (policy, caffe, last), (steps, ahead))| Leg {
        batch,
        world: World::new(workers, workers * locals).unwrap(),
        policy,
        assignment: if caffe { Assignment::Caffe } else { Assignment::TensorFlow },
        last: [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad, LastBatch::Wrap][last],
        steps,
        ahead,
    })
}

/// Gives a replica this many steps, or all up to an epoch; returns where it is then.
fn give(
    plan: &Plan,
    replica: usize,
    mut next: StepId,
    is_over: impl Fn(StepId, u64) -> bool,
    given: &mut BTreeMap<RecordId, usize>,
) -> StepId {
    let (mut steps, mut idle) = (0, 0);
    while !is_over(next, steps) && idle < 60 {
        if next.step >= plan.steps(next.epoch).unwrap() {
            next = StepId { epoch: next.epoch + 1, step: 0 };
            idle += 1;
            continue;
        }
        for record in plan.share(next.epoch, next.step, replica).unwrap() {
            *given.entry(record).or_insert(0) += 1;
        }
        (next.step, steps, idle) = (next.step + 1, steps + 1, 0);
    }
    next
}

/// The end of the epoch in which a plan resumes and of the next one with steps: one step of a job that wraps
/// may have taken whole epochs.
fn end_of_two_epochs(plan: &Plan, start: StepId) -> u64 {
    let mut epochs = start.epoch + 1..;
    epochs.find(|&epoch| plan.steps(epoch).unwrap() > 0).unwrap() + 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn matches_naive(
        files in prop::collection::vec(0_u64..12, 1..7), batch in batch_size(), workers in 1_usize..5,
        locals in 1_usize..4,
        policy in policy(), drops: bool,
    ) {
        let world = World::new(workers, workers * locals).unwrap();
        prop_assume!(policy != AutoShardPolicy::File || files.len() >= workers);
        let last = if drops { LastBatch::Drop } else { LastBatch::Keep };
        let plan = Job::new(&*files, batch, world).policy(policy).last_batch(last).plan().unwrap();
        prop_assert_eq!(steps(&plan, 0), naive(&files, batch, world, policy, last));
    }

    #[test]
    fn every_record_of_an_epoch_comes_exactly_once(
        files in prop::collection::vec(0_u64..30, 1..7), batch in batch_size(), workers in 1_usize..5,
        locals in 1_usize..4,
        policy in policy(), shuffle in shuffle(), seed: u64, epoch in 0_u64..1000, last in 0_usize..3,
    ) {
        let world = World::new(workers, workers * locals).unwrap();
        prop_assume!(policy != AutoShardPolicy::File || files.len() >= workers);
        let last = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad][last];
        let job = Job::new(&*files, batch, world).policy(policy).last_batch(last).shuffle(shuffle).seed(seed);
        let plan = job.plan().unwrap();
        let steps = steps(&plan, epoch);
        let most = usize::try_from(plan.batch_size_max()).unwrap();
        prop_assert!(steps.iter().flatten().all(|share| share.len() <= most));
        let counts = counts(&steps);
        let records: u64 = files.iter().sum();
        let times = if policy == AutoShardPolicy::Off { workers } else { 1 };
        prop_assert!(counts.values().all(|&count| count <= times), "{counts:?}");
        if last == LastBatch::Drop {
            let each = steps.iter().map(|step| step.iter().map(Vec::len).sum::<usize>());
            prop_assert!(each.collect::<std::collections::BTreeSet<_>>().len() <= 1, "all steps are full");
        } else {
            prop_assert!(counts.keys().copied().eq(0..records), "{counts:?} of {records}");
            prop_assert!(counts.values().all(|&count| count == times));
        }
        let replica = workers * locals - 1;
        let count = plan.steps(epoch).unwrap();
        prop_assert_eq!(
            plan.share(epoch, count, replica).unwrap_err(),
            OrderError::NoSuchStep { epoch, step: count, steps: count }
        );
    }

    /// Shuffling changes which record is at a place, but no place, and so does not depend on the number of
    /// replicas.
    #[test]
    fn the_order_of_an_epoch_is_that_of_any_world(
        records in 0_u64..200, replicas in 1_usize..9, batch in 1_u64..20, shuffle in shuffle(), seed: u64,
        epoch in 0_u64..9,
    ) {
        let world = World::new(1, replicas).unwrap();
        let job = Job::new([records], BatchSize::Global(batch), world).shuffle(shuffle).seed(seed);
        let alone =
            Job::new([records], BatchSize::Global(records.max(1)), World::ALONE).shuffle(shuffle).seed(seed);
        let order = steps(&alone.plan().unwrap(), epoch).concat().concat();
        prop_assert_eq!(steps(&job.plan().unwrap(), epoch).concat().concat(), order);
    }

    /// A run that is cut anywhere and resumes in another world, again and again.
    #[test]
    fn whatever_worlds_a_run_goes_through_every_record_comes_exactly_once(
        files in prop::collection::vec(0_u64..30, 1..5), shuffle in shuffle(), seed: u64,
        legs in prop::collection::vec(leg(), 1..5), replicas in 1_usize..5,
    ) {
        let records: u64 = files.iter().sum();
        prop_assume!(records > 0);
        let run = Job::new(&*files, BatchSize::PerReplica(1), World::ALONE).shuffle(shuffle).seed(seed);
        let mut plan = run.plan().unwrap();
        let (mut next, mut given) = (vec![StepId::default()], BTreeMap::new());
        for leg in legs.iter().filter(|leg| leg.policy != AutoShardPolicy::Off) {
            let Some(job) = leg.job(&run) else { continue };
            (plan, next) = plan.resumed(&job, &next).unwrap();
            for (replica, next) in next.iter_mut().enumerate() {
                let steps = leg.steps + leg.ahead[replica % leg.ahead.len()];
                *next = give(&plan, replica, *next, |_, given| given == steps, &mut given);
            }
        }
        let job = run.clone().batch(BatchSize::Global(7)).world(World::new(1, replicas).unwrap());
        (plan, next) = plan.resumed(&job, &next).unwrap();
        let end = end_of_two_epochs(&plan, next[0]);
        for (replica, next) in next.iter().enumerate() {
            give(&plan, replica, *next, |next, _| next.epoch == end, &mut given);
        }
        prop_assert!(given.values().all(|&count| count == 1), "{given:?}");
        if legs.iter().all(|leg| leg.last != LastBatch::Drop) {
            let all = (0..end).flat_map(|epoch| (0..records).map(move |index| RecordId { epoch, index }));
            prop_assert!(given.keys().copied().eq(all), "{given:?}");
        }
    }

    /// Mixed files come in their proportions, each in passes of its own, in whatever worlds.
    #[test]
    fn files_that_are_mixed_come_in_exact_proportions_in_whatever_worlds(
        files in prop::collection::vec((1_u64..20, 1_u64..6), 1..5), shuffle in shuffle(), seed: u64,
        legs in prop::collection::vec(leg(), 0..4),
    ) {
        let (records, weights): (Vec<u64>, Vec<u64>) = files.iter().copied().unzip();
        let run = Job::new(&*records, BatchSize::PerReplica(1), World::ALONE)
            .mix(&*weights)
            .shuffle(shuffle)
            .seed(seed);
        let mut plan = run.plan().unwrap();
        let (mut next, mut given) = (vec![StepId::default()], BTreeMap::new());
        let keeps = |leg: &&Leg| leg.last != LastBatch::Drop && leg.policy == AutoShardPolicy::Data;
        for leg in legs.iter().filter(keeps) {
            let Some(job) = leg.job(&run) else { continue };
            (plan, next) = plan.resumed(&job, &next).unwrap();
            for (replica, next) in next.iter_mut().enumerate() {
                let steps = leg.steps + leg.ahead[replica % leg.ahead.len()];
                *next = give(&plan, replica, *next, |_, given| given == steps, &mut given);
            }
        }
        (plan, next) = plan.resumed(&run.clone().batch(BatchSize::Global(7)), &next).unwrap();
        let end = end_of_two_epochs(&plan, next[0]);
        give(&plan, 0, next[0], |next, _| next.epoch == end, &mut given);
        prop_assert!(given.values().all(|&count| count == 1), "{given:?}");
        // The same number of each file in every epoch, pass after pass.
        let divisor = (1..=weights[0])
            .rev()
            .find(|divisor| weights.iter().all(|weight| weight % divisor == 0))
            .unwrap();
        let weights = weights.iter().map(|weight| weight / divisor);
        let rounds = records
            .iter()
            .zip(weights.clone())
            .map(|(records, weight)| records.div_ceil(weight))
            .max()
            .unwrap();
        let mut begin = 0;
        for (&records, weight) in records.iter().zip(weights) {
            let of_file = given.keys().filter(|id| (begin..begin + records).contains(&id.index));
            let mut passes: Vec<u64> = of_file.map(|id| id.epoch).collect();
            passes.sort_unstable();
            let due = end * rounds * weight;
            prop_assert_eq!(passes.len() as u64, due);
            prop_assert!(passes.into_iter().eq((0..due).map(|draw| draw / records)));
            begin += records;
        }
    }

    /// If every worker reads all records, the world that an epoch began in decides how often each record
    /// comes.
    #[test]
    fn an_epoch_that_all_workers_read_whole_is_ended_by_others(
        records in 1_u64..40, shuffle in shuffle(), batch in batch_size(), workers in 1_usize..5,
        others in 1_usize..5, steps in 1_u64..9,
    ) {
        let job = |workers| {
            let world = World::new(workers, workers).unwrap();
            Job::new([records], batch, world).policy(AutoShardPolicy::Off).shuffle(shuffle)
        };
        let (plan, mut given) = (job(workers).plan().unwrap(), BTreeMap::new());
        let mut next = vec![StepId::default(); workers];
        for (replica, next) in next.iter_mut().enumerate() {
            *next = give(&plan, replica, *next, |next, given| given == steps || next.epoch == 1, &mut given);
        }
        let (plan, next) = plan.resumed(&job(others), &next).unwrap();
        for (replica, next) in next.iter().enumerate() {
            give(&plan, replica, *next, |next, _| next.epoch == 2, &mut given);
        }
        for (record, &count) in &given {
            prop_assert_eq!(count, if record.epoch == 0 { workers } else { others }, "{}", record);
        }
        prop_assert_eq!(given.len() as u64, 2 * records);
    }

    /// Caffe's dealing rule, which `reader` follows.
    #[test]
    fn by_caffes_rule_record_g_goes_to_replica_g_mod_n(
        records in 1_u64..50, replicas in 1_usize..6, each in 1_u64..6, shuffle in shuffle(), seed: u64,
    ) {
        let world = World::new(1, replicas).unwrap();
        let job = Job::new([records], BatchSize::PerReplica(each), world).assignment(Assignment::Caffe);
        let job = job.shuffle(shuffle).seed(seed);
        let plan = job.plan().unwrap();
        let alone =
            Job::new([records], BatchSize::PerReplica(records), World::ALONE).shuffle(shuffle).seed(seed);
        let alone = alone.plan().unwrap();
        let ring: Vec<RecordId> = (0..9).flat_map(|epoch| ids(&alone, epoch).concat().concat()).collect();
        let mut g = 0;
        for step in (0..4).flat_map(|epoch| ids(&plan, epoch)) {
            for turn in 0..usize::try_from(each).unwrap() {
                for share in &step {
                    if let Some(due) = ring.get(g) {
                        prop_assert_eq!(share[turn], *due, "record {}", g);
                    }
                    g += 1;
                }
            }
        }
        prop_assert!(g as u64 >= 4 * records);
    }

    #[test]
    fn a_round_robin_run_that_is_cut_at_the_epoch_leaves_nothing_out(
        records in 0_u64..50, replicas in 1_usize..6, each in 1_u64..6, last in 0_usize..2,
    ) {
        let world = World::new(1, replicas).unwrap();
        let job = Job::new([records], BatchSize::Global(each * replicas as u64), world);
        let last = [LastBatch::Keep, LastBatch::Drop][last];
        let steps = steps(&job.assignment(Assignment::Caffe).last_batch(last).plan().unwrap(), 3);
        for (number, step) in steps.iter().enumerate() {
            for (replica, share) in step.iter().enumerate() {
                prop_assert!(share.iter().all(|record| record % replicas as u64 == replica as u64));
                prop_assert!(share.is_sorted() && (number + 1 == steps.len() || share.len() as u64 == each));
            }
        }
        let due =
            if last == LastBatch::Drop { records - records % (each * replicas as u64) } else { records };
        prop_assert!(counts(&steps).into_iter().eq((0..due).map(|record| (record, 1))));
    }

    /// Batches that wrap continue where those of the epoch before ended.
    #[test]
    fn batches_that_wrap_are_all_full(
        records in 1_u64..50, batch in batch_size(), locals in 1_usize..5, shuffle in shuffle(),
    ) {
        let world = World::new(2, 2 * locals).unwrap();
        let job = Job::new([records], batch, world)
            .last_batch(LastBatch::Wrap)
            .policy(AutoShardPolicy::Data)
            .shuffle(shuffle);
        let plan = job.plan().unwrap();
        let all: Vec<Vec<Vec<RecordId>>> = (0..5).flat_map(|epoch| ids(&plan, epoch)).collect();
        let sizes: Vec<Vec<usize>> = all.iter().map(|step| step.iter().map(Vec::len).collect()).collect();
        prop_assert!(sizes.windows(2).all(|pair| pair[0] == pair[1]), "{sizes:?}");
        let mut seen: Vec<RecordId> = all.concat().concat();
        prop_assert!(seen.len() as u64 >= 5 * records);
        seen.sort_unstable();
        let due = (0..).flat_map(|epoch| (0..records).map(move |index| RecordId { epoch, index }));
        // The last of them belong to an epoch that has only begun.
        let whole = seen.iter().filter(|record| record.epoch < 5).copied();
        prop_assert!(whole.eq(due.take(usize::try_from(5 * records).unwrap())));
    }
}

#[test]
fn what_cannot_be_divided_is_refused_in_words() {
    let world = |workers, replicas| World::new(workers, replicas).unwrap();
    let job = |batch, world| Job::new([10], batch, world);
    let refusal = |job: Job| job.plan().unwrap_err().to_string();
    let said = [
        (World::new(3, 4).unwrap_err().to_string(), "4 replicas cannot be divided evenly among 3 workers"),
        (refusal(job(BatchSize::Global(0), World::ALONE)), "the global batch is 0"),
        (
            refusal(job(BatchSize::PerReplica(u64::MAX), world(2, 2))),
            "too many: at most 8796093022208 are counted",
        ),
        (
            refusal(job(BatchSize::Global(4), world(2, 2)).policy(AutoShardPolicy::File)),
            "there are 1 for 2 workers: provide at least as many files as workers, or shard by DATA",
        ),
        (
            refusal(job(BatchSize::Global(5), world(2, 2)).assignment(Assignment::Caffe)),
            "a global batch of 5 records cannot be divided evenly among 2 replicas",
        ),
        (
            refusal(
                job(BatchSize::Global(4), world(2, 2))
                    .assignment(Assignment::Caffe)
                    .policy(AutoShardPolicy::Off),
            ),
            "and DATA, not OFF",
        ),
        (
            refusal(
                job(BatchSize::Global(4), world(2, 2))
                    .policy(AutoShardPolicy::Hint)
                    .last_batch(LastBatch::Wrap),
            ),
            "instead of HINT",
        ),
        (
            refusal(Job::new([0], BatchSize::Global(1), World::ALONE).last_batch(LastBatch::Wrap)),
            "has no records",
        ),
        (refusal(Job::new([1 << 43, 1], BatchSize::Global(1), World::ALONE)), "records are too many"),
        (World::new(1 << 17, 1 << 17).unwrap_err().to_string(), "the workers are too many: at most 65536"),
    ];
    for (said, due) in said {
        assert!(said.contains(due), "{said}");
    }
    let plan = job(BatchSize::Global(4), world(1, 2)).plan().unwrap();
    let far = plan.share(u64::MAX, 0, 0).unwrap_err();
    assert!(matches!(far, OrderError::TooMany { what: "records before this epoch", .. }), "{far}");
    assert_eq!(
        plan.share(0, 0, 2).unwrap_err(),
        OrderError::NoSuchMember { kind: "replica", found: 2, of: 2 }
    );
}
