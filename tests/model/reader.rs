//! Readers and their handles.

use std::sync::Arc;
use std::time::Duration;

use percolator::reader::{DataReader, DataReaderBuilder, ReaderError, Registry};
use percolator::record::RecordId;
use percolator::source::SourceError;
use shuttle::sync::atomic::Ordering;
use shuttle::thread;

use crate::explore::explore;
use crate::memory::{End, Memory};

/// A builder of handles on `source`, with one slot a consumer, that waits for its partners for ever.
fn handle(source: &Arc<Memory>, consumers: usize) -> DataReaderBuilder {
    DataReader::builder_shared("data", source.clone())
        .consumers(consumers)
        .prefetch(1)
        .gate_timeout(Duration::from_secs(3600))
}

/// Takes runs until there is none, and keeps none of them.
fn drain(reader: &DataReader) -> (Vec<RecordId>, Option<ReaderError>) {
    let mut ids = Vec::new();
    loop {
        match reader.full().pop() {
            Ok(Some(run)) => {
                for record in run.iter() {
                    assert_eq!(
                        [record.id.index],
                        record.value.iter().map(|&n| n.into()).collect::<Vec<u64>>()[..]
                    );
                    ids.push(record.id);
                }
                reader.free().push(run);
            }
            Ok(None) => return (ids, None),
            Err(error) => {
                assert!(matches!(reader.full().pop(), Ok(None)), "an error comes once, and is the end");
                return (ids, Some(error));
            }
        }
    }
}

/// What one of `consumers` consumers gets of this many passes over this many records.
fn share(consumer: usize, consumers: usize, passes: u64, records: u64) -> Vec<RecordId> {
    (0..passes * records)
        .filter(|global| global % consumers as u64 == consumer as u64)
        .map(|global| RecordId { epoch: global / records, index: global % records })
        .collect()
}

/// Runs `scenario` with a registry and a source of its own. Afterwards no reader may be left, neither in
/// the registry nor as a thread, which would still hold the source.
fn explore_readers(
    source: impl Fn() -> Arc<Memory> + Send + Sync + 'static,
    scenario: impl Fn(&Registry, &Arc<Memory>) + Send + Sync + 'static,
) {
    explore(move || {
        let (registry, source) = (Registry::new(), source());
        scenario(&registry, &source);
        assert!(registry.is_empty(), "a reader outlived its handles");
        assert_eq!(Arc::strong_count(&source), 1, "a thread outlived its reader");
    });
}

/// Runs `consumer` on this many threads at once, and waits for all of them.
fn at_once<T: Send + 'static>(
    threads: usize,
    registry: &Registry,
    source: &Arc<Memory>,
    consumer: impl Fn(usize, &Registry, &Arc<Memory>) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let threads: Vec<_> = (0..threads)
        .map(|number| {
            let (registry, source, consumer) = (registry.clone(), source.clone(), consumer.clone());
            thread::spawn(move || consumer(number, &registry, &source))
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn two_consumers_drain_their_shares_to_the_end() {
    explore_readers(
        || Memory::of(3),
        |registry, source| {
            let numbers = at_once(2, registry, source, |_, registry, source| {
                let reader = handle(source, 2).passes(2).open_in(registry).unwrap();
                let number = reader.number();
                assert_eq!(drain(&reader), (share(number, 2, 2, 3), None));
                (number, reader)
            });
            assert_eq!(numbers[0].0 + numbers[1].0, 1);
        },
    );
}

#[test]
fn runs_of_several_records_keep_the_order_and_lose_no_rest() {
    // Batches of 8 travel as runs of 2; the shares of 5 and 4 records end in half a run or none.
    explore_readers(
        || Memory::of(9),
        |registry, source| {
            at_once(2, registry, source, |_, registry, source| {
                let reader = handle(source, 2).batch_size(8).passes(1).open_in(registry).unwrap();
                assert_eq!(reader.run_records(), 2);
                assert_eq!(drain(&reader), (share(reader.number(), 2, 1, 9), None));
            });
        },
    );
}

/// Each handle that opens is the reader's only one, so each must find the first record.
#[test]
fn readers_of_one_key_follow_each_other_and_start_anew() {
    explore_readers(
        || Memory::of(2),
        |registry, source| {
            at_once(3, registry, source, |_, registry, source| match handle(source, 1).open_in(registry) {
                Ok(reader) => {
                    let run = reader.full().pop().unwrap().unwrap();
                    assert_eq!(run.get(0).unwrap().id, RecordId { epoch: 0, index: 0 });
                }
                Err(error) => assert!(matches!(error, ReaderError::TooMany { consumers: 1, .. })),
            });
        },
    );
}

/// Handles leave before, while and after all consumers have opened, and one comes too many or starts a
/// new reader.
#[test]
fn three_handles_come_and_go_where_two_are_awaited() {
    explore_readers(
        || Memory::of(2),
        |registry, source| {
            at_once(3, registry, source, |_, registry, source| match handle(source, 2).open_in(registry) {
                Ok(reader) => {
                    if let Some(run) = reader.full().try_pop().unwrap() {
                        assert_eq!(run.get(0).unwrap().id.index, reader.number() as u64);
                    }
                }
                Err(error) => assert!(matches!(error, ReaderError::TooMany { consumers: 2, .. })),
            });
        },
    );
}

#[test]
fn groups_do_not_wait_for_each_other() {
    explore_readers(
        || Memory::of(2),
        |registry, source| {
            at_once(2, registry, source, |number, registry, source| {
                let reader = handle(source, 1).passes(1).group(number.to_string()).open_in(registry).unwrap();
                assert_eq!(drain(&reader), (share(0, 1, 1, 2), None));
            });
        },
    );
}

#[test]
fn a_lone_handle_leaves_a_closed_gate() {
    explore_readers(
        || Memory::of(1),
        |registry, source| {
            drop(handle(source, 2).open_in(registry).unwrap());
        },
    );
}

#[test]
fn whoever_leaves_takes_nothing_from_the_others() {
    explore_readers(
        || Memory::of(7),
        |registry, source| {
            at_once(2, registry, source, |thread, registry, source| {
                let reader = handle(source, 2).passes(1).open_in(registry).unwrap();
                if thread == 0 {
                    assert!(reader.full().pop().unwrap().is_some());
                } else {
                    assert_eq!(drain(&reader), (share(reader.number(), 2, 1, 7), None));
                }
            });
        },
    );
}

#[test]
fn a_lease_comes_home_while_its_reader_is_joined() {
    explore_readers(
        || Memory::of(3),
        |registry, source| {
            let reader = handle(source, 1).open_in(registry).unwrap();
            let lease = reader.full().pop().unwrap().unwrap();
            let returning = thread::spawn(move || drop(lease));
            drop(reader);
            returning.join().unwrap();
        },
    );
}

/// The reader waits for a slot; its consumer holds them all and waits for a run: only the canceller can
/// wake them.
#[test]
fn cancelling_wakes_a_consumer_that_keeps_what_it_gets() {
    explore_readers(
        || Memory::of(2),
        |registry, source| {
            let reader = handle(source, 1).prefetch(2).open_in(registry).unwrap();
            let cancelling = {
                let canceller = reader.canceller();
                thread::spawn(move || canceller.cancel())
            };
            let mut held = Vec::new();
            let error = loop {
                match reader.full().pop() {
                    Ok(run) => held.push(run.expect("a reader without end ends by its error alone")),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, ReaderError::Cancelled { .. }));
            assert!(reader.full().pop().unwrap().is_none(), "an error comes once");
            assert!(held.len() <= 2);
            for (index, run) in held.iter().enumerate() {
                assert_eq!(run.get(0).unwrap().id.index, index as u64);
            }
            cancelling.join().unwrap();
        },
    );
}

/// A reader that deals two passes over three records to two consumers may be cancelled: a consumer gets
/// its share without a gap, up to some point, and an error if that is not its end.
fn assert_a_start(number: usize, (ids, error): &(Vec<RecordId>, Option<ReaderError>)) {
    let share = share(number, 2, 2, 3);
    match error {
        None => assert_eq!(*ids, share),
        Some(ReaderError::Cancelled { .. }) => assert!(share.starts_with(ids)),
        Some(error) => panic!("{error}"),
    }
}

#[test]
fn cancelling_twice_ends_every_consumer_once() {
    explore_readers(
        || Memory::of(3),
        |registry, source| {
            at_once(2, registry, source, |_, registry, source| {
                let reader = match handle(source, 2).passes(2).open_in(registry) {
                    Ok(reader) => reader,
                    // The other had registered and cancelled, and is still there.
                    Err(error) => return assert!(matches!(error, ReaderError::Cancelled { .. })),
                };
                let canceller = reader.canceller();
                let cancelling = thread::spawn(move || canceller.cancel());
                assert_a_start(reader.number(), &drain(&reader));
                cancelling.join().unwrap();
            });
        },
    );
}

#[test]
fn cancelling_wakes_who_waits_at_the_gate_and_turns_away_who_comes() {
    explore_readers(
        || Memory::of(3),
        |registry, source| {
            let reader = handle(source, 2).passes(2).open_in(registry).unwrap();
            let canceller = reader.canceller();
            let cancelling = thread::spawn(move || canceller.cancel());
            let coming = {
                let (registry, source) = (registry.clone(), source.clone());
                thread::spawn(move || match handle(&source, 2).passes(2).open_in(&registry) {
                    Ok(reader) => drain(&reader),
                    Err(error) => (Vec::new(), Some(error)),
                })
            };
            assert_a_start(0, &drain(&reader));
            assert_a_start(1, &coming.join().unwrap());
            cancelling.join().unwrap();
            let late = handle(source, 2).passes(2).open_in(registry);
            assert!(matches!(late.err(), Some(ReaderError::Cancelled { .. })));
        },
    );
}

#[test]
fn cancelling_a_lone_handle_at_the_gate() {
    explore_readers(
        || Memory::of(2),
        |registry, source| {
            let reader = handle(source, 2).open_in(registry).unwrap();
            let canceller = reader.canceller();
            let cancelling = thread::spawn(move || canceller.cancel());
            let (ids, error) = drain(&reader);
            assert!(ids.is_empty() && matches!(error, Some(ReaderError::Cancelled { .. })));
            cancelling.join().unwrap();
        },
    );
}

#[test]
fn cancelling_what_is_being_dropped() {
    explore_readers(
        || Memory::of(2),
        |registry, source| {
            let reader = handle(source, 1).open_in(registry).unwrap();
            let canceller = reader.canceller();
            let cancelling = thread::spawn(move || canceller.cancel());
            drop(reader);
            cancelling.join().unwrap();
        },
    );
}

/// One consumer leaves at once; the other gets everything before the fault, then the fault.
fn explore_a_fault(end: End, is_it: fn(&ReaderError) -> bool) {
    explore_readers(
        move || Memory::that(end, 5),
        move |registry, source| {
            let open = || handle(source, 2).batch_size(8).open_in(registry).unwrap();
            let (leaving, staying) = (open(), open());
            let leaving = thread::spawn(move || drop(leaving));
            let (ids, error) = drain(&staying);
            assert_eq!(ids, share(1, 2, 1, 5));
            assert!(is_it(&error.expect("a fault is told")));
            leaving.join().unwrap();
        },
    );
}

#[test]
fn a_fault_is_told_to_every_consumer_once() {
    explore_readers(
        || Memory::that(End::Fails, 3),
        |registry, source| {
            let open = || handle(source, 2).open_in(registry).unwrap();
            let (first, second) = (open(), open());
            let draining = thread::spawn(move || drain(&second));
            let (first, second) = (drain(&first), draining.join().unwrap());
            assert_eq!((&first.0, &second.0), (&share(0, 2, 1, 3), &share(1, 2, 1, 3)));
            assert!(first.1.is_some() && first.1 == second.1);
        },
    );
}

#[test]
fn a_source_that_fails_does_so_after_all_it_had() {
    explore_a_fault(End::Fails, |error| matches!(error, ReaderError::Source(SourceError::Broken { .. })));
}

#[test]
fn a_source_that_panics_does_so_after_all_it_had() {
    explore_a_fault(End::Panics, |error| matches!(error, ReaderError::Panicked { .. }));
}

#[test]
fn a_failure_to_open_strikes_one_and_the_next_opens_anew() {
    explore_readers(
        || Memory::of(2),
        |registry, source| {
            source.fails_to_open.store(true, Ordering::SeqCst);
            let outcomes = at_once(2, registry, source, |_, registry, source| {
                let reader = handle(source, 1).passes(1).open_in(registry);
                reader.map(|reader| assert_eq!(drain(&reader), (share(0, 1, 1, 2), None)))
            });
            assert!(outcomes.contains(&Err(ReaderError::Source(source.broken()))));
            assert!(outcomes.contains(&Ok(())));
        },
    );
}

/// The time to wait for partners is up at once. A consumer that is waiting then fails, and so does one
/// that comes meanwhile; if both come before, they get their shares.
#[test]
fn the_gate_times_out_for_all_or_none() {
    explore_readers(
        || Memory::of(3),
        |registry, source| {
            let outcomes = at_once(2, registry, source, |_, registry, source| {
                let reader = handle(source, 2).passes(1).gate_timeout(Duration::ZERO).open_in(registry)?;
                let (ids, error) = drain(&reader);
                match error {
                    None => assert_eq!(ids, share(reader.number(), 2, 1, 3)),
                    Some(error) => return Err(error),
                }
                // Held until both are done, so that the second does not open a reader of its own.
                Ok(reader)
            });
            let too_few = |error: &ReaderError| {
                matches!(error, ReaderError::TooFew { registered: 0..2, consumers: 2, .. })
            };
            let errors: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
            assert!(errors.iter().all(|error| too_few(error)), "{errors:?}");
            assert_ne!(errors.len(), 1, "a reader dealt to one of two");
        },
    );
}
