//! What every collective promises, on records in memory and in a folder, and how many records there are.

use std::sync::Arc;

use percolator_cluster::clock::ManualClock;
use percolator_cluster::metadata::{FolderMetadata, MemoryMetadata, Metadata};
use percolator_distribute::{Collective as _, CollectiveError, LocalCollective};

use super::*;
use crate::collectives::{
    rounds_bring_what_each_gave, run, uneven_rounds_are_errors_for_all, who_has_given_may_leave,
};

/// Runs a check with records in memory and in a folder, which each process opens for itself.
fn each(size: usize, check: impl Fn(MetadataCollective) + Clone + Send + 'static) {
    let folder = tempfile::tempdir().unwrap();
    let memory = memory();
    run(join_all(size, |_| group(&memory)), check.clone());
    run(join_all(size, |_| Group::of(Arc::new(FolderMetadata::open(&folder).unwrap()), "digits")), check);
}

#[test]
fn rounds_bring_what_each_gave_whatever_their_length() {
    for size in [1, 2, 4] {
        each(size, |end| rounds_bring_what_each_gave(&end));
    }
}

#[test]
fn who_has_given_to_a_round_may_leave_and_the_others_hear_why() {
    each(2, |end| who_has_given_may_leave(end, None));
    each(3, |end| who_has_given_may_leave(end, Some("the disk is full")));
}

#[test]
fn uneven_rounds_are_errors() {
    for (words, more) in [(0, 1), (64, 65), (3, 70_000)] {
        each(3, move |end| uneven_rounds_are_errors_for_all(&end, words, more));
    }
}

#[test]
fn megabytes_go_through_in_parts_and_more_than_is_allowed_does_not() {
    let metadata = memory();
    let found = run(join_all(2, |_| group(&metadata)), |end| {
        for words in [1 << 17, (1 << 17) + 1, 1 << 21] {
            let word = |rank: usize, place: usize| (rank << 40 | place) as u64;
            let mine: Vec<_> = (0..words).map(|place| word(end.rank(), place)).collect();
            let due = (0..2).flat_map(|rank| (0..words).map(move |place| word(rank, place)));
            assert!(end.all_gather(&mine).unwrap().into_iter().eq(due), "{words} words");
        }
        end.all_gather(&vec![0; (1 << 21) + 1]).unwrap_err()
    });
    assert!(
        found.iter().all(|error| matches!(error, CollectiveError::TooLong { allowed: 2_097_152, .. })),
        "{found:?}"
    );
}

#[test]
fn nothing_grows_and_nothing_stays() {
    let clock = ManualClock::new();
    let metadata: Arc<dyn Metadata> = Arc::new(MemoryMetadata::with_clock(clock.clone()));
    let seen = metadata.clone();
    let meet = Arc::new(std::sync::Barrier::new(3));
    run(join_all(3, |_| group(&metadata)), move |end| {
        for round in 0..40 {
            let words = [0, 5, 1000, 200_000][round % 4];
            end.all_gather(&vec![round as u64; words]).unwrap();
            // Two rounds of a mark and up to four parts each, three ranks, and the group.
            let most = 3 * (2 * 5 + 1) + 1;
            assert!(keys(&seen).len() <= most, "round {round}: {:?}", keys(&seen));
        }
        meet.wait();
    });
    let left = keys(&metadata);
    assert!(
        left.iter().all(|key| key.contains("/left/") || key.contains("/00000000000000000040/")),
        "{left:?}"
    );
    // Each process left a word, its mark and its parts of the last round.
    assert_eq!(left.len(), 3 * (2 + 4), "{left:?}");
    clock.advance(std::time::Duration::from_secs(61));
    assert_eq!(keys(&metadata), [""; 0], "what stays for the slow ones goes after a minute");
}

#[test]
fn a_reduction_is_the_same_bit_for_bit_as_between_threads() {
    fn reduce(end: &impl percolator_distribute::Collective) -> Vec<u64> {
        let mine: Vec<u64> =
            (0..500).map(|place| ((end.rank() + 1) as f64 / f64::from(place + 3)).to_bits()).collect();
        let gathered = end.all_gather(&mine).unwrap();
        let sum = |sums: Vec<f64>, words: &[u64]| -> Vec<f64> {
            sums.iter().zip(words).map(|(sum, &word)| sum + f64::from_bits(word)).collect()
        };
        gathered.chunks(500).fold(vec![0.0; 500], sum).into_iter().map(f64::to_bits).collect()
    }
    let metadata = memory();
    let through_records = run(join_all(4, |_| group(&metadata)), |end| reduce(&end));
    let through_threads = run(LocalCollective::group(4), |end| reduce(&end));
    assert!(through_records == through_threads);
    assert!(through_records.iter().all(|sum| *sum == through_records[0]));
}
