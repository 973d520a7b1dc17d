//! Workers that lease blocks, while their etcd stands still, dies, is slow, or is set back to a copy: their
//! consumers wait for data alone.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use percolator::source::FnSource;
use percolator::{Feed, FeedBuilder, FeedError, LastBatch, RawBytes, Shuffle};
use percolator_cluster::etcd::EtcdOptions;
use percolator_cluster::leases::{Job, LeaseError, LeasedFeed, LeasedStep, Leases};
use percolator_cluster::metadata::{EtcdMetadata, Metadata, MetadataError};

use crate::server::{Etcd, Stop};

const RECORDS: u64 = 400;
const STEPS_PER_BLOCK: u64 = 5;
/// No lease ends while a test runs.
const TTL: Duration = Duration::from_secs(300);
/// The copy of an etcd may have a lease, and blocks under it, that nobody gives back.
const SHORT_TTL: Duration = Duration::from_secs(2);
/// How long an answer may take, and a wait in an outage. An etcd of a busy machine may take longer, too: what
/// passes is tried again.
const SHORT: Duration = Duration::from_millis(300);

/// Records that say their number, 4 a batch: 100 steps.
fn feed() -> FeedBuilder {
    let source = FnSource::new("numbers", RECORDS, |position, value| {
        value.extend(position.to_le_bytes());
        Ok(())
    });
    Feed::builder()
        .source(source)
        .decoder(RawBytes::fixed())
        .batch_size(4)
        .shuffle(Shuffle::Global)
        .last_batch(LastBatch::Keep)
        .epochs(1)
        .threads(1)
        .prefetch(12)
}

fn join(options: &EtcdOptions, ttl: Duration) -> LeasedFeed {
    let options = options.clone().deadline(SHORT);
    let records: Arc<dyn Metadata> = loop {
        match EtcdMetadata::connect(&options) {
            Ok(records) => break Arc::new(records),
            Err(error) => assert!(matches!(error, MetadataError::Unreachable { .. }), "{error}"),
        }
    };
    loop {
        let leases = Leases::of(records.clone(), "numbers").steps_per_block(STEPS_PER_BLOCK).ttl(ttl);
        match leases.patience(SHORT).feed(feed()) {
            Ok(leased) => return leased,
            Err(error) => assert!(error.may_pass(), "{error}"),
        }
    }
}

/// Takes this many steps.
fn take(leased: &mut LeasedFeed, seen: &mut BTreeMap<u64, usize>, steps: usize) {
    let mut left = steps;
    while left > 0 {
        match leased.next().expect("there is more to do") {
            Ok(step) => {
                note(seen, &step);
                left -= 1;
            }
            Err(error) => assert!(error.may_pass(), "{error}"),
        }
    }
}

fn note(seen: &mut BTreeMap<u64, usize>, step: &LeasedStep) {
    let records = step.batches.iter().flat_map(|batch| batch.records());
    records.for_each(|record| *seen.entry(record.index).or_default() += 1);
}

/// Takes the steps that there are until an error that may pass.
fn until_error(leased: &mut LeasedFeed, seen: &mut BTreeMap<u64, usize>) -> LeaseError {
    loop {
        match leased.next().expect("there is more to do") {
            Ok(step) => note(seen, &step),
            Err(error) => {
                assert!(error.may_pass(), "{error}");
                return error;
            }
        }
    }
}

/// Goes on to the end of the job, whatever passes meanwhile.
fn go_on(leased: &mut LeasedFeed, seen: &mut BTreeMap<u64, usize>) {
    for step in leased {
        match step {
            Ok(step) => note(seen, &step),
            Err(error) => assert!(error.may_pass(), "{error}"),
        }
    }
}

fn assert_proven(records: EtcdMetadata, seen: &BTreeMap<u64, usize>) {
    assert!((0..RECORDS).all(|index| seen.get(&index) == Some(&1)), "{seen:?}");
    let verdict = Job::open(Arc::new(records), "numbers").unwrap().verdict(None).unwrap();
    assert!(verdict.is_sound() && verdict.done == 1, "{verdict:?}");
}

/// All steps of the blocks that a worker has come while etcd stands still; then an error says so, as often as
/// it is asked; and it goes on when etcd does.
#[test]
fn what_was_taken_comes_while_etcd_stands_still() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let mut leased = join(&etcd.options(), TTL);
    let mut seen = BTreeMap::new();
    take(&mut leased, &mut seen, 7);
    crate::server::until("three blocks are taken", || leased.stats().taken >= 3);
    etcd.pause();
    until_error(&mut leased, &mut seen);
    // Those that were asked for before etcd stood still may have been answered.
    assert_eq!(seen.len() as u64, 4 * STEPS_PER_BLOCK * leased.stats().taken);
    until_error(&mut leased, &mut seen);
    etcd.go_on();
    go_on(&mut leased, &mut seen);
    drop(leased);
    assert_proven(etcd.records(""), &seen);
}

/// The same if etcd was killed, and comes again.
#[test]
fn a_feed_goes_on_with_an_etcd_that_was_killed() {
    let Some(mut etcd) = Etcd::start(&[]) else { return };
    let mut leased = join(&etcd.options(), TTL);
    let mut seen = BTreeMap::new();
    take(&mut leased, &mut seen, 1);
    etcd.kill();
    until_error(&mut leased, &mut seen);
    assert_eq!(seen.len() as u64, 4 * STEPS_PER_BLOCK * leased.stats().taken);
    etcd.run();
    go_on(&mut leased, &mut seen);
    drop(leased);
    assert_proven(etcd.records(""), &seen);
}

/// A worker that waits for a block can be stopped while etcd stands still.
#[test]
fn a_worker_is_stopped_while_etcd_stands_still() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let mut leased = join(&etcd.options(), TTL);
    let handle = leased.feed().handle();
    let mut seen = BTreeMap::new();
    take(&mut leased, &mut seen, 1);
    etcd.pause();
    until_error(&mut leased, &mut seen);
    handle.cancel();
    let ends = leased.find_map(|step| match step {
        Err(error) if !error.may_pass() => Some(error),
        _ => None,
    });
    assert!(matches!(ends, Some(LeaseError::Of(FeedError::Cancelled))), "{ends:?}");
}

/// A connection that hands on everything late. Returns the port.
fn slow_way(to: &str, late_by: Duration, stop: &Stop) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (to, stop) = (to.trim_start_matches("http://").to_owned(), stop.flag());
    let hand_on = move |mut from: TcpStream, mut into: TcpStream| {
        let mut bytes = [0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            thread::sleep(late_by);
            if into.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = into.shutdown(Shutdown::Both);
    };
    thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let Ok((near, _)) = listener.accept() else {
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            near.set_nonblocking(false).unwrap();
            let Ok(far) = TcpStream::connect(&to) else { continue };
            let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            thread::spawn(move || hand_on(near, far));
            thread::spawn(move || hand_on(far_too, near_too));
        }
    });
    port
}

/// Answers come late, and nothing is lost or doubled by it.
#[test]
fn a_slow_etcd_delays_blocks_and_loses_none() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let stop = Stop::default();
    let port = slow_way(&etcd.url, Duration::from_millis(20), &stop);
    let records = EtcdMetadata::connect(&EtcdOptions::new([format!("http://127.0.0.1:{port}")])).unwrap();
    let leases = Leases::of(Arc::new(records), "numbers").steps_per_block(STEPS_PER_BLOCK).ttl(TTL);
    let mut leased = leases.feed(feed()).unwrap();
    let mut seen = BTreeMap::new();
    go_on(&mut leased, &mut seen);
    drop(leased);
    assert_proven(etcd.records(""), &seen);
}

/// etcd comes again from a copy of earlier, in which blocks that were trained on are not done. They are
/// trained on again, which the receipts do not tell: the worker has said so.
#[test]
fn what_was_set_back_is_not_proven() {
    let Some(mut etcd) = Etcd::start(&[]) else { return };
    let mut leased = join(&etcd.options(), SHORT_TTL);
    let mut seen = BTreeMap::new();
    take(&mut leased, &mut seen, 1);
    let copy = etcd.folder().join("copy");
    etcd.control(&["snapshot", "save", copy.to_str().unwrap()]);
    take(&mut leased, &mut seen, 20);
    let job = || Job::open(Arc::new(etcd.records("")) as Arc<dyn Metadata>, "numbers").unwrap();
    crate::server::until("blocks are done", || job().status().unwrap().done >= 2);
    etcd.kill();
    etcd.restore(&copy);
    etcd.run();
    // What it says next is not of these records: it goes on with what they have, or ends.
    for step in leased.by_ref() {
        match step {
            Ok(step) => note(&mut seen, &step),
            Err(error) if error.may_pass() => {}
            Err(error) => assert!(error.to_string().contains("set back to a copy"), "{error}"),
        }
    }
    drop(leased);
    go_on(&mut join(&etcd.options(), SHORT_TTL), &mut seen);
    assert!(seen.values().any(|&times| times > 1), "{seen:?}");
    let job = Job::open(Arc::new(etcd.records("")), "numbers").unwrap();
    assert!(job.status().unwrap().was_set_back);
    let verdict = job.verdict(None).unwrap();
    assert!(verdict.was_set_back && !verdict.is_sound(), "{verdict:?}");
}
