//! A reader begins when its last consumer has registered. Consumers that are too many, too few, cancelled or
//! dropped while the others wait are told, and nobody waits in vain.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use percolator::reader::{DataReader, ReaderError, Registry};

use crate::common::process::must_end;
use crate::common::source::MemorySource;
use crate::readers::{FOR_EVER, drain, share, shared};

#[test]
fn nothing_is_read_before_the_last_consumer_has_registered() {
    let registry = Registry::new();
    let registering = Arc::new(AtomicUsize::new(0));
    let seen = Arc::new(AtomicUsize::new(usize::MAX));
    let hook = {
        let (registering, seen) = (registering.clone(), seen.clone());
        // The first cursor is for the first look; the second reads the records.
        move |before| {
            if before == 1 {
                seen.store(registering.load(Ordering::SeqCst), Ordering::SeqCst);
            }
        }
    };
    let source = MemorySource::numbered("gate", 30, 8).on_cursor(hook);
    let probe = source.probe();
    let source = shared(source);
    let mut handles = Vec::new();
    for number in 1..=3 {
        registering.store(number, Ordering::SeqCst);
        let open = DataReader::builder_shared("data", source.clone()).consumers(3).passes(1);
        handles.push(open.open_in(&registry).unwrap());
        // A reader that does not wait for all its consumers would have started during these whole lives.
        for _ in 0..20 {
            let other = MemorySource::numbered("other", 10, 8);
            let other = DataReader::builder("data", other).passes(1).open_in(&registry).unwrap();
            drain(&other);
        }
        if number < 3 {
            assert_eq!(probe.reads(), 1, "only the first look");
            assert!(handles.iter().all(|reader| reader.full().is_empty()));
            assert!(handles[0].full().try_pop().unwrap().is_none());
        }
    }
    std::thread::scope(|scope| {
        for (number, reader) in handles.iter().enumerate() {
            scope.spawn(move || assert_eq!(drain(reader), (share(30, number, 3, 0..30), None)));
        }
    });
    assert_eq!(seen.load(Ordering::SeqCst), 3, "the walk began when the third consumer registered");
}

#[test]
fn one_consumer_too_many_is_told_at_once_and_harms_nobody() {
    let registry = Registry::new();
    let source = shared(MemorySource::numbered("many", 10, 8));
    let open = || DataReader::builder_shared("data", source.clone()).consumers(2).batch_size(8).passes(1);
    let handles = [open().open_in(&registry).unwrap(), open().open_in(&registry).unwrap()];
    match open().open_in(&registry).unwrap_err() {
        ReaderError::TooMany { key, consumers: 2 } => assert!(key.contains("data:memory/many"), "{key}"),
        other => panic!("{other}"),
    }
    for (number, reader) in handles.iter().enumerate() {
        assert_eq!(drain(reader), (share(10, number, 2, 0..10), None));
    }
    drop(handles);
    // The next reader starts again at record 0.
    let reader = open().consumers(1).open_in(&registry).unwrap();
    assert_eq!(drain(&reader).0, share(10, 0, 1, 0..10));
}

#[test]
fn one_consumer_too_few_is_told_to_each_once_after_the_time_out() {
    must_end("a gate that never opens", || {
        let registry = Registry::new();
        let source = shared(MemorySource::numbered("few", 10, 8));
        let timeout = Duration::from_millis(20);
        let open = || {
            DataReader::builder_shared("data", source.clone()).consumers(3).gate_timeout(timeout).passes(1)
        };
        let handles = [open().open_in(&registry).unwrap(), open().open_in(&registry).unwrap()];
        for reader in &handles {
            match reader.full().pop().unwrap_err() {
                ReaderError::TooFew { key, registered: 2, consumers: 3, waited } => {
                    assert!(key.contains("data:memory/few") && waited == timeout);
                }
                other => panic!("{other}"),
            }
            assert!(reader.full().pop().unwrap().is_none(), "once");
        }
        assert!(matches!(open().open_in(&registry).unwrap_err(), ReaderError::TooFew { .. }), "too late");
        drop(handles);
        assert!(registry.is_empty());
        let reader = open().consumers(1).open_in(&registry).unwrap();
        assert_eq!(drain(&reader).0.len(), 10);
    });
}

#[test]
fn a_gate_may_wait_for_ever() {
    must_end("a gate with the longest of all time-outs", || {
        let registry = Registry::new();
        let source = MemorySource::numbered("patience", 3, 8);
        let reader = DataReader::builder("data", source)
            .gate_timeout(Duration::MAX)
            .passes(1)
            .open_in(&registry)
            .unwrap();
        assert_eq!(drain(&reader), (share(3, 0, 1, 0..3), None));
    });
}

#[test]
fn cancelling_opens_no_gate_and_wakes_who_waits_there() {
    must_end("a pop at the gate after a cancel", || {
        let registry = Registry::new();
        let source = MemorySource::numbered("cancelled", 10, 8);
        let reader = DataReader::builder("data", source)
            .consumers(2)
            .gate_timeout(FOR_EVER)
            .open_in(&registry)
            .unwrap();
        let canceller = reader.canceller();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drain(&reader));
            canceller.cancel();
            let (seen, error) = waiter.join().unwrap();
            assert!(seen.is_empty());
            assert!(matches!(error, Some(ReaderError::Cancelled { .. })), "{error:?}");
        });
        canceller.cancel();
        assert!(reader.full().pop().unwrap().is_none(), "once");
        drop(reader);
        assert!(registry.is_empty());
    });
}

#[test]
fn a_handle_dropped_at_the_gate_ends_the_wait_there() {
    must_end("the drop of a handle at the gate", || {
        let registry = Registry::new();
        for _ in 0..200 {
            let source = MemorySource::numbered("dropped", 10, 8);
            let open = DataReader::builder("data", source).consumers(2).gate_timeout(FOR_EVER);
            drop(open.open_in(&registry).unwrap());
            assert!(registry.is_empty());
        }
    });
}
