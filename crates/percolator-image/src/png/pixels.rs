//! Reads PNG pixels with the crate `png`.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ::png::{DecodeOptions, Decoder, DecodingError, Limits, Transformations};

use super::gamma::Tables;
use super::{FORMAT, Head, grey};
use crate::ImageShape;
use crate::planes::Interleaved;
use crate::{ColorMode, Contents, Decode, DecodeError, elements, room};

/// The bytes that the crate may allocate for chunks other than the image's, in addition to the file's own
/// length and a row of the image.
const CHUNK_BYTES_MAX: usize = 1 << 16;
/// Four samples of two bytes.
const PIXEL_BYTES_MAX: usize = 8;

/// Reads the planes of a file. The buffers only grow.
pub(crate) fn read(
    file: &[u8],
    wanted: &Decode,
    essence: &mut Vec<u8>,
    interleaved: &mut Vec<u8>,
    planes: &mut Vec<u8>,
) -> Result<Contents, DecodeError> {
    let head = Head::parse(file, wanted.color == ColorMode::Gray)?;
    let contents = head.contents(wanted.color)?;
    // A refused output is refused before anything is allocated.
    wanted.output(&contents)?;
    let shape = contents.shape;
    head.essence(file, essence)?;
    // Nothing of the decoder is used after a panic.
    let read = catch_unwind(AssertUnwindSafe(|| read_samples(essence, &head, interleaved)));
    let Ok(samples) = read else {
        return Err(DecodeError::Library { format: FORMAT, message: "the crate png panicked".to_owned() });
    };
    let samples = samples?;
    let interleaved = &interleaved[..head.height * head.width * samples.step()];
    let planes = room(planes, elements(shape))?;
    separate(&head, samples, interleaved, shape, planes)?;
    if wanted.color.is_rgb() {
        to_pillows(&head, samples, interleaved, planes);
    }
    Ok(contents)
}

/// The layout of the pixels that were read.
#[derive(Clone, Copy)]
struct Samples {
    count: usize,
    /// The number of bytes per sample.
    bytes: usize,
}

impl Samples {
    fn step(self) -> usize {
        self.count * self.bytes
    }
}

/// Reads the pixels as stored, except that palettes, and samples of fewer than 8 bits, are expanded.
fn read_samples(file: &[u8], head: &Head, interleaved: &mut Vec<u8>) -> Result<Samples, DecodeError> {
    let row = head.width.saturating_mul(PIXEL_BYTES_MAX).saturating_add(1);
    let limits = Limits { bytes: CHUNK_BYTES_MAX.saturating_add(file.len()).saturating_add(row) };
    let mut options = DecodeOptions::default();
    // Those were verified.
    options.set_ignore_crc(true);
    // Verify Adler-32, the final check that the pixels are those that were written.
    options.set_ignore_adler32(false);
    let mut decoder = Decoder::new_with_options(Cursor::new(file), options);
    decoder.set_limits(limits);
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(of_library)?;
    let (color, depth) = reader.output_color_type();
    let samples = Samples { count: color.samples(), bytes: if depth as u8 == 16 { 2 } else { 1 } };
    let out = room(interleaved, head.height * head.width * samples.step())?;
    reader.next_frame(out).map_err(of_library)?;
    reader.finish().map_err(of_library)?;
    Ok(samples)
}

/// The error in plain words: the crate's are partly the names of its types.
#[expect(clippy::needless_pass_by_value, reason = "it is an error that is turned into another")]
fn of_library(error: DecodingError) -> DecodeError {
    const WORDS: [(&str, &str); 6] = [
        ("WrongChecksum", "the checksum behind its pixels (Adler-32) is wrong, or is missing"),
        ("InsufficientInput", "it has too little data for its pixels"),
        ("does not have enough data", "it has too little data for its pixels"),
        ("Corrupt deflate stream", "its compressed data cannot be unpacked"),
        ("Unknown filter method", "a row of its pixels is filtered in a way that PNG does not have"),
        ("imits", "it needs more memory than its size allows"),
    ];
    let message = error.to_string();
    let words = WORDS.iter().find(|(part, _)| message.contains(part));
    let message = words.map_or("its pixels cannot be read", |&(_, words)| words).to_owned();
    DecodeError::Library { format: FORMAT, message }
}

/// Turns the planes of [`separate`] into Pillow's.
fn to_pillows(head: &Head, samples: Samples, interleaved: &[u8], planes: &mut [u8]) {
    let pixels = head.height * head.width;
    if samples.count > 2 {
        let (blue, rest) = planes.split_at_mut(pixels);
        blue.swap_with_slice(&mut rest[pixels..]);
    } else if samples.step() == 2 && samples.count == 1 {
        // Pillow reads grey of 16 bits as numbers, and cuts them.
        for plane in planes.chunks_exact_mut(pixels) {
            for (level, sample) in plane.iter_mut().zip(interleaved.as_chunks::<2>().0) {
                *level = u16::from_be_bytes(*sample).min(255) as u8;
            }
        }
    }
}

fn separate(
    head: &Head,
    samples: Samples,
    interleaved: &[u8],
    shape: ImageShape,
    planes: &mut [u8],
) -> Result<(), DecodeError> {
    let step = samples.step();
    let places: &[usize] = match (shape.channels, samples.count, samples.bytes) {
        (1, 1 | 2, _) => &[0],
        (1, _, 1) => {
            let tables = head.gamma.and_then(Tables::new);
            grey::from_rgb(interleaved, step, tables.as_ref(), planes);
            return Ok(());
        }
        (1, _, _) => {
            if head.gamma.and_then(Tables::new).is_some() {
                return Err(DecodeError::Unsupported {
                    format: FORMAT,
                    found: "16-bit colours and a gamma, and is to be read as grey".to_owned(),
                    allowed: "such files in colour (force_color, or is_color in an ImageData layer)",
                });
            }
            grey::from_rgb_16(interleaved, step, planes);
            return Ok(());
        }
        (3, 1 | 2, _) => &[0, 0, 0],
        (3, _, 1) => &[2, 1, 0],
        // Samples are big-endian: the first byte is the upper one.
        (3, _, _) => &[4, 2, 0],
        (4, 2, _) => &[0, 0, 0, 1],
        (4, 4, _) => &[2, 1, 0, 3],
        _ => {
            let message = format!("{} samples per pixel for {} channels", samples.count, shape.channels);
            return Err(DecodeError::Library { format: FORMAT, message });
        }
    };
    Interleaved { step, places }.separate(interleaved, planes);
    Ok(())
}
