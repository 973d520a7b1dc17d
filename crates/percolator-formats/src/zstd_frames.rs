//! Zstd frames in memory: a record, or a chunk of them.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::path::Path;

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use crate::FormatError;

/// How many more bytes there is room for.
const STEP: usize = 1 << 16;

/// Unpacks frames. Decoder and buffer are reused.
pub(crate) struct ZstdFrames {
    decoder: Decoder<'static>,
    buffer: Vec<u8>,
    /// The bytes of the buffer that the last frames unpacked to.
    length: usize,
}

impl fmt::Debug for ZstdFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZstdFrames").field("room", &self.buffer.len()).finish_non_exhaustive()
    }
}

impl ZstdFrames {
    /// For a file, which is named if there is no memory.
    pub(crate) fn new(path: &Path) -> Result<Self, FormatError> {
        let decoder = Decoder::new().map_err(|error| FormatError::io(path, "prepare to unpack it", error))?;
        Ok(ZstdFrames { decoder, buffer: Vec::new(), length: 0 })
    }

    /// Unpacks one frame after the other, up to `most` bytes. The buffer grows by what is there, whatever a
    /// frame states.
    pub(crate) fn unpack(&mut self, packed: &[u8], most: usize) -> Result<&[u8], String> {
        self.length = 0;
        self.decoder.reinit().map_err(|error| error.to_string())?;
        let mut input = InBuffer::around(packed);
        let (mut length, mut rest_of_frame) = (0_usize, 1);
        // A frame may have bytes to give when all of it is taken.
        while rest_of_frame != 0 || input.pos() < packed.len() {
            let taken = input.pos();
            let room = length.saturating_add(STEP);
            if self.buffer.len() < room {
                self.buffer.resize(room, 0);
            }
            let mut output = OutBuffer::around_pos(self.buffer.as_mut_slice(), length);
            rest_of_frame = self.decoder.run(&mut input, &mut output).map_err(|error| error.to_string())?;
            let written = output.pos();
            if rest_of_frame != 0 && input.pos() == taken && written == length {
                return Err("it ends inside a frame".to_owned());
            }
            length = written;
            if length > most {
                return Err(format!("it unpacks to more than {most} bytes"));
            }
        }
        self.length = length;
        Ok(self.last())
    }

    /// What was unpacked last.
    pub(crate) fn last(&self) -> &[u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_follow_each_other_and_end() {
        let text = b"signal ".repeat(40_000);
        let packed = zstd::encode_all(&text[..], 3).unwrap();
        let empty = zstd::encode_all(&[][..], 3).unwrap();
        let mut frames = ZstdFrames::new(Path::new("x")).unwrap();

        assert_eq!(frames.unpack(&packed, text.len()), Ok(text.as_slice()));
        assert_eq!(frames.unpack(&empty, 0), Ok(&[][..]));
        let both = [packed.as_slice(), &empty, &packed].concat();
        assert_eq!(frames.unpack(&both, 1 << 20).map(<[u8]>::len), Ok(2 * text.len()));
        assert!(frames.unpack(&packed, text.len() - 1).unwrap_err().contains("more than"));
        assert!(
            frames.unpack(packed.get(..packed.len() - 1).unwrap(), 1 << 20).unwrap_err().contains("inside")
        );
        assert!(frames.unpack(&[], 0).unwrap_err().contains("inside"));
        assert!(frames.unpack(&[packed.as_slice(), b"more"].concat(), 1 << 20).is_err());
        assert_eq!(frames.unpack(&packed, text.len()), Ok(text.as_slice()), "an error leaves nothing behind");
    }
}
