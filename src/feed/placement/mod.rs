//! Which of a feed's threads are bound to which NUMA nodes.
//!
//! A lane's memory is on the node of its device, and its thread runs there. The workers stay on the nodes of
//! all lanes if there is a processor for each of them: a lack of processors costs more than writing to
//! another node's memory. They share one queue, so any of them writes for any lane, and with lanes on several
//! nodes some records are written to another node's memory even so. One queue for each node would avoid that,
//! and leave workers idle beside others that have too much to do.

use crate::base::numa::{Cpus, Topology};
use crate::device::Device;

/// The processors that a feed's threads are bound to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Placement {
    /// One for each lane: the processors of its device's node, if it has one.
    pub(super) lanes: Vec<Option<Cpus>>,
    /// The processors of all lanes, if each lane has some and they suffice.
    pub(super) workers: Option<Cpus>,
}

impl Placement {
    /// If there is nothing to choose, no device is queried.
    pub(super) fn of(topology: &Topology, devices: &[Device], workers: usize) -> Self {
        if !topology.has_several() {
            return Placement { lanes: vec![None; devices.len()], workers: None };
        }
        let lanes: Vec<_> = devices.iter().map(|device| near(topology, device)).collect();
        let all: Option<Vec<&Cpus>> = lanes.iter().map(Option::as_ref).collect();
        let near = all.map(Cpus::union).filter(|near| near.usable() >= workers);
        tracing::debug!(
            are_placed = near.is_some(),
            "whether the workers stay on the nodes of all lanes' devices"
        );
        Placement { workers: near, lanes }
    }
}

fn near(topology: &Topology, device: &Device) -> Option<Cpus> {
    let node = device.backend().numa_node();
    let cpus = node.and_then(|node| topology.cpus_of(node)).cloned();
    let (device, is_placed) = (device.name(), cpus.is_some());
    tracing::debug!(device, node, is_placed, "whether a lane stays on its device's NUMA node");
    cpus
}

#[cfg(test)]
#[cfg(all(target_os = "linux", not(shuttle)))]
mod tests;
