//! One process's iterator over the steps of a job.

use std::sync::Arc;

use crate::agreement::{Agreement, Failure, JobFacts};
use crate::error::DistributeError;
use crate::input_workers::InputWorkers;
use crate::per_replica::PerReplica;
use crate::weights::{Reach, StepWeights};
use percolator::FeedError;
use percolator::bad::BadAction;
use percolator::feed::{Batch, Feed, Lane, take_step};
use percolator::order::{OrderError, World};
use percolator::record::StepEnd;

/// One process's iterator over the steps of a job: TensorFlow's `tf.distribute.DistributedIterator`, together
/// with its data set, which is not recreated for each iteration.
///
/// Each step has the next batch of each replica of this process. Drop the batches, on any thread, before
/// taking many more steps: a lane whose batches are all held has none to fill. After an error, or the end,
/// the iterator yields `None` for ever. Dropping it ends all feeds of this process. The
/// [collective's](InputWorkers::collective) other ends see that it has left once nothing here holds this end.
#[derive(Debug)]
#[must_use = "a job is fed step by step"]
pub struct DistributedIterator {
    world: World,
    names: Vec<String>,
    /// In the order of their replicas.
    pipelines: Vec<Pipeline>,
    replicas: Arc<[usize]>,
    end: End,
    reach: Reach,
    is_over: bool,
}

/// How the number of records of each replica, and the last step, are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Computed from the plan.
    Planned,
    /// Agreed by all processes at each step.
    Agreed { feeds: usize },
}

/// One feed of this process.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) worker: usize,
    pub(super) feed: Feed,
    lanes: Vec<Lane>,
}

impl Pipeline {
    pub(super) fn new(worker: usize, mut feed: Feed) -> Self {
        Pipeline { worker, lanes: feed.take_lanes().expect("a new feed has its lanes"), feed }
    }

    fn failure(&self, names: &[String], error: FeedError) -> Failure {
        let error = DistributeError::Worker { worker: names[self.worker].clone(), error: Box::new(error) };
        Failure { worker: self.worker, error }
    }
}

/// A step of a job: the batches of this process's replicas, and each replica's weight.
#[non_exhaustive]
#[derive(Debug)]
pub struct DistributedStep {
    /// The next batch of each replica of this process.
    pub batches: PerReplica<Batch>,
    /// The number of records of each replica of the whole job.
    pub weights: StepWeights,
    /// The number of the step, in a job with a plan.
    pub step: Option<StepEnd>,
}

impl DistributedIterator {
    /// Meets the other processes, if there is a collective, and starts. If the feeds could not be started,
    /// the other processes are informed first.
    pub(super) fn start(
        workers: &InputWorkers,
        pipelines: Result<Vec<Pipeline>, Failure>,
        end: End,
    ) -> Result<Self, DistributeError> {
        let world = workers.world();
        let started = match &pipelines {
            Ok(pipelines) => Ok(facts(world, pipelines, end)),
            Err(failure) => Err(failure.worker),
        };
        let met = workers.collective.as_ref().map(|collective| Agreement::meet(collective, workers, started));
        let pipelines = pipelines.map_err(|failure| failure.error)?;
        let reach = match met {
            Some(agreement) => Reach::Job(Arc::new(agreement?)),
            None if workers.is_split() => Reach::Unset,
            None => Reach::Here,
        };
        let here = workers.here().map(|(number, ..)| world.replicas_of(number));
        let replicas = here.collect::<Result<Vec<_>, OrderError>>()?.into_iter().flatten().collect();
        let names = workers.workers().iter().map(|worker| worker.name().to_owned()).collect();
        Ok(DistributedIterator { world, names, pipelines, replicas, end, reach, is_over: false })
    }

    /// The numbers of the job's workers and replicas.
    #[must_use]
    pub fn world(&self) -> World {
        self.world
    }

    /// The replicas of the job that are in this process.
    #[must_use]
    pub fn replicas(&self) -> &[usize] {
        &self.replicas
    }

    /// The feeds of this process, each with its worker's name, for their statistics and for cancelling them.
    /// Their lanes stay in the iterator.
    pub fn feeds(&self) -> impl Iterator<Item = (&str, &Feed)> {
        self.pipelines.iter().map(|pipeline| (&*self.names[pipeline.worker], &pipeline.feed))
    }

    /// The next batch of each replica of this process; none if its lane has ended.
    fn take(&mut self) -> Result<Vec<Option<Batch>>, Failure> {
        let mut taken = Vec::with_capacity(self.replicas.len());
        for pipeline in &mut self.pipelines {
            let batches = take_step(&mut pipeline.lanes);
            taken.extend(batches.map_err(|error| pipeline.failure(&self.names, error))?);
        }
        Ok(taken)
    }

    /// Replaces missing batches by empty ones.
    fn fill_up(&mut self, taken: Vec<Option<Batch>>) -> Result<Vec<Batch>, Failure> {
        let mut taken = taken.into_iter();
        let mut batches = Vec::with_capacity(self.replicas.len());
        for pipeline in &mut self.pipelines {
            for place in 0..pipeline.lanes.len() {
                let batch = match taken.next().flatten() {
                    Some(batch) => Ok(batch),
                    None => pipeline.lanes[place].empty_batch(),
                };
                batches.push(batch.map_err(|error| pipeline.failure(&self.names, error))?);
            }
        }
        Ok(batches)
    }

    fn next_planned(&mut self) -> Result<Option<DistributedStep>, DistributeError> {
        let taken = self.take().map_err(|failure| failure.error)?;
        let Some(end) = taken.iter().flatten().find_map(Batch::step) else { return Ok(None) };
        let batches = self.fill_up(taken).map_err(|failure| failure.error)?;
        let plan = self.pipelines[0].feed.plan().expect("the feed of a worker goes by a plan");
        let count = |replica| plan.share(end.epoch, end.step, replica).map(|share| share.len() as u64);
        let planned = (0..self.world.replicas()).map(count).collect::<Result<Vec<_>, OrderError>>()?;
        let counts = if self.goes_on_after_bad() { self.counted(&batches, planned)? } else { planned };
        Ok(Some(self.step(batches, counts, Some(end))))
    }

    /// Whether batches may have fewer records than the plan says. All processes of the job agree on it.
    fn goes_on_after_bad(&self) -> bool {
        let policies = self.pipelines.iter().map(|pipeline| pipeline.feed.spec().bad_records.action);
        policies.into_iter().any(|action| action != BadAction::Fail)
    }

    /// The number of good records of each replica: bad ones are known where they are. Without a collective,
    /// other processes' replicas have as many as planned.
    fn counted(&self, batches: &[Batch], mut planned: Vec<u64>) -> Result<Vec<u64>, DistributeError> {
        let mut words = vec![0; planned.len()];
        for (&replica, batch) in self.replicas.iter().zip(batches) {
            words[replica] = batch.len() as u64 + 1;
        }
        if let Reach::Job(agreement) = &self.reach {
            words = agreement.round(Ok(()), &words)?.into_iter().fold(vec![0; words.len()], joined);
        }
        let known = planned.iter_mut().zip(words).filter(|(_, word)| *word > 0);
        known.for_each(|(count, word)| *count = word - 1);
        Ok(planned)
    }

    fn next_agreed(&mut self) -> Result<Option<DistributedStep>, DistributeError> {
        let taken = self.take();
        // One word per replica: 0 if it has ended, otherwise its number of records plus 1.
        let mut words = vec![0; self.world.replicas()];
        for (&replica, batch) in self.replicas.iter().zip(taken.iter().flatten()) {
            words[replica] = batch.as_ref().map_or(0, |batch| batch.len() as u64 + 1);
        }
        let is_alone = matches!(self.reach, Reach::Here);
        if is_alone && taken.is_ok() && words.iter().all(|&word| word == 0) {
            return Ok(None);
        }
        // Before the round, so that a lack of memory for an empty batch is reported to the others now.
        let batches = taken.and_then(|taken| self.fill_up(taken));
        let (batches, words) = match &self.reach {
            Reach::Job(agreement) => {
                let state = batches.as_ref().map(|_| ()).map_err(|failure| failure.worker);
                let heard = agreement.round(state, &words);
                let batches = batches.map_err(|failure| failure.error)?;
                (batches, heard?.into_iter().fold(vec![0; words.len()], joined))
            }
            Reach::Here | Reach::Unset => (batches.map_err(|failure| failure.error)?, words),
        };
        if words.iter().all(|&word| word == 0) {
            return Ok(None);
        }
        let counts = words.into_iter().map(|word| word.saturating_sub(1)).collect();
        Ok(Some(self.step(batches, counts, None)))
    }

    fn step(&self, batches: Vec<Batch>, counts: Vec<u64>, step: Option<StepEnd>) -> DistributedStep {
        // Only now are all of them handed over.
        let lanes = self.pipelines.iter().flat_map(|pipeline| &pipeline.lanes);
        lanes.zip(&batches).for_each(|(lane, batch)| lane.count_delivered(batch));
        let batches = PerReplica::new(&self.replicas, batches);
        DistributedStep { batches, weights: StepWeights::new(counts, &self.reach), step }
    }
}

impl Iterator for DistributedIterator {
    type Item = Result<DistributedStep, DistributeError>;

    /// Returns the next step. Waits for its batches and, if steps are agreed on, for the other processes.
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let step = match self.end {
            End::Planned => self.next_planned(),
            End::Agreed { .. } => self.next_agreed(),
        };
        if !matches!(step, Ok(Some(_))) {
            self.is_over = true;
            if let Err(error) = &step {
                if let (Reach::Job(agreement), true) = (&self.reach, error.is_of_this_process()) {
                    agreement.resign(error);
                }
                // Processes that wait for this one see that it has left once nothing else here holds the
                // collective.
                self.reach = Reach::Unset;
            }
            for pipeline in &mut self.pipelines {
                pipeline.lanes.clear();
            }
        }
        step.transpose()
    }
}

impl std::iter::FusedIterator for DistributedIterator {}

fn facts(world: World, pipelines: &[Pipeline], end: End) -> JobFacts {
    match end {
        End::Agreed { feeds } => JobFacts::of(world, feeds, 0, ""),
        End::Planned => {
            let first = pipelines.first().map(|first| &first.feed);
            let steps = first.and_then(Feed::plan).and_then(|plan| plan.steps(0).ok()).unwrap_or(0);
            let schedule = first.map(Feed::schedule_text).unwrap_or_default();
            JobFacts::of(world, world.workers(), steps, &schedule)
        }
    }
}

/// Merges two processes' words for all replicas.
fn joined(words: Vec<u64>, more: Vec<u64>) -> Vec<u64> {
    words.into_iter().zip(more).map(|(one, other)| one.max(other)).collect()
}
