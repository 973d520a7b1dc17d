//! Caffe's reader failed in three ways: it guessed how many solvers there were, two nets on one database hung
//! each other, and a reader that died took its process along. These tests check the dealing rule, record by
//! record, for every one of Caffe's patterns. That something has not happened is shown by the source's
//! counters, never by waiting for a while.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;

use percolator::Phase;
use percolator::reader::{DataReader, ReaderError, Registry};

use crate::common::process::must_end;
use crate::common::source::MemorySource;
use crate::readers::{drain, drain_all, pop_names, share, shared};

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
