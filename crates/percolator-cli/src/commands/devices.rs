//! `percolator devices`: lists the devices that can be fed here.

use clap::Args;
#[cfg(feature = "cuda-driver")]
use percolator::device::CudaDevice;
#[cfg(feature = "cuda-driver")]
use percolator_files::shown::count;
use serde::Serialize;

use crate::terminal::out::stdout;

#[cfg(not(feature = "cuda-driver"))]
const NO_SUPPORT: &str = "this build has no GPU support: build it with the feature cuda";

#[derive(Debug, Args)]
pub(crate) struct Devices {
    /// Do not measure how fast page-locked memory is copied to each GPU.
    #[arg(long)]
    no_rates: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What can be fed here.
#[derive(Debug, Serialize)]
struct Found {
    /// The cores that feed the lanes of the host.
    cores: usize,
    cuda: Vec<Gpu>,
    /// Why there is no GPU. It is not a failure: the host can be fed anyway.
    no_cuda: Option<String>,
}

/// A GPU.
#[derive(Debug, Serialize)]
struct Gpu {
    device: String,
    name: String,
    memory_bytes: usize,
    free_bytes: Option<usize>,
    compute_capability: String,
    pci: String,
    numa_node: Option<usize>,
    driver: String,
    /// How fast page-locked memory is copied to it.
    copy_bytes_per_s: Option<f64>,
    /// Why that could not be measured.
    copy_error: Option<String>,
}

impl Devices {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (cuda, no_cuda) = match self.gpus() {
            Ok(gpus) => (gpus, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let found = Found { cores, cuda, no_cuda };
        match self.json {
            true => stdout().json("percolator.devices/1", &found),
            false => stdout().text(table(&found).as_bytes()),
        }
    }

    #[cfg(not(feature = "cuda-driver"))]
    fn gpus(&self) -> Result<Vec<Gpu>, String> {
        let _ = self.no_rates;
        Err(NO_SUPPORT.to_owned())
    }

    /// All GPUs, or why there is none.
    #[cfg(feature = "cuda-driver")]
    fn gpus(&self) -> Result<Vec<Gpu>, String> {
        Ok(all()?.iter().map(|device| self.gpu(device)).collect())
    }

    #[cfg(feature = "cuda-driver")]
    fn gpu(&self, device: &CudaDevice) -> Gpu {
        /// About the size of a batch of a few hundred images.
        const COPY_BYTES: usize = 64 << 20;
        const ROUNDS: usize = 10;

        let (major, minor) = device.compute_capability;
        let rate = (!self.no_rates).then(|| device.copy_rate(COPY_BYTES, ROUNDS)).transpose();
        let (copy_bytes_per_s, copy_error) = match rate {
            Ok(rate) => (rate, None),
            Err(error) => (None, Some(error.to_string())),
        };
        Gpu {
            device: format!("cuda:{}", device.ordinal),
            name: device.name.clone(),
            memory_bytes: device.memory_bytes,
            free_bytes: device.free_bytes,
            compute_capability: format!("{major}.{minor}"),
            pci: device.pci.clone(),
            numa_node: device.numa_node,
            driver: device.driver.to_string(),
            copy_bytes_per_s,
            copy_error,
        }
    }
}

/// The version of the CUDA driver and its number of GPUs, or why there is none.
#[cfg(feature = "cuda-driver")]
pub(crate) fn driver() -> Result<String, String> {
    let devices = all()?;
    let driver = devices.first().map(|first| first.driver.to_string()).unwrap_or_default();
    Ok(format!("driver for CUDA {driver}, {}", count(devices.len(), "GPU")))
}

#[cfg(not(feature = "cuda-driver"))]
pub(crate) fn driver() -> Result<String, String> {
    Err(NO_SUPPORT.to_owned())
}

/// The GPUs, at least one, or why there is none.
#[cfg(feature = "cuda-driver")]
fn all() -> Result<Vec<CudaDevice>, String> {
    match CudaDevice::all() {
        Ok(devices) if devices.is_empty() => Err("the driver lists no device".to_owned()),
        Ok(devices) => Ok(devices),
        Err(error) => Err(error.to_string()),
    }
}

/// A line for the host, and one for each GPU.
fn table(found: &Found) -> String {
    let mut said =
        format!("host   any number of lanes (host:0, host:1, ...), fed by {} core(s)\n", found.cores);
    for gpu in &found.cuda {
        let numa = gpu.numa_node.map_or("no NUMA node".to_owned(), |node| format!("NUMA node {node}"));
        let free =
            gpu.free_bytes.map_or("an unknown part".to_owned(), |free| format!("{:.1}", gibibytes(free)));
        said += &format!(
            "{}  {}, {free} of {:.1} GiB free, compute {}, PCI {}, {numa}, driver for CUDA {}",
            gpu.device,
            gpu.name,
            gibibytes(gpu.memory_bytes),
            gpu.compute_capability,
            gpu.pci,
            gpu.driver
        );
        if let Some(rate) = gpu.copy_bytes_per_s {
            said += &format!(", page-locked memory copied at {:.1} GB/s", rate / 1e9);
        }
        if let Some(error) = &gpu.copy_error {
            said += &format!(", its copy rate cannot be measured: {error}");
        }
        said.push('\n');
    }
    if let Some(reason) = &found.no_cuda {
        said += &format!("cuda   {reason}\n");
    }
    said
}

fn gibibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}
