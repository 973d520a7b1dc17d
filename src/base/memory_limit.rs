//! How much memory a feed may use, and what sets that limit: the program, or the system. A container's limit
//! is that of a control group, and a process that exceeds it is killed without a message. So it is read
//! before anything is allocated.

use percolator_files::shown;
use std::fmt;
use std::path::{Component, Path, PathBuf};

/// Where Linux shows the control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Which of them this process is in.
const OWN_GROUPS: &str = "/proc/self/cgroup";

/// Version 1 has no value for *unlimited*: it states the largest number of pages that it can count.
const UNLIMITED_BYTES: u64 = 1 << 62;

/// The most memory that a feed may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    pub(crate) bytes: usize,
    pub(crate) set_by: LimitSource,
}

/// What sets the memory limit of a feed.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The feed's option [`memory_limit`](crate::FeedBuilder::memory_limit).
    Option,
    /// A control group that this process is in, which is how containers and jobs are limited.
    ControlGroup {
        /// The file that states the limit.
        file: PathBuf,
    },
    /// The limit of the process's address space (`ulimit -v`).
    AddressSpace,
}

impl LimitSource {
    /// What to do if the limit is too low.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            LimitSource::Option => "lower the batch size or the prefetch",
            LimitSource::ControlGroup { .. } => {
                "lower the batch size or the prefetch, or raise the memory limit of the container or job"
            }
            LimitSource::AddressSpace => {
                "lower the batch size or the prefetch, or lift the limit of the address space (ulimit -v)"
            }
        }
    }
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitSource::Option => f.write_str("memory_limit"),
            LimitSource::ControlGroup { file } => {
                write!(f, "the control group of this process (a container or job; {})", shown::path(file))
            }
            LimitSource::AddressSpace => f.write_str("the limit of the address space (ulimit -v)"),
        }
    }
}

impl MemoryLimit {
    /// The lowest of the limits: this option's, if it is set, and the current ones of the system. A system
    /// that does not report a limit has none.
    pub(crate) fn lowest(option: Option<usize>) -> Option<Self> {
        let option = option.map(|bytes| MemoryLimit { bytes, set_by: LimitSource::Option });
        let groups = std::fs::read_to_string(OWN_GROUPS).unwrap_or_default();
        let groups = of_groups(Path::new(GROUPS), &groups);
        // Of equal limits the first one is named: the program's own.
        option.into_iter().chain(groups).chain(of_address_space()).min_by_key(|limit| limit.bytes)
    }
}

/// The lowest limit of these groups, which are lines of [`OWN_GROUPS`], and of all groups around them.
fn of_groups(root: &Path, own: &str) -> Option<MemoryLimit> {
    let mut lowest: Option<MemoryLimit> = None;
    for (folders, name, path) in own.lines().filter_map(with_memory) {
        for folder in folders.iter().map(|folder| root.join(folder)) {
            // A path may lead out of the tree that this process sees. Then the groups that it sees still
            // count.
            let names = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_)));
            let own = folder.join(names.collect::<PathBuf>());
            for group in own.ancestors().take_while(|group| group.starts_with(&folder)) {
                let file = group.join(name);
                let Some(bytes) = stated(&file) else { continue };
                if lowest.as_ref().is_none_or(|lowest| bytes < lowest.bytes) {
                    lowest = Some(MemoryLimit { bytes, set_by: LimitSource::ControlGroup { file } });
                }
            }
        }
    }
    lowest
}

/// The folders of a group's tree, the name of the file with its limit of memory, and its path there; of a
/// line like `0::/jobs/7` (version 2) or `4:memory:/jobs/7` (version 1), if the group can limit memory.
fn with_memory(line: &str) -> Option<(&'static [&'static str], &'static str, &str)> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    match controllers {
        "" => Some((&["", "unified"], "memory.max", path)),
        _ if controllers.split(',').any(|controller| controller == "memory") => {
            Some((&["memory"], "memory.limit_in_bytes", path))
        }
        _ => None,
    }
}

/// The limit that a file states, if it does.
fn stated(file: &Path) -> Option<usize> {
    let bytes: u64 = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    usize::try_from(bytes).ok().filter(|_| bytes < UNLIMITED_BYTES)
}

#[cfg(all(target_os = "linux", not(miri)))]
fn of_address_space() -> Option<MemoryLimit> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current?;
    let bytes = usize::try_from(limit).ok()?;
    Some(MemoryLimit { bytes, set_by: LimitSource::AddressSpace })
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn of_address_space() -> Option<MemoryLimit> {
    None
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;

    /// Made-up groups, as files below a folder, and what is found for these lines.
    fn found(files: &[(&str, &str)], own: &str) -> Option<(usize, String)> {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let limit = of_groups(root.path(), own)?;
        let LimitSource::ControlGroup { file } = limit.set_by else { panic!("{limit:?}") };
        let file = file.strip_prefix(root.path()).unwrap().to_str().unwrap().to_owned();
        Some((limit.bytes, file))
    }

    fn limit(bytes: usize, file: &str) -> Option<(usize, String)> {
        Some((bytes, file.to_owned()))
    }

    #[test]
    fn the_lowest_limit_of_the_groups_around_counts() {
        let files = [("memory.max", "max\n"), ("a/memory.max", "300\n"), ("a/b/memory.max", "500\n")];
        assert_eq!(found(&files, "0::/a/b\n"), limit(300, "a/memory.max"));
        assert_eq!(found(&files, "0::/a/b/not-here\n"), limit(300, "a/memory.max"));
        assert_eq!(found(&files, "0::/c\n"), None);
        assert_eq!(found(&[("memory.max", "7")], "0::/\n"), limit(7, "memory.max"), "a container's own root");
    }

    #[test]
    fn version_1_and_both_versions_at_once_are_read() {
        let own = "9:name=systemd:/\n4:cpu,memory:/job\n2:cpu:/other\n0::/new\n";
        let old = ("memory/job/memory.limit_in_bytes", "4096\n");
        let unlimited = ("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(found(&[old, unlimited], own), limit(4096, old.0));
        assert_eq!(found(&[unlimited], own), None);
        let new = ("unified/new/memory.max", "4095");
        assert_eq!(found(&[old, new], own), limit(4095, new.0));
    }

    #[test]
    fn what_states_no_limit_has_none() {
        for text in ["", "max", "-1", "1e9", "18446744073709551616", "12 34", "\u{0}"] {
            assert_eq!(found(&[("memory.max", text)], "0::/\n"), None, "{text:?}");
        }
        let files = [("memory.max", "9"), ("memory/memory.limit_in_bytes", "8")];
        for own in ["", "0", "0:", "::", "x", "3:memoryx:/\n", "3:cpu:/\n"] {
            let due = if own == "::" { limit(9, "memory.max") } else { None };
            assert_eq!(found(&files, own), due, "{own:?}");
        }
        assert_eq!(found(&files, "0::/../../..\n"), limit(9, "memory.max"), "a path that leads out");
    }

    #[test]
    fn the_lowest_limit_counts_whoever_set_it() {
        let of = |option| MemoryLimit::lowest(option).map(|limit| (limit.bytes, limit.set_by));
        assert_eq!(of(Some(1)), Some((1, LimitSource::Option)));
        let system = of(None);
        assert_eq!(of(Some(usize::MAX)), system.or(Some((usize::MAX, LimitSource::Option))));
    }
}
