//! What a run says about itself: as text while it goes on, or as one JSON object at its end.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use percolator::feed::{Bottleneck, BudgetLine};
use percolator::{Feed, Stats};
use percolator_files::shown;
use percolator_measure::limits;
use percolator_observe::Numbers;
use percolator_observe::trace::Summary;
use serde_json::{Value, json};

use crate::observe;
use crate::out::Out;
use crate::watch_url::metrics_of;

/// Where the text goes: to the standard output, unless that is for JSON.
pub(super) fn text(is_json: bool) -> Out<Box<dyn Write>> {
    Out::new(if is_json { Box::new(io::sink()) } else { Box::new(io::stdout().lock()) })
}

/// Says what runs, before it does.
pub(super) fn say_what_runs(feed: &Feed, has_fields: bool, out: &mut impl Write) -> anyhow::Result<()> {
    if let Some(records) = feed.records() {
        write!(out, "{}, ", shown::count(records, "record"))?;
    }
    if let Some(first) = feed.input_shape() {
        write!(out, "the first {first}; ")?;
    }
    match has_fields {
        true => writeln!(out, "batches of {}", feed.layout())?,
        false => writeln!(out, "batches of {}", feed.batch_shape())?,
    }
    writeln!(out, "{}", feed.sizing())?;
    writeln!(out, "{}", feed.memory_budget())?;
    Ok(())
}

/// What a run was, for another program.
#[derive(Debug)]
pub(super) struct Report(serde_json::Map<String, Value>);

impl Report {
    /// What is known when all lanes have ended. `error` is what the run ended with, if it did, and
    /// `stopped_by` the signal that ended it.
    pub(super) fn new(
        origin: &Path,
        feed: &Feed,
        trace: Option<Summary>,
        error: Option<&anyhow::Error>,
        stopped_by: Option<&str>,
    ) -> Self {
        let (numbers, sizing) = (Numbers::of(&feed.watch()), feed.sizing());
        let stats = &numbers.stats;
        let line = |line: &BudgetLine| {
            let BudgetLine { holder, count, bytes_each } = line;
            json!({"holder": holder, "count": count, "bytes_each": bytes_each})
        };
        let busy = stats.busy().into_iter().map(|(stage, share)| (name(stage).to_owned(), json!(share)));
        let report = json!({
            "source": shown::path(origin).to_string(),
            "source_records": feed.records(),
            "first_record": feed.input_shape().map(|shape| shape.to_string()),
            "batches_of": feed.layout().to_string(),
            "sizing": {
                "threads": sizing.threads,
                "are_threads_chosen": sizing.are_threads_chosen,
                "prefetch": sizing.prefetch,
                "prefetch_max": sizing.prefetch_max,
                "is_prefetch_chosen": sizing.is_prefetch_chosen,
            },
            "memory_budget": feed.memory_budget().lines.iter().map(line).collect::<Vec<_>>(),
            "elapsed_seconds": stats.elapsed.as_secs_f64(),
            "records_per_second": stats.records_per_second(),
            "pixel_bytes_per_second": stats.pixel_bytes_per_second(),
            "busy": busy.collect::<serde_json::Map<_, _>>(),
            "bottleneck": name(stats.bottleneck()),
            "metrics": metrics_of(observe::NAME, &numbers),
            "trace": trace.map(|trace| json!({"slices": trace.slices, "batches": trace.batches})),
            "gpu_steps": [],
            "copy_shares": [],
            "error": error.map(|error| format!("{error:#}")),
            "stopped_by": stopped_by,
        });
        match report {
            Value::Object(report) => Report(report),
            _ => unreachable!("it is an object"),
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// Prints it on the standard output.
    pub(super) fn print(self) -> anyhow::Result<()> {
        let mut out = Out::new(io::stdout().lock());
        serde_json::to_writer_pretty(&mut out, &self.0)?;
        writeln!(out)?;
        out.finish()
    }
}

/// The name of a stage in JSON: the same as of its metrics.
fn name(stage: Bottleneck) -> &'static str {
    match stage {
        Bottleneck::Reader => "reader",
        Bottleneck::Transform => "workers",
        Bottleneck::Consumer => "consumer",
        _ => "device",
    }
}

/// The rate at which a feed has written or copied, beside the rate at which this machine can copy.
#[derive(Debug)]
pub(super) struct CopyShare {
    /// A GPU, or `None` for memory.
    device: Option<String>,
    /// The size of the pieces that were copied to find the machine's rate.
    piece_bytes: usize,
    /// Both in bytes a second.
    fed: f64,
    machine: f64,
}

impl CopyShare {
    pub(super) fn as_json(&self) -> Value {
        let CopyShare { device, piece_bytes, fed, machine } = self;
        json!({
            "device": device.as_deref().unwrap_or("memory"),
            "piece_bytes": piece_bytes,
            "fed_bytes_per_second": fed,
            "machine_bytes_per_second": machine,
            "share": fed / machine,
        })
    }
}

impl fmt::Display for CopyShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (share, rate) = (self.fed / self.machine, self.machine / 1e9);
        match &self.device {
            None => write!(
                f,
                "written at {share:.2} of the rate at which one thread copies memory here, {:.1} MB at a \
                 time ({rate:.1} GB/s)",
                self.piece_bytes as f64 / 1e6
            ),
            Some(device) => write!(
                f,
                "{device} was copied to at {share:.2} of the rate at which it takes pieces of this size, {} \
                 bytes, from page-locked memory ({rate:.1} GB/s)",
                self.piece_bytes
            ),
        }
    }
}

/// The feed's share of the rate at which one thread copies memory, measured in no more memory than the feed
/// had; or how many bytes cannot be allocated to measure it.
pub(super) fn written_share(stats: &Stats, budget: usize) -> Result<CopyShare, usize> {
    /// More than any cache.
    const COPY_BYTES_MAX: usize = 64 << 20;
    const TIME: Duration = Duration::from_millis(200);

    let piece_bytes = (budget / 2).clamp(1, COPY_BYTES_MAX);
    let machine = limits::copy_bytes_per_second_of(piece_bytes, TIME);
    if machine <= 0.0 {
        return Err(2 * piece_bytes);
    }
    let written = stats.lanes.iter().map(|lane| lane.host_bytes).sum();
    Ok(CopyShare { device: None, piece_bytes, fed: stats.per_second(written), machine })
}

/// Each GPU's share of the rate at which it can copy page-locked batches of the feed's size.
#[cfg(feature = "cuda-driver")]
pub(super) fn gpu_shares(stats: &Stats) -> anyhow::Result<Vec<CopyShare>> {
    use percolator::device::CudaDevice;

    const ROUNDS: usize = 20;

    let mut shares = Vec::new();
    if !stats.lanes.iter().any(|lane| lane.device.starts_with("cuda:")) {
        return Ok(shares);
    }
    let is_fed = |gpu: &CudaDevice| stats.lanes.iter().any(|lane| lane.device == gpu.device());
    for gpu in CudaDevice::all()?.into_iter().filter(is_fed) {
        let lanes = stats.lanes.iter().filter(|lane| lane.device == gpu.device());
        let (bytes, batches) =
            lanes.fold((0, 0), |(bytes, batches), lane| (bytes + lane.host_bytes, batches + lane.batches));
        let Some(piece_bytes) = bytes.checked_div(batches) else { continue };
        let piece_bytes = usize::try_from(piece_bytes)?;
        let machine = gpu.copy_rate(piece_bytes, ROUNDS)?;
        let (device, fed) = (Some(gpu.device().to_owned()), stats.per_second(bytes));
        shares.push(CopyShare { device, piece_bytes, fed, machine });
    }
    Ok(shares)
}

/// Without support for GPUs there are none.
#[cfg(not(feature = "cuda-driver"))]
pub(super) fn gpu_shares(_stats: &Stats) -> anyhow::Result<Vec<CopyShare>> {
    Ok(Vec::new())
}
