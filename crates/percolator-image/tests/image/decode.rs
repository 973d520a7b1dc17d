//! Encoded files: compared with OpenCV's results, and damaged.
//!
//! `tests/data/images/expected.json` holds OpenCV's results, which every file must match exactly.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test of small numbers"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use percolator_image::{ColorMode, DecodeError, ImageFileDecoder, ImageShape, Planes};
use proptest::prelude::*;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

const MODES: [ColorMode; 3] = [ColorMode::Native, ColorMode::Color, ColorMode::Gray];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/images")
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

/// The files with this suffix, in order.
fn names(end: &str) -> Vec<String> {
    let names =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(end)).collect();
    names.sort();
    assert!(!names.is_empty());
    names
}

fn decode(file: &[u8], color: ColorMode) -> Result<(ImageShape, Vec<u8>), DecodeError> {
    let mut decoder = ImageFileDecoder::new(color);
    decoder.decode(file).map(|Planes { shape, bytes }| (shape, bytes.to_vec()))
}

/// One of OpenCV's results.
struct Expected {
    name: String,
    color: ColorMode,
    resize: Option<(usize, usize)>,
    /// `None` if OpenCV reads no bytes.
    shape: Option<ImageShape>,
    sha256: String,
}

impl Expected {
    fn new(line: &Value) -> Self {
        let numbers = |name: &str| -> Option<Vec<usize>> {
            let list = line[name].as_array()?;
            Some(list.iter().map(|number| number.as_u64().unwrap() as usize).collect())
        };
        let color = match line["mode"].as_str().unwrap() {
            "native" => ColorMode::Native,
            "color" => ColorMode::Color,
            _ => ColorMode::Gray,
        };
        Self {
            name: line["file"].as_str().unwrap().to_owned(),
            color,
            resize: numbers("resize").map(|size| (size[0], size[1])),
            shape: numbers("shape").map(|of| ImageShape { channels: of[0], height: of[1], width: of[2] }),
            sha256: line["sha256"].as_str().unwrap_or_default().to_owned(),
        }
    }

    fn all() -> Vec<Self> {
        let lines: Value = serde_json::from_slice(&read("expected.json")).unwrap();
        lines.as_array().unwrap().iter().map(Self::new).collect()
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn every_file_comes_to_what_opencv_reads() {
    let mut exact = 0;
    for expected in Expected::all() {
        let Expected { name, color, resize, shape, sha256, .. } = &expected;
        let mut decoder = ImageFileDecoder::new(*color);
        if let Some((height, width)) = *resize {
            decoder = decoder.resize(height, width);
        }
        let file = read(name);
        let Some(shape) = *shape else {
            let error = decoder.decode(&file).unwrap_err();
            assert_eq!(error, DecodeError::Depth { format: "PNG", bits: 16 }, "{name} {color:?}");
            assert_eq!(decoder.shape(&file).unwrap_err(), error);
            assert!(error.to_string().starts_with("Image data type must be unsigned byte"), "{error}");
            continue;
        };
        assert_eq!(decoder.shape(&file).unwrap(), shape, "{name} {color:?} {resize:?}");
        let Planes { shape: found, bytes: pixels } = decoder.decode(&file).unwrap();
        assert_eq!(found, shape, "{name} {color:?} {resize:?}");
        assert_eq!(&hex(pixels), sha256, "{name} {color:?} {resize:?}");
        exact += 1;
    }
    assert!(exact > 140, "only {exact} files were compared");
}

#[test]
fn a_file_that_is_cut_anywhere_is_an_error() {
    for name in names(".jpg").into_iter().chain(names(".png")) {
        let whole = read(&name);
        // Bytes after the end marker are not part of the image.
        let end = if name == "420_stray.jpg" { whole.len() - b"and more".len() } else { whole.len() };
        for len in 0..end {
            let cut = &whole[..len];
            let error = decode(cut, ColorMode::Color).expect_err(&name);
            let named = matches!(error, DecodeError::Truncated { offset, .. } if offset == len);
            assert!(named || len < 8, "{name} cut to {len} of {end}: {error}");
        }
        assert!(decode(&whole[..end], ColorMode::Color).is_ok(), "{name}");
        let longer = [&whole[..end], b"\xff\xd8\xff and more"].concat();
        assert_eq!(decode(&longer, ColorMode::Color), decode(&whole, ColorMode::Color), "{name}");
    }
}

const PROGRESSIVE: [&str; 4] =
    ["grey_progressive.jpg", "420_progressive.jpg", "440_progressive.jpg", "444_restart_progressive.jpg"];

/// A file that was cut short and closed properly. A progressive one may also be cut between two scans.
#[test]
fn an_end_marker_that_comes_too_early_is_an_error() {
    let baseline = [
        "444.jpg",
        "420.jpg",
        "420_q30.jpg",
        "420_restart.jpg",
        "grey.jpg",
        "rgb.jpg",
        "separate_scans.jpg",
        "unusual_sampling.jpg",
    ];
    for name in baseline.into_iter().chain(PROGRESSIVE) {
        let whole = read(name);
        let scan = whole.windows(2).position(|pair| pair == b"\xff\xda").unwrap();
        let step = if PROGRESSIVE.contains(&name) { 1 } else { 3 };
        for len in (scan..whole.len() - 4).step_by(step) {
            let closed = [&whole[..len], b"\xff\xd9"].concat();
            for color in MODES {
                assert!(
                    decode(&closed, color).is_err(),
                    "{name} closed at {len} of {}: {color:?}",
                    whole.len()
                );
            }
        }
    }
}

/// Where each scan of a file starts, where its data start, and where they end.
fn scans(file: &[u8]) -> Vec<[usize; 3]> {
    let is_end = |pair: &[u8]| pair[0] == 0xff && pair[1] != 0 && !(0xd0..=0xd7).contains(&pair[1]);
    let starts = (0..file.len() - 1).filter(|&at| file[at..].starts_with(b"\xff\xda"));
    let scan = |start: usize| {
        let data = start + 2 + usize::from(u16::from_be_bytes([file[start + 2], file[start + 3]]));
        [start, data, data + file[data..].windows(2).position(is_end).unwrap()]
    };
    starts.map(scan).collect()
}

/// All scans are there, and one of them has lost its end.
#[test]
fn a_scan_that_ends_early_is_an_error() {
    for name in PROGRESSIVE.into_iter().chain(["separate_scans.jpg", "420.jpg"]) {
        let whole = read(name);
        for [start, data, end] in scans(&whole) {
            let step = ((end - data) / 40).max(1);
            for cut in (data..end - 1).step_by(step).chain([end - 1]) {
                let holed = [&whole[..cut], &whole[end..]].concat();
                assert!(decode(&holed, ColorMode::Native).is_err(), "{name} {cut} of {data} to {end}");
            }
            let without = [&whole[..start], &whole[end..]].concat();
            assert!(decode(&without, ColorMode::Native).is_err(), "{name} without the scan at {start}");
        }
    }
}

/// The end of a scan is overwritten, including its restart markers.
#[test]
fn a_scan_whose_restart_markers_are_gone_is_an_error() {
    for name in ["420_restart.jpg", "444_restart_progressive.jpg"] {
        let whole = read(name);
        for [_, data, end] in scans(&whole) {
            let is_restart = |&at: &usize| whole[at] == 0xff && (0xd0..=0xd7).contains(&whole[at + 1]);
            let restarts: Vec<_> = (data..end).filter(is_restart).collect();
            let Some(&last) = restarts.last() else { continue };
            for start in (data..last).step_by(((last - data) / 20).max(1)) {
                for byte in [0, 0x55] {
                    let mut zeroed = whole.clone();
                    zeroed[start..end].fill(byte);
                    assert!(decode(&zeroed, ColorMode::Native).is_err(), "{name} from {start}, {byte}");
                }
            }
            // Cut at a marker, with stray bytes in place of the rest.
            let stray = [&whole[..restarts[0]], &[0; 3], &whole[end..]].concat();
            assert!(decode(&stray, ColorMode::Native).is_err(), "{name} cut at its first marker");
            for &at in &restarts {
                let mut other = whole.clone();
                other[at + 1] = 0xd0 | (other[at + 1] + 1) & 7;
                assert!(decode(&other, ColorMode::Native).is_err(), "{name}: another marker at {at}");
                let more = [&whole[..at], &whole[at..at + 2], &whole[at..]].concat();
                assert!(decode(&more, ColorMode::Native).is_err(), "{name}: two markers at {at}");
            }
        }
    }
}

/// Stray bytes may only precede the end marker: anywhere else they are the remains of something lost.
#[test]
fn scan_data_that_are_too_long_are_an_error_before_any_marker_but_the_end() {
    for name in
        ["420_restart.jpg", "444_restart_progressive.jpg", "separate_scans.jpg", "420_progressive.jpg"]
    {
        let whole = read(name);
        let markers = (0..whole.len() - 1).filter(|&at| {
            let is_data = scans(&whole).iter().any(|&[_, data, end]| (data..=end).contains(&at));
            is_data && whole[at] == 0xff && whole[at + 1] != 0
        });
        let mut seen = 0;
        for at in markers {
            let longer = [&whole[..at], &[0x5a; 3], &whole[at..]].concat();
            let is_end = whole[at + 1] == 0xd9;
            let found = decode(&longer, ColorMode::Native);
            if is_end {
                assert_eq!(found, decode(&whole, ColorMode::Native), "{name}: before the end");
            } else {
                let error = found.unwrap_err();
                assert!(
                    matches!(error, DecodeError::Damaged { offset, .. } if offset == at + 3),
                    "{name}: {error}"
                );
            }
            seen += 1;
        }
        assert!(seen > 2, "{name}: {seen} markers");
    }
}

/// libjpeg stops after the first scan; a scan with some of the components would have to be combined with the
/// scan before.
#[test]
fn a_second_scan_of_a_baseline_file_is_ignored_or_an_error() {
    for name in ["444.jpg", "420.jpg", "grey.jpg", "separate_scans.jpg"] {
        let whole = read(name);
        let [start, data, end] = scans(&whole)[0];
        let first = [&whole[..end], &whole[start..]].concat();
        let first = decode(&first, ColorMode::Native);
        if name == "separate_scans.jpg" {
            let error = first.unwrap_err();
            assert!(error.to_string().contains("a second scan of a component"), "{error}");
        } else {
            assert_eq!(first, decode(&whole, ColorMode::Native), "{name}");
        }
        let without_data = [&whole[..data], &whole[end..]].concat();
        assert!(decode(&without_data, ColorMode::Native).is_err(), "{name}");
    }
}

/// Some encoders end the last interval with a marker too.
#[test]
fn a_restart_marker_behind_the_last_interval_is_allowed() {
    for name in ["420_restart.jpg", "444_restart_progressive.jpg"] {
        let whole = read(name);
        let [_, data, end] = *scans(&whole).last().unwrap();
        let count = whole[data..end].windows(2).filter(|pair| pair[0] == 0xff && pair[1] >= 0xd0).count();
        let marker = [0xff, 0xd0 | (count % 8) as u8];
        let longer = [&whole[..end], &marker, &whole[end..]].concat();
        assert_eq!(decode(&longer, ColorMode::Native), decode(&whole, ColorMode::Native), "{name}");
    }
}

/// The data between two restart markers are lost, and one of the markers.
#[test]
fn a_lost_interval_is_an_error() {
    for name in ["420_restart.jpg", "444_restart_progressive.jpg"] {
        let whole = read(name);
        let marker = |code: u8| whole.windows(2).position(|pair| pair == [0xff, code]).unwrap();
        let lost = [&whole[..marker(0xd0)], &whole[marker(0xd1)..]].concat();
        for color in MODES {
            assert!(decode(&lost, color).is_err(), "{name} {color:?}");
        }
    }
}

#[test]
fn damage_to_a_png_is_an_error() {
    let whole = read("resize_rgb.png");
    let data = whole.windows(4).position(|name| name == b"IDAT").unwrap();
    for at in (data..whole.len()).step_by(11) {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        assert!(decode(&damaged, ColorMode::Native).is_err(), "byte {at}");
    }
}

/// The file with its first chunk of this kind rewritten.
fn with_chunk(name: &str, kind: &[u8; 4], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let file = read(name);
    let at = file.windows(4).position(|found| found == kind).unwrap() - 4;
    let end = at + 8 + u32::from_be_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let mut data = file[at + 8..end].to_vec();
    change(&mut data);
    let mut crc = flate2::Crc::new();
    crc.update(kind);
    crc.update(&data);
    let len = (data.len() as u32).to_be_bytes();
    [&file[..at], &len, kind, &data, &crc.sum().to_be_bytes(), &file[end + 4..]].concat()
}

/// The chunks are intact; the deflated data are not.
#[test]
fn pixels_of_a_png_that_do_not_add_up_are_an_error() {
    for name in ["rgb_8.png", "grey_2.png", "resize_rgba.png", "rgba_16.png"] {
        assert_eq!(with_chunk(name, b"IDAT", |_| {}), read(name));
        let damaged = with_chunk(name, b"IDAT", |data| *data.last_mut().unwrap() ^= 1);
        for color in [ColorMode::Color, ColorMode::Gray] {
            assert!(decode(&damaged, color).is_err(), "{name}");
        }
    }
}

#[test]
fn grey_of_16_bits_and_a_profile_of_srgb_is_refused() {
    let (with, mut file) = (read("rgb_icc.png"), read("rgb_16.png"));
    let [start, end] =
        [b"iCCP", b"IDAT"].map(|kind| with.windows(4).position(|found| found == kind).unwrap() - 4);
    file.splice(33..33, with[start..end].iter().copied());
    assert!(decode(&file, ColorMode::Color).is_ok());
    let error = decode(&file, ColorMode::Gray).unwrap_err();
    assert!(matches!(&error, DecodeError::Unsupported { found, .. } if found.contains("gamma")), "{error}");
}

/// Without a check, the PNG crate would panic.
#[test]
fn a_palette_has_whole_colours() {
    let mut file = read("palette_4.png");
    let at = file.windows(4).position(|name| name == b"PLTE").unwrap();
    file.remove(at + 4 + 47);
    file[at - 1] -= 1;
    let error = decode(&file, ColorMode::Native).unwrap_err();
    assert!(
        matches!(&error, DecodeError::Damaged { found, .. } if found == "a palette of 47 bytes"),
        "{error}"
    );
}

/// The file with one byte replaced, `offset` bytes after a marker.
fn patched(name: &str, marker: u8, offset: usize, byte: u8) -> Vec<u8> {
    let mut file = read(name);
    let at = file.windows(2).position(|pair| pair == [0xff, marker]).unwrap();
    file[at + offset] = byte;
    file
}

#[test]
fn what_is_not_read_says_what_it_is() {
    let found_of = |file: &[u8]| match decode(file, ColorMode::Native).unwrap_err() {
        DecodeError::Unsupported { format: "JPEG", found, .. } => found,
        other => panic!("{other}"),
    };
    assert_eq!(found_of(&patched("444.jpg", 0xc0, 1, 0xc9)), "arithmetic coding");
    assert_eq!(found_of(&patched("444.jpg", 0xc0, 1, 0xc3)), "lossless coding");
    assert_eq!(found_of(&patched("444.jpg", 0xc0, 4, 12)), "samples of 12 bits");
    let mut two = patched("444.jpg", 0xc0, 9, 2);
    let frame = two.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    two[frame + 3] = 8 + 2 * 3;
    two.drain(frame + 16..frame + 19);
    assert_eq!(found_of(&two), "2 components");
    let large = patched("444.jpg", 0xc0, 11, 0x44);
    assert_eq!(found_of(&large), "a scan of 18 blocks in a unit");

    for (file, name) in [
        (&b""[..], "no data"),
        (b"GIF88a..............", "a GIF file of another version"),
        (b"\0\0\0\x20ftypavif....", "a HEIF, AVIF or video file"),
        (b"\0\0\0\x0cjP  ........", "a JPEG 2000 file"),
        (b"P7\nWIDTH 1\nHEIGHT 1\n", "a PAM file"),
        (b"<html>not found</html>", "text"),
        (b"\xff\xd8 but no more of a JPEG", "a file of no known format"),
    ] {
        let error = decode(file, ColorMode::Color).unwrap_err();
        let said = format!(
            "Could not decode datum: found {name}: allowed are JPEG, PNG, WebP, GIF, TIFF, BMP and PNM files"
        );
        assert_eq!(error.to_string(), said);
        assert_eq!(ImageFileDecoder::default().shape(file).unwrap_err(), error);
    }
}

/// A few bytes cannot request a large buffer.
#[test]
fn a_claim_that_the_file_cannot_hold_is_an_error() {
    let mut jpeg = patched("444.jpg", 0xc0, 5, 0xff);
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    jpeg[frame + 7] = 0xff;
    let mut png = read("rgb_8.png");
    png[17] = 7;
    png[21] = 7;
    for file in [jpeg, png] {
        for color in MODES {
            let error = decode(&file, color).unwrap_err();
            assert!(matches!(error, DecodeError::Claim { .. }), "{error}");
            assert_eq!(ImageFileDecoder::new(color).shape(&file).unwrap_err(), error);
        }
    }
    for (height, width) in [(0, 5), (5, 0), (1 << 20, 1 << 11), (1 << 21, 1)] {
        let mut decoder = ImageFileDecoder::new(ColorMode::Native).resize(height, width);
        let error = decoder.decode(&read("rgb_8.png")).map(drop);
        assert!(matches!(error, Err(DecodeError::Size { .. })), "{height} x {width}");
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Set(usize, u8),
    Cut(usize),
    Drop(usize),
    Insert(usize, u8),
    Double(usize, usize),
}

pub(crate) fn change() -> impl Strategy<Value = Change> {
    let byte = prop_oneof![any::<u8>(), Just(0xff), Just(0xd9), Just(0xda), Just(0)];
    prop_oneof![
        (any::<usize>(), byte.clone()).prop_map(|(at, byte)| Change::Set(at, byte)),
        any::<usize>().prop_map(Change::Cut),
        any::<usize>().prop_map(Change::Drop),
        (any::<usize>(), byte).prop_map(|(at, byte)| Change::Insert(at, byte)),
        (any::<usize>(), 1..50usize).prop_map(|(at, len)| Change::Double(at, len)),
    ]
}

pub(crate) fn make(file: &mut Vec<u8>, change: &Change) {
    let len = file.len().max(1);
    match *change {
        Change::Set(at, byte) => file.iter_mut().skip(at % len).take(1).for_each(|old| *old = byte),
        Change::Cut(at) => file.truncate(at % len),
        Change::Drop(at) => drop(file.drain(at % len..(at % len + 1).min(file.len()))),
        Change::Insert(at, byte) => file.insert(at % (file.len() + 1), byte),
        Change::Double(at, many) => {
            let at = at % (file.len() + 1);
            let part = file[at..(at + many).min(file.len())].to_vec();
            file.splice(at..at, part);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_happens_to_a_file_is_an_error_or_an_image(
        name in any::<prop::sample::Index>(),
        changes in prop::collection::vec(change(), 1..4),
        mode in 0..3usize,
    ) {
        let names = [names(".jpg"), names(".png")].concat();
        let name = name.get(&names);
        let mut file = read(name);
        changes.iter().for_each(|change| make(&mut file, change));
        let mut decoder = ImageFileDecoder::new(MODES[mode]);
        let shape = decoder.shape(&file);
        if let Ok(Planes { shape: found, bytes: pixels }) = decoder.decode(&file) {
            prop_assert_eq!(Ok(found), shape);
            prop_assert_eq!(Some(pixels.len()), found.checked_elements());
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_an_image(
        start in prop::sample::select(vec![&b""[..], b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"]),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let file = [start, &bytes].concat();
        let mut decoder = ImageFileDecoder::default();
        let shape = decoder.shape(&file);
        if let Ok(Planes { shape: found, .. }) = decoder.decode(&file) {
            prop_assert_eq!(Ok(found), shape);
        }
    }
}

/// As wide as an image may be, and wider.
#[test]
fn a_png_with_a_side_as_long_as_is_allowed_is_read() {
    for [width, height] in [[1_000_000, 1], [1, 1_000_000]] {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_depth(png::BitDepth::Eight);
        let pixels: Vec<u8> = (0..4 * width * height).map(|at| (at % 251) as u8).collect();
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        let mut decoder = ImageFileDecoder::new(ColorMode::Native);
        let Planes { shape, bytes: planes } = decoder.decode(&file).unwrap();
        assert_eq!((shape.channels, shape.height, shape.width), (4, height as usize, width as usize));
        // Red is the third plane.
        assert_eq!(planes[2 * (width * height) as usize + 999], pixels[4 * 999]);
    }
    let mut file = Vec::new();
    let encoder = png::Encoder::new(&mut file, 1_000_001, 1);
    encoder.write_header().unwrap().write_image_data(&vec![0; 1_000_001]).unwrap();
    let message = decode(&file, ColorMode::Native).unwrap_err().to_string();
    assert!(message.contains("1000001") && message.contains("sides of 1 to 1000000"), "{message}");
}
