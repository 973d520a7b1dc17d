//! What a run says about itself: as text while it goes on, or as one JSON object at its end.

use std::io::{self, Write};
use std::path::Path;

use percolator::Feed;
use percolator::feed::{Bottleneck, BudgetLine};
use percolator_files::shown;
use percolator_observe::Numbers;
use percolator_observe::trace::Summary;
use serde_json::{Value, json};

use super::observe;
use crate::commands::watch::metrics_of;
use crate::terminal::out::Out;

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

/// What a run was, for another program, when all lanes have ended. `error` is what the run ended with, if it
/// did, and `stopped_by` the signal that ended it.
pub(super) fn json(
    origin: &Path,
    feed: &Feed,
    trace: Option<Summary>,
    gpu_steps: &[String],
    error: Option<&anyhow::Error>,
    stopped_by: Option<&str>,
) -> Value {
    let (numbers, sizing) = (Numbers::of(&feed.handle()), feed.sizing());
    let stats = &numbers.stats;
    let line = |line: &BudgetLine| {
        let BudgetLine { holder, count, bytes_each } = line;
        json!({"holder": holder, "count": count, "bytes_each": bytes_each})
    };
    let busy = stats.busy().into_iter().map(|(stage, share)| (name(stage).to_owned(), json!(share)));
    json!({
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
        "gpu_steps": gpu_steps,
        "error": error.map(|error| format!("{error:#}")),
        "stopped_by": stopped_by,
    })
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
