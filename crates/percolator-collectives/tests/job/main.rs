//! Jobs that `mpirun` starts: each test runs itself in four processes. Without `mpirun`, the tests say that
//! they did not run; `PERCOLATOR_NEED_MPI` makes that an error.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../percolator-distribute/tests/common/collectives.rs"]
mod collectives;
mod failures;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../../tests/common/process.rs"]
mod process;
mod rounds;

use std::process::{Command, Output};
use std::time::Duration;

use mpi::Threading;
use mpi::environment::Universe;

use crate::process::{child_command, need};

/// Longer than any test needs, in seconds as mpirun wants them.
const LIMIT: &str = "90";
/// Longer than any round needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test in so many processes, each with this role. Returns none if there is no `mpirun`.
fn mpirun(test: &str, role: &str, processes: usize) -> Option<Output> {
    if !need::program("MPI", "mpirun", "Debian's package openmpi-bin") {
        return None;
    }
    let child = child_command(test, role);
    // Two mpiruns that begin at once may both want to make the folder of their files, and one fails.
    let files = tempfile::tempdir().unwrap();
    let mut command = Command::new("mpirun");
    command.args(["--mca", "orte_tmpdir_base"]).arg(files.path());
    command.args(["--allow-run-as-root", "--oversubscribe", "--timeout", LIMIT]);
    // Containers often forbid processes to read each other's memory, and Open MPI complains.
    command.args(["--mca", "btl_vader_single_copy_mechanism", "none"]);
    command.args(["-n", &processes.to_string()]).arg(child.get_program()).args(child.get_args());
    command.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("time limit"), "it hangs: {text}\n{}", String::from_utf8_lossy(&output.stdout));
    Some(output)
}

/// Begins MPI, in a process that mpirun started.
fn begin() -> Universe {
    let (universe, level) = mpi::initialize_with_threading(Threading::Multiple).unwrap();
    assert!(level >= Threading::Serialized, "{level:?}");
    universe
}

/// The lines that processes print for the test, in any order.
fn told(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut told: Vec<_> =
        text.lines().filter_map(|line| line.split_once("told: ")).map(|(_, line)| line.to_owned()).collect();
    told.sort();
    told
}

/// What a job printed, for messages.
fn all(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{}\n{out}\n{err}", output.status)
}
