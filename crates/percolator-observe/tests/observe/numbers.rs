//! The numbers as text: what is written is read again, exactly; names keep to Prometheus's rules.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use percolator::Stats;
use percolator::feed::{LaneStats, Waits};
use percolator::record::StepId;
use percolator_observe::{FAMILIES, Kind, Numbers, parse, render};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

fn time() -> impl Strategy<Value = Duration> {
    // Up to three months, to the nanosecond: a float has no more digits.
    (0..1_u64 << 23, 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
}

fn waits() -> impl Strategy<Value = Waits> {
    (any::<u64>(), time()).prop_map(|(count, time)| Waits { count, time })
}

fn lane() -> impl Strategy<Value = (LaneStats, StepId)> {
    let counts = (any::<[u64; 8]>(), any::<[u16; 7]>());
    (".{0,12}", counts, [waits(), waits(), waits(), waits(), waits(), waits()]).prop_map(
        |(device, (sums, sizes), waits)| {
            let mut lane = LaneStats::default();
            lane.device = device;
            [lane.batches, lane.records, lane.pixel_bytes, lane.host_bytes, lane.growths, lane.bad_records] =
                [sums[0], sums[1], sums[2], sums[3], sums[4], sums[7]];
            let sizes = sizes.map(usize::from);
            [lane.ring, lane.filling, lane.ready, lane.held] = [sizes[0], sizes[1], sizes[2], sizes[3]];
            [lane.runs.capacity, lane.runs.full, lane.runs.free] = [sizes[4], sizes[5], sizes[6]];
            [
                lane.waits_for_records,
                lane.waits_for_free,
                lane.waits_for_device,
                lane.waits_for_workers,
                lane.waits_for_lanes,
                lane.waits_for_batch,
            ] = waits;
            (lane, StepId { epoch: sums[5], step: sums[6] })
        },
    )
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let flags = any::<[bool; 2]>();
    let times = [time(), time()];
    let feed = (any::<[u64; 6]>(), any::<[u16; 4]>(), flags, times, [waits(), waits(), waits()]);
    (feed, vec(lane(), 0..4), btree_map(".{0,12}", any::<u64>(), 0..4)).prop_map(|(feed, lanes, budget)| {
        let (sums, sizes, [is_paused, has_ended], [elapsed, worked], waits) = feed;
        let mut stats = Stats::default();
        stats.elapsed = elapsed;
        let reader = &mut stats.reader;
        [reader.records, reader.value_bytes, reader.passes, reader.undelivered] =
            [sums[0], sums[1], sums[2], sums[3]];
        [reader.waits_for_free, reader.waits_for_resume, stats.workers.waits_for_records] = waits;
        let workers = &mut stats.workers;
        [workers.threads, workers.active, workers.queued, workers.queue_capacity] = sizes.map(usize::from);
        workers.time = worked;
        [workers.runs, workers.offloaded] = [sums[4], sums[5]];
        let (lanes, next) = lanes.into_iter().unzip();
        stats.lanes = lanes;
        let mut numbers = Numbers::default();
        (numbers.stats, numbers.next) = (stats, next);
        (numbers.is_paused, numbers.has_ended) = (is_paused, has_ended);
        numbers.budget = budget.into_iter().collect();
        numbers
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(feeds in vec(numbers(), 0..3)) {
        let feeds: Vec<_> =
            feeds.into_iter().enumerate().map(|(at, numbers)| (format!("\"{at}\\\n}}"), numbers)).collect();
        prop_assert_eq!(parse(&render(&feeds)).unwrap(), feeds);
    }

    #[test]
    fn no_text_makes_the_reader_panic(
        text in ".{0,200}",
        lines in vec("percolator_[a-z_]{1,20}[{} ].{0,40}", 0..4),
    ) {
        let _ = parse(&text);
        let _ = parse(&lines.join("\n"));
    }
}

#[test]
fn every_number_of_a_feed_has_a_sample() {
    let mut numbers = Numbers::default();
    numbers.stats.lanes = vec![LaneStats::default(); 2];
    numbers.next = vec![StepId::default(); 2];
    numbers.budget = [("a holder", 7), ("another", 1), ("a holder", 3)]
        .map(|(name, bytes)| (name.to_owned(), bytes))
        .into();
    let samples = numbers.samples();
    let named: HashSet<_> = samples.iter().map(|sample| sample.family.name).collect();
    assert_eq!(named.len(), FAMILIES.len());
    let keys: HashSet<_> = samples.iter().map(|sample| (sample.family.name, sample.labels.clone())).collect();
    assert_eq!(keys.len(), samples.len(), "no two samples have the same labels");
    // Nor two lines of a text, whoever has the same name.
    let same = [3, 5].map(|bytes| {
        let mut numbers = numbers.clone();
        numbers.budget[1].1 = bytes;
        ("train".to_owned(), numbers)
    });
    let text = render(&same);
    let lines: Vec<_> = text.lines().filter_map(|line| line.rsplit_once(' ')).collect();
    let series: HashSet<_> = lines.iter().map(|(series, _)| series).collect();
    assert_eq!(series.len(), lines.len(), "{text}");
    let found = &parse(&text).unwrap()[0].1.budget;
    assert_eq!(found, &[("a holder".to_owned(), 10), ("another".to_owned(), 5)]);
}

#[test]
fn names_keep_to_the_rules_of_prometheus() {
    /// Base units, and the things that are counted.
    const UNITS: [&str; 10] =
        ["seconds", "bytes", "records", "runs", "tasks", "threads", "batches", "passes", "waits", "growths"];
    /// Gauges that are a state or a place, without a unit.
    const BARE: [&str; 4] =
        ["percolator_paused", "percolator_ended", "percolator_next_epoch", "percolator_next_step"];

    let mut seen = HashSet::new();
    for family in FAMILIES {
        let name = family.name;
        assert!(seen.insert(name), "{name} is there twice");
        assert!(name.starts_with("percolator_"), "{name}");
        assert!(name.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'_'), "{name}");
        let stem = name.strip_suffix("_total");
        assert_eq!(stem.is_some(), family.kind == Kind::Counter, "{name}");
        let unit = stem.unwrap_or(name).rsplit('_').next().unwrap();
        assert!(UNITS.contains(&unit) || BARE.contains(&name), "{name} has no unit");
        assert!(family.help.ends_with('.') && !family.help.contains('\n'), "{name}: {}", family.help);
    }
}

/// Reads the counters of a feed all the time while it runs with one consumer, is paused, and gets threads.
#[test]
fn no_counter_ever_falls() {
    let mut feed = crate::feed(4000).epochs(3).prefetch(1).build().unwrap();
    let handle = feed.handle();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let consumer = std::thread::spawn(move || lane.by_ref().for_each(|batch| drop(batch.unwrap())));
    let mut before: HashMap<_, f64> = HashMap::new();
    for look in 0.. {
        // Once more after the end.
        let is_last = consumer.is_finished();
        match look % 4 {
            0 => handle.pause(),
            2 => drop(handle.set_threads(1 + look / 4 % 3).unwrap()),
            _ => handle.resume(),
        }
        for sample in Numbers::of(&handle).samples() {
            if sample.family.kind == Kind::Counter {
                let known = before.entry((sample.family.name, sample.labels.clone())).or_insert(0.0);
                assert!(sample.value >= *known, "{sample:?} was {known}");
                *known = sample.value;
            }
        }
        if is_last {
            break;
        }
    }
    consumer.join().unwrap();
    assert!(Numbers::of(&handle).has_ended);
}
