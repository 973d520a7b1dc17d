//! Readers end in every possible way: by a cancellation, by an error or a panic of the source, and with their
//! handles dropped. Each consumer is told once, after the records before it, and nothing is left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::reader::{DataReader, Lease, ReaderError, Registry};
use percolator::source::{Lmdb, SourceError};

use crate::common;
use crate::common::process::{is_alone, must_end, open_files, settles, this_test, threads};
use crate::common::source::MemorySource;
use crate::readers::{FOR_EVER, check_values, drain, drain_all, names, pop_names, share, shared};

#[test]
fn cancelling_wakes_a_pop_that_waits_behind_another_consumer() {
    must_end("a pop that waits for another consumer's reader", || {
        let registry = Registry::new();
        let source = shared(MemorySource::numbered("behind", 10, 8));
        let open = || DataReader::builder_shared("data", source.clone()).consumers(2).prefetch(2);
        let (hungry, full) = (open().open_in(&registry).unwrap(), open().open_in(&registry).unwrap());
        // Two slots each: the reader waits for `full` when it holds global record 5, whose turn it is.
        assert_eq!(pop_names(&hungry, 3), share(10, 0, 2, 0..6));
        let canceller = hungry.canceller();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drain(&hungry));
            canceller.cancel();
            let (_, error) = waiter.join().unwrap();
            assert!(matches!(error, Some(ReaderError::Cancelled { .. })), "{error:?}");
        });
        let (seen, error) = drain(&full);
        assert_eq!(seen[..2], share(10, 1, 2, 0..4)[..], "what was dealt before comes first");
        assert!(matches!(error, Some(ReaderError::Cancelled { .. })), "{error:?}");
    });
}

#[test]
fn cancelling_wakes_a_pop_that_waits_for_a_stalled_source() {
    must_end("a pop that waits for a stalled source, after a cancel", || {
        let registry = Registry::new();
        let (source, mut stall) = MemorySource::numbered("stalled", 10, 8).stall_at(3);
        let reader = DataReader::builder("data", source).open_in(&registry).unwrap();
        assert_eq!(pop_names(&reader, 3), share(10, 0, 1, 0..3));
        stall.wait();
        let canceller = reader.canceller();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drain(&reader));
            canceller.cancel();
            let (seen, error) = waiter.join().unwrap();
            assert!(seen.is_empty());
            assert!(matches!(error, Some(ReaderError::Cancelled { .. })), "{error:?}");
        });
        stall.release();
        assert!(reader.full().pop().unwrap().is_none(), "nothing follows the error");
    });
}

#[test]
fn a_consumer_that_leaves_takes_nothing_from_the_others() {
    for leaver in 0..3 {
        let registry = Registry::new();
        let source = shared(MemorySource::numbered("leaver", 50, 8));
        let open =
            || DataReader::builder_shared("data", source.clone()).consumers(3).batch_size(4).prefetch(2);
        let mut handles: Vec<_> = (0..3).map(|_| open().passes(4).open_in(&registry).unwrap()).collect();
        let leaving = handles.remove(leaver);
        std::thread::scope(|scope| {
            for reader in &handles {
                let due = share(50, reader.number(), 3, 0..200);
                scope.spawn(move || assert_eq!(drain(reader), (due, None)));
            }
            let seen = pop_names(&leaving, 5);
            assert_eq!(seen[..5], share(50, leaver, 3, 0..15)[..5]);
            drop(leaving);
        });
    }
}

#[test]
fn leases_outlive_their_reader_and_its_source() {
    let registry = Registry::new();
    let source = MemorySource::numbered("leases", 10, 8);
    let probe = source.probe();
    let reader = DataReader::builder("data", source).prefetch(10).open_in(&registry).unwrap();
    let leases: Vec<Lease> = (0..5).map(|_| reader.full().pop().unwrap().unwrap()).collect();
    drop(reader);
    assert!(registry.is_empty());
    assert_eq!((probe.cursors(), probe.is_dropped()), (0, true));
    for (index, lease) in leases.iter().enumerate() {
        assert_eq!(names(lease), [(0, index as u64)]);
        check_values(lease);
    }
    std::thread::spawn(move || drop(leases)).join().unwrap();
}

#[test]
fn a_reader_stops_between_two_records_of_a_run() {
    must_end("a reader in the middle of a run", || {
        let (source, mut stall) = MemorySource::numbered("slow", 1000, 8).stall_at(1);
        let probe = source.probe();
        let reader = DataReader::builder("data", source).batch_size(512).open_in(&Registry::new()).unwrap();
        assert!(reader.run_records() > 100);
        stall.wait();
        reader.canceller().cancel();
        stall.release();
        // Runs that were dealt before may come first.
        while let Ok(run) = reader.full().pop() {
            assert!(run.is_some(), "the end comes as an error");
        }
        drop(reader);
        // The first look, the record before the stall, and the one that was being read.
        assert!(probe.reads() <= 3, "{} records were read", probe.reads());
    });
}

#[test]
fn an_error_of_the_source_reaches_every_consumer_once_after_the_records_before_it() {
    must_end("consumers of a source that fails", || {
        for consumers in [1, 2, 3] {
            for position in [1, 2, 9, 10, 13] {
                for is_panic in [false, true] {
                    let registry = Registry::new();
                    let source = MemorySource::numbered("faulty", 10, 8);
                    let source = if is_panic { source.panic_at(position) } else { source.fail_at(position) };
                    let probe = source.probe();
                    let source = shared(source);
                    let drains = drain_all(consumers, &registry, || {
                        DataReader::builder_shared("data", source.clone()).batch_size(8).passes(3)
                    });
                    for (consumer, (seen, error)) in drains.into_iter().enumerate() {
                        assert_eq!(seen, share(10, consumer, consumers, 0..position as u64));
                        check_fault(error, position, is_panic);
                    }
                    assert!(registry.is_empty());
                    assert_eq!(probe.cursors(), 0);
                }
            }
        }
    });
}

fn check_fault(error: Option<ReaderError>, position: usize, is_panic: bool) {
    match error.expect("a fault ends the reader") {
        ReaderError::Panicked { key, message } if is_panic => {
            assert!(key.contains("memory/faulty"), "{key}");
            assert_eq!(message, format!("a panic of the test at position {position}"));
        }
        ReaderError::Source(SourceError::Broken { index, .. }) if !is_panic => {
            assert_eq!(index, position as u64 % 10);
        }
        other => panic!("{other}"),
    }
}

#[test]
fn an_error_is_told_once_and_a_late_handle_hears_it_at_once() {
    let registry = Registry::new();
    let source = shared(MemorySource::numbered("once", 10, 8).fail_at(4));
    let open = || DataReader::builder_shared("data", source.clone());
    let reader = open().open_in(&registry).unwrap();
    assert!(drain(&reader).1.is_some());
    for _ in 0..3 {
        assert!(reader.full().pop().unwrap().is_none());
        assert!(reader.full().try_pop().unwrap().is_none());
    }
    assert!(matches!(open().open_in(&registry).unwrap_err(), ReaderError::Source(_)));
}

#[test]
fn a_source_that_fails_at_its_first_record_leaves_nothing_behind() {
    let registry = Registry::new();
    let failing = MemorySource::numbered("first", 10, 8).fail_at(0);
    let error = DataReader::builder("data", failing).open_in(&registry).unwrap_err();
    assert!(matches!(error, ReaderError::Source(SourceError::Broken { index: 0, .. })), "{error}");
    let panicking = MemorySource::numbered("first", 10, 8).panic_at(0);
    let error = DataReader::builder("data", panicking).open_in(&registry).unwrap_err();
    assert!(matches!(error, ReaderError::Panicked { .. }), "{error}");
    assert!(registry.is_empty());
    let sound = MemorySource::numbered("first", 10, 8);
    let reader = DataReader::builder("data", sound).passes(1).open_in(&registry).unwrap();
    assert_eq!(drain(&reader).0.len(), 10);
}

#[test]
fn an_empty_source_is_an_error() {
    let registry = Registry::new();
    let error =
        DataReader::builder("data", MemorySource::numbered("empty", 0, 8)).open_in(&registry).unwrap_err();
    assert!(matches!(error, ReaderError::Source(SourceError::Empty { .. })), "{error}");
    assert!(error.to_string().contains("memory/empty: there is no record"), "{error}");
    assert!(registry.is_empty());
}

#[test]
fn thousands_of_overlapping_lives_leak_nothing() {
    const THREADS: usize = 8;
    const LIVES: usize = 400;
    if !is_alone(this_test!()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    common::write_images(folder.path(), 50, 1, 4, 4);
    let registry = Registry::new();
    // A first life initialises whatever the process initialises once.
    live(0, folder.path(), &registry);
    let before = (threads(), open_files());
    let opened: usize = must_end("thousands of lives", {
        let (registry, path) = (registry.clone(), folder.path().to_owned());
        move || {
            std::thread::scope(|scope| {
                let lives: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        let (registry, path) = (&registry, &path);
                        scope.spawn(move || {
                            (0..LIVES).filter(|life| live(thread * LIVES + life, path, registry)).count()
                        })
                    })
                    .collect();
                lives.into_iter().map(|thread| thread.join().unwrap()).sum()
            })
        }
    });
    println!("{opened} of {} lives had records", THREADS * LIVES);
    assert!(opened > THREADS * LIVES / 2);
    assert!(registry.is_empty(), "{registry:?}");
    settles(|| (threads(), open_files()), &before, "threads and open files");
}

/// The life of one reader; returns whether it was opened. Every third is one of a few that all threads share.
fn live(number: usize, lmdb: &std::path::Path, registry: &Registry) -> bool {
    let builder = if number.is_multiple_of(2) {
        DataReader::builder("data", Lmdb::open(lmdb).unwrap())
    } else {
        DataReader::builder("data", MemorySource::numbered(&format!("life {}", number % 5), 50, 8))
    };
    let shares = number.is_multiple_of(3);
    let group = if shares { String::new() } else { number.to_string() };
    let consumers = if shares { 2 } else { 1 };
    let opened = builder
        .group(group)
        .consumers(consumers)
        .batch_size(1 + number % 2 * 7 * usize::from(!shares))
        .gate_timeout(FOR_EVER)
        .open_in(registry);
    let reader = match opened {
        Ok(reader) => reader,
        Err(ReaderError::TooMany { .. }) if shares => return false,
        Err(other) => panic!("{other}"),
    };
    if shares {
        // Its partner may never come, so a shared reader does not wait.
        let _ = reader.full().try_pop().unwrap();
    } else {
        for _ in 0..number % 4 {
            let run = reader.full().pop().unwrap().expect("it goes round for ever");
            assert!(!run.is_empty());
        }
    }
    true
}
