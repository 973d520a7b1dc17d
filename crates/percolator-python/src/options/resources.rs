//! Batches, devices, threads and memory.

use std::time::Duration;

use percolator::BadRecords;
use percolator::feed::{FeedSpec, Receipts};
use percolator::order::BatchSize;
use pyo3::prelude::*;

use super::{Keywords, json, wrong};
use crate::errors;

pub(super) fn apply(keywords: &mut Keywords<'_>, spec: &mut FeedSpec) -> PyResult<()> {
    let each: Option<u64> = keywords.take("batch_size")?;
    let global: Option<u64> = keywords.take("global_batch_size")?;
    match (each, global) {
        (Some(_), Some(_)) => {
            let message = "batch_size and global_batch_size are both set: use one of the two";
            return Err(errors::config(keywords.py(), message));
        }
        (Some(records), None) => spec.batch_size = BatchSize::PerReplica(records),
        (None, Some(records)) => spec.batch_size = BatchSize::Global(records),
        (None, None) => {}
    }
    let devices: Vec<String> = keywords.several("devices")?;
    if !devices.is_empty() {
        spec.devices = devices.into_iter().map(host_of).collect();
    }
    spec.threads = keywords.take("threads")?.or(spec.threads);
    spec.prefetch = keywords.take("prefetch")?.or(spec.prefetch);
    spec.memory_limit = keywords.take("memory_limit")?.or(spec.memory_limit);
    if let Some(receipts) = keywords.object("receipts") {
        spec.receipts = match receipts.extract::<bool>() {
            Ok(true) => Receipts::Positions,
            Ok(false) => Receipts::Off,
            Err(_) => {
                let name =
                    receipts.extract::<String>().map_err(|error| wrong("receipts", &receipts, &error))?;
                super::named("receipts", &name)?
            }
        };
    }
    if let Some(policy) = keywords.object("bad_records") {
        spec.bad_records = match policy.extract::<String>() {
            Ok(action) => {
                let mut policy = BadRecords::default();
                policy.action = super::named("bad_records", &action)?;
                policy
            }
            Err(_) => json::part_of("bad_records", &policy)?,
        };
    }
    if let Some(seconds) = keywords.take::<f64>("warn_after")? {
        spec.warn_after = duration("warn_after", seconds)?.unwrap_or(Duration::MAX);
    }
    if let Some(seconds) = keywords.take::<f64>("give_up_after")? {
        spec.give_up_after = duration("give_up_after", seconds)?;
    }
    Ok(())
}

/// Frameworks call the host a CPU.
fn host_of(device: String) -> String {
    match device.strip_prefix("cpu") {
        Some(number) if number.is_empty() || number.starts_with(':') => format!("host{number}"),
        _ => device,
    }
}

/// A number of seconds; `None` if it is infinite.
pub(crate) fn duration(name: &str, seconds: f64) -> PyResult<Option<Duration>> {
    if seconds == f64::INFINITY {
        return Ok(None);
    }
    let duration = Duration::try_from_secs_f64(seconds);
    duration.map(Some).map_err(|error| errors::value(format!("{name}={seconds}: {error}")))
}
