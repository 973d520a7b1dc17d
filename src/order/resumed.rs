//! The plan of a run that resumes, in the same world or in another.

use std::ops::RangeInclusive;

use super::job::Job;
use super::plan::{APART_MAX, records_before};
use super::range::StridedRange;
use super::remainder::Remainder;
use super::world::Seat;
use super::{OrderError, Plan, ReplicaShare};
use crate::record::StepId;

/// Where the steps before an epoch's first step end.
struct Boundary {
    /// The epoch of the last of them.
    epoch: u64,
    /// The place at which the run goes on, as a [`Remainder`] has it.
    goes_on_at: Option<u64>,
}

/// The places from a step to the end of its epoch: in each worker's own line, or in the one line of all
/// workers.
struct Tail {
    places: Vec<(usize, StridedRange)>,
    /// Whether that is the whole epoch.
    is_whole: bool,
}

impl Plan {
    /// The plan by which a run of this plan resumes as another job, and the next step of each of that job's
    /// replicas. `next` is the next step of each replica of this plan. If it is the same for all, everything
    /// before it was delivered, and nothing else.
    ///
    /// If the other job is the same, so are the plan and the steps. Otherwise what is left of the epoch, over
    /// all workers, is one stream that the other job divides among its replicas from step 0 on. Later epochs
    /// are as they would have been, except for records that wrapped batches have taken from them. Every
    /// record is still delivered as often as it would have been: exactly once, except with
    /// [`AutoShardPolicy::Off`](super::AutoShardPolicy::Off). A job that [drops](super::LastBatch::Drop) the
    /// last records of an epoch also leaves out less than a step of what is left.
    ///
    /// ```
    /// use percolator::order::{BatchSize, Job, World};
    ///
    /// let two = Job::new([10], BatchSize::Global(4), World::new(1, 2)?);
    /// let three = Job::new([10], BatchSize::Global(3), World::new(1, 3)?);
    /// let (plan, next) = two.plan()?.resumed(&three, &[(0, 1).into(); 2])?;
    /// assert_eq!(next, [(0, 0).into(); 3]);
    /// assert_eq!(plan.steps(0)?, 2);
    /// assert_eq!(plan.share(0, 0, 2)?.map(|record| record.index).collect::<Vec<_>>(), [6]);
    /// # Ok::<(), percolator::order::OrderError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OrderError::OtherOrder`] if the job has another data set or another order; [`OrderError::Replicas`]
    /// if the number of steps is not the number of replicas; [`OrderError::NoSuchStep`] if a step does not
    /// exist; [`OrderError::TooMany`]; and any error of the job itself.
    pub fn resumed(&self, job: &Job, next: &[StepId]) -> Result<(Plan, Vec<StepId>), OrderError> {
        let plan = job.plan()?;
        self.check_order(job)?;
        if next.len() != self.world().replicas() {
            return Err(OrderError::Replicas { found: next.len(), allowed: self.world().replicas() });
        }
        let next = next.iter().map(|&id| self.normalized(id)).collect::<Result<Vec<_>, _>>()?;
        if self.divides_like(&plan) {
            return Ok((self.clone(), next));
        }
        let (plan, start) = plan.after(self.rest_after(&next)?)?;
        let replicas = plan.world().replicas();
        Ok((plan, vec![start; replicas]))
    }

    /// Checks that a job reads the same records in the same order.
    fn check_order(&self, job: &Job) -> Result<(), OrderError> {
        let was = self.job();
        let facts = [
            ("records of each file", format!("{:?}", was.files), format!("{:?}", job.files)),
            ("mix", format!("{:?}", was.mix), format!("{:?}", job.mix)),
            ("shuffle", format!("{:?}", was.shuffle), format!("{:?}", job.shuffle)),
            ("seed", was.seed.to_string(), job.seed.to_string()),
        ];
        match facts.into_iter().find(|(_, was, is)| was != is) {
            Some((what, was, is)) => Err(OrderError::OtherOrder { what, was, is }),
            None => Ok(()),
        }
    }

    /// The same step in normal form: the step after the last of an epoch becomes the first of the next.
    pub(crate) fn normalized(&self, id: StepId) -> Result<StepId, OrderError> {
        let StepId { epoch, step } = id;
        let steps = self.steps(epoch)?;
        if step > steps {
            return Err(OrderError::NoSuchStep { epoch, step, steps });
        }
        // Checks that the step can be counted.
        self.line(epoch, 0)?;
        if self.wraps() {
            return self.numbered_step(self.step_number(id)?);
        }
        let (mut next, mut steps) = (id, steps);
        // A rest that is dropped has no step.
        let has_none = |epoch| self.is_anothers(epoch) || self.rest_of(epoch).is_some();
        while next.step == steps && (steps > 0 || has_none(next.epoch)) {
            next = StepId { epoch: self.epoch_after(next.epoch), step: 0 };
            steps = self.steps(next.epoch)?;
        }
        Ok(next)
    }

    /// What is left of the foremost replica's epoch, preceded by what the other replicas have not reached;
    /// and whether that is the whole epoch.
    fn rest_after(&self, next: &[StepId]) -> Result<(Remainder, bool), OrderError> {
        let foremost = next.iter().copied().max().unwrap_or_default();
        let mut rest = Remainder::of(foremost.epoch);
        let mut id = next.iter().copied().min().unwrap_or_default();
        let mut shares = 0;
        while id < foremost {
            shares += next.len();
            if shares > APART_MAX {
                return Err(OrderError::TooFarApart { first: id, last: foremost });
            }
            if id.step == self.steps(id.epoch)? {
                id = StepId { epoch: self.epoch_after(id.epoch), step: 0 };
                continue;
            }
            for (replica, own) in next.iter().enumerate() {
                if *own <= id {
                    let (line, range) = self.share(id.epoch, id.step, replica)?.places();
                    line.push_to(&mut rest, range)?;
                }
            }
            id.step += 1;
        }
        if rest.len() > 0
            && let Some(Boundary { epoch, goes_on_at }) = self.boundary(foremost)?
        {
            // What the other replicas have not reached may end with the run's last step, so it must not be
            // counted to the epoch that begins with the foremost replica's step.
            (rest.epoch, rest.goes_on_at) = (epoch, goes_on_at);
            return Ok((rest, false));
        }
        let tail = self.tail(foremost)?;
        for (worker, places) in tail.places {
            self.line(foremost.epoch, worker)?.push_to(&mut rest, places)?;
        }
        // The tail of another job's remainder ends where the remainder ends.
        rest.goes_on_at = self.rest_of(foremost.epoch).and_then(|old| old.goes_on_at);
        Ok((rest, tail.is_whole))
    }

    /// The boundary before the first step of an epoch; `None` for other steps, and if no step is before it.
    fn boundary(&self, first: StepId) -> Result<Option<Boundary>, OrderError> {
        if first.step > 0 {
            return Ok(None);
        }
        let records = self.job().records_of_epoch();
        let (epoch, place) = if self.wraps() {
            let Some(before) = self.step_number(first)?.checked_sub(1) else { return Ok(None) };
            let (line, place) = (self.line(first.epoch, 0)?, (before + 1) * self.step_records());
            let place = line.begin + place.saturating_sub(line.rest.map_or(0, Remainder::len));
            (self.numbered_step(before)?.epoch, place)
        } else {
            let Some(before) = first.epoch.checked_sub(1) else { return Ok(None) };
            // The epochs that may have had the previous step: an epoch whose rest was dropped had none.
            let rests = self.rests().rev().map(|rest| rest.epoch);
            let mut epochs = std::iter::once(before).chain(rests).filter(|&epoch| epoch < first.epoch);
            let has_steps = |epoch: &u64| self.steps(*epoch).is_ok_and(|steps| steps > 0);
            let Some(epoch) = epochs.find(has_steps) else { return Ok(None) };
            // If the run goes on inside an epoch, the part before that place is in the first rest.
            let inside = self.rest_of(first.epoch).and(self.rest()).and_then(|rest| rest.goes_on_at);
            match inside {
                Some(place) => (epoch, place),
                None => (epoch, records_before(first.epoch, records)?),
            }
        };
        let end = records_before(epoch + 1, records)?;
        Ok(Some(Boundary { epoch, goes_on_at: (place > end).then_some(place) }))
    }

    /// The epochs of those records in an epoch's steps that another job left, and that epoch: earlier epochs
    /// if that job's replicas were apart, later ones if their batches wrapped.
    #[must_use]
    pub fn epochs_in(&self, epoch: u64) -> RangeInclusive<u64> {
        let (first, last) = self.rest_of(epoch).and_then(Remainder::epochs).unwrap_or((epoch, epoch));
        first.min(epoch)..=last.max(epoch)
    }

    /// Whether everything that this plan has of an epoch is in what another job left of the earlier epoch
    /// `of`.
    #[must_use]
    pub fn has_rest_of(&self, epoch: u64, of: u64) -> bool {
        !self.wraps() && self.is_anothers(epoch) && self.epochs_in(of).contains(&epoch)
    }

    /// The epochs in which this plan resumes another job: one, and a second one if batches had wrapped and no
    /// longer do.
    pub fn resumed_epochs(&self) -> impl Iterator<Item = u64> {
        self.rests().map(|rest| rest.epoch)
    }

    /// The records of an epoch that no replica gets because the last batch is
    /// [dropped](super::LastBatch::Drop): the end of each stream.
    ///
    /// # Errors
    ///
    /// [`OrderError::TooMany`] if the records before it are too many to count.
    pub fn left_out(&self, epoch: u64) -> Result<Vec<ReplicaShare<'_>>, OrderError> {
        if !self.drops() {
            return Ok(Vec::new());
        }
        let end = StepId { epoch, step: self.steps(epoch)? };
        let share = |(worker, places)| Ok(ReplicaShare::of(self, self.line(epoch, worker)?, places));
        self.tail(end)?.places.into_iter().map(share).collect()
    }

    /// The places from a step to the end of its epoch.
    fn tail(&self, id: StepId) -> Result<Tail, OrderError> {
        if self.wraps() {
            return self.wrapping_tail(id);
        }
        if let Some(old) = self.rest_of(id.epoch) {
            let first = id.step * self.step_records();
            let places = vec![(0, StridedRange::within(first..old.len(), old.len()))];
            return Ok(Tail { places, is_whole: false });
        }
        let of_worker = |worker| {
            let records = self.line(id.epoch, worker)?.shard.records;
            let seat = Seat { worker, local: 0 };
            let first = self.partition().range(self.world(), id.step, seat, u64::MAX).first;
            Ok((worker, StridedRange::within(first..records, records)))
        };
        let places = (0..self.shards()).map(of_worker).collect::<Result<_, OrderError>>()?;
        Ok(Tail { places, is_whole: id.step == 0 })
    }

    /// The same if batches wrap: to the end of the epoch of the step's first record.
    fn wrapping_tail(&self, id: StepId) -> Result<Tail, OrderError> {
        let line = self.line(id.epoch, 0)?;
        let first = (self.steps_before(id.epoch)? + id.step) * self.step_records();
        let old = line.rest.map_or(0, Remainder::len);
        let records = line.shard.records;
        let end = match first.checked_sub(old) {
            None => old,
            Some(behind) => {
                let place = line.begin + behind;
                old + ((place / records + 1) * records - line.begin)
            }
        };
        let is_whole = first >= old && end - first == records;
        Ok(Tail { places: vec![(0, StridedRange::within(first..end, end))], is_whole })
    }

    /// The plan with what another job left, and its first step.
    fn after(self, (rest, is_whole): (Remainder, bool)) -> Result<(Self, StepId), OrderError> {
        let start = StepId { epoch: rest.epoch, step: 0 };
        let rest = match (is_whole, self.wraps()) {
            (true, false) => None,
            // Steps are counted from here.
            (true, true) => rest.epoch.checked_sub(1).map(Remainder::of),
            (false, _) => Some(rest),
        };
        Ok((self.with_rest(rest)?, start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{BatchSize, LastBatch, World};

    fn job(workers: usize, replicas: usize, batch: u64) -> Job {
        Job::new([20], BatchSize::Global(batch), World::new(workers, replicas).unwrap())
    }

    #[test]
    fn the_same_job_resumes_where_it_was() {
        let plan = job(1, 2, 4).plan().unwrap();
        let next = [StepId { epoch: 1, step: 3 }, StepId { epoch: 1, step: 4 }];
        let same = job(1, 2, 4).last_batch(LastBatch::Keep);
        assert_eq!(plan.resumed(&same, &next), Ok((plan.clone(), next.to_vec())));
        let same = job(1, 2, 4).policy(crate::order::AutoShardPolicy::Data);
        assert_eq!(plan.resumed(&same, &next), Ok((plan.clone(), next.to_vec())), "what AUTO resolves to");
    }

    #[test]
    fn the_step_after_the_last_is_the_next_epochs_first() {
        let plan = job(1, 1, 4).plan().unwrap();
        let (other, next) = plan.resumed(&job(2, 2, 3), &[StepId { epoch: 0, step: 5 }]).unwrap();
        assert_eq!(other, job(2, 2, 3).plan().unwrap());
        assert_eq!(next, [StepId { epoch: 1, step: 0 }; 2]);
    }

    #[test]
    fn what_cannot_resume_is_refused() {
        let plan = job(1, 1, 4).plan().unwrap();
        let start = [StepId::default()];
        let refused = |job: &Job, next: &[StepId]| plan.resumed(job, next).unwrap_err();
        let seed = OrderError::OtherOrder { what: "seed", was: "0".to_owned(), is: "1".to_owned() };
        assert_eq!(refused(&job(1, 1, 4).seed(1), &start), seed);
        let others = Job::new([21], BatchSize::Global(4), World::ALONE);
        assert!(matches!(refused(&others, &start), OrderError::OtherOrder { .. }));
        assert_eq!(refused(&job(1, 2, 4), &[]), OrderError::Replicas { found: 0, allowed: 1 });
        let far = refused(&job(1, 2, 4), &[StepId { epoch: 0, step: 6 }]);
        assert_eq!(far, OrderError::NoSuchStep { epoch: 0, step: 6, steps: 5 });
    }

    #[test]
    fn epochs_that_were_another_jobs_have_no_steps() {
        let plan = job(1, 1, 4).plan().unwrap();
        let (plan, next) = plan.resumed(&job(1, 2, 4), &[StepId { epoch: 3, step: 2 }]).unwrap();
        assert_eq!(next[0], StepId { epoch: 3, step: 0 });
        assert_eq!((plan.steps(2), plan.steps(3), plan.steps(4)), (Ok(0), Ok(3), Ok(5)));
    }

    #[test]
    fn an_epoch_that_a_batch_had_wrapped_into_goes_on_inside() {
        let wraps = job(1, 3, 6).last_batch(LastBatch::Wrap).plan().unwrap();
        // The fourth step of 6 has places 18 to 23, and replica 1 has not had its own: 20 and 21.
        let next = [(1, 0), (0, 3), (1, 0)].map(Into::into);
        let (plan, next) = wraps.resumed(&job(2, 2, 8), &next).unwrap();
        let places = |epoch, step| {
            let shares = (0..2).flat_map(|replica| plan.share(epoch, step, replica).unwrap());
            shares.map(|id| (id.epoch, id.index)).collect::<Vec<_>>()
        };
        assert_eq!(next, [StepId { epoch: 0, step: 0 }; 2]);
        assert_eq!((plan.steps(0), places(0, 0)), (Ok(1), vec![(1, 0), (1, 1)]));
        assert_eq!(plan.steps(1), Ok(2));
        assert_eq!([places(1, 0), places(1, 1)].concat(), (4..20).map(|at| (1, at)).collect::<Vec<_>>());
        assert_eq!(plan.steps(2), Ok(3));
        // Once more, with the first replica ahead.
        let next = [(0, 1), (0, 0)].map(Into::into);
        let (again, next) = plan.resumed(&job(1, 1, 20), &next).unwrap();
        let all: Vec<_> = again.share(0, 0, 0).unwrap().map(|id| (id.epoch, id.index)).collect();
        assert_eq!((next, all), (vec![StepId { epoch: 0, step: 0 }], vec![(1, 1)]));
        assert_eq!(again.share(1, 0, 0).unwrap().len(), 16);
    }

    #[test]
    fn what_is_left_and_dropped_is_no_epoch_for_others_to_lag_behind() {
        let job = |replicas, batch, last| {
            let world = World::new(1, replicas).unwrap();
            Job::new([10], BatchSize::PerReplica(batch), world).last_batch(last)
        };
        // Replica 1 has had nothing: its places are 3 to 5 and 12 to 14. The others go on at 18.
        let next = [(1, 0), (0, 0), (1, 0)].map(Into::into);
        let wraps = job(3, 3, LastBatch::Wrap).plan().unwrap();
        let (drops, _) = wraps.resumed(&job(2, 2, LastBatch::Drop), &next).unwrap();
        assert_eq!((drops.steps(0), drops.steps(1), drops.steps(2)), (Ok(1), Ok(0), Ok(2)));
        // One replica has got to the end, so two places of either epoch are dropped.
        let next = [(1, 0), (0, 0)].map(Into::into);
        let (plan, next) = drops.resumed(&job(1, 7, LastBatch::Keep), &next).unwrap();
        let left: Vec<_> = plan.share(0, 0, 0).unwrap().map(|id| (id.epoch, id.index)).collect();
        assert_eq!((next, left), (vec![StepId::default()], vec![(0, 5), (1, 2)]));
        assert_eq!((plan.steps(1), plan.rests().count()), (Ok(0), 1));
        assert_eq!(plan.share(2, 0, 0).unwrap().next().map(|id| (id.epoch, id.index)), Some((2, 0)));
        assert_eq!(plan.normalized(StepId { epoch: 1, step: 0 }), Ok(StepId { epoch: 2, step: 0 }));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it walks hundreds of thousands of epochs")]
    fn a_step_that_is_larger_than_many_epochs_leaves_none_of_them() {
        let world = World::new(1, 2).unwrap();
        let job = |batch| Job::new([1], BatchSize::PerReplica(batch), world).last_batch(LastBatch::Wrap);
        let next = [StepId { epoch: 0, step: 1 }, StepId::default()];
        let error = job(1 << 40).plan().unwrap().resumed(&job(2), &next).unwrap_err();
        assert!(matches!(error, OrderError::TooFarApart { .. }), "{error}");
        let plan = job(1 << 17).plan().unwrap();
        let (plan, next) = plan.resumed(&job(2).last_batch(LastBatch::Keep), &next).unwrap();
        assert_eq!((next[0], plan.steps(0)), (StepId::default(), Ok(1 << 15)));
        let end = StepId { epoch: 0, step: 1 << 15 };
        assert_eq!(plan.normalized(end), Ok(StepId { epoch: 1 << 18, step: 0 }));
        assert_eq!((plan.steps(1), plan.steps((1 << 18) - 1), plan.steps(1 << 18)), (Ok(0), Ok(0), Ok(1)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it walks as many epochs as are counted")]
    fn replicas_that_are_countless_epochs_apart_are_refused_at_once() {
        let drops =
            Job::new([1], BatchSize::Global(2), World::new(1, 2).unwrap()).last_batch(LastBatch::Drop);
        let next = [StepId { epoch: 1 << 40, step: 0 }, StepId::default()];
        let error =
            drops.plan().unwrap().resumed(&drops.clone().batch(BatchSize::Global(1)), &next).unwrap_err();
        assert!(matches!(error, OrderError::TooFarApart { .. }), "{error}");
        let far = [StepId { epoch: u64::MAX, step: 0 }; 2];
        assert!(matches!(drops.plan().unwrap().resumed(&drops, &far), Err(OrderError::TooMany { .. })));
    }
}
