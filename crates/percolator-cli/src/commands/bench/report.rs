//! A job's figures for people: a table, 100 columns wide, and one sentence.

use std::fmt::Write as _;

use indicatif::HumanFloatCount;
use percolator_files::shown;
use percolator_measure::{Limit, Stage};

use super::figures::Figures;
use crate::terminal::wrap::{WIDTH, wrapped};

/// The whole report of a job.
pub(super) fn of(figures: &Figures) -> String {
    let mut said = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut said, figures);
    said
}

fn write(out: &mut String, figures: &Figures) -> std::fmt::Result {
    let f = figures;
    let records = f.source_records.map(|records| format!("{} records", grouped(records as f64)));
    let first = f.source_shape.as_ref().map(|shape| format!("the first {shape}"));
    let source: Vec<String> = records.into_iter().chain(first).collect();
    writeln!(out, "{}: {}", shown::message(&f.job), source.join(", "))?;
    let cold = match (f.cold, f.evicted) {
        (false, _) => "",
        (true, Some(false)) => "; NOT COLD: the system kept the files in memory",
        (true, _) => "; cold",
    };
    writeln!(
        out,
        "  batches of {}{}, to {}\n  {} worker(s), {} of them at work; rings of {} batches; {} rounds of \
         {} s{cold}\n",
        f.batch_shape,
        f.source_shape.as_ref().map_or(String::new(), |_| format!(", transformed on the {}", f.transform_on)),
        f.devices.join(", "),
        f.threads,
        f.workers_at_work,
        f.ring_batches,
        f.rounds,
        f.seconds
    )?;
    let rate = f.records_per_s;
    let (min, max) = (grouped(rate.min), grouped(rate.max));
    writeln!(out, "  {:<16} {:>14}   ({min} to {max})", "records/s", grouped(rate.median))?;
    writeln!(out, "  {:<16} {:>14.2} GB/s", "source", f.source_gb_s)?;
    writeln!(out, "  {:<16} {:>14.2} GB/s", "output", f.output_gb_s)?;
    writeln!(out, "  {:<16} {:>14.4} CPU seconds per 1,000 records", "cost", f.cpu_s_per_1000)?;
    let fresh = f.fresh_memory_ms;
    writeln!(
        out,
        "  {:<16} {:>14.1} ms after build(); touching as much new memory takes {fresh:.1} ms",
        "first batch", f.first_batch_ms
    )?;
    let intervals = f.batch_interval_ms;
    writeln!(out, "  {:<16} {:>14.2} ms   (p99 {:.2} ms)", "between batches", intervals.p50, intervals.p99)?;
    match f.anon_mib {
        Some(mib) => writeln!(out, "  {:<16} {mib:>14.1} MiB, the most at any time", "memory")?,
        None => writeln!(out, "  {:<16} {:>14} (this system does not say)", "memory", "?")?,
    }
    write_stages(out, f)?;
    write_limits(out, f)?;
    writeln!(out, "\n{}", wrapped("  ", &sentence(f), WIDTH))
}

fn write_stages(out: &mut String, f: &Figures) -> std::fmt::Result {
    writeln!(out, "\n  {:<18} {:>11} {:>8} {:>9}  waited for", "stage", "records/s", "GB/s", "at work")?;
    f.stages.iter().try_for_each(|stage| writeln!(out, "{}", row(stage)))
}

/// One percent sign for all waits, and no space to spare: four of two digits each make 100 columns. Of five,
/// the least is left out.
fn row(stage: &Stage) -> String {
    let name = match stage.threads {
        2.. => format!("{} ({})", stage.stage, stage.threads),
        _ => stage.stage.clone(),
    };
    let mut waited: Vec<_> = stage.waited_for.iter().map(|waited| (waited.whom, waited.share)).collect();
    while waited.len() > 4
        && let Some((least, _)) = waited.iter().enumerate().min_by(|a, b| a.1.1.total_cmp(&b.1.1))
    {
        waited.remove(least);
    }
    row_of(&name, [stage.records_per_s, stage.gb_s, stage.at_work], &waited)
}

fn row_of(name: &str, [records_per_s, gb_s, at_work]: [f64; 3], waited: &[(&str, f64)]) -> String {
    let waited = waited.iter().map(|(whom, share)| format!("{whom} {:.0}", share * 100.0));
    format!(
        "  {name:<18} {:>11} {gb_s:>8.2} {:>7.0} %  {} %",
        grouped(records_per_s),
        at_work * 100.0,
        waited.collect::<Vec<_>>().join(", ")
    )
}

fn write_limits(out: &mut String, f: &Figures) -> std::fmt::Result {
    writeln!(out, "\n  {:<34} {:>18} {:>9}", "limit of this machine", "", "reached")?;
    for (&limit, share) in &f.share_of {
        let mark = if limit == f.binds { "   binds" } else { "" };
        let (name, most) = described(limit, f);
        writeln!(out, "  {name:<34} {most:>18} {:>7.0} %{mark}", share * 100.0)?;
    }
    Ok(())
}

/// A limit's name, and its value.
fn described(limit: Limit, f: &Figures) -> (String, String) {
    let n = f.threads;
    let gb_s = |rate: f64| format!("{rate:.2} GB/s");
    let limits = &f.limits;
    match limit {
        Limit::Copy1 => ("copy, 1 thread".to_owned(), gb_s(limits.copy_1_gb_s)),
        Limit::CopyN => (format!("copy, {n} thread(s)"), gb_s(limits.copy_n_gb_s)),
        Limit::StoreN => (format!("streaming store, {n} thread(s)"), gb_s(limits.store_n_gb_s)),
        Limit::ReadN => {
            let from = if f.cold { "read, cold" } else { "page-cache read" };
            (format!("{from}, {n} thread(s)"), gb_s(limits.read_n_gb_s.unwrap_or(0.0)))
        }
        Limit::Decode => {
            let all = limits.decode_1_per_s.unwrap_or(0.0) * n as f64;
            (format!("decoder alone, {n} thread(s)"), format!("{} records/s", grouped(all)))
        }
        Limit::PinnedCopy => {
            ("page-locked copy to the GPU(s)".to_owned(), gb_s(limits.pinned_copy_gb_s.unwrap_or(0.0)))
        }
        Limit::Cpu => (format!("processors, {n} thread(s)"), format!("{n} CPU s/s")),
    }
}

/// What binds, how much of it was reached, and what would help.
fn sentence(f: &Figures) -> String {
    let percent = f.share * 100.0;
    let (name, most) = described(f.binds, f);
    if !f.is_near {
        return format!(
            "No limit is near: the most is {percent:.0} % of {name} ({most}). \
             What held the others up: the {}.",
            f.held_up_by
        );
    }
    let help = match f.binds {
        Limit::Cpu => format!("more cores, or less to do for each record: {}", fewer_bytes(f)),
        Limit::ReadN if f.cold => "faster storage, or more memory for the page cache".to_owned(),
        Limit::ReadN => "smaller records: resized before they are stored, or encoded".to_owned(),
        Limit::Decode => "more cores, smaller images, or records that are not encoded".to_owned(),
        Limit::Copy1 | Limit::CopyN | Limit::StoreN | Limit::PinnedCopy => {
            format!("fewer bytes per record: {}", fewer_bytes(f))
        }
    };
    format!("What binds: {name} ({most}), of which {percent:.0} % was reached; what would help: {help}.")
}

/// An option, not yet used, that makes a batch smaller.
fn fewer_bytes(f: &Figures) -> &'static str {
    let has_gpu = f.devices.iter().any(|device| device.starts_with("cuda:"));
    match &*f.dtype {
        _ if f.source_shape.is_none() => "fewer or smaller --fields",
        "u8" => "a smaller --crop",
        _ if has_gpu && f.transform_on == "host" => "--transform-on device, or --dtype u8 or f16",
        "f32" => "--dtype u8 or f16",
        _ => "--dtype u8",
    }
}

/// A whole number with thousands separators.
pub(super) fn grouped(number: f64) -> String {
    HumanFloatCount(number.round()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_waits_for_everybody_fits() {
        let waited = ["reader", "consumer", "device", "workers"].map(|whom| (whom, 0.246));
        let row = row_of("consumer cuda:15", [99_999_999.0, 1234.56, 0.016], &waited);
        assert_eq!(row.len(), WIDTH, "{row}");
    }

    #[test]
    fn thousands_are_told_apart() {
        let numbers = [0.4, 999.0, 1000.0, 1_234_567.0];
        assert_eq!(numbers.map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
