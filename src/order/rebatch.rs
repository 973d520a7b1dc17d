//! Batches of other sizes than those in which records come.

use std::ops::Range;

use super::{OrderError, World};

/// Divides records that come in batches into batches of these sizes, which repeat from the first on. The
/// original batches do not matter. This is TensorFlow's `rebatch`. A size of 0 is an empty batch.
///
/// Records are counted from 0. If the last records do not fill a batch, it is short, or, with
/// `drops_remainder`, left out. Empty batches after the last record continue until a batch asks for more
/// records than there are, as in TensorFlow.
///
/// ```
/// let batches: Vec<_> = percolator::order::rebatch(8, &[2, 1, 1], false)?.collect();
/// assert_eq!(batches, [0..2, 2..3, 3..4, 4..6, 6..7, 7..8]);
/// # Ok::<(), percolator::order::OrderError>(())
/// ```
///
/// # Errors
///
/// [`OrderError::NoBatchSize`] if no size is more than 0.
pub fn rebatch(records: u64, sizes: &[u64], drops_remainder: bool) -> Result<Rebatch<'_>, OrderError> {
    if sizes.iter().all(|&size| size == 0) {
        return Err(OrderError::NoBatchSize);
    }
    Ok(Rebatch { records, sizes, drops_remainder, entry: 0, at: 0, is_ended: false })
}

/// The batches that [`rebatch`] makes.
#[derive(Clone, Debug)]
pub struct Rebatch<'a> {
    records: u64,
    sizes: &'a [u64],
    drops_remainder: bool,
    entry: usize,
    at: u64,
    /// A batch asked for more records than there were.
    is_ended: bool,
}

impl Iterator for Rebatch<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        if self.is_ended {
            return None;
        }
        let wanted = self.sizes[self.entry];
        self.entry = (self.entry + 1) % self.sizes.len();
        let batch = self.at..self.records.min(self.at.saturating_add(wanted));
        let found = batch.end - batch.start;
        self.is_ended = found < wanted;
        self.at = batch.end;
        (!self.is_ended || found > 0 && !self.drops_remainder).then_some(batch)
    }
}

impl std::iter::FusedIterator for Rebatch<'_> {}

/// The batch sizes of a worker's replicas, one after the other and repeating, so that the sizes of all
/// workers at a step sum to the global batch: TensorFlow's `batch_sizes_for_worker`. If the batch cannot be
/// divided evenly, the replicas that get one more record change from step to step.
///
/// # Errors
///
/// [`OrderError::NoSuchMember`] if the job has no such worker.
pub fn batch_sizes_for_worker(world: World, global: u64, worker: usize) -> Result<Vec<u64>, OrderError> {
    let sizes = Sizes::of(world, global, world.replicas_of(worker)?.start as u64);
    Ok((0..sizes.replicas).map(|entry| sizes.before(entry + 1) - sizes.before(entry)).collect())
}

/// Running sums of a worker's batch sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    global: u64,
    replicas: u64,
    /// The worker's first replica.
    replica: u64,
}

impl Sizes {
    pub(super) fn of(world: World, global: u64, replica: u64) -> Self {
        Sizes { global, replicas: world.replicas() as u64, replica }
    }

    /// The number of records in the first `batches` batches together.
    pub(super) fn before(&self, batches: u64) -> u64 {
        let (each, more) = (self.global / self.replicas, self.global % self.replicas);
        // Of the first `batches` batches from replica 0 on, the number that have one more record.
        let larger = |batches: u64| batches / self.replicas * more + more.min(batches % self.replicas);
        each * batches + larger(self.replica + batches) - larger(self.replica)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_are_all_0_are_refused() {
        assert_eq!(rebatch(3, &[0, 0], false).unwrap_err(), OrderError::NoBatchSize);
        assert_eq!(rebatch(3, &[], false).unwrap_err(), OrderError::NoBatchSize);
    }

    #[test]
    fn in_each_step_the_workers_sizes_make_up_the_global_batch() {
        for (global, workers, each) in [(20, 4, 2), (5, 4, 4), (35, 4, 1), (4, 2, 3), (36, 3, 4)] {
            let world = World::new(workers, workers * each).unwrap();
            let sizes = |worker| batch_sizes_for_worker(world, global, worker).unwrap();
            let sizes: Vec<_> = (0..workers).map(sizes).collect();
            for step in 0..2 * workers {
                let entry = |local| (step * each + local) % world.replicas();
                let of_step = |sizes: &Vec<u64>| (0..each).map(|local| sizes[entry(local)]).sum::<u64>();
                assert_eq!(sizes.iter().map(of_step).sum::<u64>(), global);
            }
        }
    }
}
