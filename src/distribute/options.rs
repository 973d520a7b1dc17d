//! What can be said of how batches come to replicas.

use crate::device::Device;
use crate::feed::FeedBuilder;

/// How often the function of [`distribute_from_fn`](crate::distribute::distribute_from_fn) is called: TensorFlow's
/// `tf.distribute.InputReplicationMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InputReplicationMode {
    /// Once a worker; the worker's replicas share the feed.
    #[default]
    PerWorker,
    /// Once a replica, each of which has a feed of its own.
    PerReplica,
}

/// How batches come to their replicas: TensorFlow's `tf.distribute.InputOptions`, by its names.
///
/// Its `place_dataset_on_device` has no counterpart: a feed has its reader on the host. Where its transform is done,
/// [`FeedBuilder::transform_on`] says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "options are for distribute"]
pub struct InputOptions {
    keeps_on_host: bool,
    replication_mode: InputReplicationMode,
    per_replica_buffer_size: Option<usize>,
    prefetch: Option<usize>,
}

impl InputOptions {
    /// TensorFlow's defaults, but for what [`prefetch`](Self::prefetch) says.
    pub fn new() -> Self {
        InputOptions::default()
    }

    /// Whether batches go to the workers' devices, which is so if not said, or stay on the host. Then a lane ends at the host
    /// whatever its device is, and that device takes no part: batches are in ordinary memory, and what a device was to
    /// [transform](FeedBuilder::transform_on) is refused.
    ///
    /// TensorFlow takes this with [`InputReplicationMode::PerWorker`] only; here it goes with both.
    pub fn fetch_to_device(mut self, fetches: bool) -> Self {
        self.keeps_on_host = !fetches;
        self
    }

    /// How often the function is called; once a worker if not said.
    ///
    /// TensorFlow knows [`InputReplicationMode::PerReplica`] on one host only; here it may be any number.
    pub fn replication_mode(mut self, mode: InputReplicationMode) -> Self {
        self.replication_mode = mode;
        self
    }

    /// Batches that wait for each replica at its device, beside the one that it holds; 1, TensorFlow's default, if
    /// [`prefetch`](Self::prefetch) alone was said.
    ///
    /// A feed has one ring of batches a lane, from the reader to the replica's hands ([`FeedBuilder::prefetch`]), and not
    /// buffers one behind the other. So its depth is the sum: the batch that the replica holds, those that wait for it, and the
    /// replica's part of those that are prefetched. With 0 of both, nothing is filled while a batch is held.
    pub fn per_replica_buffer_size(mut self, batches: usize) -> Self {
        self.per_replica_buffer_size = Some(batches);
        self
    }

    /// Batches that a feed has under way beyond those, for all its replicas together; as many as it has replicas, as
    /// TensorFlow has of a data set that it divides, if [`per_replica_buffer_size`](Self::per_replica_buffer_size) alone
    /// was said.
    ///
    /// If neither was said, the ring is as deep as the feed's builder says, or chosen by the feed, which begins one deeper than
    /// TensorFlow's defaults come to: 4 batches, and not 3.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = Some(batches);
        self
    }

    pub(super) fn mode(self) -> InputReplicationMode {
        self.replication_mode
    }

    /// The feed as it was described, to these devices, the first of which is a replica of that number.
    pub(super) fn applied_to(
        self,
        described: FeedBuilder,
        devices: &[Device],
        first_replica: usize,
    ) -> FeedBuilder {
        let fed = match self.keeps_on_host {
            false => described.devices(devices.iter().cloned()),
            true => described.devices((first_replica..first_replica + devices.len()).map(Device::host)),
        };
        match self.ring(devices.len()) {
            Some(batches) => fed.prefetch(batches),
            None => fed,
        }
    }

    /// How many batches a lane's ring has, where that was said, in a feed of so many replicas.
    fn ring(self, replicas: usize) -> Option<usize> {
        if (self.per_replica_buffer_size, self.prefetch) == (None, None) {
            return None;
        }
        let waiting = self.per_replica_buffer_size.unwrap_or(1);
        let under_way = self.prefetch.unwrap_or(replicas).div_ceil(replicas.max(1));
        Some(waiting.saturating_add(under_way).saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_what_is_held_what_waits_and_what_is_under_way() {
        let options = InputOptions::new();
        assert_eq!(options.ring(2), None);
        assert_eq!(options.per_replica_buffer_size(1).ring(2), Some(3));
        assert_eq!(options.prefetch(2).ring(2), Some(3));
        assert_eq!(options.prefetch(5).ring(2), Some(5));
        assert_eq!(options.per_replica_buffer_size(0).prefetch(0).ring(2), Some(1));
        assert_eq!(options.prefetch(usize::MAX).ring(1), Some(usize::MAX));
    }
}
