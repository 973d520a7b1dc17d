//! How the processes of a job tell each other numbers, and how threads of one process do.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// One process's end of what joins the processes of a job. Each has a rank; they go round by round, all of them through the same
/// rounds in the same order, and nobody is through a round before all have come to it.
///
/// One operation is enough for whatever is agreed here, and it says who said what. Over MPI it is `MPI_Allgather`, over
/// NCCL or Gloo an all-gather of 64-bit words. What goes through it is small: some words a replica a step.
///
/// An implementation must let every wait end: where a process has gone, the rounds that it did not come to are
/// [`CollectiveError::Left`] to the others; and a round to which they bring different numbers of words is
/// [`CollectiveError::Uneven`] to all.
pub trait Collective: Send + Sync + fmt::Debug {
    /// Which of the processes this is, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Gives some words, as many as every other process in this round, and gets those of all, by rank, one behind the other.
    ///
    /// # Errors
    ///
    /// [`CollectiveError`]. After one, each further round is one, too.
    fn all_gather(&self, words: &[u64]) -> Result<Vec<u64>, CollectiveError>;
}

/// The processes of a job cannot agree any more.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum CollectiveError {
    /// One has gone.
    #[error("process {rank} of {size} has left, and the others cannot go on without it")]
    Left {
        /// Which.
        rank: usize,
        /// How many there were.
        size: usize,
    },
    /// Two are not at the same place of their programs.
    #[error(
        "process {rank} brought {found} word(s) to a round, and another {wanted}: all must go through the same rounds in the \
         same order"
    )]
    Uneven {
        /// The process.
        rank: usize,
        /// Words that it brought.
        found: usize,
        /// Words that another had brought before.
        wanted: usize,
    },
    /// What joins them failed.
    #[error("the processes of the job cannot reach each other: {0}")]
    Failed(Arc<dyn Error + Send + Sync>),
}

/// A [`Collective`] within one process, each of whose "processes" is a thread of it. Dropping an end is leaving.
///
/// ```
/// use percolator::distribute::{Collective, LocalCollective};
///
/// let ends = LocalCollective::group(2);
/// let threads = ends.into_iter().map(|end| std::thread::spawn(move || end.all_gather(&[10 + end.rank() as u64])));
/// for thread in threads.collect::<Vec<_>>() {
///     assert_eq!(thread.join().unwrap().unwrap(), [10, 11]);
/// }
/// ```
#[derive(Debug)]
pub struct LocalCollective {
    rank: usize,
    table: Arc<Table>,
    /// Held through a round: calls of one end are rounds one after the other.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Table {
    rounds: Mutex<Rounds>,
    /// A round is complete, or never will be.
    changed: Condvar,
}

/// # Invariants
///
/// 1. `gathered` is of the round that was completed last. It stays until all have read it: the next round is complete only
///    when all have given to it, and who gives to it has read.
/// 2. Who has given to the round under way waits for it, and so has not left: who has left is missing.
#[derive(Debug)]
struct Rounds {
    /// By each, to the round that is under way.
    given: Vec<Option<Vec<u64>>>,
    complete: u64,
    gathered: Vec<u64>,
    has_left: Vec<bool>,
    /// It stays.
    fault: Option<CollectiveError>,
}

impl LocalCollective {
    /// The ends of so many processes, by rank.
    #[must_use]
    pub fn group(size: usize) -> Vec<LocalCollective> {
        let rounds = Rounds {
            given: vec![None; size],
            complete: 0,
            gathered: Vec::new(),
            has_left: vec![false; size],
            fault: None,
        };
        let table = Arc::new(Table { rounds: Mutex::new(rounds), changed: Condvar::new() });
        (0..size).map(|rank| LocalCollective { rank, table: table.clone(), turn: Mutex::new(()) }).collect()
    }
}

impl Rounds {
    /// Takes a process's words; whether the round is complete by that.
    fn give(&mut self, rank: usize, words: &[u64]) -> bool {
        let other = self.given.iter().flatten().map(Vec::len).find(|&wanted| wanted != words.len());
        if let Some(wanted) = other {
            self.fault = Some(CollectiveError::Uneven { rank, found: words.len(), wanted });
            return false;
        }
        self.given[rank] = Some(words.to_vec());
        let is_complete = self.given.iter().all(Option::is_some);
        if is_complete {
            self.gathered = self.given.iter_mut().filter_map(Option::take).flatten().collect();
            self.complete += 1;
        }
        is_complete
    }

    /// Why the round that is under way will not be complete.
    fn fault(&mut self) -> Option<CollectiveError> {
        if self.fault.is_none() {
            let left = self.has_left.iter().position(|&has_left| has_left);
            self.fault = left.map(|rank| CollectiveError::Left { rank, size: self.given.len() });
        }
        self.fault.clone()
    }
}

impl Collective for LocalCollective {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.table.rounds.lock().given.len()
    }

    fn all_gather(&self, words: &[u64]) -> Result<Vec<u64>, CollectiveError> {
        let _turn = self.turn.lock();
        let mut rounds = self.table.rounds.lock();
        if let Some(fault) = rounds.fault() {
            return Err(fault);
        }
        let round = rounds.complete;
        if rounds.give(self.rank, words) || rounds.fault.is_some() {
            self.table.changed.notify_all();
        }
        // Of a round that was completed, a later fault takes nothing.
        while rounds.complete == round {
            if let Some(fault) = rounds.fault() {
                return Err(fault);
            }
            self.table.changed.wait(&mut rounds);
        }
        Ok(rounds.gathered.clone())
    }
}

impl Drop for LocalCollective {
    fn drop(&mut self) {
        self.table.rounds.lock().has_left[self.rank] = true;
        self.table.changed.notify_all();
    }
}
