//! One block that is being built.

use super::BuildError;
use crate::coding::put_varint;

/// The entries of a block so far, each key as its difference from the one before it.
#[derive(Debug)]
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    /// Where entries with a whole key start.
    restarts: Vec<u32>,
    /// The number of entries from one whole key to the next, at most.
    interval: usize,
    /// The entries since the last restart point, that one included.
    since_restart: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    pub(super) fn new(interval: usize) -> Self {
        let (bytes, last_key) = (Vec::new(), Vec::new());
        BlockBuilder { bytes, restarts: vec![0], interval: interval.max(1), since_restart: 0, last_key }
    }

    /// Appends an entry.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), BuildError> {
        check_length("key", key, key)?;
        check_length("value", value, key)?;
        let shared = if self.since_restart < self.interval {
            self.last_key.iter().zip(key).take_while(|(one, other)| one == other).count()
        } else {
            let start = u32::try_from(self.bytes.len());
            self.restarts.push(start.map_err(|_| BuildError::BlockLength { found: self.bytes.len() })?);
            self.since_restart = 0;
            0
        };
        let rest = key.get(shared..).unwrap_or_default();
        for length in [shared, rest.len(), value.len()] {
            put_varint(&mut self.bytes, length as u64);
        }
        self.bytes.extend_from_slice(rest);
        self.bytes.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(rest);
        self.since_restart = self.since_restart.saturating_add(1);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The length of the finished block.
    pub(super) fn len(&self) -> usize {
        // The restart points, and their number.
        let numbers = self.restarts.len().saturating_add(1);
        self.bytes.len().saturating_add(numbers.saturating_mul(size_of::<u32>()))
    }

    /// Appends the restart points and returns the whole block.
    pub(super) fn finish(&mut self) -> &mut Vec<u8> {
        // There are no more restart points than entries, whose offsets fit.
        let count = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        for number in self.restarts.iter().copied().chain([count]) {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        &mut self.bytes
    }

    /// Begins another block.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.restarts.truncate(1);
        self.since_restart = 0;
        self.last_key.clear();
    }
}

/// The format has 32 bits for a length.
fn check_length(what: &'static str, bytes: &[u8], key: &[u8]) -> Result<(), BuildError> {
    match u32::try_from(bytes.len()) {
        Ok(_) => Ok(()),
        Err(_) => Err(BuildError::EntryLength { what, key: shown(key), found: bytes.len() }),
    }
}

/// The front of a key, for a message.
pub(super) fn shown(key: &[u8]) -> String {
    const SHOWN_MAX: usize = 200;

    match key.get(..SHOWN_MAX) {
        Some(front) if key.len() > SHOWN_MAX => {
            format!("\"{}\"... (of {} bytes)", front.escape_ascii(), key.len())
        }
        _ => format!("\"{}\"", key.escape_ascii()),
    }
}
