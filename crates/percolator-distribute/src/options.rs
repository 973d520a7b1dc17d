//! Options for how batches get to replicas.

use percolator::Device;
use percolator::FeedBuilder;

/// How often the function of [`distribute_from_fn`](crate::distribute_from_fn) is called:
/// TensorFlow's `tf.distribute.InputReplicationMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InputReplicationMode {
    /// Once per worker; the worker's replicas share the feed.
    #[default]
    PerWorker,
    /// Once per replica; each has its own feed.
    PerReplica,
}

/// How batches get to their replicas: TensorFlow's `tf.distribute.InputOptions`, with its names.
///
/// `place_dataset_on_device` has no counterpart: a feed's reader is on the host.
/// [`FeedBuilder::transform_on`] sets where its transform runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "options are for distribute"]
pub struct InputOptions {
    keeps_on_host: bool,
    pub(super) replication_mode: InputReplicationMode,
    per_replica_buffer_size: Option<usize>,
    prefetch: Option<usize>,
}

impl InputOptions {
    /// TensorFlow's defaults, except for [`prefetch`](Self::prefetch).
    pub fn new() -> Self {
        InputOptions::default()
    }

    /// Whether batches go to the workers' devices (default) or stay on the host. If they stay, every lane
    /// ends at the host, whatever its device, and that device takes no part: batches are in ordinary memory,
    /// and a [transform](FeedBuilder::transform_on) on the device is refused.
    ///
    /// TensorFlow allows this with [`InputReplicationMode::PerWorker`] only; here it works with both modes.
    pub fn fetch_to_device(mut self, fetches: bool) -> Self {
        self.keeps_on_host = !fetches;
        self
    }

    /// How often the function is called (default: once per worker).
    ///
    /// TensorFlow allows [`InputReplicationMode::PerReplica`] on one host only; here any number of hosts may
    /// use it.
    pub fn replication_mode(mut self, mode: InputReplicationMode) -> Self {
        self.replication_mode = mode;
        self
    }

    /// The number of batches that wait at each replica's device, beside the one it holds. The default is 1,
    /// as in TensorFlow, if only [`prefetch`](Self::prefetch) is set.
    ///
    /// A feed has one ring of batches per lane, from the reader to the replica ([`FeedBuilder::prefetch`]),
    /// instead of consecutive buffers. So the ring's depth is the sum: the batch that the replica holds,
    /// those that wait for it, and the replica's part of those that are prefetched. With 0 for both, nothing
    /// is filled while a batch is held.
    pub fn per_replica_buffer_size(mut self, batches: usize) -> Self {
        self.per_replica_buffer_size = Some(batches);
        self
    }

    /// The number of further batches that a feed has under way, for all its replicas together. If only
    /// [`per_replica_buffer_size`](Self::per_replica_buffer_size) is set, it is the number of replicas, as
    /// TensorFlow has for a data set that it divides.
    ///
    /// If neither is set, the ring is as deep as set in the feed's builder, or as the feed chooses: it starts
    /// one batch deeper than TensorFlow's defaults, with 4 batches instead of 3.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = Some(batches);
        self
    }

    /// Applies the options to a feed for these devices, the first of which is replica `first_replica`.
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

    /// The depth of a lane's ring in a feed of this many replicas, if it is set.
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
