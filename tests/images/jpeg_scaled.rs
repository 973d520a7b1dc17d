//! A JPEG decoded at a reduced size has other pixels than Caffe's, and nobody would see the difference. So
//! these tests pin the pixels: libjpeg-turbo's at a half, a quarter and an eighth
//! (`tests/data/images/scaled.json`, which `jpeg_twin` compares with libjpeg-turbo itself), resized as any
//! other pixels are. Only who enables scaled decoding gets them, and damage in data that they do not depend
//! on is still an error.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test of small numbers"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use percolator::batch::ImageShape;
use percolator::decoder::ImageFileDecoder;
use percolator::proto::Datum;
use percolator::source::{ImageList, Matching};
use percolator::{Batch, ColorMode, Dtype, Epochs, Feed, FeedBuilder, Phase, Target, Transform};
use percolator_image::Planes;
use prost::Message as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::common::source::MemorySource;
use crate::common::{arrays, datum, key};

const MODES: [ColorMode; 3] = [ColorMode::Native, ColorMode::Color, ColorMode::Gray];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(data(name)).unwrap()
}

/// All files of the test data with this suffix.
fn files(end: &str) -> Vec<(String, Vec<u8>)> {
    let mut names = Vec::new();
    for folder in ["images", "photos"] {
        let entries = std::fs::read_dir(data(folder)).unwrap();
        names.extend(
            entries.map(|entry| format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap())),
        );
    }
    names.retain(|name| name.ends_with(end));
    names.sort();
    names.into_iter().map(|name| (name.clone(), read(&name))).collect()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The size that an image is decoded to for a wanted size: by plain search among the four.
fn decoded([height, width]: [usize; 2], wanted: (usize, usize)) -> (usize, usize) {
    let sizes = [8, 4, 2, 1].map(|part| (height.div_ceil(part), width.div_ceil(part)));
    let enough = |size: &(usize, usize)| size.0 >= wanted.0 && size.1 >= wanted.1;
    sizes.into_iter().find(enough).unwrap_or((height, width))
}

/// A file's pixels, decoded as small as `wanted` allows and not resized.
fn reduced(file: &[u8], color: ColorMode, wanted: (usize, usize)) -> (ImageShape, Vec<u8>) {
    let whole = ImageFileDecoder::new(color).shape(file).unwrap();
    let size = decoded([whole.height, whole.width], wanted);
    let mut decoder = ImageFileDecoder::new(color).resize(size.0, size.1).scaled();
    decoder.decode(file).map(|Planes { shape, bytes }| (shape, bytes.to_vec())).unwrap()
}

#[test]
fn reduced_files_come_to_what_libjpeg_turbo_reads() {
    let lines: Value = serde_json::from_slice(&read("images/scaled.json")).unwrap();
    let lines = lines.as_array().unwrap();
    for line in lines {
        let name = line["file"].as_str().unwrap();
        let numbers: Vec<usize> =
            line["shape"].as_array().unwrap().iter().map(|side| side.as_u64().unwrap() as usize).collect();
        let size = (numbers[1], numbers[2]);
        let mut decoder = ImageFileDecoder::new(ColorMode::Native).resize(size.0, size.1).scaled();
        let file = read(name);
        let Planes { shape, bytes } = decoder.decode(&file).unwrap();
        assert_eq!([shape.channels, shape.height, shape.width], numbers[..], "{name}");
        assert_eq!(hex(bytes), line["sha256"].as_str().unwrap(), "{name} at {size:?}");
    }
    assert!(lines.len() > 70, "only {} were compared", lines.len());
}

fn batches(feed: FeedBuilder) -> Vec<Batch> {
    // All of them are held at once.
    let feed = feed.seed(1701).batch_size(2).threads(2).prefetch(40);
    feed.epochs(Epochs::OnePass)
        .build()
        .unwrap()
        .take_lanes()
        .unwrap()
        .remove(0)
        .map(Result::unwrap)
        .collect()
}

/// A key and a value.
type Record = (Vec<u8>, Vec<u8>);

fn encoded(index: usize, file: &[u8]) -> Record {
    let datum = Datum { data: Some(file.to_vec()), encoded: Some(true), ..Datum::default() };
    (key(index), datum.encode_to_vec())
}

fn raw(index: usize, (shape, pixels): (ImageShape, Vec<u8>)) -> Record {
    let [channels, height, width] = [shape.channels, shape.height, shape.width].map(|side| side as i32);
    (key(index), datum(channels, height, width, 0, pixels))
}

/// The batches of a feed of these records: images and their grey targets.
fn feed(images: MemorySource, targets: MemorySource, transform: &Transform, phase: Phase) -> Vec<Batch> {
    let of_target = transform.clone().scale(1.0).color(ColorMode::Gray);
    let target = Target::paired(targets, Matching::Keys).transform(of_target).dtype(Dtype::U8);
    let transform = transform.clone().color(ColorMode::Color);
    batches(Feed::builder().source(images).transform(transform).target(target).phase(phase))
}

/// Files of any sampling, turned by their EXIF or not, cropped or not, as images and as targets.
#[test]
fn a_feed_gives_the_resized_pixels_of_the_reduced_file() {
    let files = files(".jpg");
    // Both landscape and portrait, because some files are turned; exactly a half of some.
    let sizes = [((5, 13), 0), ((13, 7), 7), ((31, 23), 20), ((23, 31), 9), ((6, 8), 5), ((188, 250), 99)];
    for (at, (wanted, crop)) in sizes.into_iter().enumerate() {
        let phase = [Phase::Train, Phase::Test][at % 2];
        let source = |record: &dyn Fn(usize, &[u8]) -> Record| {
            let records = files.iter().enumerate().map(|(index, (_, file))| record(index, file));
            MemorySource::new("records", records.collect::<Vec<_>>())
        };
        let files = || source(&|index, file| encoded(index, file));
        let pixels = |color| source(&|index, file| raw(index, reduced(file, color, wanted)));
        let transform =
            Transform::new().resize(wanted.0 as u32, wanted.1 as u32).crop(crop).mirror(true).scale(0.5);
        let found = feed(files(), files(), &transform.clone().scaled_decode(true), phase);
        let wanted = feed(pixels(ColorMode::Color), pixels(ColorMode::Gray), &transform, phase);
        let whole = feed(files(), files(), &transform, phase);
        assert_eq!(found.len(), wanted.len());
        let mut differ = 0;
        for ((found, wanted), whole) in found.iter().zip(&wanted).zip(&whole) {
            assert_eq!(found.pixels::<f32>().unwrap(), wanted.pixels::<f32>().unwrap(), "{transform:?}");
            assert_eq!(found.target_pixels::<u8>().unwrap(), wanted.target_pixels::<u8>().unwrap());
            differ += usize::from(found.pixels::<f32>().unwrap() != whole.pixels::<f32>().unwrap());
        }
        assert!(differ > 0, "the files were decoded smaller");
    }
}

#[test]
fn nothing_changes_where_nothing_is_made_half_as_large() {
    let mut unchanged = 0;
    for color in MODES {
        for (name, file) in files("g") {
            let Ok(shape) = ImageFileDecoder::new(color).shape(&file) else { continue };
            let (height, width) = (shape.height, shape.width);
            let half = (height.div_ceil(2), width.div_ceil(2));
            let mut sizes = vec![None, Some((height, width)), Some((2 * height, 3)), Some((3, 2 * width))];
            sizes.extend([Some((half.0 + 1, 1)), Some((1, half.1 + 1))]);
            if name.ends_with(".png") {
                sizes.extend([Some(half), Some((1, 1))]);
            }
            for size in sizes {
                let of = || {
                    let decoder = ImageFileDecoder::new(color);
                    if let Some((height, width)) = size { decoder.resize(height, width) } else { decoder }
                };
                let (mut whole, mut scaled) = (of(), of().scaled());
                let Ok(wanted) = whole.decode(&file) else { continue };
                assert!(scaled.decode(&file).unwrap() == wanted, "{name} {color:?} {size:?}");
                unchanged += 1;
            }
        }
    }
    assert!(unchanged > 1000, "only {unchanged} were compared");
}

/// At an eighth, only the mean of most blocks is used.
#[test]
fn damage_is_found_whatever_the_size() {
    for name in ["444.jpg", "420.jpg", "420_progressive.jpg", "separate_scans.jpg", "grey.jpg"] {
        let whole = read(&format!("images/{name}"));
        for size in [(1, 1), (9, 15), (22, 30)] {
            let mut decoder = ImageFileDecoder::new(ColorMode::Native).resize(size.0, size.1).scaled();
            assert!(decoder.decode(&whole).is_ok());
            for len in (whole.len() - 120..whole.len() - 4).step_by(3) {
                let closed = [&whole[..len], b"\xff\xd9"].concat();
                assert!(decoder.decode(&closed).is_err(), "{name}, closed at {len}");
                assert!(decoder.decode(&whole[..len]).is_err(), "{name}, cut to {len}");
            }
            assert!(decoder.decode(&whole).is_ok());
        }
    }
}

#[test]
fn the_files_of_a_nets_layer_are_decoded_smaller_where_the_builder_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let list: String = files(".jpg").iter().map(|(name, _)| format!("{name} 1\n")).collect();
    std::fs::write(folder.path().join("list.txt"), &list).unwrap();
    let net = folder.path().join("net.prototxt");
    let text = format!(
        "layer {{ name: 'data' type: 'ImageData' top: 'data' top: 'label' transform_param {{ crop_size: 7 \
         }}\n\
         image_data_param {{ source: 'list.txt' root_folder: '{}/' batch_size: 4 new_height: 11 \
         new_width: 9 }} }}",
        data("").display()
    );
    std::fs::write(&net, text).unwrap();
    let of_net = || Feed::from_prototxt(&net, Phase::Test).unwrap().root(folder.path());
    let list = ImageList::open(folder.path().join("list.txt")).unwrap().relative_to(data(""));
    let transform = Transform::new().color(ColorMode::Color).resize(11, 9).crop(7).scaled_decode(true);
    let wanted =
        arrays(Feed::builder().source(list).transform(transform).phase(Phase::Test).batch_size(4), 8);
    // The net's own transform, and no other one.
    let scaled = |feed: FeedBuilder, scaled: bool| {
        let transform = feed.spec().transform.clone().scaled_decode(scaled);
        feed.transform(transform)
    };
    assert_eq!(arrays(scaled(of_net(), true), 8), wanted);
    assert_ne!(arrays(of_net(), 8), wanted);
    assert_eq!(arrays(scaled(scaled(of_net(), false), true), 8), wanted, "what is said last counts");
    let budget = |feed: FeedBuilder| feed.build().unwrap().memory_budget().total_bytes();
    assert_eq!(budget(scaled(of_net(), true)), budget(of_net()), "that of whole images");
}

#[test]
fn a_spec_decides_over_its_transform_until_another_is_set() {
    let files = files(".jpg");
    let source = || {
        MemorySource::new(
            "files",
            files.iter().enumerate().map(|(at, (_, file))| encoded(at, file)).collect::<Vec<_>>(),
        )
    };
    let transform = Transform::new().color(ColorMode::Color).resize(11, 9);
    let feed = || Feed::builder().source(source()).phase(Phase::Test).batch_size(4);
    // The spec of a feed, with a `scaled_decode` of its own.
    let specified = |feed: FeedBuilder, scaled: bool| {
        let mut spec = feed.spec().clone();
        spec.scaled_decode = Some(scaled);
        FeedBuilder::from(spec).source(source())
    };
    let whole = arrays(feed().transform(transform.clone()), 8);
    let scaled = arrays(feed().transform(transform.clone().scaled_decode(true)), 8);
    assert_ne!(whole, scaled);
    assert_eq!(arrays(specified(feed().transform(transform.clone()), true), 8), scaled);
    assert_eq!(arrays(specified(feed(), true).transform(transform.clone()), 8), whole);
    let asks = transform.clone().scaled_decode(true);
    assert_eq!(arrays(specified(feed().transform(asks.clone()), false), 8), whole);
    assert_eq!(arrays(specified(feed(), false).transform(asks), 8), scaled);
    // A target made from a feed is decoded as the feed would be.
    let target = |builder: FeedBuilder| {
        let target = Target::from_feed(builder, Matching::Keys);
        batches(feed().transform(transform.clone()).target(target).phase(Phase::Test))
    };
    let early = target(specified(feed().transform(transform.clone()), true));
    let late = target(feed().transform(transform.clone().scaled_decode(true)));
    assert_eq!(early.len(), late.len());
    for (early, late) in early.iter().zip(&late) {
        assert_eq!(early.target_pixels::<f32>().unwrap(), late.target_pixels::<f32>().unwrap());
    }
}
