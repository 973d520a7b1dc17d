//! What every `Collective` promises. Each check takes the ends of a new group; an engine over processes runs
//! the `role_of` functions, one in each process.

use std::thread;

use percolator_distribute::{Collective, CollectiveError};

/// Runs a role at each end, on a thread of its own.
pub fn run<C: Collective + 'static, T: Send + 'static>(
    ends: Vec<C>,
    role: impl Fn(C) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let start = |end| {
        let role = role.clone();
        thread::spawn(move || role(end))
    };
    let threads: Vec<_> = ends.into_iter().map(start).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Word `place` of what `rank` brings to `round`.
fn word(round: u64, rank: usize, place: usize) -> u64 {
    (round + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ ((rank as u64) << 32) ^ place as u64
}

/// Rounds come in order, and bring what each gave: none, few, many words, and many again.
pub fn rounds_bring_what_each_gave(end: &impl Collective) {
    for (round, words) in (0..).zip([1, 0, 3, 27, 28, 29, 5000, 1, 0, 70_000, 64, 65, 2, 2, 2]) {
        let given = |rank| (0..words).map(move |place| word(round, rank, place));
        let mine: Vec<_> = given(end.rank()).collect();
        let due: Vec<_> = (0..end.size()).flat_map(given).collect();
        let found = end.all_gather(&mine).unwrap();
        assert!(found == due, "round {round}, rank {}: {} words", end.rank(), found.len());
    }
}

/// Rank 1 leaves after a round that all get, with a reason if there is one. The others get it, for ever.
pub fn who_has_given_may_leave<C: Collective>(end: C, reason: Option<&str>) {
    let (rank, size) = (end.rank(), end.size());
    let due: Vec<_> = (0..size as u64).collect();
    assert_eq!(end.all_gather(&[rank as u64]).unwrap(), due);
    if rank == 1 {
        let Some(reason) = reason else { return };
        end.resign(reason);
        end.resign("another reason");
        end.all_gather(&[7]).unwrap_err();
        return;
    }
    for _ in 0..2 {
        match end.all_gather(&[7]).unwrap_err() {
            CollectiveError::Left { rank: 1, size: of, reason: found } if of == size => {
                assert_eq!(found.as_deref(), reason);
            }
            other => panic!("rank {rank}: {other:?}"),
        }
    }
}

/// Rank 1 brings more words than the others, who all see it.
pub fn uneven_rounds_are_errors_for_all(end: &impl Collective, words: usize, more: usize) {
    let mine = vec![0; if end.rank() == 1 { more } else { words }];
    match end.all_gather(&mine).unwrap_err() {
        CollectiveError::Uneven { found, wanted, .. } => {
            assert_eq!(found.min(wanted)..found.max(wanted), words..more);
        }
        other => panic!("rank {}: {other:?}", end.rank()),
    }
    end.all_gather(&[0]).unwrap_err();
}
