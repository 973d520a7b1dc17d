//! A crop that decodes only the blocks it needs could take a neighbour's pixel at its edge, and no shape
//! would show it. Any window of any file must hold what the whole file holds there; a feed of encoded records
//! must give what a feed of the same records decoded beforehand gives; and damage beside the window is still
//! an error.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test of small numbers"
)]

use std::path::Path;

use percolator::batch::ImageShape;
use percolator::decoder::ImageFileDecoder;
use percolator::proto::Datum;
use percolator::source::Matching;
use percolator::{Batch, ColorMode, Dtype, Epochs, Feed, Phase, Target, Transform};
use percolator_image::{Planes, Window};
use proptest::prelude::*;
use prost::Message as _;

use crate::common::process::{anonymous_bytes, is_alone, this_test};
use crate::common::source::MemorySource;
use crate::common::{datum, key};
use crate::forge;
use crate::forge::Numbers;

const MODES: [ColorMode; 3] = [ColorMode::Native, ColorMode::Color, ColorMode::Gray];

fn files() -> Vec<Vec<u8>> {
    let folders = ["data/images", "data/photos"];
    let folders = folders.map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jpg" || extension == "png"));
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// A window within the shape.
fn window(shape: ImageShape, numbers: &mut Numbers) -> Window {
    let (top, left) = (numbers.below(shape.height), numbers.below(shape.width));
    let (height, width) = (1 + numbers.below(shape.height - top), 1 + numbers.below(shape.width - left));
    Window { top, left, height, width }
}

/// Checks that the window holds what the whole image does. `decoder` has read other files before.
fn check(decoder: &mut ImageFileDecoder, whole: &mut ImageFileDecoder, file: &[u8], numbers: &mut Numbers) {
    let Ok(Planes { shape, bytes: wanted }) = whole.decode(file) else { return };
    for _ in 0..4 {
        let window = window(shape, numbers);
        let Window { top, left, height, width } = window;
        let Planes { shape: found_shape, bytes: found } = decoder.decode_window(file, window).unwrap();
        assert_eq!((found_shape, found.len()), (shape, wanted.len()));
        for (channel, y) in
            (0..shape.channels).flat_map(|channel| (top..top + height).map(move |y| (channel, y)))
        {
            let start = (channel * shape.height + y) * shape.width + left;
            let row = start..start + width;
            assert_eq!(found[row.clone()], wanted[row], "{shape}, {window:?}, channel {channel}, row {y}");
        }
    }
}

#[test]
fn a_window_of_a_file_holds_what_the_whole_file_does() {
    let mut numbers = Numbers(1);
    for color in MODES {
        for is_resized in [false, true] {
            let of = || {
                let decoder = ImageFileDecoder::new(color);
                if is_resized { decoder.resize(20, 30) } else { decoder }
            };
            let (mut decoder, mut whole) = (of(), of());
            for file in files() {
                let Ok(shape) = whole.shape(&file) else { continue };
                assert!(shape.height > 0);
                check(&mut decoder, &mut whole, &file, &mut numbers);
            }
        }
    }
}

#[test]
fn a_window_of_a_forged_file_holds_what_the_whole_file_does() {
    let mut numbers = Numbers(2);
    let mut pairs = MODES.map(|color| [ImageFileDecoder::new(color), ImageFileDecoder::new(color)]);
    for at in 0..400 {
        let file = match at % 4 {
            3 => forge::progressive::twins(&mut numbers).progressive,
            _ => forge::file(&mut numbers),
        };
        for [decoder, whole] in &mut pairs {
            assert!(whole.decode(&file).is_ok());
            check(decoder, whole, &file, &mut numbers);
        }
    }
}

#[test]
fn damage_below_the_window_is_an_error() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/images");
    let mut decoder = ImageFileDecoder::new(ColorMode::Native);
    for name in ["444.jpg", "420.jpg", "420_progressive.jpg", "separate_scans.jpg", "grey.jpg"] {
        let whole = std::fs::read(folder.join(name)).unwrap();
        let window = Window { top: 0, left: 0, height: 2, width: 3 };
        assert!(decoder.decode_window(&whole, window).is_ok());
        for len in (whole.len() - 120..whole.len() - 4).step_by(3) {
            let closed = [&whole[..len], b"\xff\xd9"].concat();
            assert!(decoder.decode_window(&closed, window).is_err(), "{name}, closed at {len}");
        }
    }
}

/// The record of a file, and the record of what the file is decoded to.
fn records(index: usize, file: &[u8], color: ColorMode) -> [(Vec<u8>, Vec<u8>); 2] {
    let mut decoder = ImageFileDecoder::new(color);
    let Planes { shape, bytes } = decoder.decode(file).unwrap();
    let encoded = Datum { data: Some(file.to_vec()), encoded: Some(true), ..Datum::default() };
    let [channels, height, width] = [shape.channels, shape.height, shape.width].map(|side| side as i32);
    let raw = datum(channels, height, width, 0, bytes.to_vec());
    [(key(index), encoded.encode_to_vec()), (key(index), raw)]
}

fn batches(source: MemorySource, target: MemorySource, transform: &Transform, phase: Phase) -> Vec<Batch> {
    let of_target = if phase == Phase::Test { Transform::new().crop(16) } else { transform.clone() };
    let target = Target::paired(target, Matching::Keys).transform(of_target.color(ColorMode::Gray));
    let feed = Feed::builder()
        .source(source)
        .transform(transform.clone().color(ColorMode::Color))
        .target(target.dtype(Dtype::U8))
        .phase(phase)
        .seed(1701)
        .batch_size(3)
        .threads(2)
        .prefetch(5);
    feed.epochs(Epochs::OnePass)
        .build()
        .unwrap()
        .take_lanes()
        .unwrap()
        .remove(0)
        .map(Result::unwrap)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_feed_of_files_gives_what_one_of_their_pixels_gives(
        seed in any::<u64>(),
        mirror in any::<bool>(),
        phase in prop::sample::select(vec![Phase::Train, Phase::Test]),
    ) {
        let mut numbers = Numbers(seed);
        let files: Vec<Vec<u8>> = std::iter::from_fn(|| Some(forge::file(&mut numbers)))
            .filter(|file| {
                ImageFileDecoder::new(ColorMode::Color)
                    .shape(file)
                    .is_ok_and(|shape| shape.height.min(shape.width) >= 16)
            })
            .take(12)
            .collect();
        let sources = |color| {
            let records = files.iter().enumerate().map(|(index, file)| records(index, file, color));
            let empty: [Vec<_>; 2] = Default::default();
            let [encoded, raw] = records.fold(empty, |mut lists, both| {
                lists.iter_mut().zip(both).for_each(|(list, record)| list.push(record));
                lists
            });
            [MemorySource::new("encoded", encoded), MemorySource::new("raw", raw)]
        };
        let transform = Transform::new().crop(16).mirror(mirror);
        let [images, raw_images] = sources(ColorMode::Color);
        let [masks, raw_masks] = sources(ColorMode::Gray);
        let found = batches(images, masks, &transform, phase);
        let wanted = batches(raw_images, raw_masks, &transform, phase);
        prop_assert_eq!(found.len(), 4);
        for (found, wanted) in found.iter().zip(&wanted) {
            prop_assert_eq!(found.pixels::<f32>().unwrap(), wanted.pixels::<f32>().unwrap());
            prop_assert_eq!(found.target_pixels::<u8>().unwrap(), wanted.target_pixels::<u8>().unwrap());
        }
    }
}

/// A grey file of 16,384 rows and columns, with two bits for each of its blocks.
fn large() -> Vec<u8> {
    const SIDE: [u8; 2] = 16384_u16.to_be_bytes();
    let mut file = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
    file.extend([1; 64]);
    // A baseline frame of one component.
    file.extend([0xff, 0xc0, 0, 11, 8, SIDE[0], SIDE[1], SIDE[0], SIDE[1], 1, 1, 0x11, 0]);
    // Tables of one code each: the average of the block before, and no other coefficient.
    for table in [0x00, 0x10] {
        file.extend([0xff, 0xc4, 0, 20, table, 1]);
        file.extend([0; 16]);
    }
    file.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0]);
    file.resize(file.len() + (16384 / 8) * (16384 / 8) * 2 / 8, 0);
    file.extend([0xff, 0xd9]);
    file
}

#[test]
fn a_window_of_a_large_file_takes_the_memory_of_a_window() {
    if !is_alone(this_test!()) {
        return;
    }
    let encoded = Datum { data: Some(large()), encoded: Some(true), ..Datum::default() };
    let source = MemorySource::new("large", [(key(0), encoded.encode_to_vec())]);
    let before = anonymous_bytes();
    let feed = Feed::builder().source(source).transform(Transform::new().crop(64)).dtype(Dtype::U8);
    let mut feed = feed.batch_size(1).threads(1).epochs(Epochs::OnePass).build().unwrap();
    let batch = feed.take_lanes().unwrap().remove(0).next().unwrap().unwrap();
    assert_eq!(batch.bytes(), vec![128; 64 * 64]);
    let more = anonymous_bytes().saturating_sub(before);
    assert!(more < 64 << 20, "{more} bytes, where the whole image has 256 MiB");
}
