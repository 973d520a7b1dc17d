//! A trace of real feeds, read as a viewer reads it: slices nest, tracks have names, and each batch has a
//! flow from the run that was dealt first to its consumer. One test has the process's subscriber, so it is
//! the only one here that records.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use percolator::source::FnSource;
use percolator::trace::TARGET;
use percolator::{Feed, RawBytes, Shuffle};
use percolator_observe::trace::{Existing, TraceError, TraceFile};
use serde_json::Value;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

const RECORDS: u64 = 203;

/// A track: the numbers of its group and itself.
type Track = (u64, u64);

/// From, to, name, arguments.
type Slice = (u64, u64, String, Value);

/// What a trace has, in the units of its file: nanoseconds.
#[derive(Default)]
struct Read {
    names: HashMap<Track, String>,
    slices: BTreeMap<Track, Vec<Slice>>,
    /// The events of each flow: time, phase, track.
    flows: HashMap<String, Vec<(u64, String, Track)>>,
}

impl Read {
    /// The slices that were cut off.
    fn unfinished(&self) -> impl Iterator<Item = (&Track, &Slice)> {
        let all =
            self.slices.iter().flat_map(|(track, slices)| slices.iter().map(move |slice| (track, slice)));
        all.filter(|(_, (.., args))| args["unfinished"] == true)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a trace of seconds")]
fn nanos(time: &Value) -> u64 {
    (time.as_f64().unwrap() * 1e3).round() as u64
}

fn read(path: &Path) -> Read {
    let trace: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let mut found = Read::default();
    for event in trace["traceEvents"].as_array().unwrap() {
        let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let name = || event["name"].as_str().unwrap().to_owned();
        match event["ph"].as_str().unwrap() {
            "M" if event["name"] == "thread_name" => {
                let said = event["args"]["name"].as_str().unwrap().to_owned();
                assert_eq!(found.names.insert(track, said), None, "a track is named once");
            }
            "M" => assert_eq!(event["name"], "process_name"),
            "X" => {
                let from = nanos(&event["ts"]);
                let slice = (from, from + nanos(&event["dur"]), name(), event["args"].clone());
                found.slices.entry(track).or_default().push(slice);
            }
            phase @ ("s" | "t" | "f") => {
                assert_eq!(event["bp"], "e");
                let step = (nanos(&event["ts"]), phase.to_owned(), track);
                // A number of 64 bits, and threads of 32, as viewers read them.
                let id = event["id"].as_str().unwrap();
                assert!(u64::from_str_radix(id.strip_prefix("0x").unwrap(), 16).is_ok(), "{id}");
                assert!(u32::try_from(track.1).is_ok());
                found.flows.entry(id.to_owned()).or_default().push(step);
            }
            other => panic!("an event {other}"),
        }
    }
    found
}

/// Checks that slices of one track are within each other, or beside each other.
fn check_nested(track: Track, slices: &[Slice]) {
    let mut sorted: Vec<_> = slices.iter().collect();
    sorted.sort_by_key(|(from, to, ..)| (*from, std::cmp::Reverse(*to)));
    let mut around: Vec<u64> = Vec::new();
    for (from, to, name, _) in sorted {
        while around.last().is_some_and(|end| end <= from) {
            around.pop();
        }
        // A nanosecond for what the file rounds.
        assert!(around.last().is_none_or(|end| *to <= end + 1), "{name} overlaps on {track:?}");
        around.push(*to);
    }
}

fn feed() -> Feed {
    let source = FnSource::new("traced", RECORDS, |position, value| {
        value.extend(position.to_le_bytes());
        Ok(())
    });
    let devices = ["host:0", "host:1"].map(|name| name.parse().unwrap());
    let feed = Feed::builder().source(source).decoder(RawBytes::fixed()).devices(devices);
    feed.batch_size(5).threads(3).epochs(2).shuffle(Shuffle::Global).build().unwrap()
}

#[test]
fn every_batch_has_its_flow_and_every_track_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let trace = TraceFile::create(&path, Existing::Refuse).unwrap();
    // This one goes on, and ends while a feed runs.
    let cut_path = folder.path().join("cut.json");
    let cut = TraceFile::create(&cut_path, Existing::Refuse).unwrap();
    tracing_subscriber::registry().with(trace.layer()).with(cut.layer()).init();
    let mut feeds = [feed(), feed()];
    let handles = feeds.each_ref().map(Feed::handle);
    let lanes: Vec<_> = feeds.iter_mut().flat_map(|feed| feed.take_lanes().unwrap()).collect();
    let consumers: Vec<_> = lanes
        .into_iter()
        .enumerate()
        .map(|(number, lane)| {
            let run = move || lane.map(|batch| drop(batch.unwrap())).count();
            std::thread::Builder::new().name(format!("consumer \"{number}\"")).spawn(run).unwrap()
        })
        .collect();
    let taken: usize = consumers.into_iter().map(|consumer| consumer.join().unwrap()).sum();
    drop(feeds);
    assert!(!path.exists(), "it is there only when it is whole");
    let summary = trace.finish().unwrap();
    assert_eq!(summary.batches, taken as u64);
    // Nothing is added later.
    let written = fs::metadata(&path).unwrap().len();
    feed().steps().for_each(|step| drop(step.unwrap()));
    assert_eq!(fs::metadata(&path).unwrap().len(), written);

    let found = read(&path);
    assert_eq!(found.slices.values().map(Vec::len).sum::<usize>() as u64, summary.slices);
    check_whole(&found);
    assert_eq!(found.unfinished().count(), 0);
    let names: Vec<&str> = found.names.values().map(String::as_str).collect();
    for due in ["reader:", "prefetch:0", "prefetch:1", "worker:2", "consumer \"3\"", "feed ", "host:1"] {
        assert!(names.iter().any(|name| name.contains(due)), "no track of {due}: {names:?}");
    }
    let sum = |of: &str| -> u64 {
        let slices = found.slices.values().flatten().filter(|(_, _, name, _)| name == of);
        slices.filter_map(|(.., args)| args["records"].as_u64()).sum()
    };
    let dealt: u64 = handles.iter().map(|handle| handle.stats().reader.records).sum();
    assert_eq!(dealt, 4 * RECORDS);
    assert_eq!([sum("deal"), sum("place"), sum("run")], [dealt; 3], "each record once, by each stage");
    assert_eq!(found.flows.len(), taken);
    for (batch, steps) in &found.flows {
        assert!(
            steps.len() >= 6,
            "{batch}: the deal, a run, its places, the submission, and the way to the consumer: {steps:?}"
        );
        let start = steps.iter().find(|(_, phase, _)| phase == "s").unwrap();
        assert!(found.names[&start.2].starts_with("reader:"), "{batch}: {steps:?}");
    }

    check_what_is_cut_off(cut, &cut_path);
}

fn check_what_is_cut_off(cut: TraceFile, path: &Path) {
    // A feed whose batches nobody takes, dropped.
    let mut untaken = feed();
    let lanes = untaken.take_lanes().unwrap();
    wait_for_full_rings(&untaken);
    drop(lanes);
    // And one that runs while the trace ends: one batch of each lane was returned, one is held, the others
    // are ready.
    let mut running = feed();
    let mut lane = running.take_lanes().unwrap();
    lane.iter_mut().for_each(|lane| drop(lane.next().unwrap().unwrap()));
    let held = lane[0].next().unwrap().unwrap();
    wait_for_full_rings(&running);
    let ready: usize = running.stats().lanes.iter().map(|lane| lane.ready).sum();
    let waiting = tracing::trace_span!(target: TARGET, "wait", on = "batch").entered();
    let summary = cut.finish().unwrap();
    drop((waiting, held, lane, running));
    let found = read(path);
    assert_eq!(found.slices.values().map(Vec::len).sum::<usize>() as u64, summary.slices);
    check_whole(&found);
    let end = found.slices.values().flatten().map(|(_, to, ..)| *to).max().unwrap();
    let of = |due: &str, is_at_end: bool| {
        let is_due = |(_, to, name, _): &&Slice| name == due && (*to == end) == is_at_end;
        found.unfinished().filter(|(_, slice)| is_due(slice)).count()
    };
    assert_eq!((of("held", true), of("ready", true)), (1, ready), "what nobody returned, or took");
    assert!(of("ready", false) > 0, "what was ready when its lane was dropped ends there");
    assert_eq!(of("held", false), 0);
    assert_eq!(of("wait for a batch", true), 1, "what this thread was at");
}

/// Waits until every lane has as many batches ready as its ring has room for.
fn wait_for_full_rings(feed: &Feed) {
    while feed.stats().lanes.iter().any(|lane| lane.ready + lane.held < lane.ring) {
        std::thread::yield_now();
    }
}

/// Checks that all tracks have names, slices nest, and every flow has one start and one end, in slices.
fn check_whole(found: &Read) {
    for (track, slices) in &found.slices {
        check_nested(*track, slices);
        assert!(found.names.contains_key(track), "{track:?} has no name");
    }
    for (batch, steps) in &found.flows {
        let of = |phase: &str| steps.iter().filter(|(_, known, _)| known == phase).collect::<Vec<_>>();
        let (starts, ends) = (of("s"), of("f"));
        assert_eq!((starts.len(), ends.len()), (1, 1), "{batch}: {steps:?}");
        assert!(steps.iter().all(|step| (starts[0].0..=ends[0].0).contains(&step.0)), "{batch}: {steps:?}");
        for (at, _, track) in steps {
            let is_inside = |(from, to, ..): &Slice| from <= at && at <= to;
            assert!(found.slices[track].iter().any(is_inside), "{batch}: {at} is in no slice of {track:?}");
        }
    }
}

#[test]
fn a_file_that_is_there_stays_and_a_trace_that_is_not_finished_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    drop(TraceFile::create(&path, Existing::Refuse).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let late = TraceFile::create(&path, Existing::Refuse).unwrap();
    fs::write(&path, "somebody's").unwrap();
    assert!(matches!(late.finish(), Err(TraceError::Exists { .. })), "it came meanwhile");
    let late = TraceFile::create(&folder.path().join("other.json"), Existing::Refuse).unwrap();
    fs::write(folder.path().join("other.json"), "somebody's").unwrap();
    late.finish_at(&folder.path().join("kept.json"), Existing::Refuse).unwrap();
    assert!(read(&folder.path().join("kept.json")).slices.is_empty());
    assert_eq!(fs::read_to_string(folder.path().join("other.json")).unwrap(), "somebody's");
    for name in ["kept.json", "other.json"] {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    assert!(matches!(TraceFile::create(&path, Existing::Refuse), Err(TraceError::Exists { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's");
    TraceFile::create(&path, Existing::Replace).unwrap().finish().unwrap();
    assert!(read(&path).slices.is_empty());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let nowhere = folder.path().join("no/folder.json");
    let message = TraceFile::create(&nowhere, Existing::Refuse).unwrap_err().to_string();
    assert!(message.contains("folder.json"), "{message}");
}
