//! The memory that a state is copied into.

use std::io::{self, Write};

/// Memory that is kept from checkpoint to checkpoint. It is written once before it is used: then no copy
/// waits for the system to find pages.
#[derive(Debug, Default)]
pub(super) struct CopyBuffer {
    /// All of it has been written.
    memory: Vec<u8>,
    /// How much of it is the copy.
    length: usize,
    /// How often a copy did not fit, and had to wait for memory.
    pub(super) growths: u64,
}

impl CopyBuffer {
    /// There is room for a state that has grown by a sixteenth, and at least for a half of that.
    const SLACK: usize = 16;

    /// Makes room for a state that is expected to have so many bytes.
    pub(super) fn prepare(&mut self, bytes: usize) -> io::Result<()> {
        let wanted = bytes.saturating_add(bytes / Self::SLACK);
        if self.memory.len() < bytes.saturating_add(bytes / Self::SLACK / 2) {
            // What was copied is not needed, so nothing is moved.
            self.memory = Vec::new();
            self.grow(wanted)?;
        }
        self.length = 0;
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> io::Result<()> {
        let more = bytes.saturating_sub(self.memory.len());
        self.memory.try_reserve_exact(more).map_err(|_| {
            let message = format!("there is no memory for a copy of {bytes} bytes: use Mode::Hold");
            io::Error::new(io::ErrorKind::OutOfMemory, message)
        })?;
        self.memory.resize(bytes, 0);
        Ok(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

impl Write for CopyBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.length.saturating_add(bytes.len());
        if end > self.memory.len() {
            self.growths += 1;
            self.grow(end.max(self.memory.len().saturating_add(self.memory.len() / 2)))?;
        }
        self.memory[self.length..end].copy_from_slice(bytes);
        self.length = end;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts what is written.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) bytes: usize,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_is_expected_does_not_grow() {
        let mut buffer = CopyBuffer::default();
        buffer.prepare(1600).unwrap();
        let place = buffer.memory.as_ptr();
        for bytes in [1600, 1700, 10] {
            buffer.prepare(1600).unwrap();
            let due: Vec<u8> = (0..=u8::MAX).cycle().take(bytes).collect();
            due.chunks(7).for_each(|bytes| buffer.write_all(bytes).unwrap());
            assert_eq!((buffer.bytes().len(), buffer.growths), (bytes, 0));
            assert!(buffer.bytes() == due);
        }
        assert_eq!(buffer.memory.as_ptr(), place);
        buffer.prepare(0).unwrap();
        buffer.write_all(&[7; 5000]).unwrap();
        assert_eq!((buffer.bytes(), buffer.growths), (&[7; 5000][..], 1));
        let error = buffer.grow(usize::MAX / 2).unwrap_err();
        assert!(error.to_string().contains("use Mode::Hold"), "{error}");
    }
}
