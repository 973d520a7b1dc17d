//! Which worker feeds which devices, and which workers are in this process.

use std::sync::Arc;

use crate::Process;
use crate::collective::Collective;
use crate::error::DistributeError;
use percolator::Device;
use percolator::order::{OrderError, World};

/// The workers of a job, in order, each with the devices it feeds: TensorFlow's `InputWorkers`. All have the
/// same number of devices. The replicas are these devices, numbered consecutively.
///
/// Some of the workers are in this process, which feeds their devices. The others are only counted.
#[derive(Clone, Debug)]
pub struct InputWorkers {
    world: World,
    workers: Vec<InputWorker>,
    pub(super) collective: Option<Arc<dyn Collective>>,
}

/// A worker, or host, of a job: its name and its devices.
#[derive(Clone, Debug)]
pub struct InputWorker {
    name: String,
    devices: Devices,
}

#[derive(Clone, Debug)]
enum Devices {
    Here(Vec<Device>),
    /// This many, of another process.
    Elsewhere(usize),
}

impl InputWorker {
    /// A worker in this process.
    pub fn here(name: impl Into<String>, devices: impl IntoIterator<Item = Device>) -> Self {
        InputWorker { name: name.into(), devices: Devices::Here(devices.into_iter().collect()) }
    }

    /// A worker in another process, with this many devices.
    pub fn elsewhere(name: impl Into<String>, devices: usize) -> Self {
        InputWorker { name: name.into(), devices: Devices::Elsewhere(devices) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of devices it feeds.
    #[must_use]
    pub fn replicas(&self) -> usize {
        match &self.devices {
            Devices::Here(devices) => devices.len(),
            Devices::Elsewhere(devices) => *devices,
        }
    }
}

impl InputWorkers {
    /// A job of these workers. All its processes must list the same workers in the same order.
    ///
    /// # Errors
    ///
    /// [`OrderError::Zero`] if there are no workers or no devices; [`OrderError::UnevenReplicas`] if the
    /// number of replicas is not a multiple of the number of workers; [`DistributeError::Workers`] if it is a
    /// multiple and workers have different numbers of devices, if two have one name, or if none is here.
    pub fn new(workers: impl IntoIterator<Item = InputWorker>) -> Result<Self, DistributeError> {
        let workers: Vec<InputWorker> = workers.into_iter().collect();
        // Saturating: no job has that many.
        let replicas = workers.iter().fold(0, |sum: usize, worker| sum.saturating_add(worker.replicas()));
        let world = World::new(workers.len(), replicas)?;
        let refused = |message| Err(DistributeError::Workers { message });
        for (number, worker) in workers.iter().enumerate() {
            let (name, first) = (&worker.name, &workers[0].name);
            let (found, wanted) = (worker.replicas(), workers[0].replicas());
            if found != wanted {
                return refused(format!(
                    "worker {name:?} has {found} device(s), and worker {first:?} has {wanted}: every worker \
                     must have the same number of replicas; give each the same number of devices"
                ));
            }
            if workers[..number].iter().any(|other| other.name == *name) {
                return refused(format!(
                    "two workers are named {name:?}: errors name workers, so give each its own name"
                ));
            }
        }
        if !workers.iter().any(|worker| matches!(worker.devices, Devices::Here(_))) {
            let workers = workers.len();
            return refused(format!(
                "none of the {workers} worker(s) is in this process: use InputWorker::here for those that it \
                 feeds"
            ));
        }
        Ok(InputWorkers { world, workers, collective: None })
    }

    /// A job of one worker, which feeds these devices.
    ///
    /// # Errors
    ///
    /// [`OrderError::Zero`] if there are none.
    pub fn alone(devices: impl IntoIterator<Item = Device>) -> Result<Self, DistributeError> {
        Self::new([InputWorker::here("worker 0", devices)])
    }

    /// A job of one worker per process, each with as many devices as this one.
    ///
    /// # Errors
    ///
    /// [`OrderError::Zero`] if there are no devices or no processes; [`OrderError::NoSuchMember`] if the
    /// process is not one of them.
    pub fn of_process(
        process: &Process,
        devices: impl IntoIterator<Item = Device>,
    ) -> Result<Self, DistributeError> {
        let devices: Vec<Device> = devices.into_iter().collect();
        let (world, rank) = process.worker(devices.len())?;
        if rank >= world.workers() {
            return Err(OrderError::NoSuchMember { kind: "worker", found: rank, of: world.workers() }.into());
        }
        let worker = |number| {
            let name = format!("worker {number}");
            match number == rank {
                true => InputWorker::here(name, devices.clone()),
                false => InputWorker::elsewhere(name, devices.len()),
            }
        };
        Self::new((0..world.workers()).map(worker))
    }

    /// Sets how this process agrees with those that feed the other workers. Each process has its own end. It
    /// is held by these workers, by what is made of them, and by the weights of its steps: dropping the last
    /// of these drops the end.
    #[must_use]
    pub fn collective(mut self, collective: impl Collective + 'static) -> Self {
        self.collective = Some(Arc::new(collective));
        self
    }

    /// The numbers of the job's workers and replicas.
    #[must_use]
    pub fn world(&self) -> World {
        self.world
    }

    /// The workers.
    #[must_use]
    pub fn workers(&self) -> &[InputWorker] {
        &self.workers
    }

    /// The workers of this process: number, name and devices.
    pub(super) fn here(&self) -> impl Iterator<Item = (usize, &str, &[Device])> {
        self.workers.iter().enumerate().filter_map(|(number, worker)| match &worker.devices {
            Devices::Here(devices) => Some((number, &*worker.name, &**devices)),
            Devices::Elsewhere(_) => None,
        })
    }

    /// Whether some workers are in other processes.
    pub(super) fn is_split(&self) -> bool {
        self.workers.iter().any(|worker| matches!(worker.devices, Devices::Elsewhere(_)))
    }
}
