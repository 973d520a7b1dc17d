//! `percolator devices`: lists the devices that can be fed here.

use std::io::Write as _;

use anyhow::Context as _;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Devices {
    /// Do not measure how fast page-locked memory is copied to each GPU.
    #[arg(long)]
    no_rates: bool,
}

impl Devices {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut said = format!("host   any number of lanes (host:0, host:1, ...), fed by {cores} core(s)\n");
        said += &self.gpus();
        std::io::stdout().write_all(said.as_bytes()).context("cannot write to the standard output")
    }

    #[cfg(not(feature = "cuda-driver"))]
    fn gpus(&self) -> String {
        let _ = self.no_rates;
        "cuda   this build has no GPU support: build it with the feature cuda\n".to_owned()
    }

    /// A missing driver or device is reported and is not a failure: the host can be fed anyway.
    #[cfg(feature = "cuda-driver")]
    fn gpus(&self) -> String {
        let devices = match percolator::device::CudaDevice::all() {
            Ok(devices) if devices.is_empty() => return "cuda   the driver lists no device\n".to_owned(),
            Ok(devices) => devices,
            Err(error) => return format!("cuda   {error}\n"),
        };
        devices.iter().map(|device| self.gpu(device)).collect()
    }

    #[cfg(feature = "cuda-driver")]
    fn gpu(&self, device: &percolator::device::CudaDevice) -> String {
        /// About the size of a batch of a few hundred images.
        const COPY_BYTES: usize = 64 << 20;
        const ROUNDS: usize = 10;

        let (major, minor) = device.compute_capability;
        let numa = device.numa_node.map_or("no NUMA node".to_owned(), |node| format!("NUMA node {node}"));
        let free =
            device.free_bytes.map_or("an unknown part".to_owned(), |free| format!("{:.1}", gibibytes(free)));
        let mut said = format!(
            "cuda:{}  {}, {free} of {:.1} GiB free, compute {major}.{minor}, PCI {}, {numa}, \
             driver for CUDA {}",
            device.ordinal,
            device.name,
            gibibytes(device.memory_bytes),
            device.pci,
            device.driver
        );
        if !self.no_rates {
            said += &match device.copy_rate(COPY_BYTES, ROUNDS) {
                Ok(rate) => format!(", page-locked memory copied at {:.1} GB/s", rate / 1e9),
                Err(error) => format!(", its copy rate cannot be measured: {error}"),
            };
        }
        said + "\n"
    }
}

#[cfg(feature = "cuda-driver")]
fn gibibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}
