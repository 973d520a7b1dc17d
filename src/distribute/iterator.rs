//! The steps of a job, as one of its processes has them.

use std::sync::Arc;

use super::agreement::{Agreement, Failure, JobFacts};
use super::error::DistributeError;
use super::input_workers::InputWorkers;
use super::per_replica::PerReplica;
use super::weights::{Reach, StepWeights};
use crate::error::FeedError;
use crate::feed::{Batch, Feed, Lane, take_step};
use crate::order::{OrderError, World};
use crate::record::StepEnd;

/// The steps of a job, as one of its processes has them: TensorFlow's `tf.distribute.DistributedIterator`, and its data
/// set, which is not made anew for each.
///
/// Each step has the next batch of each replica of this process. Drop them, on whichever threads, before many more steps are
/// taken: a lane whose batches are all held has none to fill. After an error, or the end, it yields `None` for ever. Dropping it
/// ends all feeds of this process, and the [collective's](InputWorkers::collective) other ends hear of it once nobody here
/// holds this one any more.
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

/// Where it is known from how many records each replica has, and which step is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By arithmetic.
    Planned,
    /// By what all say at each step; for so many feeds.
    Agreed { feeds: usize },
}

/// One feed of this process.
#[derive(Debug)]
pub(super) struct Pipeline {
    worker: usize,
    feed: Feed,
    lanes: Vec<Lane>,
}

impl Pipeline {
    pub(super) fn new(worker: usize, mut feed: Feed) -> Self {
        Pipeline { worker, lanes: feed.lanes(), feed }
    }

    pub(super) fn worker(&self) -> usize {
        self.worker
    }

    pub(super) fn feed(&self) -> &Feed {
        &self.feed
    }

    fn failure(&self, names: &[String], error: FeedError) -> Failure {
        let error = DistributeError::Worker { worker: names[self.worker].clone(), error: Box::new(error) };
        Failure { worker: self.worker, error }
    }
}

/// A step of a job: the batches of this process's replicas, and what each replica's part weighs.
#[non_exhaustive]
#[derive(Debug)]
pub struct DistributedStep {
    /// The next batch of each replica of this process.
    pub batches: PerReplica<Batch>,
    /// How many records each replica of the whole job has.
    pub weights: StepWeights,
    /// Which step it is, in a job that goes by a plan.
    pub step: Option<StepEnd>,
}

impl DistributedIterator {
    /// Meets the other processes, if there is a way to, and begins. Where the feeds could not be started, the others hear of
    /// it first.
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
        let met = workers.collective_of_job().map(|collective| Agreement::meet(collective, workers, started));
        let pipelines = pipelines.map_err(|failure| failure.error)?;
        let reach = match met {
            Some(agreement) => Reach::Job(Arc::new(agreement?)),
            None if workers.is_split() => Reach::Unsaid,
            None => Reach::Here,
        };
        let here = workers.here().map(|(number, ..)| world.replicas_of(number));
        let replicas = here.collect::<Result<Vec<_>, OrderError>>()?.into_iter().flatten().collect();
        let names = workers.workers().iter().map(|worker| worker.name().to_owned()).collect();
        Ok(DistributedIterator { world, names, pipelines, replicas, end, reach, is_over: false })
    }

    /// The job's workers and replicas.
    #[must_use]
    pub fn world(&self) -> World {
        self.world
    }

    /// Which replicas of the job are of this process.
    #[must_use]
    pub fn replicas(&self) -> &[usize] {
        &self.replicas
    }

    /// The feeds of this process, each with its worker's name, to be asked for their statistics, or to be cancelled. Their lanes
    /// are here.
    pub fn feeds(&self) -> impl Iterator<Item = (&str, &Feed)> {
        self.pipelines.iter().map(|pipeline| (&*self.names[pipeline.worker], &pipeline.feed))
    }

    /// The next batch of each replica of this process, or none where its lane has ended.
    fn take(&mut self) -> Result<Vec<Option<Batch>>, Failure> {
        let mut taken = Vec::with_capacity(self.replicas.len());
        for pipeline in &mut self.pipelines {
            match take_step(&mut pipeline.lanes) {
                Ok(batches) => taken.extend(batches),
                Err(error) => return Err(pipeline.failure(&self.names, error)),
            }
        }
        Ok(taken)
    }

    /// Puts empty batches where there are none.
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
        let counts = (0..self.world.replicas()).map(count).collect::<Result<_, OrderError>>()?;
        Ok(Some(self.step(batches, counts, Some(end))))
    }

    fn next_agreed(&mut self) -> Result<Option<DistributedStep>, DistributeError> {
        let taken = self.take();
        // What each replica says: nothing any more, or how many records, counted from 1.
        let mut said = vec![0; self.world.replicas()];
        for (&replica, batch) in self.replicas.iter().zip(taken.iter().flatten()) {
            said[replica] = batch.as_ref().map_or(0, |batch| batch.len() as u64 + 1);
        }
        let is_alone = matches!(self.reach, Reach::Here);
        if is_alone && taken.is_ok() && said.iter().all(|&word| word == 0) {
            return Ok(None);
        }
        // Before the round: should there be no memory for an empty batch, the others are told now.
        let batches = taken.and_then(|taken| self.fill_up(taken));
        let (batches, said) = match &self.reach {
            Reach::Job(agreement) => {
                let state = batches.as_ref().map(|_| ()).map_err(|failure| failure.worker);
                let heard = agreement.round(state, &said);
                let batches = batches.map_err(|failure| failure.error)?;
                (batches, heard?.into_iter().fold(vec![0; said.len()], joined))
            }
            Reach::Here | Reach::Unsaid => (batches.map_err(|failure| failure.error)?, said),
        };
        if said.iter().all(|&word| word == 0) {
            return Ok(None);
        }
        let counts = said.into_iter().map(|word| word.saturating_sub(1)).collect();
        Ok(Some(self.step(batches, counts, None)))
    }

    fn step(&self, batches: Vec<Batch>, counts: Vec<u64>, step: Option<StepEnd>) -> DistributedStep {
        // Only now are they handed over, all of them.
        let lanes = self.pipelines.iter().flat_map(|pipeline| &pipeline.lanes);
        lanes.zip(&batches).for_each(|(lane, batch)| lane.note(batch));
        let batches = PerReplica::new(&self.replicas, batches);
        DistributedStep { batches, weights: StepWeights::new(counts, &self.reach), step }
    }
}

impl Iterator for DistributedIterator {
    type Item = Result<DistributedStep, DistributeError>;

    /// The next step; waits for its batches, and, where steps are agreed, for the other processes.
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
            if step.is_err() {
                // Who waits for this process elsewhere hears that it has left as soon as nobody else here holds on to it.
                self.reach = Reach::Unsaid;
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
            let schedule_slice = first.map(Feed::schedule_text).unwrap_or_default();
            JobFacts::of(world, world.workers(), steps, &schedule_slice)
        }
    }
}

/// What all processes say of all replicas, each of its own.
fn joined(said: Vec<u64>, more: Vec<u64>) -> Vec<u64> {
    said.into_iter().zip(more).map(|(one, other)| one.max(other)).collect()
}
