//! What launchers tell a process about its job.

use percolator_distribute as job;
use pyo3::prelude::*;

use crate::errors;

/// A process of a job, and the number of processes.
#[pyclass(frozen, eq, get_all, module = "percolator")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// The number of this process in the job, from 0.
    rank: usize,
    /// The number of processes of the job.
    world_size: usize,
    /// The number of this process on its host, if it is known.
    local_rank: Option<usize>,
    /// The number of the job's processes on this host, if it is known.
    local_world_size: Option<usize>,
}

#[pymethods]
impl Process {
    fn __repr__(&self) -> String {
        format!("Process(rank={}, world_size={})", self.rank, self.world_size)
    }
}

/// The process that `torch.distributed` says this is, if it is initialised, or else the launchers' variables.
///
/// An initialised process group is what the program trains with, so it decides. Variables that say something
/// else, as those that another job left in a shell, are warned of.
pub(crate) fn process(
    py: Python<'_>,
    rank: Option<usize>,
    world_size: Option<usize>,
) -> PyResult<Option<job::Process>> {
    let launched = job::Process::from_environment(rank, world_size);
    let Some(group) = of_torch(py)? else {
        return launched.map_err(|error| {
            let message = format!(
                "{error}; if torch.distributed is what starts this job, initialise it first: then it says \
                 which process this is"
            );
            errors::config(py, &message)
        });
    };
    let said = format!("torch.distributed says process {} of {}", group.rank, group.processes);
    if rank.is_some_and(|rank| rank != group.rank)
        || world_size.is_some_and(|processes| processes != group.processes)
    {
        let given = |number: Option<usize>| number.map_or_else(|| "None".to_owned(), |one| one.to_string());
        let (rank, world_size) = (given(rank), given(world_size));
        let message = format!(
            "{said}, and was given rank={rank}, world_size={world_size}: leave these out, or, if this data \
             set is divided in another way, set environment=False"
        );
        return Err(errors::config(py, &message));
    }
    match launched {
        Ok(Some(one)) if (one.rank, one.processes) == (group.rank, group.processes) => Ok(Some(one)),
        Ok(Some(one)) => {
            let message = format!(
                "{said}, and the environment's variables say process {} of {}: torch.distributed decides",
                one.rank, one.processes
            );
            py.import("warnings")?.call_method1("warn", (message,))?;
            Ok(Some(group))
        }
        // Launchers set some of the variables, and leave the rest to their process group.
        _ => Ok(Some(group)),
    }
}

/// What an initialised `torch.distributed` says. It is not initialised if it was not imported.
fn of_torch(py: Python<'_>) -> PyResult<Option<job::Process>> {
    let modules = py.import("sys")?.getattr("modules")?;
    let module = |name: &str| modules.call_method1("get", (name,));
    let distributed = module("torch.distributed")?;
    let is = |name: &str| distributed.call_method0(name)?.is_truthy();
    if distributed.is_none() || !is("is_available")? || !is("is_initialized")? {
        return Ok(None);
    }
    let number = |name: &str| distributed.call_method0(name)?.extract::<usize>();
    let local_rank = match std::env::var("LOCAL_RANK").ok().and_then(|rank| rank.trim().parse().ok()) {
        Some(rank) => Some(rank),
        None => current_gpu(&module("torch.cuda")?)?,
    };
    let (rank, processes) = (number("get_rank")?, number("get_world_size")?);
    Ok(Some(job::Process { rank, processes, local_rank, local_processes: None }))
}

/// The GPU that the program has chosen, if it has used one.
fn current_gpu(cuda: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    if cuda.is_none() || !cuda.call_method0("is_initialized")?.is_truthy()? {
        return Ok(None);
    }
    cuda.call_method0("current_device")?.extract().map(Some)
}

/// Which process of its job this is: as torch.distributed says, if it is initialised, or else the launcher's
/// variables; `rank` and `world_size` give what these leave out. `None` if nothing says that there is a job.
#[pyfunction]
#[pyo3(signature = (rank=None, world_size=None))]
pub(crate) fn environment(
    py: Python<'_>,
    rank: Option<usize>,
    world_size: Option<usize>,
) -> PyResult<Option<Process>> {
    let found = process(py, rank, world_size)?;
    Ok(found.map(|job::Process { rank, processes, local_rank, local_processes }| Process {
        rank,
        world_size: processes,
        local_rank,
        local_world_size: local_processes,
    }))
}
