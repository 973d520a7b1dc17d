//! A job and a plan as text, as snapshots and receipts contain them.

use super::job::{Assignment, BatchSize, Job, LastBatch};
use super::plan::{APART_MAX, COUNTED_MAX};
use super::range::StridedRange;
use super::remainder::Remainder;
use super::sharding::{Files, Shard, ShardName};
use super::world::MEMBERS_MAX;
use super::{AutoShardPolicy, OrderError, Plan, Shuffle, World};
use percolator_files::checked_text::{TextFault, TextReader, TextWriter};
use percolator_files::shown;

const POLICIES: [(AutoShardPolicy, &str); 5] = [
    (AutoShardPolicy::Auto, "auto"),
    (AutoShardPolicy::File, "file"),
    (AutoShardPolicy::Data, "data"),
    (AutoShardPolicy::Off, "off"),
    (AutoShardPolicy::Hint, "hint"),
];

const ASSIGNMENTS: [(Assignment, &str); 2] =
    [(Assignment::TensorFlow, "tensorflow"), (Assignment::Caffe, "caffe")];

const LAST_BATCHES: [(LastBatch, &str); 4] = [
    (LastBatch::Keep, "keep"),
    (LastBatch::Drop, "drop"),
    (LastBatch::Pad, "pad"),
    (LastBatch::Wrap, "wrap"),
];

fn name_of<T: Copy + PartialEq>(names: &[(T, &'static str)], value: T) -> &'static str {
    let named = names.iter().find(|(named, _)| *named == value);
    named.map(|(_, name)| *name).expect("every value has a name")
}

fn of_name<T: Copy>(names: &[(T, &'static str)], name: &str) -> Option<T> {
    names.iter().find(|(_, known)| *known == name).map(|(value, _)| *value)
}

fn wanted<T>(names: &[(T, &'static str)]) -> String {
    let names: Vec<_> = names.iter().map(|(_, name)| *name).collect();
    format!("one of {}", names.join(", "))
}

fn choice<T: Copy>(
    facts: &mut TextReader<'_>,
    name: &str,
    names: &[(T, &'static str)],
) -> Result<T, TextFault> {
    facts.value_by(name, &wanted(names), |value| of_name(names, value))
}

fn numbers(text: &str) -> Option<Vec<u64>> {
    text.split(' ').map(|number| number.parse().ok()).collect()
}

impl Job {
    /// Writes the job.
    pub(crate) fn write(&self, text: &mut TextWriter) {
        let files: Vec<String> = self.files.iter().map(ToString::to_string).collect();
        text.fact("files", files.join(" "));
        if !self.mix.is_empty() {
            let weights: Vec<String> = self.mix.iter().map(ToString::to_string).collect();
            text.fact("mix", weights.join(" "));
        }
        match self.batch {
            BatchSize::Global(records) => text.fact("batch", format_args!("global {records}")),
            BatchSize::PerReplica(records) => text.fact("batch", format_args!("replica {records}")),
        }
        text.fact("workers", self.world.workers());
        text.fact("replicas", self.world.replicas());
        text.fact("policy", name_of(&POLICIES, self.policy));
        text.fact("assignment", name_of(&ASSIGNMENTS, self.assignment));
        text.fact("last-batch", name_of(&LAST_BATCHES, self.last_batch_or_default()));
        match self.shuffle {
            Shuffle::No => text.fact("shuffle", "no"),
            Shuffle::Global => text.fact("shuffle", "global"),
            Shuffle::Files => text.fact("shuffle", "files"),
            Shuffle::Window { records } => text.fact("shuffle", format_args!("window {records}")),
        }
        text.fact("seed", self.seed);
    }

    /// Reads a job. [`plan`](Self::plan) checks whether it can be divided.
    pub(crate) fn read(facts: &mut TextReader<'_>) -> Result<Self, TextFault> {
        let files = facts.value_by("files", "the records of each", numbers)?;
        let mix = match facts.next_if("mix") {
            None => Vec::new(),
            Some(found) => numbers(found)
                .ok_or_else(|| facts.fault_before("\"mix ...\" with the weight of each file", found))?,
        };
        let batch = facts.value_by("batch", "\"global\" or \"replica\" and a number", |value| {
            let (of, records) = value.split_once(' ')?;
            let records = records.parse().ok()?;
            match of {
                "global" => Some(BatchSize::Global(records)),
                "replica" => Some(BatchSize::PerReplica(records)),
                _ => None,
            }
        })?;
        let workers = facts.parse("workers", "a number")?;
        let replicas = facts.value_by("replicas", "a multiple of the workers", |value| {
            World::new(workers, value.parse().ok()?).ok()
        })?;
        let policy = choice(facts, "policy", &POLICIES)?;
        let assignment = choice(facts, "assignment", &ASSIGNMENTS)?;
        let last_batch = choice(facts, "last-batch", &LAST_BATCHES)?;
        let shuffle =
            facts.value_by("shuffle", "one of no, global, files, window RECORDS", |value| match value {
                "no" => Some(Shuffle::No),
                "global" => Some(Shuffle::Global),
                "files" => Some(Shuffle::Files),
                window => {
                    let records = window.strip_prefix("window ")?.parse().ok()?;
                    Some(Shuffle::Window { records })
                }
            })?;
        let seed = facts.parse("seed", "a number")?;
        let job = Job::new(files, batch, replicas).mix(mix).policy(policy).assignment(assignment);
        Ok(job.last_batch(last_batch).shuffle(shuffle).seed(seed))
    }
}

/// The last place, counted across epochs, that a plan may have: the last epoch begins at a place that is
/// counted, and has at most as many records.
const PLACES_MAX: u64 = 2 * COUNTED_MAX;

impl Plan {
    /// Writes the plan.
    pub(crate) fn write(&self, text: &mut TextWriter) {
        self.job().write(text);
        let Some(rest) = self.rest() else { return };
        text.fact("rest", rest.epoch);
        if let Some(place) = rest.goes_on_at {
            text.fact("goes-on-at", place);
        }
        for (name, StridedRange { first, stride, len }) in rest.pieces() {
            let ShardName { policy, worker, workers } = name;
            let policy = name_of(&POLICIES, policy);
            text.fact("left", format_args!("{policy} {worker} {workers} {first} {stride} {len}"));
        }
    }

    /// The first fact in which two plans differ, as each has it, if there is one. A plan's facts are lines in
    /// the text of a snapshot or a receipt, such as `seed 7`. Those are compared whose name (`seed`)
    /// `is_compared` accepts. A long fact is cut short.
    #[must_use]
    pub fn difference(&self, other: &Plan, is_compared: impl Fn(&str) -> bool) -> Option<(String, String)> {
        let [ours, others] = [self, other].map(|plan| {
            let mut text = TextWriter::new("plan", 0);
            plan.write(&mut text);
            let text = text.checksum();
            // Skips the title, and the checksum, which is the last line.
            let facts = text.lines().skip(1).filter(|fact| !fact.starts_with("checksum "));
            let facts = facts.filter(|fact| fact.split(' ').next().is_some_and(&is_compared));
            facts.map(str::to_owned).collect::<Vec<_>>()
        });
        let fact = |facts: &[String], number| {
            shown::shortened(facts.get(number).map_or("nothing", String::as_str)).into_owned()
        };
        let number = (0..ours.len().max(others.len())).find(|&at| ours.get(at) != others.get(at))?;
        Some((fact(&ours, number), fact(&others, number)))
    }

    /// Reads a plan.
    pub(crate) fn read(facts: &mut TextReader<'_>) -> Result<Self, TextFault> {
        let job = Job::read(facts)?;
        let plan = job.plan();
        let plan =
            plan.map_err(|error| facts.fault_before("a job that can be divided", &error.to_string()))?;
        let Some(epoch) = facts.next_if("rest") else { return Ok(plan) };
        let Some(epoch) = epoch.parse().ok().filter(|&epoch| epoch < COUNTED_MAX) else {
            return Err(facts.fault_before("\"rest ...\" with an epoch", epoch));
        };
        let wrong = |facts: &TextReader<'_>, found: &str| {
            facts.fault_before(
                "\"left ...\" with a policy, a worker, the number of workers, and places of its shard",
                found,
            )
        };
        let (mut rest, records) = (Remainder::of(epoch), job.records_of_epoch());
        let end = records.saturating_mul(epoch + 1);
        if let Some(found) = facts.next_if("goes-on-at") {
            let farthest = end.saturating_add(records.saturating_mul(APART_MAX as u64)).min(PLACES_MAX);
            let places = end.saturating_add(1)..=farthest;
            let place = found.parse().ok().filter(|place| places.contains(place));
            let wrong = || {
                facts.fault_before(
                    "\"goes-on-at ...\" with a place after the epoch, by at most 2^20 epochs",
                    found,
                )
            };
            rest.goes_on_at = Some(place.ok_or_else(wrong)?);
        }
        let files = Files::of(&job.files).map_err(|error| wrong(facts, &error.to_string()))?;
        while let Some(found) = facts.next_if("left") {
            // A mixture has one shard.
            let piece = piece(found).filter(|(name, _)| !job.is_mixed() || *name == ShardName::ALL);
            let (name, range) = piece.ok_or_else(|| wrong(facts, found))?;
            // A shard without records has no places.
            let has_records =
                |shard: &Shard| if shard.records > 0 { Ok(()) } else { Err(OrderError::NoRecords) };
            let make = || job.shard(&files, name).and_then(|shard| has_records(&shard).map(|()| shard));
            let pushed = rest.push_of(name, range, make);
            pushed.map_err(|error| wrong(facts, &format!("{found}: {error}")))?;
        }
        // For each epoch that replicas were in, at most the whole epoch is left, for each worker that read
        // it.
        let first = rest.epochs().map_or(epoch, |(first, _)| first.min(epoch));
        let end = rest.goes_on_at.unwrap_or(end);
        let most = end.saturating_sub(records.saturating_mul(first)).saturating_mul(rest.workers_max());
        if rest.len() > most {
            return Err(wrong(facts, &format!("more than the {most} places that are possible")));
        }
        plan.with_rest(Some(rest)).map_err(|error| wrong(facts, &error.to_string()))
    }
}

fn piece(text: &str) -> Option<(ShardName, StridedRange)> {
    let (policy, numbers) = text.split_once(' ')?;
    let policy = of_name(&POLICIES, policy).filter(|policy| *policy != AutoShardPolicy::Auto)?;
    let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let [worker, workers, first, stride, len] = numbers.try_into().ok()?;
    let is_counted = |number| number <= PLACES_MAX;
    let is_within = worker < workers
        && workers <= MEMBERS_MAX as u64
        && stride > 0
        && len > 0
        && [first, stride, len].into_iter().all(is_counted);
    let end = len.checked_mul(stride)?.checked_add(first)?;
    (is_within && is_counted(end))
        .then_some((ShardName { policy, worker, workers }, StridedRange { first, stride, len }))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    #[test]
    fn a_job_is_read_as_it_was_written() {
        let world = World::new(2, 6).unwrap();
        let window = Shuffle::Window { records: NonZeroU64::new(100).unwrap() };
        for batch in [BatchSize::Global(7), BatchSize::PerReplica(3)] {
            for (policy, _) in POLICIES {
                for (assignment, _) in ASSIGNMENTS {
                    for shuffle in [Shuffle::No, Shuffle::Global, Shuffle::Files, window] {
                        let job = Job::new([3, 4], batch, world).policy(policy).assignment(assignment);
                        let job = job.shuffle(shuffle).seed(u64::MAX).last_batch(LastBatch::Drop).mix([2, 1]);
                        let mut text = TextWriter::new("job", 1);
                        job.write(&mut text);
                        let text = text.checksum();
                        let (mut facts, _) = TextReader::open(&text, "job", 1).unwrap();
                        assert_eq!(Job::read(&mut facts), Ok(job));
                        assert_eq!(facts.end(), Ok(()));
                    }
                }
            }
        }
    }

    /// Checks that a plan is read as it is written, and returns its text.
    fn read_as_written(plan: &Plan) -> String {
        let mut text = TextWriter::new("plan", 1);
        plan.write(&mut text);
        let text = text.checksum();
        let (mut facts, _) = TextReader::open(&text, "plan", 1).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(Plan::read(&mut facts).as_ref(), Ok(plan));
        assert_eq!(facts.end(), Ok(()));
        text
    }

    #[test]
    fn a_plan_that_resumes_is_read_as_it_was_written() {
        let job = |workers, batch| {
            Job::new([30, 20], BatchSize::Global(batch), World::new(workers, workers).unwrap())
        };
        let file = job(2, 7).policy(AutoShardPolicy::File).plan().unwrap();
        let (plan, _) = file.resumed(&job(3, 5), &[(4, 1).into(), (4, 2).into()]).unwrap();
        let text = read_as_written(&plan);
        assert!(text.contains("\nrest 4\nleft file 0 2 "), "{text}");
    }

    #[test]
    fn what_is_left_of_the_last_epoch_that_is_counted_is_read_as_it_was_written() {
        let job =
            |workers| Job::new([COUNTED_MAX], BatchSize::Global(15), World::new(workers, workers).unwrap());
        let (plan, _) = job(1).plan().unwrap().resumed(&job(2), &[(1, 100).into()]).unwrap();
        let text = read_as_written(&plan);
        let (first, len) = (COUNTED_MAX + 1500, COUNTED_MAX - 1500);
        assert!(text.contains(&format!("\nrest 1\nleft data 0 1 {first} 1 {len}\n")), "{text}");
    }

    #[test]
    fn what_goes_on_inside_an_epoch_is_read_as_it_was_written() {
        let job = |replicas| {
            let world = World::new(1, replicas).unwrap();
            Job::new([10], BatchSize::PerReplica(2), world).last_batch(LastBatch::Wrap)
        };
        // Of the steps of 6, the second one ends with two records of epoch 1. One replica has not had it.
        let next = [(1, 0), (0, 1), (1, 0)].map(Into::into);
        let wraps = job(1);
        let pads = wraps.clone().last_batch(LastBatch::Pad);
        for job_after in [&wraps, &pads] {
            let (plan, _) = job(3).plan().unwrap().resumed(job_after, &next).unwrap();
            let text = read_as_written(&plan);
            assert!(text.contains("\nrest 0\ngoes-on-at 12\nleft data 0 1 8 1 2\n"), "{text}");
        }
        let large = Job::new([COUNTED_MAX / 4], BatchSize::PerReplica(2), World::new(1, 1).unwrap());
        let large = large.last_batch(LastBatch::Wrap);
        for (job, epoch, wrong) in [
            (&wraps, 0, "10"),
            (&wraps, 0, "-1"),
            (&wraps, 0, "99999999999999"),
            (&pads, 0, "10"),
            (&pads, 0, "10485771"),
            // The end of the epoch cannot be counted.
            (&large, COUNTED_MAX - 1, "12"),
        ] {
            let mut text = TextWriter::new("plan", 1);
            job.write(&mut text);
            text.fact("rest", epoch);
            text.fact("goes-on-at", wrong);
            let text = text.checksum();
            let (mut facts, _) = TextReader::open(&text, "plan", 1).unwrap();
            assert!(matches!(Plan::read(&mut facts), Err(TextFault::Line { line: 12, .. })), "{wrong}");
        }
    }

    #[test]
    fn what_no_plan_has_left_is_refused() {
        let mut text = TextWriter::new("plan", 1);
        Job::new([3], BatchSize::Global(1), World::ALONE).write(&mut text);
        text.fact("rest", 0);
        text.fact("left", "data 1 1 0 1 1");
        let text = text.checksum();
        let (mut facts, _) = TextReader::open(&text, "plan", 1).unwrap();
        assert!(matches!(Plan::read(&mut facts), Err(TextFault::Line { line: 12, .. })));
    }
}
