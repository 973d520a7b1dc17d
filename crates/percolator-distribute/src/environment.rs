//! What launchers tell a process about its job, in environment variables.

use std::fmt;

use percolator::order::{OrderError, World};

/// A process of a job, and the number of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// The rank of the process in the job, from 0.
    pub rank: usize,
    /// The number of processes in the job.
    pub processes: usize,
    /// The rank of the process on its host, if known. It often selects the device.
    pub local_rank: Option<usize>,
    /// The number of processes on its host, if known.
    pub local_processes: Option<usize>,
}

/// The environment does not describe a valid job. The message says why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EnvironmentError {
    message: String,
}

fn refused<T>(message: String) -> Result<T, EnvironmentError> {
    Err(EnvironmentError { message })
}

/// The variables of a launcher: those of the rank, of the number of processes, and of both again for this
/// host. Of several for one number, the first that is set counts.
type Variables = [&'static [&'static str]; 4];

/// The innermost first: it is the one that started this process.
const LAUNCHERS: [Variables; 4] = [
    // torchrun
    [&["RANK"], &["WORLD_SIZE"], &["LOCAL_RANK"], &["LOCAL_WORLD_SIZE"]],
    // Open MPI
    [
        &["OMPI_COMM_WORLD_RANK"],
        &["OMPI_COMM_WORLD_SIZE"],
        &["OMPI_COMM_WORLD_LOCAL_RANK"],
        &["OMPI_COMM_WORLD_LOCAL_SIZE"],
    ],
    // SLURM: the step's number of tasks, if the step is smaller than the allocation.
    [
        &["SLURM_PROCID"],
        &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
        &["SLURM_LOCALID"],
        &["SLURM_NTASKS_PER_NODE"],
    ],
    // A Kubernetes Indexed Job, which does not set the number of processes.
    [&["JOB_COMPLETION_INDEX"], &[], &[], &[]],
];

/// A number, and the name of its setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    number: usize,
    by: &'static str,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.by, self.number)
    }
}

/// The settings of one launcher, in the order of its variables.
type Settings = [Option<Setting>; 4];

impl Process {
    /// The process that the launchers describe: torchrun, Open MPI, SLURM, or a Kubernetes Indexed Job.
    /// `None` if nothing is set. `rank` and `processes` supplement the launchers' variables: a Kubernetes
    /// job, for example, does not set the number of processes.
    ///
    /// If several launchers are nested, the inner one may have started several processes for each of the
    /// outer one's, as torchrun does on each node of a SLURM job.
    ///
    /// # Errors
    ///
    /// [`EnvironmentError`] if a variable does not hold a number, if two settings contradict each other, or
    /// if one is missing.
    pub fn from_environment(
        rank: Option<usize>,
        processes: Option<usize>,
    ) -> Result<Option<Self>, EnvironmentError> {
        Self::from_variables(rank, processes, |name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// Like [`from_environment`](Self::from_environment), with any source of variables.
    fn from_variables(
        rank: Option<usize>,
        processes: Option<usize>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, EnvironmentError> {
        let given = |number: Option<usize>, by| number.map(|number| Setting { number, by });
        let (rank, processes) =
            (given(rank, "the given rank"), given(processes, "the given number of processes"));
        let mut settings = vec![[rank, processes, None, None]];
        for launcher in &LAUNCHERS {
            settings.push(settings_of(launcher, &variable)?);
        }
        // The innermost setting takes precedence.
        let inner: Settings = std::array::from_fn(|place| settings.iter().find_map(|known| known[place]));
        for outer in &settings {
            check_within(&inner, outer)?;
        }
        let [rank, processes, local_rank, local_processes] = inner;
        match (rank, processes) {
            (None, None) => Ok(None),
            (Some(rank), None) => refused(format!(
                "{rank} says which process this is, but nothing says how many there are: give the number, or \
                 set WORLD_SIZE"
            )),
            (None, Some(processes)) => refused(format!(
                "{processes} says how many processes there are, but nothing says which one this is: give the \
                 rank, or set RANK"
            )),
            (Some(rank), Some(processes)) if rank.number >= processes.number => refused(format!(
                "{rank} and {processes}: there is no process {} in a job of {}: they are counted from 0",
                rank.number, processes.number
            )),
            (Some(rank), Some(processes)) => Ok(Some(Process {
                rank: rank.number,
                processes: processes.number,
                local_rank: local_rank.map(|setting| setting.number),
                local_processes: local_processes.map(|setting| setting.number),
            })),
        }
    }

    /// The job whose workers are its processes, with this many devices each, and the worker that this process
    /// is.
    ///
    /// # Errors
    ///
    /// [`OrderError::Zero`] if there are no devices.
    pub fn worker(&self, devices: usize) -> Result<(World, usize), OrderError> {
        // A product that overflows is more than any job has.
        Ok((World::new(self.processes, self.processes.saturating_mul(devices))?, self.rank))
    }
}

/// What a launcher has set.
fn settings_of(
    launcher: &Variables,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Settings, EnvironmentError> {
    let number = |name: &'static str| match variable(name) {
        None => Ok(None),
        Some(text) => match text.trim().parse() {
            Ok(number) => Ok(Some(Setting { number, by: name })),
            Err(_) => refused(format!(
                "{name}={text}: not a number of processes; set a whole number, as its launcher does"
            )),
        },
    };
    let first = |names: &[&'static str]| names.iter().find_map(|&name| number(name).transpose()).transpose();
    let &[rank, processes, local_rank, local_processes] = launcher;
    let found = first(rank)?;
    if found.is_none() && rank != LAUNCHERS[0][0] {
        // An allocation in which this process is not a task.
        return Ok(Settings::default());
    }
    Ok([found, first(processes)?, first(local_rank)?, first(local_processes)?])
}

/// Checks that an outer launcher has the same settings, or started one process for each group of processes on
/// a host.
fn check_within(inner: &Settings, outer: &Settings) -> Result<(), EnvironmentError> {
    let [rank, processes, _, local_processes] = *inner;
    let pairs = [(rank, outer[0]), (processes, outer[1])];
    let pairs = pairs.into_iter().filter_map(|(one, other)| Some((one?, other?)));
    let each = local_processes.map_or(1, |setting| setting.number.max(1));
    let mut different = pairs.clone().filter(|(one, other)| one.number != other.number);
    let is_group_of_it = pairs.clone().all(|(one, other)| one.number / each == other.number);
    match different.next() {
        Some((one, other)) if !is_group_of_it => refused(format!(
            "{one} and {other} disagree: unset what another launcher left behind, or give the right value"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(given: [Option<usize>; 2], variables: &str) -> Result<Option<Process>, String> {
        let variable = |name: &str| {
            let mut pairs = variables.split_whitespace().filter_map(|pair| pair.split_once('='));
            pairs.find(|(set, _)| *set == name).map(|(_, value)| value.to_owned())
        };
        Process::from_variables(given[0], given[1], variable).map_err(|error| error.to_string())
    }

    fn launched(variables: &str) -> Result<Option<Process>, String> {
        process([None, None], variables)
    }

    fn of(rank: usize, processes: usize, local: Option<(usize, usize)>) -> Result<Option<Process>, String> {
        let (local_rank, local_processes) = (local.map(|local| local.0), local.map(|local| local.1));
        Ok(Some(Process { rank, processes, local_rank, local_processes }))
    }

    #[test]
    fn each_launcher_has_its_own_variables() {
        assert_eq!(launched("HOME=/root"), Ok(None));
        assert_eq!(launched("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4"), of(5, 8, Some((1, 4))));
        let mpi = "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=0 \
                   OMPI_COMM_WORLD_LOCAL_SIZE=1";
        assert_eq!(launched(mpi), of(2, 3, Some((0, 1))));
        let slurm =
            "SLURM_PROCID=3 SLURM_NTASKS=16 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_NTASKS_PER_NODE=2";
        assert_eq!(launched(slurm), of(3, 4, Some((1, 2))));
        assert_eq!(process([None, Some(6)], "JOB_COMPLETION_INDEX=5"), of(5, 6, None));
        assert_eq!(process([Some(0), Some(2)], ""), of(0, 2, None));
        // An allocation in which this process is not a task.
        assert_eq!(launched("SLURM_NTASKS=16"), Ok(None));
    }

    #[test]
    fn a_launcher_within_another_may_start_several_processes_for_each() {
        let within = "SLURM_PROCID=1 SLURM_NTASKS=2 RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4";
        assert_eq!(launched(within), of(5, 8, Some((1, 4))));
        let within = "JOB_COMPLETION_INDEX=1 RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4";
        assert_eq!(launched(within), of(5, 8, Some((1, 4))));
        assert_eq!(launched("SLURM_PROCID=1 SLURM_NTASKS=2 RANK=1 WORLD_SIZE=2"), of(1, 2, None));
    }

    #[test]
    fn a_contradiction_is_an_error_that_shows_both() {
        let refused = |given, variables: &str, due: &str| {
            let error = process(given, variables).unwrap_err();
            assert!(error.contains(due), "{variables}: {error}");
        };
        refused(
            [None, None],
            "RANK=3 WORLD_SIZE=4 SLURM_PROCID=1 SLURM_NTASKS=4",
            "RANK=3 and SLURM_PROCID=1 disagree",
        );
        refused([None, Some(8)], "RANK=3 WORLD_SIZE=4", "the given number of processes=8 and WORLD_SIZE=4");
        refused([None, None], "RANK=four WORLD_SIZE=4", "RANK=four: not a number");
        refused([None, None], "JOB_COMPLETION_INDEX=3", "JOB_COMPLETION_INDEX=3 says which process this is");
        refused([None, None], "WORLD_SIZE=3", "WORLD_SIZE=3 says how many processes there are");
        refused([None, None], "RANK=4 WORLD_SIZE=4", "there is no process 4 in a job of 4");
        refused([None, None], "RANK=0 WORLD_SIZE=0", "there is no process 0 in a job of 0");
    }
}
