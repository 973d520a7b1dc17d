//! Which threads of a feed keep to which NUMA nodes.
//!
//! A lane's memory is laid, and its thread runs, on the node of its device. The workers keep to the nodes of all
//! lanes, if there is a processor for each of them: to lack processors costs more than to write to another node's
//! memory. They share one queue, so that any of them writes for any lane, and with lanes on several nodes a part of the
//! records is written to another node's memory even so. One queue a node would spare that, and leave workers idle beside
//! others that have too much to do.

use crate::base::numa::{Cpus, Topology};
use crate::device::Device;

/// The processors that a feed's threads keep to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Placement {
    /// One a lane: those of its device's node, where it has one.
    pub(super) lanes: Vec<Option<Cpus>>,
    /// Those of all lanes, where each of them has some, and they are enough.
    pub(super) workers: Option<Cpus>,
}

impl Placement {
    /// Where there is nothing to choose, no device is asked.
    pub(super) fn of(topology: &Topology, devices: &[Device], workers: usize) -> Self {
        if !topology.has_several() {
            return Placement { lanes: vec![None; devices.len()], workers: None };
        }
        let lanes: Vec<_> = devices.iter().map(|device| near(topology, device)).collect();
        let all: Option<Vec<&Cpus>> = lanes.iter().map(Option::as_ref).collect();
        let near = all.map(Cpus::union).filter(|near| near.usable() >= workers);
        tracing::debug!(
            are_placed = near.is_some(),
            "whether the workers keep to the nodes of all lanes' devices"
        );
        Placement { workers: near, lanes }
    }
}

fn near(topology: &Topology, device: &Device) -> Option<Cpus> {
    let node = device.backend().numa_node();
    let cpus = node.and_then(|node| topology.cpus_of(node)).cloned();
    let (device, is_placed) = (device.name(), cpus.is_some());
    tracing::debug!(device, node, is_placed, "whether a lane keeps to its device's NUMA node");
    cpus
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
