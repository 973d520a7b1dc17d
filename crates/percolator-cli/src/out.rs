//! The standard output, which may go away.

use std::io::{self, ErrorKind, Write};

/// A writer whose failures stop the writing and nothing else: whoever closed a pipe has read enough, and a
/// disk that is full is an error once the rest is done.
#[derive(Debug)]
pub(super) struct Out<W> {
    out: W,
    is_closed: bool,
    failed: Option<io::Error>,
}

impl<W: Write> Out<W> {
    pub(super) fn new(out: W) -> Self {
        Out { out, is_closed: false, failed: None }
    }

    /// What kept the words from being written, if it was not their reader.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.flush()?;
        match self.failed {
            Some(error) => Err(anyhow::Error::new(error).context("cannot write to the standard output")),
            None => Ok(()),
        }
    }

    fn note(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.is_closed = true;
            if error.kind() != ErrorKind::BrokenPipe {
                self.failed.get_or_insert(error);
            }
        }
    }
}

impl<W: Write> Write for Out<W> {
    /// Takes all bytes, whatever becomes of them.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_closed {
            let written = self.out.write_all(bytes);
            self.note(written);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.is_closed {
            let flushed = self.out.flush();
            self.note(flushed);
        }
        Ok(())
    }
}
