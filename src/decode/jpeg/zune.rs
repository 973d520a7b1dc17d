//! JPEG pixels by zune-jpeg.
//!
//! It is asked for the samples as they are, and their colours are made here, where they are libjpeg's. What differs
//! from libjpeg is the transform, which rounds elsewhere, and the interpolation of chroma, which rounds twice, and
//! which at the right and lower edges takes in samples that lie outside the image.
//!
//! What version 0.5.15 reads wrongly without saying so is refused ([`check_reliable`]) or asked for in another way.
//! Where scan data end too early it would go on with zeros to the end of the image. So it reads a copy in which
//! ones follow the data, wherever they end ([`ONES`]): no Huffman code is all ones, and that is an error. In a
//! progressive file ones may be good data, and its codes are read before ([`Codes`]).

use std::panic::{AssertUnwindSafe, catch_unwind};

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::codes::Codes;
use super::frame::{Frame, unsupported};
use super::{Colors, FORMAT, Head, SCANS_MAX, Whole, color};
use crate::decode::planes::Interleaved;
use crate::decode::{Contents, Decode, DecodeError, elements, room};

/// What is put behind scan data: ones, more than a code and the number behind it can take, and more than are read
/// ahead. A byte of ones is followed by a zero, or it would be taken for a marker.
const ONES: [u8; 24] = {
    let mut ones = [0; 24];
    let mut at = 0;
    while at < ones.len() {
        ones[at] = 0xff;
        at += 2;
    }
    ones
};

/// Reads JPEG after JPEG.
#[derive(Debug, Default)]
pub(in crate::decode) struct Jpeg {
    /// The file, as it is given to zune-jpeg.
    patched: Vec<u8>,
    /// Where ones are put: where a file's scan data end that is not progressive.
    ends: Vec<usize>,
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
        let Self { ends, codes, .. } = self;
        ends.clear();
        let codes_of = |frame: &Frame| frame.progressive.then_some(codes);
        let Whole { head, contents, joint, len } =
            Whole::check(file, wanted, codes_of, |end| ends.push(end))?;
        check_reliable(&head.frame, joint)?;
        if head.frame.progressive {
            ends.clear();
        }
        let file = self.patch(&file[..len], &head);
        let shape = contents.shape;
        let pixels = shape.height * shape.width;
        let planes = room(planes, elements(shape));
        let colored = head.frame.components().len() == 3;
        // zune-jpeg goes by the names of the components before anything else.
        let named_rgb = head.frame.is_named_rgb();
        // Grey alone is quicker, and wrong where only the rows of chroma are fewer.
        let luma_alone = head.colors == Colors::Ycc && !named_rgb && head.frame.across >= head.frame.down;
        if !colored || (shape.channels == 1 && luma_alone) {
            let (first, others) = planes.split_at_mut(pixels);
            read_samples(file, ColorSpace::Luma, first)?;
            others.chunks_exact_mut(pixels).for_each(|other| other.copy_from_slice(first));
            return Ok(contents);
        }
        let interleaved = room(interleaved, 3 * pixels);
        let as_they_are = if named_rgb { ColorSpace::RGB } else { ColorSpace::YCbCr };
        read_samples(file, as_they_are, interleaved)?;
        match (head.colors, shape.channels) {
            (Colors::Ycc, 1) => Interleaved { step: 3, places: &[0] }.separate(interleaved, planes),
            (Colors::Rgb, 1) => color::rgb_to_grey(interleaved, planes),
            (Colors::Ycc, _) => color::ycc_to_planes(interleaved, planes),
            (Colors::Rgb, _) => Interleaved { step: 3, places: &[2, 1, 0] }.separate(interleaved, planes),
        }
        Ok(contents)
    }

    /// The file with our ones, and without Adobe segments that would have zune-jpeg convert colours in its own way.
    fn patch(&mut self, file: &[u8], head: &Head) -> &[u8] {
        let Self { patched, ends, .. } = self;
        patched.clear();
        patched.reserve_exact(file.len() + ends.len() * ONES.len());
        let mut copied = 0;
        for end in ends {
            patched.extend_from_slice(&file[copied..*end]);
            patched.extend_from_slice(&ONES);
            copied = *end;
        }
        patched.extend_from_slice(&file[copied..]);
        if head.adobe.is_some_and(|transform| head.frame.components().len() != 3 || transform != 1) {
            for at in 0..patched.len() {
                // Not in a scan, where this marker would end it; in any other segment it says nothing of pixels.
                if let [0xff, 0xee, _, _, rest @ ..] = &mut patched[at..]
                    && rest.starts_with(b"Adobe")
                {
                    rest[0] = b'-';
                }
            }
        }
        patched
    }
}

/// Refuses the frames that zune-jpeg does not read, or reads wrongly without an error.
fn check_reliable(frame: &Frame, joint: bool) -> Result<(), DecodeError> {
    if !frame.progressive && !joint {
        let allowed = "one scan, unless it is progressive (or build with the feature turbojpeg)";
        return Err(unsupported("a scan for each component".to_owned(), allowed));
    }
    let (luma, chroma) = (frame.components().first(), frame.components().iter().skip(1));
    let luma_largest = luma.is_some_and(|luma| (luma.across, luma.down) == (frame.across, frame.down));
    // Of four rows to one of chroma, only the plain case.
    let tall = frame.down == 4 && chroma.into_iter().any(|chroma| chroma.down == 2);
    if !luma_largest || tall || frame.across == 3 || frame.down == 3 {
        let found = format!("an unusual sampling, {frame}");
        let allowed = "4:4:4, 4:2:2, 4:2:0, 4:4:0, 4:1:1 and the like (or build with the feature turbojpeg)";
        return Err(unsupported(found, allowed));
    }
    Ok(())
}

fn read_samples(file: &[u8], space: ColorSpace, out: &mut [u8]) -> Result<(), DecodeError> {
    let side_max = usize::from(u16::MAX);
    let options = DecoderOptions::new_fast()
        .set_strict_mode(true)
        .set_max_width(side_max)
        .set_max_height(side_max)
        .jpeg_set_max_scans(SCANS_MAX)
        .jpeg_set_out_colorspace(space);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    // Nothing of the decoder is used after a panic.
    let read = catch_unwind(AssertUnwindSafe(|| decoder.decode_into(out)));
    let message = match read {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "zune-jpeg panicked over it".to_owned(),
    };
    Err(DecodeError::Library { format: FORMAT, message })
}
