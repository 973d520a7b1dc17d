//! A collective over an engine that gathers the same number of words from each process.
//!
//! Such an engine knows neither how many words the others bring nor that one of them has left. So each round
//! begins with a header of fixed size, which says so:
//!
//! ```text
//! word 0    what these words are, and their version
//! word 1    the number of the round
//! word 2    the process takes part, or leaves
//! word 3    how many words it brings, or how many bytes its reason has
//! 4 to 31   these words, if they are so few; or the reason
//! ```
//!
//! If there are more words, the engine gathers them next. All processes see the same headers, so they come to
//! the same conclusion.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use percolator_files::shown;

use crate::collective::{Collective, CollectiveError};

/// An engine that exchanges words between the processes of a job.
pub trait Gather: Send + fmt::Debug {
    /// What it fails with.
    type Error: Error + Send + Sync + 'static;

    /// The rank of this process, from 0.
    fn rank(&self) -> usize;

    /// The number of processes.
    fn size(&self) -> usize;

    /// Sends words, the same number from every process, and returns those of all, concatenated by rank. Waits
    /// for the others no longer than `timeout`, and returns `None` if not all have come by then. After that,
    /// or after an error, it is not called again.
    ///
    /// # Errors
    ///
    /// What keeps the engine from exchanging words.
    fn gather(&mut self, words: &[u64], timeout: Duration) -> Result<Option<Vec<u64>>, Self::Error>;
}

/// What all headers of this version begin with.
const MAGIC: u64 = u64::from_be_bytes(*b"percol\0\x01");
const HEADER_WORDS: usize = 32;
const FIXED_WORDS: usize = 4;
/// How many words a round may have to be one exchange.
const INLINE_WORDS: usize = HEADER_WORDS - FIXED_WORDS;
/// The most bytes of a reason. Longer ones are cut.
const REASON_BYTES: usize = INLINE_WORDS * size_of::<u64>();
/// The most words that a process brings to a round: 128 MiB.
const WORDS_MAX: usize = 1 << 24;

/// Word 2 of a header.
const TAKES_PART: u64 = 0;
const LEAVES: u64 = 1;

/// A [`Collective`] over an engine.
///
/// A round of up to 28 words is one exchange of 256 bytes; a longer one, of up to 2^24 words, is two. When
/// an end leaves or is dropped, it waits until all others are in their next round, or leave as well, but no
/// longer than a round may take: the others may be in a long step.
#[derive(Debug)]
pub struct GatherCollective<G: Gather> {
    rank: usize,
    size: usize,
    timeout: Duration,
    /// Held for a whole round, so that calls on one end are consecutive rounds.
    state: Mutex<State<G>>,
}

#[derive(Debug)]
struct State<G> {
    engine: G,
    round: u64,
    /// Permanent once set. The engine is not used after that.
    fault: Option<CollectiveError>,
}

/// What a process says at the beginning of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Header {
    /// It brings this many words; few of them are here.
    Words { count: usize, inline: Vec<u64> },
    /// It leaves.
    Leaves { reason: Option<Arc<str>> },
}

impl<G: Gather> GatherCollective<G> {
    /// Makes a collective of an engine. A round may take as long as `timeout`: longer than the longest step.
    pub fn new(engine: G, timeout: Duration) -> Self {
        let (rank, size) = (engine.rank(), engine.size());
        let state = Mutex::new(State { engine, round: 0, fault: None });
        GatherCollective { rank, size, timeout, state }
    }

    fn part(&self, reason: Option<&str>) {
        let mut state = self.state.lock();
        if state.fault.is_none() {
            let reason: Option<Arc<str>> = reason.map(Into::into);
            state.tell(Header::Leaves { reason: reason.clone() }, self.timeout);
            state.fault = Some(CollectiveError::Left { rank: self.rank, size: self.size, reason });
        }
    }
}

impl<G: Gather> State<G> {
    fn round(&mut self, words: &[u64], timeout: Duration) -> Result<Vec<u64>, CollectiveError> {
        let header = Header::of(words).words(self.round);
        let gathered = self.gather(&header, timeout)?;
        let read = |(rank, words): (usize, &[u64])| {
            // It sends what no version of this program does.
            Header::read(words, self.round).map_err(|what| {
                let message = format!(
                    "process {rank} sends {what}: all processes must run the same version of the same program"
                );
                CollectiveError::Failed(Arc::new(io::Error::other(message)))
            })
        };
        let headers = gathered.chunks(HEADER_WORDS).enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        self.round += 1;
        let inline = agreed(headers)?;
        if words.len() <= INLINE_WORDS {
            return Ok(inline);
        }
        self.gather(words, timeout)
    }

    /// Tells the others that this process leaves, if they hear it in time.
    fn tell(&mut self, leaves: Header, timeout: Duration) {
        if let Err(error) = self.gather(&leaves.words(self.round), timeout) {
            tracing::debug!(
                error = %shown::with_sources(&error),
                "not all processes heard that this one leaves"
            );
        }
    }

    fn gather(&mut self, words: &[u64], timeout: Duration) -> Result<Vec<u64>, CollectiveError> {
        let size = self.engine.size();
        let gathered = self.engine.gather(words, timeout);
        let gathered = gathered.map_err(|error| CollectiveError::Failed(Arc::new(error)))?;
        // The engine does not say who has not come.
        let late = CollectiveError::Late { missing: Vec::new(), size, waited: timeout };
        let gathered = gathered.ok_or(late)?;
        let due = words.len() * size;
        assert_eq!(gathered.len(), due, "an engine returns as many words from each process");
        Ok(gathered)
    }
}

/// What all processes conclude from their headers: the words that are in them, or why there will be none.
fn agreed(headers: Vec<Header>) -> Result<Vec<u64>, CollectiveError> {
    let size = headers.len();
    let left = headers.iter().enumerate().filter_map(|(rank, header)| match header {
        Header::Leaves { reason } => Some((rank, reason.clone())),
        Header::Words { .. } => None,
    });
    // One that says why comes first: the others may have left because of it.
    if let Some((rank, reason)) = left.min_by_key(|(rank, reason)| (reason.is_none(), *rank)) {
        return Err(CollectiveError::Left { rank, size, reason });
    }
    let (mut all, mut wanted) = (Vec::new(), None);
    for (rank, header) in headers.into_iter().enumerate() {
        let Header::Words { count, inline } = header else { continue };
        let wanted = *wanted.get_or_insert(count);
        if count != wanted {
            return Err(CollectiveError::Uneven { rank, found: count, wanted });
        }
        all.extend(inline);
    }
    Ok(all)
}

impl Header {
    fn of(words: &[u64]) -> Self {
        let inline = if words.len() <= INLINE_WORDS { words } else { &[] };
        Header::Words { count: words.len(), inline: inline.to_vec() }
    }

    fn words(&self, round: u64) -> Vec<u64> {
        let (state, count, rest) = match self {
            Header::Words { count, inline } => (TAKES_PART, *count, inline.clone()),
            Header::Leaves { reason } => {
                let reason = cut(reason.as_deref().unwrap_or_default());
                let words = reason.as_bytes().chunks(size_of::<u64>()).map(|bytes| {
                    let mut word = [0; size_of::<u64>()];
                    word[..bytes.len()].copy_from_slice(bytes);
                    u64::from_le_bytes(word)
                });
                (LEAVES, reason.len(), words.collect())
            }
        };
        let mut words = vec![MAGIC, round, state, count as u64];
        words.extend(rest);
        words.resize(HEADER_WORDS, 0);
        words
    }

    /// Reads a header. The error says what it is instead.
    fn read(words: &[u64], round: u64) -> Result<Self, &'static str> {
        let (&[magic, at, state, count], rest) =
            words.split_first_chunk::<FIXED_WORDS>().ok_or("too few words")?;
        if magic != MAGIC {
            return Err("something other than a header of this version");
        }
        if at != round {
            return Err("the header of another round");
        }
        let count = usize::try_from(count).map_err(|_| "a count that is too large")?;
        match state {
            TAKES_PART if count <= WORDS_MAX => {
                let inline = rest.get(..count).unwrap_or_default().to_vec();
                Ok(Header::Words { count, inline })
            }
            LEAVES if count <= REASON_BYTES => {
                let bytes: Vec<u8> = rest.iter().flat_map(|word| word.to_le_bytes()).take(count).collect();
                let reason = String::from_utf8_lossy(&bytes);
                Ok(Header::Leaves { reason: (count > 0).then(|| reason.into()) })
            }
            TAKES_PART | LEAVES => Err("a count that is too large"),
            _ => Err("a state that is not known"),
        }
    }
}

/// As much of a reason as a header holds.
fn cut(reason: &str) -> &str {
    let end = (0..=REASON_BYTES.min(reason.len())).rev().find(|&end| reason.is_char_boundary(end));
    &reason[..end.unwrap_or(0)]
}

impl<G: Gather> Collective for GatherCollective<G> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_gather(&self, words: &[u64]) -> Result<Vec<u64>, CollectiveError> {
        let mut state = self.state.lock();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        let gathered = if words.len() > WORDS_MAX {
            let error = CollectiveError::TooLong { words: words.len(), allowed: WORDS_MAX };
            state.tell(Header::Leaves { reason: Some(error.to_string().into()) }, self.timeout);
            Err(error)
        } else {
            state.round(words, self.timeout)
        };
        if let Err(fault) = &gathered {
            state.fault = Some(fault.clone());
        }
        gathered
    }

    fn resign(&self, reason: &str) {
        self.part(Some(reason));
    }
}

impl<G: Gather> Drop for GatherCollective<G> {
    fn drop(&mut self) {
        self.part(None);
    }
}
