//! Caffe's reader failed in three ways: it guessed how many solvers there were, two nets on one database hung
//! each other, and a reader that died took its process along. These tests check the dealing rule, record by
//! record, for every one of Caffe's patterns, and end readers in every possible way. That something has not
//! happened is shown by the source's counters, never by waiting for a while.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use percolator::Phase;
use percolator::reader::{DataReader, DataReaderBuilder, Lease, ReaderError, Registry};
use percolator::source::{Lmdb, Run, SourceError};

use crate::common;
use crate::common::process::{is_alone, must_end, open_files, settles, this_test, threads};
use crate::common::source::MemorySource;

const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Records, as (epoch, index).
type Names = Vec<(u64, u64)>;

fn names(run: &Run) -> Names {
    run.iter().map(|record| (record.id.epoch, record.id.index)).collect()
}

/// Takes everything and checks that each value is its record's; returns the records, and the error that ended
/// them.
fn drain(reader: &DataReader) -> (Names, Option<ReaderError>) {
    let mut seen = Names::new();
    loop {
        match reader.full().pop() {
            Ok(Some(run)) => {
                check_values(&run);
                seen.extend(names(&run));
                reader.free().push(run);
            }
            Ok(None) => return (seen, None),
            Err(error) => return (seen, Some(error)),
        }
    }
}

fn check_values(run: &Run) {
    for record in run.iter() {
        assert_eq!(record.value[..8], record.id.index.to_le_bytes(), "the value of {}", record.id);
        assert_eq!(record.key, common::key(usize::try_from(record.id.index).unwrap()));
        assert!(record.value[8..].iter().all(|&byte| byte == record.value[0]));
    }
}

/// The dealing rule: global record `g` is record `g mod M` of the source and goes to consumer `g mod N`.
fn share(records: u64, consumer: usize, consumers: usize, global: std::ops::Range<u64>) -> Names {
    global.filter(|g| g % consumers as u64 == consumer as u64).map(|g| (g / records, g % records)).collect()
}

/// Opens every consumer of one reader, and drains each on a thread of its own.
fn drain_all(
    consumers: usize,
    registry: &Registry,
    builder: impl Fn() -> DataReaderBuilder,
) -> Vec<(Names, Option<ReaderError>)> {
    let handles: Vec<DataReader> =
        (0..consumers).map(|_| builder().consumers(consumers).open_in(registry).unwrap()).collect();
    std::thread::scope(|scope| {
        let drains: Vec<_> = handles
            .into_iter()
            .enumerate()
            .map(|(number, reader)| {
                assert_eq!(reader.number(), number);
                scope.spawn(move || drain(&reader))
            })
            .collect();
        drains.into_iter().map(|drain| drain.join().unwrap()).collect()
    })
}

fn shared(source: MemorySource) -> Arc<dyn percolator::source::Source> {
    Arc::new(source)
}

/// Takes runs until they hold this many records; the last run may bring a few more.
fn pop_names(reader: &DataReader, records: usize) -> Names {
    let mut seen = Names::new();
    while seen.len() < records {
        seen.extend(names(&reader.full().pop().unwrap().expect("the reader goes on")));
    }
    seen
}

#[test]
fn one_source_to_one_consumer_brings_every_record_once_in_order() {
    let registry = Registry::new();
    let source = MemorySource::numbered("one", 100, 8);
    let probe = source.probe();
    let reader = DataReader::builder("data", source).batch_size(7).passes(1).open_in(&registry).unwrap();
    let (seen, error) = drain(&reader);
    assert_eq!(seen, share(100, 0, 1, 0..100));
    assert_eq!(error, None);
    assert!(reader.full().pop().unwrap().is_none(), "the end stays the end");
    assert!(reader.full().try_pop().unwrap().is_none());
    assert_eq!(registry.len(), 1, "the handle still holds the reader");
    drop(reader);
    assert!(registry.is_empty());
    assert_eq!((probe.cursors(), probe.is_dropped()), (0, true));
}

#[test]
fn one_source_to_many_consumers_is_dealt_round_robin_and_drains_in_order() {
    for records in [1, 2, 7, 10] {
        for consumers in [1, 2, 3, 4] {
            for (batch_size, prefetch) in [(1, 1), (3, 2), (64, 1)] {
                for passes in [1, 3] {
                    let registry = Registry::new();
                    let source = shared(MemorySource::numbered("dealt", records, 8));
                    let drains = drain_all(consumers, &registry, || {
                        DataReader::builder_shared("data", source.clone())
                            .batch_size(batch_size)
                            .prefetch(prefetch)
                            .passes(passes)
                    });
                    for (consumer, drained) in drains.into_iter().enumerate() {
                        let records = records as u64;
                        let due = share(records, consumer, consumers, 0..records * passes);
                        assert_eq!(drained, (due, None), "M={records} N={consumers} batch={batch_size}");
                    }
                    assert!(registry.is_empty());
                }
            }
        }
    }
}

#[test]
fn many_sources_at_once_do_not_mix() {
    let registry = Registry::new();
    std::thread::scope(|scope| {
        for number in 0..8_usize {
            let registry = &registry;
            scope.spawn(move || {
                let records = 20 + number;
                let source = shared(MemorySource::numbered(&format!("source {number}"), records, 8));
                let drains = drain_all(2, registry, || {
                    DataReader::builder_shared("data", source.clone()).batch_size(4).passes(2)
                });
                for (consumer, drained) in drains.into_iter().enumerate() {
                    let records = records as u64;
                    assert_eq!(drained, (share(records, consumer, 2, 0..2 * records), None));
                }
            });
        }
    });
    assert!(registry.is_empty());
}

#[test]
fn without_passes_the_reader_goes_round_and_counts_epochs() {
    let registry = Registry::new();
    let source = MemorySource::numbered("round", 10, 8);
    let reader = DataReader::builder("data", source).open_in(&registry).unwrap();
    assert_eq!(pop_names(&reader, 35), share(10, 0, 1, 0..35));
}

#[test]
fn small_records_in_runs_and_large_ones_alone_are_dealt_alike() {
    let dealt = |bytes| {
        let registry = Registry::new();
        let source = shared(MemorySource::numbered("sizes", 50, bytes));
        let open =
            || DataReader::builder_shared("data", source.clone()).consumers(3).batch_size(16).prefetch(8);
        let handles: Vec<_> = (0..3).map(|_| open().passes(2).open_in(&registry).unwrap()).collect();
        let run_records = handles[0].run_records();
        (run_records, handles.iter().map(drain).collect::<Vec<_>>())
    };
    let (small_run, small) = dealt(8);
    let (large_run, large) = dealt(300 * 1024);
    assert!(small_run > 1, "small records travel together");
    assert_eq!(large_run, 1, "large ones alone");
    assert_eq!(small, large);
    assert_eq!(small[2], (share(50, 2, 3, 0..100), None));
}

#[test]
fn a_run_ends_where_a_batch_does() {
    let registry = Registry::new();
    let source = MemorySource::numbered("runs", 100, 8);
    let reader = DataReader::builder("data", source).batch_size(10).passes(1).open_in(&registry).unwrap();
    let mut taken = 0;
    while let Some(run) = reader.full().pop().unwrap() {
        assert!(taken % 10 + run.len() <= 10, "a run crosses the end of a batch at record {taken}");
        taken += run.len();
    }
    assert_eq!(taken, 100);
}

#[test]
fn the_reader_never_runs_further_ahead_than_the_pool() {
    let registry = Registry::new();
    let source = MemorySource::numbered("ahead", 1000, 8);
    let probe = source.probe();
    let (batch_size, prefetch) = (8, 3);
    let reader = DataReader::builder("data", source)
        .batch_size(batch_size)
        .prefetch(prefetch)
        .passes(1)
        .open_in(&registry)
        .unwrap();
    // One for the first look, and one that is read before the reader sees that there is no slot for it.
    let ahead = (batch_size * prefetch) as u64 + 2;
    let mut taken = 0;
    // The reader fills the whole pool while nobody takes anything,
    probe.wait_for_reads(ahead);
    while let Some(run) = reader.full().pop().unwrap() {
        // and never reads more than the taken runs allow.
        assert!(probe.reads() <= taken + ahead, "{} read when {taken} were taken", probe.reads());
        taken += run.len() as u64;
    }
    assert_eq!(taken, 1000);
}

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
fn one_run_given_back_is_enough_to_go_on() {
    must_end("a pop that waits for one run of another consumer's", || {
        let registry = Registry::new();
        let source = shared(MemorySource::numbered("in step", 200, 8));
        let open =
            || DataReader::builder_shared("data", source.clone()).consumers(2).batch_size(8).prefetch(2);
        let [one, other] = [open().open_in(&registry).unwrap(), open().open_in(&registry).unwrap()];
        let pop = |reader: &DataReader| reader.full().pop().unwrap().unwrap();
        // One thread holds all runs of one consumer except the last it took, and takes from the other.
        let mut held: Vec<_> = (0..other.runs())
            .map(|_| {
                drop(pop(&one));
                pop(&other)
            })
            .collect();
        for _step in 0..30 {
            held.pop();
            drop(pop(&one));
            held.push(pop(&other));
        }
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
fn a_handle_with_other_terms_is_told_what_the_reader_runs_with() {
    let registry = Registry::new();
    let source = shared(MemorySource::numbered("terms", 10, 8));
    let open = || {
        DataReader::builder_shared("data", source.clone()).consumers(2).batch_size(8).prefetch(3).passes(5)
    };
    let _first = open().open_in(&registry).unwrap();
    for (other, word) in [
        (open().consumers(3), "3 consumer(s)"),
        (open().batch_size(9), "3 batches of 9 ahead"),
        (open().prefetch(4), "4 batches of 8 ahead"),
        (open().passes(6), "6 pass(es)"),
        (open().passes(0), "no end"),
    ] {
        match other.open_in(&registry).unwrap_err() {
            ReaderError::Disagree { found, allowed, .. } => {
                assert!(found.contains(word), "{found}");
                assert_eq!(allowed, "2 consumer(s), 3 batches of 8 ahead, 5 pass(es)");
            }
            other => panic!("{other}"),
        }
    }
    open().open_in(&registry).expect("the second consumer agrees");
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
fn counts_that_no_reader_can_have_are_refused_by_name() {
    let registry = Registry::new();
    let source = shared(MemorySource::numbered("zero", 10, 8));
    let open = || DataReader::builder_shared("data", source.clone());
    for (builder, option) in [
        (open().consumers(0), "consumers"),
        (open().batch_size(0), "batch_size"),
        (open().prefetch(0), "prefetch"),
    ] {
        let error = builder.open_in(&registry).unwrap_err();
        assert_eq!(error.to_string(), format!("{option} is 0; it must be at least 1"));
    }
    for (batch_size, prefetch) in [(1 << 44, 1), (usize::MAX, usize::MAX), (1, 1 << 23)] {
        let error = open().batch_size(batch_size).prefetch(prefetch).open_in(&registry).unwrap_err();
        assert!(matches!(error, ReaderError::PoolTooLarge { .. }), "{error}");
    }
    assert!(registry.is_empty());
}

#[test]
fn phases_and_groups_of_one_source_have_readers_of_their_own() {
    let registry = Registry::new();
    let source = shared(MemorySource::numbered("both", 10, 8));
    let open = || DataReader::builder_shared("data", source.clone()).passes(1).batch_size(16);
    let handles = [
        open().phase(Phase::Train).open_in(&registry).unwrap(),
        open().phase(Phase::Test).open_in(&registry).unwrap(),
        open().group("a").open_in(&registry).unwrap(),
        open().group("b").open_in(&registry).unwrap(),
    ];
    assert_eq!(registry.len(), 4);
    let keys: HashSet<String> = handles.iter().map(|reader| reader.key().to_string()).collect();
    assert_eq!(keys.len(), 4, "and names that tell them apart: {keys:?}");
    for reader in &handles {
        assert_eq!(drain(reader), (share(10, 0, 1, 0..10), None), "{}", reader.key());
    }
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
    // The first look is the caller's own call into the source, so its panic is the caller's.
    let open = || DataReader::builder("data", panicking).open_in(&registry);
    assert!(catch_unwind(AssertUnwindSafe(open)).is_err());
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
