//! Processor time and memory that a control group limits, as a container's are. Made-up groups, as files in a
//! mount namespace, show every kind of group; where root may make real ones, there are real limits, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use percolator::feed::{ConfigError, LimitSource};
use percolator::{Epochs, Feed, FeedBuilder, FeedError};
use rustix::process::Resource;

use crate::common::need::missing;
use crate::common::process::{check, child_command, role, this_test};
use crate::common::source::MemorySource;
use crate::limited::{after, in_own_namespace, is_possible, under};

fn images() -> FeedBuilder {
    Feed::builder()
        .source(MemorySource::images("group", 100, 3, 64, 64))
        .batch_size(16)
        .epochs(Epochs::OnePass)
}

/// A feed of one thread and one batch.
fn small() -> FeedBuilder {
    images().threads(1).prefetch(1)
}

/// The bytes that it needs.
fn needed() -> usize {
    small().resolve().unwrap().memory_budget().total_bytes()
}

fn over_budget(feed: FeedBuilder) -> (usize, LimitSource, String) {
    match feed.build() {
        Err(FeedError::Config(error @ ConfigError::OverBudget { .. })) => {
            let said = error.to_string();
            let ConfigError::OverBudget { allowed, set_by, .. } = error else { unreachable!() };
            (allowed, set_by, said)
        }
        other => panic!("{other:?}"),
    }
}

/// Runs a child below made-up groups: `own` is what the system says this process is in, and `files` are those
/// of all groups. Returns whether that is possible here.
fn below_made_up(test: &str, task: &str, own: &str, files: &[(&str, &str)]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let groups = folder.path().join("groups");
    for (file, text) in files {
        let file = groups.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    fs::write(folder.path().join("own"), own).unwrap();
    let at = folder.path().to_str().unwrap();
    let mounts = format!("mount --bind {at}/groups /sys/fs/cgroup && mount --bind {at}/own /proc/$$/cgroup");
    if !is_possible(&mounts, "no groups can be made up here") {
        return false;
    }
    check(test, &in_own_namespace(&mounts, &child_command(test, task)).output().unwrap());
    true
}

/// What a made-up quota allows, and no more than there are processors for this process.
fn threads_are(allowed: usize) {
    let sizing = images().resolve().unwrap().sizing();
    let processors = rustix::thread::sched_getaffinity(None).unwrap().count() as usize;
    assert!(sizing.are_threads_chosen);
    assert_eq!(sizing.threads, allowed.min(processors), "{processors} processors");
}

#[test]
fn threads_follow_the_quota_of_processor_time() {
    if let Some(allowed) = role() {
        return threads_are(allowed.parse().unwrap());
    }
    // Version 2: a controller's file tells std that the folder is a group. Version 1: quota and period.
    let second = |own: &'static str, max: &'static str| {
        (own, vec![("jobs/7/cgroup.controllers", "cpu memory\n"), ("jobs/7/cpu.max", max)])
    };
    let first = |quota: &'static str| {
        let files = vec![("cpu/jobs/cpu.cfs_quota_us", quota), ("cpu/jobs/cpu.cfs_period_us", "100000\n")];
        ("4:cpu:/jobs\n0::/\n", files)
    };
    let many = usize::MAX.to_string();
    let cases = [
        (second("0::/jobs/7\n", "100000 100000\n"), "1"),
        (second("0::/jobs/7\n", "50000 100000\n"), "1"),
        (second("0::/jobs/7\n", "150000 100000\n"), "1"),
        (second("0::/jobs/7\n", "200000 100000\n"), "2"),
        (second("0::/jobs/7\n", "max 100000\n"), &many),
        (second("0::/jobs/7\n", "nonsense\n"), &many),
        (first("100000\n"), "1"),
        (first("250000\n"), "2"),
        (first("-1\n"), &many),
    ];
    for ((own, files), allowed) in cases {
        if !below_made_up(this_test!(), allowed, own, &files) {
            return;
        }
    }
}

#[test]
fn a_budget_is_checked_against_the_limits_of_memory_and_says_which() {
    if let Some(file) = role() {
        let limit: usize = fs::read_to_string(&file).unwrap().parse().unwrap();
        let (allowed, set_by, said) = over_budget(small());
        assert_eq!((allowed, &set_by), (limit, &LimitSource::ControlGroup { file: file.clone().into() }));
        let needed = format!("needs {} bytes", limit + 1);
        for part in [&needed, &file, "raise the memory limit of the container"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        // The lowest limit counts, and is named.
        assert_eq!(over_budget(small().memory_limit(10)).1, LimitSource::Option);
        return;
    }
    let limit = (needed() - 1).to_string();
    let cases = [
        ("0::/jobs/7\n", "/sys/fs/cgroup/jobs/memory.max", "jobs/memory.max"),
        ("0::/\n", "/sys/fs/cgroup/memory.max", "memory.max"),
        (
            "4:memory:/jobs\n0::/\n",
            "/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes",
            "memory/jobs/memory.limit_in_bytes",
        ),
    ];
    for (own, stated, file) in cases {
        if !below_made_up(this_test!(), stated, own, &[(file, &limit)]) {
            return;
        }
    }
}

#[test]
fn a_feed_within_the_limit_of_memory_is_chosen_smaller() {
    if role().is_some() {
        let chosen = images().resolve().unwrap();
        let (sizing, unlimited) = (chosen.sizing(), 8);
        assert!(sizing.prefetch_max < unlimited, "{sizing}");
        let limit: usize = fs::read_to_string("/sys/fs/cgroup/memory.max").unwrap().parse().unwrap();
        assert!(chosen.memory_budget().total_bytes() <= limit);
        let records: usize = chosen.launch().unwrap().steps().map(|step| step.unwrap()[0].len()).sum();
        assert_eq!(records, 100);
        return;
    }
    let limit = (2 * needed()).to_string();
    below_made_up(this_test!(), "chosen", "0::/\n", &[("memory.max", &limit)]);
}

#[test]
fn a_limited_address_space_is_named_before_anything_is_allocated() {
    if role().is_none() {
        return check(this_test!(), &child_command(this_test!(), "limited").output().unwrap());
    }
    let records = 1 << 16;
    let feed = || images().batch_size(records).threads(1).prefetch(1);
    let (found, set_by, said) = under(Resource::As, 1 << 30, || over_budget(feed()));
    assert_eq!((found, set_by), (1 << 30, LimitSource::AddressSpace));
    assert!(said.contains("ulimit -v"), "{said}");
}

/// A group of this test's own below that of this process, removed with its children when it goes.
struct Group(PathBuf);

impl Group {
    /// Makes a group of version 1 under this controller, or of version 2; `None` if nobody may.
    fn make(controller: &str, test: &str) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let first = own.lines().find_map(|line| line.split_once(&format!(":{controller}:")));
        let second = own.lines().find_map(|line| line.strip_prefix("0::"));
        let roots = [
            first.map(|(_, path)| (Path::new("/sys/fs/cgroup").join(controller), path)),
            second.map(|path| (PathBuf::from("/sys/fs/cgroup"), path)),
        ];
        for (root, path) in roots.into_iter().flatten() {
            let group = root
                .join(path.trim_start_matches('/'))
                .join(format!("percolator-{test}-{}", std::process::id()));
            if fs::create_dir(&group).is_ok() {
                return Some(Group(group));
            }
        }
        None
    }

    /// Writes the first of these files that the group has.
    fn set(&self, files: &[(&str, &str)]) -> bool {
        let is_set = |(file, text): &(&str, &str)| {
            let file = self.0.join(file);
            file.exists() && fs::write(file, text).is_ok()
        };
        files.iter().any(is_set)
    }

    fn enter(&self, command: &Command) -> Command {
        after(&format!("echo $$ > '{}/cgroup.procs'", self.0.display()), command)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn threads_follow_a_real_quota() {
    if let Some(allowed) = role() {
        return threads_are(allowed.parse().unwrap());
    }
    let group = Group::make("cpu", "quota");
    match group.filter(|group| group.set(&[("cpu.max", "100000 100000"), ("cpu.cfs_quota_us", "100000")])) {
        Some(group) => check(this_test!(), &group.enter(&child_command(this_test!(), "1")).output().unwrap()),
        None => missing("CONTROL_GROUPS", "no control group with a quota can be made here"),
    }
}

/// Without the check, the system would kill this child at its first batches.
#[test]
fn a_feed_beyond_a_real_limit_of_memory_is_refused_and_not_killed() {
    const LIMIT: usize = 128 << 20;

    if role().is_some() {
        let feed = |records| images().batch_size(records).threads(1).prefetch(1);
        let (allowed, set_by, said) = over_budget(feed(1 << 14));
        assert_eq!(allowed, LIMIT, "{said}");
        assert!(matches!(set_by, LimitSource::ControlGroup { .. }), "{said}");
        let records: usize = feed(64).build().unwrap().steps().map(|step| step.unwrap()[0].len()).sum();
        assert_eq!(records, 100);
        return;
    }
    let limit = LIMIT.to_string();
    let group = Group::make("memory", "memory");
    match group.filter(|group| group.set(&[("memory.max", &limit), ("memory.limit_in_bytes", &limit)])) {
        Some(group) => {
            check(this_test!(), &group.enter(&child_command(this_test!(), "small")).output().unwrap())
        }
        None => missing("CONTROL_GROUPS", "no control group with a limit of memory can be made here"),
    }
}
