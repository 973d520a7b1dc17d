//! WebP, GIF, TIFF, BMP and PNM files: what OpenCV and Pillow make of them, and what damage does to them.
//!
//! `data/formats/expected.jsonl` has the checksums of what OpenCV 5.0 (`native`, `color`, `gray`) and Pillow
//! 13.0 (`rgb`, `upright`) read; `make.py` beside it makes both. The files there are drawn, in every kind
//! that the formats have; those of `data/pillow` are photos.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use percolator_image::{ColorMode, DecodeError, ImageFileDecoder, Planes};
use proptest::prelude::*;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::decode::{change, make};
use crate::pillow::{number, text};

const MODES: [(&str, ColorMode); 5] = [
    ("native", ColorMode::Native),
    ("color", ColorMode::Color),
    ("gray", ColorMode::Gray),
    ("rgb", ColorMode::Rgb),
    ("upright", ColorMode::Upright),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/formats")
}

/// All files, by their names.
static FILES: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let images = entries.filter(|path| path.extension().is_none_or(|end| end != "py" && end != "jsonl"));
    let name_of = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    images.map(|path| (name_of(&path), fs::read(path).unwrap())).collect()
});

fn file(name: &str) -> Vec<u8> {
    FILES[name].clone()
}

fn decode(file: &[u8], color: ColorMode) -> Result<(Vec<usize>, Vec<u8>), DecodeError> {
    let mut decoder = ImageFileDecoder::new(color);
    let head = decoder.shape(file);
    let Planes { shape, bytes } = decoder.decode(file)?;
    assert_eq!(head, Ok(shape), "the shape by the headers");
    Ok((vec![shape.channels, shape.height, shape.width], bytes.to_vec()))
}

/// The checksum of pixels with their channels side by side.
fn checksum(shape: &[usize], planes: &[u8]) -> String {
    let pixels = shape[1] * shape[2];
    let interleaved: Vec<u8> =
        (0..pixels).flat_map(|at| planes.iter().skip(at).step_by(pixels).copied()).collect();
    Sha256::digest(&interleaved).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_kind_has_the_pixels_of_opencv_and_of_pillow() {
    let (mut differ, mut checked) = (Vec::new(), 0);
    for line in fs::read_to_string(folder().join("expected.jsonl")).unwrap().lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let (name, mode) = (text(&case, "file"), text(&case, "mode"));
        let color = MODES.iter().find(|(known, _)| *known == mode).unwrap().1;
        let shape: Vec<usize> = case["shape"].as_array().unwrap().iter().map(number).collect();
        match decode(&FILES[name], color) {
            Ok((found, planes)) if found == shape && checksum(&found, &planes) == text(&case, "sha256") => {}
            Ok((found, _)) => differ.push(format!("{name} {mode}: {found:?} of {shape:?}")),
            Err(error) => differ.push(format!("{name} {mode}: {error}")),
        }
        checked += 1;
    }
    assert!(differ.is_empty(), "{} of {checked} differ: {differ:#?}", differ.len());
    assert!(checked > 800, "{checked} cases");
}

/// A kind that OpenCV does not read has the pixels of Pillow in every mode.
#[test]
fn greys_of_2_and_4_bits_are_spread_in_every_mode() {
    for name in ["grey_2_0.tif", "grey_2_1.tif", "grey_4_0.tif", "grey_4_1.tif"] {
        let grey = decode(&file(name), ColorMode::Native).unwrap().1;
        for color in [ColorMode::Rgb, ColorMode::Color] {
            assert_eq!(decode(&file(name), color).unwrap().1, grey.repeat(3), "{name}");
        }
    }
}

#[test]
fn samples_of_16_bits_are_refused_only_as_they_are() {
    for (name, format) in [("65535.pgm", "PNM"), ("1000_text.ppm", "PNM"), ("rgb_16.tif", "TIFF")] {
        let error = decode(&file(name), ColorMode::Native).unwrap_err();
        assert_eq!(error, DecodeError::Depth { format, bits: 16 }, "{name}");
        assert!(error.to_string().starts_with("Image data type must be unsigned byte"), "{error}");
    }
}

/// A file that is cut anywhere is an error, unless what it lost was not part of its image.
#[test]
fn a_file_that_is_cut_anywhere_is_an_error_or_whole() {
    for (name, whole) in &*FILES {
        let image = decode(whole, ColorMode::Color).unwrap();
        let mut read = 0;
        // Every prefix of the small ones.
        let step = (whole.len() / 400).max(1);
        for len in (0..whole.len()).step_by(step).chain([whole.len() - 1]) {
            match decode(&whole[..len], ColorMode::Color) {
                Ok(found) => {
                    // The last number of a text may have lost a digit.
                    assert!(found == image || name.contains("_text"), "{name} cut to {len}");
                    read += 1;
                }
                Err(error) => {
                    assert!(!error.to_string().contains("panicked"), "{name} cut to {len}: {error}")
                }
            }
        }
        // The tail that is not needed: a line's end, the last bits, what deflate adds; the second image.
        let second = if name.starts_with("two_images") { whole.len() / step / 2 } else { 0 };
        assert!(read <= second + 8, "{name}: {read} of {} cuts are read", whole.len() / step);
    }
}

#[test]
fn what_follows_a_file_is_not_part_of_it() {
    for (name, whole) in &*FILES {
        // The text of a PNM has no end of its own.
        if !name.contains("_text") {
            let longer = [&whole[..], b" and more"].concat();
            assert_eq!(decode(&longer, ColorMode::Rgb), decode(whole, ColorMode::Rgb), "{name}");
        }
    }
}

/// A few bytes cannot request a large buffer.
#[test]
fn sizes_that_a_file_cannot_hold_are_an_error() {
    let patched = |name: &str, at: usize, bytes: &[u8]| {
        let mut file = file(name);
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let vp8 = file("rgb_lossy.webp").windows(3).position(|bytes| bytes == b"\x9d\x01\x2a").unwrap() + 3;
    let vp8l = file("rgb_lossless.webp").windows(4).position(|bytes| bytes == b"VP8L").unwrap() + 9;
    for (name, file) in [
        ("rows of a BMP", patched("24.bmp", 22, &40_000_u32.to_le_bytes())),
        ("rows of runs", patched("8_runs.bmp", 22, &1_000_000_u32.to_le_bytes())),
        ("a screen", patched("256.gif", 6, &[0, 0x70, 0, 0x70])),
        ("levels", b"P5 30000 30000 255 and few pixels".to_vec()),
        ("bits", b"P4 30000 30000 and few pixels".to_vec()),
        ("text", b"P2 30000 30000 255 1 2 3".to_vec()),
        ("strips", {
            let file = file("rgb_16.tif");
            let width = file.windows(4).position(|tag| tag == [0, 1, 3, 0]).unwrap() + 8;
            patched("rgb_16.tif", width, &60_000_u16.to_le_bytes())
        }),
        ("lossy", patched("rgb_lossy.webp", vp8, &[0xff, 0x3f, 0xff, 0x3f])),
        ("lossless", patched("rgb_lossless.webp", vp8l, &[0xfe, 0xbf, 0xff, 0x0f])),
    ] {
        for (_, color) in MODES {
            let error = decode(&file, color).unwrap_err();
            let refused = matches!(error, DecodeError::Claim { .. } | DecodeError::Depth { .. });
            assert!(refused, "{name}: {error}");
            assert_eq!(ImageFileDecoder::new(color).shape(&file).unwrap_err(), error);
        }
    }
}

/// The crate makes room for what an entry claims before it reads.
#[test]
fn an_entry_of_a_tiff_whose_values_lie_outside_is_an_error() {
    let whole = file("turn_1.tif");
    for tag in [258_u16, 273, 279] {
        let entry =
            whole.windows(4).position(|found| found[..2] == tag.to_le_bytes() && found[3] == 0).unwrap();
        let mut claiming = whole.clone();
        claiming[entry + 4..entry + 8].copy_from_slice(&50_000_000_u32.to_le_bytes());
        let error = decode(&claiming, ColorMode::Color).unwrap_err();
        assert!(matches!(error, DecodeError::Truncated { format: "TIFF", .. }), "{tag}: {error}");
    }
}

/// Little-endian files of offsets of 32 bits have their first directory at byte 8.
#[test]
fn what_is_wrong_with_a_directory_of_a_tiff_is_said_with_its_place() {
    for (name, tag, at, value, said) in [
        ("palette_1.tif", 320_u16, 4, 5, "a directory whose palette has 5 levels: 1 bits take 3 times 2"),
        ("grey_8_1.tif", 279, 8, 0xffff, "a directory whose strips or tiles have 65535 of"),
    ] {
        let mut file = file(name);
        let entry = file.windows(2).position(|found| found == tag.to_le_bytes()).unwrap();
        file[entry + at..entry + at + 2].copy_from_slice(&u16::to_le_bytes(value));
        let error = decode(&file, ColorMode::Color).unwrap_err();
        assert!(matches!(error, DecodeError::Damaged { format: "TIFF", offset: 8, .. }), "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

/// The pixels of a BMP that does not say where they are follow its headers and its palette.
#[test]
fn the_pixels_of_a_bmp_never_are_its_headers() {
    for name in ["24.bmp", "8.bmp", "8_few.bmp", "4_runs.bmp", "16_565.bmp", "8_os2.bmp", "32_v4.bmp"] {
        let whole = file(name);
        let image = decode(&whole, ColorMode::Rgb).unwrap();
        let mut other = whole.clone();
        other[10..14].fill(0);
        assert_eq!(decode(&other, ColorMode::Rgb), Ok(image), "{name}");
        for place in [1_u32, 14, 25] {
            other[10..14].copy_from_slice(&place.to_le_bytes());
            let error = decode(&other, ColorMode::Rgb).unwrap_err();
            assert!(matches!(error, DecodeError::Damaged { format: "BMP", offset: 10, .. }), "{error}");
        }
    }
    let mut negative = file("24.bmp");
    let width = i32::from_le_bytes(*negative[18..].first_chunk().unwrap());
    negative[18..22].copy_from_slice(&(-width).to_le_bytes());
    let error = decode(&negative, ColorMode::Color).unwrap_err();
    assert!(matches!(error, DecodeError::Damaged { format: "BMP", offset: 18, .. }), "{error}");
    let mut header = file("24.bmp");
    header[14] = 16;
    let error = decode(&header, ColorMode::Color).unwrap_err().to_string();
    assert!(error.contains("a header of 16 bytes: allowed are 12, and 40 to 124"), "{error}");
}

#[test]
fn images_without_pixels_or_with_too_many_are_an_error() {
    for file in [
        &b"P5 0 5 255 "[..],
        b"P5 5 0 255 ",
        b"P5 2000000 1 255 ",
        b"P5 4294967295 4294967295 255 ",
        b"GIF89a\0\0\0\0\0\0\0;",
    ] {
        let error = decode(file, ColorMode::Color).unwrap_err();
        let refused = matches!(error, DecodeError::Size { .. } | DecodeError::Damaged { .. });
        assert!(refused, "{}: {error}", file.escape_ascii());
    }
}

#[test]
fn what_a_format_has_and_is_not_read_is_named() {
    let mut fax = file("grey_1_1.tif");
    let packing = fax.windows(4).position(|tag| tag == [3, 1, 3, 0]).unwrap() + 8;
    for (method, said) in [(4, "a fax"), (7, "a JPEG inside"), (200, "method 200")] {
        fax[packing] = method;
        let error = decode(&fax, ColorMode::Color).unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("PackBits, LZW or deflate"), "{error}");
    }
    for (name, tag, value, said) in [
        ("grey_1_1.tif", 266_u16, 2, "bytes that are filled from their lowest bit on: allowed are those"),
        ("grey_4_1.tif", 317, 2, "differences of samples of less than 8 bits: allowed are"),
        ("grey_8_1.tif", 317, 3, "differences of floats: allowed are"),
    ] {
        let mut file = file(name);
        // In the place of the entry that says that there is one sample a pixel.
        let entry = file.windows(4).position(|tag| tag == [21, 1, 3, 0]).unwrap();
        file[entry..entry + 2].copy_from_slice(&tag.to_le_bytes());
        file[entry + 8] = value;
        let error = decode(&file, ColorMode::Rgb).unwrap_err();
        assert!(matches!(error, DecodeError::Unsupported { format: "TIFF", .. }), "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    let mut packed = file("24.bmp");
    for (method, said) in [(4, "a JPEG or PNG inside"), (9, "24 bits a pixel, packed by method 9")] {
        packed[30] = method;
        let error = decode(&packed, ColorMode::Color).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

/// A lossless WebP of one colour, with bytes after its data.
pub(crate) fn blank_webp(height: u32, width: u32, more: usize) -> Vec<u8> {
    let mut data = vec![0x2f];
    data.extend(((width - 1) | ((height - 1) << 14)).to_le_bytes());
    // Five codes of one symbol each.
    data.extend([0x88, 0x88, 0x08]);
    data.resize(data.len() + more, 0);
    let len = u32::try_from(data.len()).unwrap().to_le_bytes();
    data.resize(data.len().next_multiple_of(2), 0);
    let all = u32::try_from(data.len() + 12).unwrap().to_le_bytes();
    [&b"RIFF"[..], &all, b"WEBPVP8L", &len, &data].concat()
}

/// An image of one colour takes hardly any bytes in some formats, and is read nevertheless.
#[test]
fn blank_images_are_read() {
    let (shape, planes) = decode(&blank_webp(2048, 2048, 0), ColorMode::Rgb).unwrap();
    assert_eq!(shape, [3, 2048, 2048]);
    assert!(planes.iter().all(|&level| level == planes[0]));
    // A column more takes a byte for its pixels, which the file has; 200 take more.
    let error = decode(&blank_webp(2048, 2248, 0), ColorMode::Rgb).unwrap_err();
    assert!(matches!(error, DecodeError::Claim { format: "WebP", wanted: 50, .. }), "{error}");
}

/// Codes that no pixel uses become tables of hundreds of times their length.
#[test]
fn lossless_data_that_are_longer_than_their_pixels_need_are_an_error() {
    let most = 8 * 15 * 20 + (1 << 16) - 8;
    assert!(decode(&blank_webp(15, 20, most), ColorMode::Rgb).is_ok());
    let error = decode(&blank_webp(15, 20, most + 1), ColorMode::Rgb).unwrap_err();
    assert!(matches!(error, DecodeError::Damaged { format: "WebP", offset: 20, .. }), "{error}");
    assert!(error.to_string().contains("allowed are 64 KiB and 8 bytes a pixel"), "{error}");
}

#[test]
fn lossless_data_of_the_longest_side_or_another_version_are_not_read() {
    let mut version = blank_webp(15, 20, 0);
    version[24] |= 0x20;
    for (file, said) in [
        (blank_webp(1 << 14, 3, 0), "lossless data of 16384x3 pixels: allowed are"),
        (blank_webp(3, 1 << 14, 0), "lossless data of 3x16384 pixels: allowed are"),
        (version, "lossless data of version 1: allowed are"),
    ] {
        let error = decode(&file, ColorMode::Rgb).unwrap_err();
        assert!(matches!(error, DecodeError::Unsupported { format: "WebP", .. }), "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    assert!(decode(&blank_webp((1 << 14) - 1, 3, 0), ColorMode::Rgb).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn whatever_happens_to_a_file_is_an_error_or_an_image(
        name in any::<prop::sample::Index>(),
        changes in prop::collection::vec(change(), 1..4),
        mode in 0..MODES.len(),
    ) {
        let mut file = name.get(&FILES.values().collect::<Vec<_>>()).to_vec();
        changes.iter().for_each(|change| make(&mut file, change));
        let mut decoder = ImageFileDecoder::new(MODES[mode].1);
        let shape = decoder.shape(&file);
        match decoder.decode(&file) {
            Ok(Planes { shape: found, bytes: pixels }) => {
                prop_assert_eq!(Ok(found), shape);
                prop_assert_eq!(Some(pixels.len()), found.checked_elements());
            }
            Err(error) => prop_assert!(!error.to_string().contains("panicked"), "{}", error),
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_an_image(
        start in prop::sample::select(vec![
            &b"BM"[..], b"GIF89a", b"P5 ", b"P3 ", b"P4\n9 9\n", b"II*\0", b"MM\0*", b"II+\0\x08\0\0\0",
            b"RIFF\xff\0\0\0WEBPVP8L", b"RIFF\xff\0\0\0WEBPVP8X\x0a\0\0\0",
        ]),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let file = [start, &bytes].concat();
        let mut decoder = ImageFileDecoder::default();
        let shape = decoder.shape(&file);
        match decoder.decode(&file) {
            Ok(Planes { shape: found, .. }) => prop_assert_eq!(Ok(found), shape),
            Err(error) => prop_assert!(!error.to_string().contains("panicked"), "{}", error),
        }
    }
}
