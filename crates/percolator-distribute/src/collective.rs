//! How the processes of a job, or threads of one process, exchange numbers.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use percolator_files::shown;

/// One process's end of the connection between a job's processes. Each process has a rank. All processes go
/// through the same rounds in the same order, and no process leaves a round before all have entered it.
///
/// One operation is enough for everything agreed here, and it shows which process sent what. Adding the
/// numbers of all processes by rank gives the same sum, bit for bit, in each of them. An engine that gathers
/// as many words from each process (MPI, NCCL) becomes a collective by
/// [`GatherCollective`](crate::GatherCollective).
///
/// Implementations must end every wait. When a process has left, the rounds that it did not enter return
/// [`CollectiveError::Left`] to the others, with its reason if it gave one. A round to which processes bring
/// different numbers of words returns [`CollectiveError::Uneven`] to all. Dropping an end leaves, too. A
/// panic of an implementation is [`CollectiveError::Panicked`] here, and this process then leaves.
pub trait Collective: Send + Sync + fmt::Debug {
    /// The rank of this process, from 0.
    fn rank(&self) -> usize;

    /// The number of processes.
    fn size(&self) -> usize;

    /// Sends words, the same number from every process in this round, and returns those of all, concatenated
    /// by rank.
    ///
    /// # Errors
    ///
    /// [`CollectiveError`]. After one error, every further round returns one, too.
    fn all_gather(&self, words: &[u64]) -> Result<Vec<u64>, CollectiveError>;

    /// Leaves, and tells the others why: they cannot continue. Further rounds of this process are errors. If
    /// a process has left before, nothing happens.
    fn resign(&self, reason: &str);
}

impl<C: Collective + ?Sized> Collective for Arc<C> {
    fn rank(&self) -> usize {
        (**self).rank()
    }

    fn size(&self) -> usize {
        (**self).size()
    }

    fn all_gather(&self, words: &[u64]) -> Result<Vec<u64>, CollectiveError> {
        (**self).all_gather(words)
    }

    fn resign(&self, reason: &str) {
        (**self).resign(reason);
    }
}

/// Why the processes of a job can no longer agree.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum CollectiveError {
    /// A process has left.
    #[error(
        "process {rank} of {size} has left, and the others cannot continue without it{}",
        because(reason.as_deref())
    )]
    Left {
        /// Its rank.
        rank: usize,
        /// The number of processes.
        size: usize,
        /// Why, if it said so.
        reason: Option<Arc<str>>,
    },
    /// Two processes are at different places of their programs.
    #[error(
        "process {rank} brought {found} word(s) to a round, and another brought {wanted}: all must go \
         through the same rounds in the same order"
    )]
    Uneven {
        /// The process.
        rank: usize,
        /// The number of words it brought.
        found: usize,
        /// The number of words another process had brought before.
        wanted: usize,
    },
    /// Processes did not come in time.
    #[error(
        "{} did not come to the round within {waited:.1?}: they hang, or need longer than the timeout allows",
        late(missing, *size)
    )]
    Late {
        /// The ranks of those that did not come; empty if they are not known.
        missing: Vec<usize>,
        /// The number of processes.
        size: usize,
        /// How long they were waited for.
        waited: Duration,
    },
    /// A process brought more than can be sent.
    #[error("a round of {words} words was asked for, and at most {allowed} are allowed: send them in parts")]
    TooLong {
        /// The number of words it brought.
        words: usize,
        /// The most that are allowed.
        allowed: usize,
    },
    /// The collective of this process panicked.
    #[error("the collective panicked: {}", shown::message(message))]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// The connection failed.
    #[error("the processes of the job cannot reach each other: {}", shown::with_sources(&**.0))]
    Failed(Arc<dyn Error + Send + Sync>),
}

/// A reason, as the end of a message.
pub(super) fn because(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {}", shown::message(reason)))
}

fn late(missing: &[usize], size: usize) -> String {
    match missing {
        [] => format!("some of the {size} processes"),
        [rank] => format!("process {rank} of {size}"),
        ranks => {
            let ranks: Vec<_> = ranks.iter().map(usize::to_string).collect();
            format!("processes {} of {size}", ranks.join(", "))
        }
    }
}

/// A [`Collective`] within one process, whose "processes" are threads. Dropping an end leaves the collective.
///
/// ```
/// use percolator_distribute::{Collective, LocalCollective};
///
/// let ends = LocalCollective::group(2);
/// let gather = |end: LocalCollective| move || end.all_gather(&[10 + end.rank() as u64]);
/// let threads = ends.into_iter().map(|end| std::thread::spawn(gather(end)));
/// for thread in threads.collect::<Vec<_>>() {
///     assert_eq!(thread.join().unwrap().unwrap(), [10, 11]);
/// }
/// ```
#[derive(Debug)]
pub struct LocalCollective {
    rank: usize,
    table: Arc<Table>,
    /// Held for a whole round, so that calls on one end are consecutive rounds.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Table {
    rounds: Mutex<Rounds>,
    /// Signalled when a round is complete, or never will be.
    changed: Condvar,
}

/// # Invariants
///
/// 1. `gathered` is of the last complete round. It stays until all have read it: the next round is complete
///    only when all have given to it, and a process that gives to it has read.
/// 2. A process that has given to the current round waits for it. If it leaves all the same, on another
///    thread, the round is not complete for anyone.
#[derive(Debug)]
struct Rounds {
    /// What each process has given to the current round.
    given: Vec<Option<Vec<u64>>>,
    complete: u64,
    gathered: Vec<u64>,
    /// Why no further round will be complete: what happened first. Permanent once set.
    fault: Option<CollectiveError>,
}

impl LocalCollective {
    /// Returns the ends of `size` processes, by rank.
    #[must_use]
    pub fn group(size: usize) -> Vec<LocalCollective> {
        let rounds = Rounds { given: vec![None; size], complete: 0, gathered: Vec::new(), fault: None };
        let table = Arc::new(Table { rounds: Mutex::new(rounds), changed: Condvar::new() });
        (0..size).map(|rank| LocalCollective { rank, table: table.clone(), turn: Mutex::new(()) }).collect()
    }
}

impl Rounds {
    /// Takes a process's words. Returns whether that completes the round.
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
        if let Some(fault) = &rounds.fault {
            return Err(fault.clone());
        }
        let round = rounds.complete;
        if rounds.give(self.rank, words) || rounds.fault.is_some() {
            self.table.changed.notify_all();
        }
        // A later fault does not affect a complete round.
        while rounds.complete == round {
            if let Some(fault) = &rounds.fault {
                return Err(fault.clone());
            }
            self.table.changed.wait(&mut rounds);
        }
        Ok(rounds.gathered.clone())
    }

    fn resign(&self, reason: &str) {
        self.part(Some(reason.into()));
    }
}

impl LocalCollective {
    fn part(&self, reason: Option<Arc<str>>) {
        let mut rounds = self.table.rounds.lock();
        if rounds.fault.is_none() {
            rounds.fault = Some(CollectiveError::Left { rank: self.rank, size: rounds.given.len(), reason });
        }
        self.table.changed.notify_all();
    }
}

impl Drop for LocalCollective {
    fn drop(&mut self) {
        self.part(None);
    }
}
