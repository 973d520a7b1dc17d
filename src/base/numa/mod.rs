//! The machine's NUMA nodes: which processors are near which memory.
//!
//! Linux places a page in the memory of the node on which it is first touched, unless the thread has its own
//! policy (`numactl`). So memory is placed by binding the thread while it touches the memory.
//!
//! Unknown topology is not an error; threads stay unbound, as they do on a machine with one node.

mod affinity;

use std::collections::BTreeSet;
use std::path::Path;

/// Node and processor numbers are below this, as many as the system calls can name.
const NUMBERS_MAX: usize = 1024;

/// Where Linux describes the nodes.
const NODES: &str = "/sys/devices/system/node";

/// Some of the machine's processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cpus(BTreeSet<usize>);

impl Cpus {
    /// The processors in any of these sets.
    pub(crate) fn union<'a>(sets: impl IntoIterator<Item = &'a Cpus>) -> Self {
        Cpus(sets.into_iter().flat_map(|cpus| &cpus.0).copied().collect())
    }
}

/// A part of the machine's memory, and the processors near it.
#[derive(Debug, PartialEq, Eq)]
struct Node {
    number: usize,
    cpus: Cpus,
}

/// The machine's nodes; empty if they are not known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology(Vec<Node>);

impl Topology {
    /// The topology of this machine as it is now.
    pub(crate) fn of_machine() -> Self {
        Topology::read(Path::new(NODES))
    }

    /// Reads all nodes described below `root`; returns none if any of them cannot be parsed.
    fn read(root: &Path) -> Self {
        let list = |path: &str| numbers(&std::fs::read_to_string(root.join(path)).ok()?);
        let node = |number| Some(Node { number, cpus: Cpus(list(&format!("node{number}/cpulist"))?) });
        let nodes: Option<Vec<Node>> =
            list("online").and_then(|numbers| numbers.into_iter().map(node).collect());
        Topology(nodes.unwrap_or_default())
    }

    /// The processors of a node, if the machine has several nodes and this is one of them. A node may be
    /// memory only; nothing runs there.
    pub(crate) fn cpus_of(&self, number: usize) -> Option<&Cpus> {
        let is_it = |node: &&Node| node.number == number && !node.cpus.0.is_empty();
        if self.has_several() { self.0.iter().find(is_it).map(|node| &node.cpus) } else { None }
    }

    /// Whether there is anything to choose.
    pub(crate) fn has_several(&self) -> bool {
        self.0.len() > 1
    }
}

/// Parses a list as Linux writes it: `0-3,8,10-11`, or nothing.
fn numbers(list: &str) -> Option<BTreeSet<usize>> {
    let number = |text: &str| text.parse().ok().filter(|&number: &usize| number < NUMBERS_MAX);
    let mut numbers = BTreeSet::new();
    for part in list.trim().split(',').filter(|_| !list.trim().is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// The node nearest to a device on the PCI bus, by the device's name there: `0000:3b:00.0`.
#[cfg(feature = "cuda-driver")]
pub(crate) fn node_of_pci(device: &str) -> Option<usize> {
    node_below(Path::new("/sys/bus/pci/devices"), device)
}

/// Like [`node_of_pci`], with the bus described below `root`. Linux writes -1 if there is no node.
#[cfg(feature = "cuda-driver")]
fn node_below(root: &Path, device: &str) -> Option<usize> {
    let text = std::fs::read_to_string(root.join(device).join("numa_node")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates a folder that describes a machine's nodes: their numbers, and the processors of each.
    fn described(online: &str, nodes: &[(usize, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("online"), online).unwrap();
        for (number, cpus) in nodes {
            let node = root.path().join(format!("node{number}"));
            std::fs::create_dir(&node).unwrap();
            std::fs::write(node.join("cpulist"), cpus).unwrap();
        }
        root
    }

    /// A machine with one node for each of these processors.
    pub(crate) fn one_a_node(cpus: [usize; 2]) -> Topology {
        let cpus = cpus.map(|cpu| cpu.to_string());
        Topology::read(described("0-1\n", &[(0, &cpus[0]), (1, &cpus[1])]).path())
    }

    /// The numbers in a list as Linux writes it.
    pub(crate) fn listed(list: &str) -> Vec<usize> {
        numbers(list).unwrap().into_iter().collect()
    }

    pub(crate) fn cpus(numbers: impl IntoIterator<Item = usize>) -> Cpus {
        Cpus(numbers.into_iter().collect())
    }

    #[test]
    fn lists_are_read_as_linux_writes_them() {
        let read = |list| numbers(list).map(Vec::from_iter);
        assert_eq!(read("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!((read("7\n"), read("1023")), (Some(vec![7]), Some(vec![1023])));
        assert_eq!((read("\n"), read("")), (Some(vec![]), Some(vec![])), "a node of memory alone");
        for bad in ["a", "1-", "-1", "3-1", "1,,2", "1,", "0-1-2", "0-1024", "0-18446744073709551616", "1;2"]
        {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_nodes_are_read_with_their_processors() {
        // Node 1 is offline, and node 2 is memory only.
        let root = described("0,2-3\n", &[(0, "0-1,4\n"), (1, "9\n"), (2, "\n"), (3, "2-3\n")]);
        let topology = Topology::read(root.path());
        assert_eq!(topology.cpus_of(0), Some(&cpus([0, 1, 4])));
        assert_eq!(topology.cpus_of(3), Some(&cpus([2, 3])));
        assert_eq!([1, 2, 4].map(|number| topology.cpus_of(number)), [None; 3]);
    }

    #[test]
    fn what_is_described_badly_or_not_at_all_is_not_known() {
        let nothing = Topology::default();
        let read = |online: &str, nodes: &[(usize, &str)]| Topology::read(described(online, nodes).path());
        assert_eq!(Topology::read(Path::new("/nowhere")), nothing);
        assert_eq!(read("0-1,", &[(0, "0"), (1, "1")]), nothing);
        assert_eq!(read("0-1", &[(0, "0"), (1, "one")]), nothing);
        assert_eq!(read("0-1", &[(0, "0")]), nothing, "a file is missing");
        assert!(!nothing.has_several() && nothing.cpus_of(0).is_none());
    }

    #[test]
    fn one_node_is_no_choice() {
        let topology = Topology::read(described("0", &[(0, "0-7")]).path());
        assert!(!topology.has_several());
        assert_eq!(topology.cpus_of(0), None);
    }

    #[test]
    fn a_union_has_the_processors_of_each() {
        assert_eq!(Cpus::union(&[cpus([0, 1]), cpus([1, 5]), cpus([])]), cpus([0, 1, 5]));
        assert_eq!(Cpus::union(&[]), cpus([]));
    }

    #[cfg(feature = "cuda-driver")]
    #[test]
    fn a_pci_device_has_the_node_that_its_file_says() {
        let root = tempfile::tempdir().unwrap();
        for (device, says) in [("0000:3b:00.0", "1\n"), ("0000:3c:00.0", "-1\n"), ("0000:3d:00.0", "?")] {
            std::fs::create_dir(root.path().join(device)).unwrap();
            std::fs::write(root.path().join(device).join("numa_node"), says).unwrap();
        }
        let found = |device| node_below(root.path(), device);
        assert_eq!(found("0000:3b:00.0"), Some(1));
        assert_eq!(["0000:3c:00.0", "0000:3d:00.0", "0000:3e:00.0"].map(found), [None; 3]);
    }
}
