//! Small files that would take hours or gigabytes if what they state were believed.

use std::io::Write as _;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use percolator_image::{ColorMode, DecodeError, ImageFileDecoder};

use crate::formats::blank_webp;
use crate::process::{check, child_command, role, this_test, under_a_limit_of_address_space};

/// How a value of a TIFF's directory is stored.
const SHORT: u16 = 3;
const LONG: u16 = 4;

/// Values of a TIFF's directory.
enum Values {
    One(u32),
    Longs(Vec<u32>),
}

/// A little-endian TIFF: its data from byte 8 on, the values that need room, and its directory.
fn tiff(data: &[u8], entries: &[(u16, Values)]) -> Vec<u8> {
    let mut file = b"II*\0\0\0\0\0".to_vec();
    file.extend(data);
    let mut directory = u16::try_from(entries.len()).unwrap().to_le_bytes().to_vec();
    for (tag, values) in entries {
        let (kind, count, value) = match values {
            Values::One(value) if *tag == 262 => (SHORT, 1, *value),
            Values::One(value) => (LONG, 1, *value),
            Values::Longs(values) => {
                let at = u32::try_from(file.len()).unwrap();
                file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                (LONG, u32::try_from(values.len()).unwrap(), at)
            }
        };
        directory.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
        directory.extend([count.to_le_bytes(), value.to_le_bytes()].concat());
    }
    let at = u32::try_from(file.len()).unwrap();
    file[4..8].copy_from_slice(&at.to_le_bytes());
    [file, directory, vec![0; 4]].concat()
}

fn packed(zeros: usize) -> Vec<u8> {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::best());
    packer.write_all(&vec![0; zeros]).unwrap();
    packer.finish().unwrap()
}

/// Decodes a file, which takes no more than a moment.
fn decode(file: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let start = Instant::now();
    let mut decoder = ImageFileDecoder::new(ColorMode::Gray);
    let image = decoder.decode(file).map(|image| image.bytes.to_vec());
    assert!(start.elapsed() < Duration::from_secs(20), "it took {:?}", start.elapsed());
    image
}

/// The entries of a deflated grey image.
fn grey(width: u32, height: u32) -> Vec<(u16, Values)> {
    [(256, width), (257, height), (258, 8), (259, 8), (262, 1)]
        .map(|(tag, value)| (tag, Values::One(value)))
        .into()
}

#[test]
fn a_tile_that_is_larger_than_its_data_can_be_is_an_error() {
    const TILES: usize = 50_000;
    let data = packed(100_000_000);
    let mut entries = grey(1, 50_000);
    entries.push((322, Values::One(1 << 28)));
    entries.push((323, Values::One(1)));
    entries.push((324, Values::Longs(vec![8; TILES])));
    entries.push((325, Values::Longs(vec![1; TILES])));
    let error = decode(&tiff(&data, &entries)).unwrap_err();
    assert!(matches!(error, DecodeError::Damaged { format: "TIFF", offset: 8, .. }), "{error}");
    assert!(error.to_string().contains("a tile of 1 bytes: its 1x268435456 pixels take"), "{error}");
}

/// Each strip has the bytes that it says, and none of what comes after them.
#[test]
fn a_strip_ends_where_it_says() {
    const ROWS: u32 = 1000;
    let data = packed(1);
    let strips = |len: usize| {
        let mut entries = grey(1, ROWS);
        entries.push((273, Values::Longs(vec![8; ROWS as usize])));
        entries.push((278, Values::One(1)));
        entries.push((279, Values::Longs(vec![u32::try_from(len).unwrap(); ROWS as usize])));
        // The strips share their data, of which the file must have as much.
        tiff(&[&data[..], &vec![0; data.len() * ROWS as usize]].concat(), &entries)
    };
    assert_eq!(decode(&strips(data.len())), Ok(vec![0; ROWS as usize]));
    let error = decode(&strips(2)).unwrap_err();
    assert!(matches!(error, DecodeError::Library { format: "TIFF", .. }), "{error}");
}

#[test]
fn more_strips_than_any_image_needs_are_an_error() {
    const ROWS: u32 = 1 << 20;
    let data = packed(1);
    let mut entries = grey(1, ROWS);
    entries.push((273, Values::Longs(vec![8; ROWS as usize])));
    entries.push((278, Values::One(1)));
    entries.push((279, Values::Longs(vec![1; ROWS as usize])));
    let error = decode(&tiff(&data, &entries)).unwrap_err();
    assert!(matches!(error, DecodeError::Unsupported { format: "TIFF", .. }), "{error}");
    assert!(error.to_string().contains("1048576 strips"), "{error}");
}

/// The crate skips a part of such an entry, and would then read another directory than was checked.
#[test]
fn an_entry_of_an_unknown_type_in_a_tiff_of_64_bits_is_an_error() {
    let file = include_bytes!("../data/formats/offsets_64.tif");
    let directory = usize::try_from(u64::from_le_bytes(*file[8..].first_chunk().unwrap())).unwrap();
    for kind in [0_u8, 14, 15, 19, 200] {
        let mut odd = file.to_vec();
        // Of the last entry, which is not read for the pixels.
        let at = directory + 8 + 20 * (usize::from(odd[directory]) - 1);
        odd[at + 2] = kind;
        let error = decode(&odd).unwrap_err();
        let refused = matches!(error, DecodeError::Damaged { format: "TIFF", offset, .. } if offset == at);
        assert!(refused && error.to_string().contains("of the type"), "{kind}: {error}");
    }
}

/// The last entry of a tag counts, and only a plain one can be shown as grey to the crate.
#[test]
fn a_colour_space_that_is_stated_again_in_another_way_is_an_error() {
    let strip = |spaces: &[(u16, Values)]| {
        let mut entries = grey(1, 1);
        entries.pop();
        entries.extend(spaces.iter().map(|(tag, values)| match values {
            Values::One(value) => (*tag, Values::One(*value)),
            Values::Longs(values) => (*tag, Values::Longs(values.clone())),
        }));
        let data = packed(1);
        entries.push((273, Values::One(8)));
        entries.push((279, Values::One(u32::try_from(data.len()).unwrap())));
        tiff(&data, &entries)
    };
    assert_eq!(decode(&strip(&[(262, Values::One(1))])), Ok(vec![0]));
    let error = decode(&strip(&[(262, Values::One(1)), (262, Values::Longs(vec![2]))])).unwrap_err();
    assert!(matches!(error, DecodeError::Damaged { format: "TIFF", .. }), "{error}");
}

/// The crate `image-webp` would abort the program.
#[test]
fn a_webp_that_there_is_no_memory_for_is_an_error() {
    const LIMIT_KIB: usize = 1500 << 10;
    if role().is_none() {
        let child = child_command(this_test!(), "child");
        let output = under_a_limit_of_address_space(&child, Some(LIMIT_KIB)).output().unwrap();
        return check(this_test!(), &output);
    }
    // The pixels themselves take half of the room, and the crate would take more than the rest.
    let (height, width) = (16_000, 16_383);
    let file = blank_webp(height, width, 32_000);
    let error = ImageFileDecoder::default().decode(&file).unwrap_err();
    assert_eq!(error, DecodeError::Memory { bytes: 7 * 16_000 * 16_383 });
}
