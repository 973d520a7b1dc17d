//! Limits of this process, and children under limits.

use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::need::missing;

/// Lowers a limit of this process while `run` runs.
pub(crate) fn under<T>(resource: Resource, limit: u64, run: impl FnOnce() -> T) -> T {
    let before = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(limit), maximum: before.maximum }).unwrap();
    let result = run();
    setrlimit(resource, before).unwrap();
    result
}

/// A command after some words of a shell, which see its own words as `$1` and so on.
pub(crate) fn after(words: &str, command: &Command) -> Command {
    let mut all = Command::new("sh");
    all.args(["-c", &format!("{words} && exec \"$@\""), "sh"]).arg(command.get_program());
    all.args(command.get_args()).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    all
}

/// The same in a mount namespace of its own, as its root.
pub(crate) fn in_own_namespace(words: &str, command: &Command) -> Command {
    let inner = after(words, command);
    let mut all = Command::new("unshare");
    all.args(["--mount", "--map-root-user"]).arg(inner.get_program()).args(inner.get_args());
    all.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    all
}

/// Whether these words succeed in a namespace of their own; if not, says that the test did not run.
pub(crate) fn is_possible(words: &str, what: &str) -> bool {
    let tried = in_own_namespace(words, &Command::new("true")).output();
    let is_possible = tried.as_ref().is_ok_and(|output| output.status.success());
    if !is_possible {
        missing("NAMESPACES", format_args!("{what}: {tried:?}"));
    }
    is_possible
}
