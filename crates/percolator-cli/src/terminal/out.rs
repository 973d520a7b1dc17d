//! The standard output, which may be closed.

use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};

use percolator_files::shown;
use serde::Serialize;

/// An object as programs read it: on one line, with what tells them what its keys mean. A schema's version
/// is another if a key has gone or means something else (docs/guide/command-line.md).
#[derive(Debug, Serialize)]
struct JsonLine<'a, T> {
    schema: &'a str,
    #[serde(flatten)]
    value: &'a T,
}

/// An object as a [line of JSON](JsonLine), without the line break.
pub(crate) fn json_line(schema: &str, value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(&JsonLine { schema, value })
}

/// A writer whose failures stop the output and nothing else. A closed pipe is not an error; a full disk is an
/// error, reported once the rest is done.
#[derive(Debug)]
pub(crate) struct Out<W> {
    out: W,
    is_closed: bool,
    failed: Option<io::Error>,
}

/// The standard output, buffered.
pub(crate) fn stdout() -> Out<BufWriter<StdoutLock<'static>>> {
    Out::new(BufWriter::new(io::stdout().lock()))
}

/// A name or a text from elsewhere, for a terminal.
pub(crate) fn printable(text: &str) -> String {
    shown::message(text).to_string()
}

/// Says something on the standard error, even if nobody reads it.
pub(crate) fn tell(said: &str) {
    let line = format!("percolator: {}\n", shown::message(said));
    // At once: other processes may write to the same place.
    let _ = io::stderr().write_all(line.as_bytes());
}

impl<W: Write> Out<W> {
    pub(crate) fn new(out: W) -> Self {
        Out { out, is_closed: false, failed: None }
    }

    /// Returns the error that stopped the writing, unless it is a closed pipe.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        self.flush()?;
        match self.failed {
            Some(error) => Err(anyhow::Error::new(error).context("cannot write to the standard output")),
            None => Ok(()),
        }
    }

    /// Ends the output with a text.
    pub(crate) fn text(mut self, text: &[u8]) -> anyhow::Result<()> {
        self.write_all(text)?;
        self.finish()
    }

    /// Ends the output with an object as a [line of JSON](JsonLine).
    pub(crate) fn json(mut self, schema: &str, value: &impl Serialize) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self, &JsonLine { schema, value })?;
        writeln!(self)?;
        self.finish()
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
    /// Accepts all bytes, even if they cannot be written.
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
