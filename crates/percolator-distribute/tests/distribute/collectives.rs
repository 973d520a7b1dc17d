//! Every way to agree keeps the promises of `Collective`: threads of one process, and an engine that gathers
//! as many words from each, on which `GatherCollective` is made.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use percolator_distribute::{Collective, CollectiveError, Gather, GatherCollective, LocalCollective};
use proptest::prelude::*;

use crate::common::process::must_end;
use crate::contract::{
    rounds_bring_what_each_gave, run, uneven_rounds_are_errors_for_all, who_has_given_may_leave,
};

/// Longer than any test needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a rank does to words that it sends.
type Spoil = fn(usize, &mut [u64]);

/// An engine between threads. Like MPI, it trusts that all bring the same number of words.
#[derive(Debug)]
struct Threads {
    rank: usize,
    table: Arc<(Mutex<Exchange>, Condvar)>,
    spoil: Spoil,
}

#[derive(Debug)]
struct Exchange {
    given: Vec<Option<Vec<u64>>>,
    complete: u64,
    gathered: Vec<u64>,
}

impl Threads {
    fn group(size: usize, timeout: Duration) -> Vec<GatherCollective<Threads>> {
        Self::spoiled(size, timeout, |_, _| ())
    }

    fn spoiled(size: usize, timeout: Duration, spoil: Spoil) -> Vec<GatherCollective<Threads>> {
        let exchange = Exchange { given: vec![None; size], complete: 0, gathered: Vec::new() };
        let table = Arc::new((Mutex::new(exchange), Condvar::new()));
        let end = |rank| GatherCollective::new(Threads { rank, table: table.clone(), spoil }, timeout);
        (0..size).map(end).collect()
    }
}

impl Gather for Threads {
    type Error = Infallible;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.table.0.lock().given.len()
    }

    fn gather(&mut self, words: &[u64], timeout: Duration) -> Result<Option<Vec<u64>>, Infallible> {
        let (exchange, changed) = &*self.table;
        let mut words = words.to_vec();
        (self.spoil)(self.rank, &mut words);
        let mut now = exchange.lock();
        let round = now.complete;
        now.given[self.rank] = Some(words);
        if now.given.iter().all(Option::is_some) {
            now.gathered = now.given.iter_mut().filter_map(Option::take).flatten().collect();
            now.complete += 1;
            changed.notify_all();
        }
        let is_late = changed.wait_while_for(&mut now, |now| now.complete == round, timeout).timed_out();
        if is_late && now.complete == round {
            return Ok(None);
        }
        Ok(Some(now.gathered.clone()))
    }
}

/// Runs a role at each end of groups of these sizes, of both kinds.
fn each(sizes: &'static [usize], role: impl Fn(Arc<dyn Collective>) + Copy + Send + 'static) {
    must_end("a group of threads", move || {
        for &size in sizes {
            let local = LocalCollective::group(size).into_iter().map(|end| Arc::new(end) as _);
            run(local.collect(), role);
            let gathered = Threads::group(size, PATIENCE).into_iter().map(|end| Arc::new(end) as _);
            run(gathered.collect(), role);
        }
    });
}

#[test]
fn rounds_come_in_order_and_bring_what_each_gave() {
    each(&[1, 2, 3, 5], |end| rounds_bring_what_each_gave(&end));
}

#[test]
fn who_has_given_to_a_round_may_leave_and_others_hear_of_it() {
    each(&[2, 3], |end| who_has_given_may_leave(end, None));
    each(&[2, 4], |end| who_has_given_may_leave(end, Some("the disk is full")));
}

#[test]
fn different_contributions_are_an_error_for_all() {
    for (words, more) in [(1, 2), (0, 1), (28, 29), (29, 30), (3, 5000)] {
        must_end("an uneven round", move || {
            run(LocalCollective::group(3), move |end| uneven_rounds_are_errors_for_all(&end, words, more));
            run(Threads::group(3, PATIENCE), move |end| uneven_rounds_are_errors_for_all(&end, words, more));
        });
    }
}

#[test]
fn a_process_that_does_not_come_ends_the_wait() {
    let mut ends = Threads::group(2, Duration::from_millis(30));
    let late = ends.remove(0).all_gather(&[1]).unwrap_err();
    let due = "some of the 2 processes did not come to the round within 30.0ms: they hang, or need longer \
               than the timeout allows";
    assert_eq!(late.to_string(), due);
}

#[test]
fn a_long_reason_is_cut_and_a_round_that_is_too_long_is_refused_for_all() {
    let found = must_end("a long reason", || {
        run(Threads::group(2, PATIENCE), |end| {
            if end.rank() == 0 {
                end.resign(&"ö".repeat(500));
            }
            end.all_gather(&[1]).unwrap_err().to_string()
        })
    });
    assert!(found[1].ends_with(&format!("without it: {}", "ö".repeat(112))), "{found:?}");
    let found = must_end("a round that is too long", || {
        run(Threads::group(2, PATIENCE), |end| {
            let words = if end.rank() == 0 { (1 << 24) + 1 } else { 1 };
            end.all_gather(&vec![0; words]).unwrap_err()
        })
    });
    assert!(matches!(found[0], CollectiveError::TooLong { words: 16_777_217, allowed: 16_777_216 }));
    assert!(matches!(&found[1], CollectiveError::Left { rank: 0, reason: Some(_), .. }), "{found:?}");
}

#[test]
fn the_reason_comes_before_who_left_because_of_it() {
    let found = must_end("two that leave", || {
        run(Threads::group(3, PATIENCE), |end| match end.rank() {
            0 => None,
            1 => {
                end.resign("the disk is full");
                None
            }
            _ => Some(end.all_gather(&[1]).unwrap_err()),
        })
    });
    assert!(matches!(&found[2], Some(CollectiveError::Left { rank: 1, reason: Some(_), .. })), "{found:?}");
}

#[test]
fn what_is_no_header_is_refused() {
    let spoiled: [(Spoil, &str); 4] = [
        (|rank, words| words[0] ^= rank as u64, "something other than a header"),
        (|rank, words| words[1] += rank as u64, "of another round"),
        (|rank, words| words[2] += 2 * rank as u64, "a state"),
        (|rank, words| words[3] |= (rank as u64) << 40, "a count"),
    ];
    for (spoil, due) in spoiled {
        let found = must_end("a spoiled header", move || {
            run(Threads::spoiled(2, PATIENCE, spoil), |end| end.all_gather(&[1]).unwrap_err().to_string())
        });
        assert!(
            found.iter().all(|found| found.contains("process 1 sends") && found.contains(due)),
            "{found:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// `LocalCollective` is the naive twin: rounds of any lengths, even or not, and a process that leaves.
    #[test]
    fn both_kinds_agree(
        rounds in prop::collection::vec((0_usize..35, 0_usize..3, 0_usize..30), 1..8),
        leaves in prop::option::of((0_usize..3, 0_usize..8)),
    ) {
        type Found = Vec<Result<Vec<u64>, String>>;
        let role = move |end: Arc<dyn Collective>| -> Found {
            let mut found = Vec::new();
            for (round, &(words, who, more)) in rounds.iter().enumerate() {
                if leaves == Some((end.rank(), round)) {
                    end.resign("it must");
                }
                // One round in ten or so is uneven, but none that somebody leaves: either may be told of it.
                let is_left = leaves.is_some_and(|(_, at)| at <= round);
                let more = if who == end.rank() && more > 26 && !is_left { more } else { 0 };
                let mine = vec![(round * 10 + end.rank()) as u64; words + more];
                // Who is named to have brought more depends on who comes first.
                found.push(end.all_gather(&mine).map_err(|error| match error {
                    CollectiveError::Uneven { .. } => "uneven".to_owned(),
                    error => error.to_string(),
                }));
            }
            found
        };
        let (local, gathered) = must_end("rounds of both kinds", move || {
            let local = LocalCollective::group(3).into_iter().map(|end| Arc::new(end) as Arc<dyn Collective>);
            let gathered = Threads::group(3, PATIENCE).into_iter().map(|end| Arc::new(end) as _);
            (run(local.collect(), role.clone()), run(gathered.collect(), role))
        });
        prop_assert!(local == gathered, "{local:?}\n{gathered:?}");
    }
}
