//! Epochs, shuffles, and the job that the feed is part of.

use std::num::NonZeroU64;

use percolator::Shuffle;
use percolator::feed::{FeedSpec, Seed};
use percolator::order::{JobWorker, ShuffleSpec};
use percolator::transform::CaffeEra;
use percolator_distribute::Process;
use pyo3::prelude::*;

use super::Keywords;
use crate::{environment, errors};

pub(super) fn apply(keywords: &mut Keywords<'_>, spec: &mut FeedSpec) -> PyResult<()> {
    let schedule = &mut spec.schedule;
    schedule.epochs = keywords.take("epochs")?.or(schedule.epochs);
    schedule.once = keywords.take("once")?.unwrap_or(schedule.once);
    let shuffle = keywords.object("shuffle").map(|shuffle| shuffle_of(&shuffle)).transpose()?;
    let bytes: Option<u64> = keywords.take("shuffle_bytes")?;
    match (shuffle, bytes) {
        (Some(_), Some(_)) => {
            let message = "shuffle and shuffle_bytes are both set: use one of the two";
            return Err(errors::config(keywords.py(), message));
        }
        (Some(shuffle), None) => schedule.shuffle = Some(ShuffleSpec::By(shuffle)),
        (None, Some(bytes)) => schedule.shuffle = Some(ShuffleSpec::WindowsOfBytes(bytes)),
        (None, None) => {}
    }
    let mix = keywords.several("mix")?;
    if !mix.is_empty() {
        schedule.mix = mix;
    }
    schedule.last_batch = keywords.named("last_batch")?.or(schedule.last_batch);
    schedule.assignment = keywords.named("assignment")?.or(schedule.assignment);
    schedule.policy = keywords.named("policy")?.or(schedule.policy);
    seed(keywords, spec)?;
    job(keywords, spec)
}

/// `True`, `False`, a name, or the number of records in a window.
fn shuffle_of(value: &Bound<'_, PyAny>) -> PyResult<Shuffle> {
    if let Ok(is_shuffled) = value.extract::<bool>() {
        return Ok(if is_shuffled { Shuffle::Global } else { Shuffle::No });
    }
    if let Ok(name) = value.extract::<String>() {
        return super::named("shuffle", &name);
    }
    let records = value.extract::<u64>().ok().and_then(NonZeroU64::new);
    if records == Some(NonZeroU64::MIN) {
        let message =
            "shuffle=1 is a window of one record, which shuffles nothing: write True, or \"global\"";
        return Err(errors::value(message.to_owned()));
    }
    records.map(|records| Shuffle::Window { records }).ok_or_else(|| {
        errors::value(format!(
            "shuffle={value}: give True, False, \"global\", \"files\", \"no\", or the number of records in \
             a window"
        ))
    })
}

fn seed(keywords: &mut Keywords<'_>, spec: &mut FeedSpec) -> PyResult<()> {
    let seed: Option<u64> = keywords.take("seed")?;
    let caffe: Option<u32> = keywords.take("caffe_seed")?;
    let era: Option<CaffeEra> = keywords.named("caffe_era")?;
    match (seed, caffe, era) {
        (Some(_), Some(_), _) => {
            let message = "seed and caffe_seed are both set: use one of the two";
            Err(errors::config(keywords.py(), message))
        }
        (_, None, Some(_)) => {
            Err(errors::config(keywords.py(), "caffe_era is set without caffe_seed: give the seed"))
        }
        (_, Some(seed), era) => {
            spec.seed = Seed::Caffe { seed, era: era.unwrap_or_default() };
            Ok(())
        }
        (Some(seed), None, None) => {
            spec.seed = Seed::Indexed(seed);
            Ok(())
        }
        (None, None, None) => Ok(()),
    }
}

/// The process of a job, as it was given, or as launchers say.
fn job(keywords: &mut Keywords<'_>, spec: &mut FeedSpec) -> PyResult<()> {
    let rank: Option<usize> = keywords.take("rank")?;
    let processes: Option<usize> = keywords.take("world_size")?;
    let asks: Option<bool> = keywords.take("environment")?;
    let process = match (rank, processes, asks.unwrap_or(false)) {
        (None, None, false) => return Ok(()),
        (Some(rank), Some(processes), false) => {
            Some(Process { rank, processes, local_rank: None, local_processes: None })
        }
        (rank, processes, true) => environment::process(keywords.py(), rank, processes)?,
        _ => {
            let message = "rank and world_size belong together: give both, or environment=True, which asks \
                           torch.distributed and the launcher's variables (RANK, WORLD_SIZE, ...)";
            return Err(errors::config(keywords.py(), message));
        }
    };
    let Some(process) = process else { return Ok(()) };
    if let (Some(local_rank), [device]) = (process.local_rank, &mut spec.devices[..])
        && device == "cuda"
    {
        *device = format!("cuda:{local_rank}");
    }
    let (world, number) = process
        .worker(spec.devices.len())
        .map_err(|error| errors::config(keywords.py(), &error.to_string()))?;
    if number >= world.workers() {
        let (rank, processes) = (process.rank, process.processes);
        let message = format!("there is no rank {rank} in a job of {processes}: they are counted from 0");
        return Err(errors::config(keywords.py(), &message));
    }
    spec.schedule.worker = Some(JobWorker { world, number });
    Ok(())
}
