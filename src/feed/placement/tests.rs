//! Where the threads and the memory of feeds are, on a machine with made-up nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::*;
use crate::base::numa::tests::{cpus, listed, one_a_node};
use crate::batch::memory::{HostMemory, PageMemory};
use crate::device::{Backend, Capacity, DeviceError, Transfer};
use crate::feed::Feed;
use crate::feed::resolve::ResolvedFeed;
use crate::process;

/// A device that reports its node, and notes where its memory was touched first.
#[derive(Debug)]
struct Somewhere {
    node: Option<usize>,
    /// The number of batches that it has memory for.
    batches_max: usize,
    touched_on: Mutex<Vec<Vec<usize>>>,
}

impl Backend for Somewhere {
    fn name(&self) -> String {
        format!("somewhere:{:?}", self.node)
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        let mut touched_on = self.touched_on.lock();
        touched_on.push(allowed());
        if touched_on.len() > self.batches_max {
            let message = "the test says so".to_owned();
            return Err(DeviceError::OutOfMemory { device: self.name(), bytes, message });
        }
        Ok(Box::new(PageMemory::new(bytes).unwrap()))
    }

    fn transfer(&self, _room: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        Ok(Device::nowhere())
    }

    fn numa_node(&self) -> Option<usize> {
        self.node
    }
}

/// The processors that this thread may run on.
fn allowed() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()
}

/// Two processors to make two nodes of, if there are two.
fn two_cpus() -> Option<[usize; 2]> {
    let two = allowed().get(..2)?.try_into().ok();
    if two.is_none() {
        let why = "this test may run on one processor only, which cannot be two nodes";
        assert!(std::env::var("PERCOLATOR_NEED_ALL").as_deref() != Ok("1"), "{why}");
        eprintln!("NOT RUN: {why}");
    }
    two
}

fn somewhere(nodes: &[Option<usize>], batches_max: usize) -> Vec<Arc<Somewhere>> {
    let device = |&node| Arc::new(Somewhere { node, batches_max, touched_on: Mutex::default() });
    nodes.iter().map(device).collect()
}

fn placed(two: [usize; 2], nodes: &[Option<usize>], workers: usize) -> Placement {
    let devices: Vec<_> =
        somewhere(nodes, 0).into_iter().map(|device| Device::from_backend(device)).collect();
    Placement::of(&one_a_node(two), &devices, workers)
}

#[test]
#[cfg_attr(miri, ignore = "it asks the kernel for processors")]
fn a_lane_stays_on_its_node_and_the_workers_on_those_of_all_lanes() {
    let Some(two) = two_cpus() else { return };
    let [zero, one] = two.map(|cpu| Some(cpus([cpu])));
    let placed = |nodes: &[Option<usize>], workers| placed(two, nodes, workers);
    let found = placed(&[Some(1), Some(0), Some(1)], 2);
    assert_eq!(found.lanes, [one.clone(), zero, one.clone()]);
    assert_eq!(found.workers, Some(cpus(two)));
    assert_eq!(placed(&[Some(1), Some(1)], 1).workers, one);
    assert_eq!(placed(&[Some(1), Some(1)], 2).workers, None, "there is one processor for two");
    for unknown in [None, Some(7)] {
        let found = placed(&[Some(1), unknown], 1);
        assert_eq!(found, Placement { lanes: vec![one.clone(), None], workers: None });
    }
}

#[test]
#[cfg_attr(miri, ignore = "it asks the kernel for processors")]
fn a_machine_with_one_node_binds_nothing() {
    let devices = [Device::from_backend(somewhere(&[Some(0)], 0).remove(0))];
    let found = Placement::of(&Topology::default(), &devices, 1);
    assert_eq!(found, Placement { lanes: vec![None], workers: None });
}

/// A feed with a lane for each device, on a machine with a node for each of two processors.
fn resolve(devices: &[Arc<Somewhere>], two: [usize; 2], workers: usize) -> ResolvedFeed {
    let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/golden/raw_lmdb");
    let devices = devices.iter().map(|device| Device::from_backend(device.clone()));
    let described = Feed::builder().lmdb(digits).batch_size(2).prefetch(2).threads(workers).devices(devices);
    let mut resolved = ResolvedFeed::of(described).unwrap();
    resolved.topology = one_a_node(two);
    resolved
}

/// Where the feed's threads may run, by their names.
fn threads() -> BTreeMap<String, Vec<usize>> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
    let look = |task: std::path::PathBuf| {
        let name = std::fs::read_to_string(task.join("comm")).ok()?.trim().to_owned();
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let is_ours = name.starts_with("worker:") || name.starts_with("prefetch:");
        is_ours.then(|| (name, listed(list)))
    };
    tasks.filter_map(look).collect()
}

/// Runs a feed and checks where its memory was touched, and where its two lanes' threads and its workers run.
fn check(nodes: [Option<usize>; 2], two: [usize; 2], lanes: [&[usize]; 2], workers: &[&[usize]]) {
    let before = allowed();
    let devices = somewhere(&nodes, usize::MAX);
    let mut feed = resolve(&devices, two, workers.len()).start().unwrap();
    assert_eq!(allowed(), before, "the building thread runs where it did before");
    for (device, lane) in devices.iter().zip(lanes) {
        assert_eq!(*device.touched_on.lock(), [lane, lane], "both batches of the ring");
    }
    let named = |kind, cpus: &[&[usize]]| {
        let named = |(number, cpus): (usize, &&[usize])| (format!("{kind}:{number}"), cpus.to_vec());
        cpus.iter().enumerate().map(named).collect::<Vec<_>>()
    };
    let wanted = named("prefetch", &lanes).into_iter().chain(named("worker", workers)).collect();
    process::settles(threads, &wanted, "where the threads may run");
    assert_eq!(feed.steps().take(5).filter(Result::is_ok).count(), 5);
}

#[test]
#[cfg_attr(miri, ignore = "it asks the kernel for processors")]
fn memory_and_threads_are_where_the_devices_are() {
    // In a process of its own: the feeds of other tests have threads of the same names.
    let name = "feed::placement::tests::memory_and_threads_are_where_the_devices_are";
    let Some(two @ [zero, one]) = two_cpus() else { return };
    if !process::is_alone(name) {
        return;
    }
    process::must_end("feeds of lanes that are placed", move || {
        let all = &*allowed();
        check([Some(1), Some(1)], two, [&[one], &[one]], &[&[one]]);
        check([Some(1), Some(1)], two, [&[one], &[one]], &[all, all]);
        check([Some(0), Some(1)], two, [&[zero], &[one]], &[&[zero, one], &[zero, one]]);
        check([Some(1), None], two, [&[one], all], &[all]);
        check([None, None], two, [all, all], &[all, all]);
    });
}

#[test]
#[cfg_attr(miri, ignore = "it asks the kernel for processors")]
fn a_thread_that_fails_to_build_a_feed_gets_its_processors_back() {
    let Some(two) = two_cpus() else { return };
    let before = allowed();
    for batches_max in [0, 1] {
        let devices = somewhere(&[Some(0), Some(1)], batches_max);
        let error = resolve(&devices, two, 2).start().unwrap_err();
        assert!(matches!(error, crate::FeedError::Device(DeviceError::OutOfMemory { .. })), "{error}");
        assert_eq!(*devices[0].touched_on.lock().last().unwrap(), [two[0]], "it was bound");
        assert_eq!(allowed(), before);
    }
}
