//! A writer whose disk may fill.

use std::io::{self, Write};
use std::sync::Arc;

use crate::fault::{Effect, Place};
use crate::state::State;

/// A writer that a [`Chaos`](crate::Chaos::writer) has wrapped: it writes what the disk has room for, and
/// then fails with [`io::ErrorKind::StorageFull`].
#[derive(Debug)]
pub struct Writer<W> {
    inner: W,
    state: Arc<State>,
    written: u64,
}

impl<W> Writer<W> {
    pub(crate) fn new(inner: W, state: &Arc<State>) -> Self {
        Writer { inner, state: state.clone(), written: 0 }
    }

    /// Returns the writer that was wrapped.
    pub fn into_inner(self) -> W {
        self.inner
    }

    /// The bytes that there is room for.
    fn room(&self) -> u64 {
        let ends = self.state.faults.iter().filter(|fault| fault.place == Place::Byte);
        ends.filter_map(|fault| fault.number).min().map_or(u64::MAX, |end| end.saturating_sub(self.written))
    }
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = usize::try_from(self.room()).unwrap_or(usize::MAX);
        if room == 0 && !bytes.is_empty() {
            let strikes = self.state.strike(Place::Byte, self.written);
            if let Some(Effect::Fail(message)) = strikes.first() {
                return Err(io::Error::new(io::ErrorKind::StorageFull, message.as_str()));
            }
        }
        let bytes = if room == 0 { bytes } else { &bytes[..bytes.len().min(room)] };
        let written = self.inner.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
