//! `percolator checkpoints list`

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use percolator_cluster::checkpoint::{Archive, CheckpointRecord, Entry, Kept};
use prost_types::Timestamp;
use serde_json::{Value, json};

use super::{Ids, printable};

pub(super) fn run(ids: &Ids) -> anyhow::Result<ExitCode> {
    let now = SystemTime::now();
    let schema = "percolator.checkpoints.list/1";
    ids.each(schema, Archive::look, |_| true, |out, kept| say(out, kept, now), |kept| as_json(kept, now))
}

/// The checkpoints of a record, with what it calls them.
fn named(record: &CheckpointRecord) -> impl Iterator<Item = (&'static str, &Entry)> {
    let newest = std::iter::once(("newest", &record.newest));
    let kept = record.kept.iter().map(|entry| ("kept", entry));
    newest.chain(kept).chain(record.spared.iter().map(|entry| ("spared", entry)))
}

fn say(out: &mut dyn Write, kept: &Kept, now: SystemTime) -> std::io::Result<()> {
    write!(out, "{}", printable(kept.id.as_str()))?;
    match &kept.held {
        Some((by, _)) => writeln!(out, ": held by {by}")?,
        None => writeln!(out)?,
    }
    match &kept.record {
        None => writeln!(out, "  there is no record")?,
        Some(Err(error)) => writeln!(out, "  {}", printable(&error.to_string()))?,
        Some(Ok(record)) => {
            for (what, entry) in named(record) {
                writeln!(out, "  {what}: {}", described(entry, kept, now))?;
            }
        }
    }
    for file in kept.unnamed() {
        writeln!(out, "  no record names {}, {} bytes", file.uuid, file.bytes)?;
    }
    if kept.unfinished > 0 {
        writeln!(out, "  {} unfinished file(s) that nobody writes", kept.unfinished)?;
    }
    for key in &kept.unreadable {
        writeln!(out, "  {} says why files stay that no record names", printable(key))?;
    }
    Ok(())
}

fn described(entry: &Entry, kept: &Kept, now: SystemTime) -> String {
    let mut said = vec![entry.uuid.to_string()];
    match (kept.file(entry.uuid), entry.bytes) {
        (None, _) => said.push("its file is missing".to_owned()),
        (Some(file), Some(bytes)) if file.bytes != bytes => {
            said.push(format!("{} bytes, and had {bytes}", file.bytes));
        }
        (Some(file), _) => said.push(format!("{} bytes", file.bytes)),
    }
    said.push(format!("md5 {}", entry.md5));
    let age = age(entry, now).map_or_else(|| "by a clock that is ahead".to_owned(), ago);
    said.push(format!("{}, {age}", Timestamp::from(time(entry))));
    said.extend(entry.step.map(|step| format!("step {step}")));
    said.extend(entry.writer.as_ref().map(ToString::to_string));
    said.join(", ")
}

/// When a checkpoint was written, by its writer's clock.
fn time(entry: &Entry) -> SystemTime {
    let passed = Duration::from_nanos(entry.timestamp.unsigned_abs());
    let time = match entry.timestamp < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(passed),
        false => SystemTime::UNIX_EPOCH.checked_add(passed),
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

fn age(entry: &Entry, now: SystemTime) -> Option<Duration> {
    now.duration_since(time(entry)).ok()
}

fn ago(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7_200 => format!("{} min ago", seconds / 60),
        7_200..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

fn as_json(kept: &Kept, now: SystemTime) -> Value {
    let entry = |entry: &Entry| {
        let mut value = json!(entry);
        value["age_seconds"] = json!(age(entry, now).map(|age| age.as_secs_f64()));
        value["file_bytes"] = json!(kept.file(entry.uuid).map(|file| file.bytes));
        value
    };
    let all =
        |entries: Option<&Vec<Entry>>| -> Vec<Value> { entries.into_iter().flatten().map(entry).collect() };
    let record = kept.understood();
    let fault = kept.record.as_ref().and_then(|record| record.as_ref().err());
    let unnamed = kept.unnamed().map(|file| json!({ "uuid": file.uuid.to_string(), "bytes": file.bytes }));
    json!({
        "id": kept.id.as_str(),
        "newest": record.map(|record| entry(&record.newest)),
        "kept": all(record.map(|record| &record.kept)),
        "spared": all(record.map(|record| &record.spared)),
        "fault": fault.map(ToString::to_string),
        "held": kept.held.as_ref().map(|(by, _)| json!(by)),
        "unnamed": unnamed.collect::<Vec<_>>(),
        "unfinished": kept.unfinished,
        "unreadable": kept.unreadable,
    })
}
