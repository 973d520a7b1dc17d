//! What launchers tell a process of its job, in environment variables.

use std::fmt;

use super::{OrderError, World};

/// One process of a job: which it is, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Which of the job's processes it is, from 0.
    pub rank: usize,
    /// How many there are.
    pub processes: usize,
    /// Which of those on its host it is, where that is known: often, the device that it has.
    pub local_rank: Option<usize>,
    /// How many are on its host, where that is known.
    pub local_processes: Option<usize>,
}

/// What the environment says of a job is no job.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// A variable holds no number.
    #[error("{name}={found}: not a number of processes: allowed are whole numbers, as its launcher sets it")]
    NotANumber {
        /// The variable.
        name: &'static str,
        /// What it holds.
        found: String,
    },
    /// Two say different things of the same.
    #[error(
        "{one} and {other} disagree: unset those that are left from another launcher, or say what is right"
    )]
    Disagree {
        /// What one says, and who.
        one: String,
        /// What the other says, and who.
        other: String,
    },
    /// There is a rank, and nothing says of how many.
    #[error("{said} says which process this is, and nothing says of how many: say it, or set WORLD_SIZE")]
    NoSize {
        /// Who says which it is.
        said: String,
    },
    /// A number of processes, and nothing that says which this is.
    #[error("{said} says how many processes there are, and nothing says which this is: say it, or set RANK")]
    NoRank {
        /// Who says how many there are.
        said: String,
    },
    /// A rank that the job does not have.
    #[error("{said}: there is no process {rank} in a job of {processes}: they are counted from 0")]
    NoSuchRank {
        /// Who says so.
        said: String,
        /// The rank.
        rank: usize,
        /// How many processes there are.
        processes: usize,
    },
}

/// The variables of a launcher: the rank, the number of processes, and the same on this host.
struct Launcher {
    rank: &'static str,
    processes: &'static [&'static str],
    local_rank: Option<&'static str>,
    local_processes: &'static [&'static str],
}

/// The innermost first: it is the one that started this process.
const LAUNCHERS: [Launcher; 4] = [
    // torchrun
    Launcher {
        rank: "RANK",
        processes: &["WORLD_SIZE"],
        local_rank: Some("LOCAL_RANK"),
        local_processes: &["LOCAL_WORLD_SIZE"],
    },
    // Open MPI
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        processes: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: Some("OMPI_COMM_WORLD_LOCAL_RANK"),
        local_processes: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
    },
    // SLURM: of the step, where it is less than the allocation.
    Launcher {
        rank: "SLURM_PROCID",
        processes: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
        local_rank: Some("SLURM_LOCALID"),
        local_processes: &["SLURM_NTASKS_PER_NODE"],
    },
    // A Kubernetes Indexed Job, which does not say how many there are.
    Launcher { rank: "JOB_COMPLETION_INDEX", processes: &[], local_rank: None, local_processes: &[] },
];

/// A number, and who says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    number: usize,
    by: &'static str,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.by, self.number)
    }
}

/// What one launcher says.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    rank: Option<Said>,
    processes: Option<Said>,
    local_rank: Option<Said>,
    local_processes: Option<Said>,
}

impl Process {
    /// The process that the launchers say this is: torchrun, Open MPI, SLURM, or a Kubernetes Indexed Job. `None` where
    /// nothing is said. What is given goes beside what they say: for a Kubernetes job, which does not say how many
    /// processes it has, `processes`.
    ///
    /// Where several launchers were at work, one within the other, the inner one may have started several processes for
    /// each of the outer one's, as torchrun does on each node of a SLURM job.
    ///
    /// # Errors
    ///
    /// [`EnvironmentError`] if a variable holds no number, if two disagree, or if something is missing.
    pub fn from_environment(
        rank: Option<usize>,
        processes: Option<usize>,
    ) -> Result<Option<Self>, EnvironmentError> {
        Self::from_variables(rank, processes, |name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// As [`from_environment`](Self::from_environment), of other variables than this process's own.
    fn from_variables(
        rank: Option<usize>,
        processes: Option<usize>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, EnvironmentError> {
        let given = |number: Option<usize>, by| number.map(|number| Said { number, by });
        let mut told = vec![Told {
            rank: given(rank, "the rank that was given"),
            processes: given(processes, "the number of processes that was given"),
            ..Told::default()
        }];
        for launcher in &LAUNCHERS {
            told.push(launcher.listen(&variable)?);
        }
        // Whoever says most closely what this process is goes first.
        let inner = told.iter().fold(Told::default(), |known, next| Told {
            rank: known.rank.or(next.rank),
            processes: known.processes.or(next.processes),
            local_rank: known.local_rank.or(next.local_rank),
            local_processes: known.local_processes.or(next.local_processes),
        });
        for outer in &told {
            inner.check_within(outer)?;
        }
        match (inner.rank, inner.processes) {
            (None, None) => Ok(None),
            (Some(rank), None) => Err(EnvironmentError::NoSize { said: rank.to_string() }),
            (None, Some(processes)) => Err(EnvironmentError::NoRank { said: processes.to_string() }),
            (Some(rank), Some(processes)) if rank.number >= processes.number => {
                Err(EnvironmentError::NoSuchRank {
                    said: format!("{rank} and {processes}"),
                    rank: rank.number,
                    processes: processes.number,
                })
            }
            (Some(rank), Some(processes)) => Ok(Some(Process {
                rank: rank.number,
                processes: processes.number,
                local_rank: inner.local_rank.map(|said| said.number),
                local_processes: inner.local_processes.map(|said| said.number),
            })),
        }
    }

    /// The job whose workers are its processes, with so many devices each, and which of them this is.
    ///
    /// # Errors
    ///
    /// [`OrderError::Zero`] if there are no devices.
    pub fn worker(&self, devices: usize) -> Result<(World, usize), OrderError> {
        // More than can be counted is more than anybody has.
        Ok((World::new(self.processes, self.processes.saturating_mul(devices))?, self.rank))
    }
}

impl Launcher {
    fn listen(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Told, EnvironmentError> {
        let number = |name: &'static str| match variable(name) {
            None => Ok(None),
            Some(text) => match text.trim().parse() {
                Ok(number) => Ok(Some(Said { number, by: name })),
                Err(_) => Err(EnvironmentError::NotANumber { name, found: text }),
            },
        };
        let first =
            |names: &[&'static str]| names.iter().find_map(|&name| number(name).transpose()).transpose();
        let rank = number(self.rank)?;
        if rank.is_none() && self.rank != LAUNCHERS[0].rank {
            // An allocation, in which this process is no task.
            return Ok(Told::default());
        }
        Ok(Told {
            rank,
            processes: first(self.processes)?,
            local_rank: self.local_rank.map_or(Ok(None), number)?,
            local_processes: first(self.local_processes)?,
        })
    }
}

impl Told {
    /// Whether an outer launcher says the same, or started one process for each group of those on a host.
    fn check_within(&self, outer: &Told) -> Result<(), EnvironmentError> {
        let pairs = [(self.rank, outer.rank), (self.processes, outer.processes)];
        let pairs = pairs.into_iter().filter_map(|(one, other)| Some((one?, other?)));
        let each = self.local_processes.map_or(1, |said| said.number.max(1));
        let mut different = pairs.clone().filter(|(one, other)| one.number != other.number);
        let is_group_of_it = pairs.clone().all(|(one, other)| one.number / each == other.number);
        match different.next() {
            Some((one, other)) if !is_group_of_it => {
                Err(EnvironmentError::Disagree { one: one.to_string(), other: other.to_string() })
            }
            _ => Ok(()),
        }
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

    fn told(variables: &str) -> Result<Option<Process>, String> {
        process([None, None], variables)
    }

    fn of(rank: usize, processes: usize, local: Option<(usize, usize)>) -> Result<Option<Process>, String> {
        let (local_rank, local_processes) = (local.map(|local| local.0), local.map(|local| local.1));
        Ok(Some(Process { rank, processes, local_rank, local_processes }))
    }

    #[test]
    fn each_launcher_says_it_in_its_own_words() {
        assert_eq!(told("HOME=/root"), Ok(None));
        assert_eq!(told("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4"), of(5, 8, Some((1, 4))));
        let mpi = "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=0 \
                   OMPI_COMM_WORLD_LOCAL_SIZE=1";
        assert_eq!(told(mpi), of(2, 3, Some((0, 1))));
        let slurm =
            "SLURM_PROCID=3 SLURM_NTASKS=16 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_NTASKS_PER_NODE=2";
        assert_eq!(told(slurm), of(3, 4, Some((1, 2))));
        assert_eq!(process([None, Some(6)], "JOB_COMPLETION_INDEX=5"), of(5, 6, None));
        assert_eq!(process([Some(0), Some(2)], ""), of(0, 2, None));
        // An allocation in which this process is no task.
        assert_eq!(told("SLURM_NTASKS=16"), Ok(None));
    }

    #[test]
    fn a_launcher_within_another_may_start_several_processes_for_each() {
        let within = "SLURM_PROCID=1 SLURM_NTASKS=2 RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4";
        assert_eq!(told(within), of(5, 8, Some((1, 4))));
        let within = "JOB_COMPLETION_INDEX=1 RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4";
        assert_eq!(told(within), of(5, 8, Some((1, 4))));
        assert_eq!(told("SLURM_PROCID=1 SLURM_NTASKS=2 RANK=1 WORLD_SIZE=2"), of(1, 2, None));
    }

    #[test]
    fn what_cannot_be_is_an_error_that_shows_both() {
        let refused = |given, variables: &str, due: &str| {
            let error = process(given, variables).unwrap_err();
            assert!(error.contains(due), "{variables}: {error}");
        };
        refused(
            [None, None],
            "RANK=3 WORLD_SIZE=4 SLURM_PROCID=1 SLURM_NTASKS=4",
            "RANK=3 and SLURM_PROCID=1 disagree",
        );
        refused(
            [None, Some(8)],
            "RANK=3 WORLD_SIZE=4",
            "the number of processes that was given=8 and WORLD_SIZE=4",
        );
        refused([None, None], "RANK=four WORLD_SIZE=4", "RANK=four: not a number");
        refused([None, None], "JOB_COMPLETION_INDEX=3", "JOB_COMPLETION_INDEX=3 says which process this is");
        refused([None, None], "WORLD_SIZE=3", "WORLD_SIZE=3 says how many processes there are");
        refused([None, None], "RANK=4 WORLD_SIZE=4", "there is no process 4 in a job of 4");
        refused([None, None], "RANK=0 WORLD_SIZE=0", "there is no process 0 in a job of 0");
    }
}
