//! JPEG pixels by libjpeg-turbo: Caffe's own, bit for bit.

use turbojpeg::{Decompressor, Error, Image, PixelFormat};

use super::codes::Codes;
use super::{FORMAT, SCANS_MAX, Whole};
use crate::decode::planes::Interleaved;
use crate::decode::{Contents, Decode, DecodeError, elements, room};

/// The one warning that may say nothing of the pixels: that they were complete before the stray bytes came. But only
/// the first warning is told, and a worse one may follow.
const HARMLESS: &str = "extraneous bytes before marker 0xd9";

/// Reads JPEG after JPEG.
#[derive(Debug, Default)]
pub(in crate::decode) struct Jpeg {
    /// `None` until the first.
    decompressor: Option<Decompressor>,
    codes: Codes,
}

impl Jpeg {
    /// Reads the planes of a file. Both buffers only grow.
    pub(in crate::decode) fn read(
        &mut self,
        file: &[u8],
        wanted: &Decode,
        interleaved: &mut Vec<u8>,
        planes: &mut Vec<u8>,
    ) -> Result<Contents, DecodeError> {
        let Whole { contents, .. } = Whole::check(file, wanted, |_| None, drop)?;
        let shape = contents.shape;
        let planes = room(planes, elements(shape));
        let whole = if shape.channels == 1 {
            self.decompress(file, &contents, PixelFormat::GRAY, planes)?
        } else {
            let interleaved = room(interleaved, elements(shape));
            let whole = self.decompress(file, &contents, PixelFormat::BGR, interleaved)?;
            Interleaved { step: 3, places: &[0, 1, 2] }.separate(interleaved, planes);
            whole
        };
        if !whole {
            Whole::check(file, wanted, |_| Some(&mut self.codes), drop)?;
        }
        Ok(contents)
    }

    /// Writes the pixels. Returns whether they are certainly the file's; if not, its codes have to be read to know.
    fn decompress(
        &mut self,
        file: &[u8],
        contents: &Contents,
        format: PixelFormat,
        pixels: &mut [u8],
    ) -> Result<bool, DecodeError> {
        let (height, width) = (contents.shape.height, contents.shape.width);
        let image = Image { pixels, width, pitch: width * format.size(), height, format };
        match self.decompressor().and_then(|decompressor| decompressor.decompress(file, image)) {
            // A warning is an error here, but the pixels have been written.
            Err(Error::TurboJpegError(message)) if message.ends_with(HARMLESS) => Ok(false),
            Err(error) => Err(DecodeError::Library { format: FORMAT, message: error.to_string() }),
            Ok(()) => Ok(true),
        }
    }

    fn decompressor(&mut self) -> Result<&mut Decompressor, Error> {
        match &mut self.decompressor {
            Some(decompressor) => Ok(decompressor),
            none => {
                let mut decompressor = Decompressor::new()?;
                decompressor.set_scan_limit(u32::try_from(SCANS_MAX).expect("a small number"))?;
                Ok(none.insert(decompressor))
            }
        }
    }
}
