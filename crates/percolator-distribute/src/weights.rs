//! The weight of each replica's part of a step, and reductions over all parts.

use std::sync::Arc;

use crate::agreement::Agreement;
use crate::error::DistributeError;
use crate::per_replica::{HostValue, PerReplica};

/// How the replicas' values become one: TensorFlow's `tf.distribute.ReduceOp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The mean, each value weighted by its replica's number of records.
    Mean,
}

/// The number of records of each replica of the job at a step: the weights of their parts.
#[derive(Clone, Debug)]
pub struct StepWeights {
    counts: Vec<u64>,
    reach: Reach,
}

/// The processes that take part in a reduction.
#[derive(Clone, Debug)]
pub(super) enum Reach {
    /// All replicas are of this process.
    Here,
    /// There are other processes, and no collective to reach them.
    Unset,
    Job(Arc<Agreement>),
}

impl StepWeights {
    pub(super) fn new(counts: Vec<u64>, reach: &Reach) -> Self {
        StepWeights { counts, reach: reach.clone() }
    }

    /// The number of records of each replica of the job, without padding.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The number of records of all replicas together.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The number of replicas of the job that have any records.
    #[must_use]
    pub fn num_replicas_with_values(&self) -> usize {
        self.counts.iter().filter(|&&count| count > 0).count()
    }

    /// A replica's fraction of the step's records. The fractions add up to 1, unless there are no records.
    ///
    /// # Panics
    ///
    /// If the job has no such replica.
    #[must_use]
    pub fn weight(&self, replica: usize) -> f64 {
        as_f64(self.counts[replica]) / as_f64(self.records().max(1))
    }

    /// Reduces all replicas' values to one, which is the same in every process. Other processes must make the
    /// same call at the same place of their programs, through the
    /// [collective](crate::InputWorkers::collective).
    ///
    /// The value of a replica without records is ignored, in the sum as in the mean, even if it is NaN: a
    /// loss over an empty batch often is. TensorFlow differs here: its mean over replicas (`axis=None`)
    /// weighs all of them equally, including empty ones.
    ///
    /// This is meant for losses and the like, and for the gradients of small models. Every process gets every
    /// other's numbers, which are too many for those of a large one. They are added in the order of replicas,
    /// so all processes get the same, bit for bit; with one replica a process, it is also what one process
    /// with all replicas gets.
    ///
    /// # Errors
    ///
    /// [`DistributeError::NothingToReduce`] for a mean if no replica has a record;
    /// [`DistributeError::UnevenValues`]; [`DistributeError::NoCollective`] if there are other processes and
    /// no collective; and the collective's errors.
    pub fn reduce<T: HostValue>(&self, op: ReduceOp, values: &PerReplica<T>) -> Result<T, DistributeError> {
        let total = self.records();
        if op == ReduceOp::Mean && total == 0 {
            return Err(DistributeError::NothingToReduce);
        }
        let here = self.sum_here(op, values);
        let sum = match &self.reach {
            Reach::Here => here?,
            Reach::Unset => {
                return Err(DistributeError::NoCollective { what: "the reduction of all values" });
            }
            Reach::Job(agreement) => {
                // A process that failed still enters the round, with the words that make it fail for all.
                let words: Vec<u64> = here.iter().flatten().map(|number| number.to_bits()).collect();
                let gathered = agreement.round(Ok(()), &words);
                here?;
                let of_each = gathered?.into_iter().map(|words| words.into_iter().map(f64::from_bits));
                of_each.fold(vec![0.0; words.len()], added)
            }
        };
        let divisor = if op == ReduceOp::Mean { as_f64(total) } else { 1.0 };
        Ok(T::from_numbers(sum.into_iter().map(|number| number / divisor).collect()))
    }

    /// This process's part of the sum.
    fn sum_here<T: HostValue>(
        &self,
        op: ReduceOp,
        values: &PerReplica<T>,
    ) -> Result<Vec<f64>, DistributeError> {
        let mut sum: Option<Vec<f64>> = None;
        for (&replica, value) in values.replicas().iter().zip(values) {
            let numbers = value.numbers();
            let sum = sum.get_or_insert_with(|| vec![0.0; numbers.len()]);
            if sum.len() != numbers.len() {
                let (found, wanted) = (numbers.len(), sum.len());
                return Err(DistributeError::UnevenValues { replica, found, wanted });
            }
            let records = self.counts[replica];
            let weight = if op == ReduceOp::Mean { as_f64(records) } else { 1.0 };
            if records > 0 {
                sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number * weight);
            }
        }
        Ok(sum.unwrap_or_default())
    }
}

fn added(sum: Vec<f64>, numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    sum.into_iter().zip(numbers).map(|(sum, number)| sum + number).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a step has fewer than 2^43 records")]
fn as_f64(records: u64) -> f64 {
    records as f64
}
