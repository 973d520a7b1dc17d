//! Where a feed is, as a part of a checkpoint.

use std::io::{self, Read, Write};

use percolator::Snapshot;
use percolator_files::shown;

use super::{Checkpoint, invalid};

/// The longest text that is read as a snapshot: far longer than any.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// The snapshot's text.
impl Checkpoint for Snapshot {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(self.to_string().as_bytes())
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let text = text(from)?;
        *self = text.parse().map_err(|error| invalid(shown::with_sources(&error)))?;
        Ok(())
    }
}

/// The snapshot's text, or nothing: before its first step, a training run has no snapshot yet.
impl Checkpoint for Option<Snapshot> {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        self.as_ref().map_or(Ok(()), |snapshot| snapshot.write(to))
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let text = text(from)?;
        *self = match text.is_empty() {
            true => None,
            false => Some(text.parse().map_err(|error| invalid(shown::with_sources(&error)))?),
        };
        Ok(())
    }
}

fn text(from: &mut dyn Read) -> io::Result<String> {
    let mut text = String::new();
    let read = from.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if read as u64 > TEXT_BYTES_MAX {
        return Err(invalid(format!("a snapshot has at most {TEXT_BYTES_MAX} bytes, and this one has more")));
    }
    Ok(text)
}
