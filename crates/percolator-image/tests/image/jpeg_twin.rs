//! A decoder that is off by one level in one pixel of a thousand trains another net than Caffe does, and
//! nobody sees it. Here our decoder and libjpeg-turbo read every file, and must agree bit for bit.
//!
//! The files are photographs; what libjpeg-turbo's own encoder makes of noise, slopes and photographs, small
//! and of odd sizes; forged ones (`forge.rs`), baseline and progressive, of any sampling, any scans and any
//! coefficients; and all of these with changed bytes, as long as both still read them. Each is read whole
//! and, if that makes it smaller, at a half, a quarter and an eighth of its sides.
//!
//! `cargo test --features turbojpeg --test images jpeg_twin`; needs cmake and nasm.
//! `PERCOLATOR_TWIN_FILES=20000` sets the number of files (default: a few hundred); `PERCOLATOR_TWIN_FOLDER`
//! adds all `.jpg` files of a folder.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test of small numbers"
)]

mod encode;

use std::path::Path;

use encode::Encoding;
use percolator_image::{ColorMode, ImageFileDecoder, Planes};
use turbojpeg::{Decompressor, Image, PixelFormat, ScalingFactor};

use crate::decode::hex;
use crate::forge;
use crate::forge::Numbers;

/// The scales at which a file may be read. Our decoder picks one from the wanted size.
const SCALES: [ScalingFactor; 4] =
    [ScalingFactor::ONE, ScalingFactor::ONE_HALF, ScalingFactor::ONE_QUARTER, ScalingFactor::ONE_EIGHTH];

const MODES: [ColorMode; 2] = [ColorMode::Native, ColorMode::Gray];

/// Our decoder and libjpeg-turbo.
struct Twins {
    ours: [ImageFileDecoder; 2],
    compared: usize,
    /// How many files were read at a reduced size.
    reduced: usize,
}

impl Twins {
    fn new() -> Self {
        let ours = MODES.map(ImageFileDecoder::new);
        Self { ours, compared: 0, reduced: 0 }
    }

    /// libjpeg-turbo's planes of a file. Its warnings are errors.
    fn turbo(file: &[u8], grey: bool, scale: ScalingFactor) -> Result<Vec<u8>, String> {
        // A new one each time: a decompressor that met an error does not forget it.
        let turbo = &mut Decompressor::new().unwrap();
        turbo.set_scaling_factor(scale).unwrap();
        let header = turbo.read_header(file).map_err(|error| error.to_string())?.scaled(scale);
        let (height, width) = (header.height, header.width);
        let format = if grey { PixelFormat::GRAY } else { PixelFormat::BGR };
        let mut pixels = vec![0; height * width * format.size()];
        let image = Image { pixels: &mut pixels[..], width, pitch: width * format.size(), height, format };
        turbo.decompress(file, image).map_err(|error| error.to_string())?;
        let plane = |at: usize| pixels.iter().skip(at).step_by(format.size()).copied();
        Ok((0..format.size()).flat_map(plane).collect())
    }

    /// Both read the file, and alike; without `must_read`, they must agree if both read it.
    fn compare(&mut self, file: &[u8], must_read: bool, name: &dyn Fn() -> String) {
        // Our decoder turns grey images as EXIF says; libjpeg-turbo does not.
        let turned = file.windows(2).any(|bytes| bytes == b"\xff\xe1");
        for (mode, &color) in MODES.iter().enumerate().take(if turned { 1 } else { 2 }) {
            let whole = self.ours[mode].shape(file);
            let mut last = None;
            for scale in SCALES {
                let size = whole
                    .as_ref()
                    .ok()
                    .map(|shape| [shape.height, shape.width].map(|side| scale.scale(side)));
                // If two scales give the same size, ours takes the larger.
                if size.is_some() && size == last {
                    continue;
                }
                last = size;
                let mut reduced = match (size, scale) {
                    (Some([height, width]), scale) if scale != ScalingFactor::ONE => {
                        Some(ImageFileDecoder::new(color).resize(height, width).scaled())
                    }
                    _ => None,
                };
                self.reduced += usize::from(reduced.is_some());
                let ours = reduced.as_mut().unwrap_or(&mut self.ours[mode]);
                let grey = whole.as_ref().is_ok_and(|shape| shape.channels == 1);
                let name = || format!("{}, at {}/{}", name(), scale.num(), scale.denom());
                self.compared += usize::from(compare_at(ours, file, grey, scale, must_read, &name));
            }
        }
    }
}

/// Both read a file at one scale, and alike. Returns whether both read it.
fn compare_at(
    ours: &mut ImageFileDecoder,
    file: &[u8],
    grey: bool,
    scale: ScalingFactor,
    must_read: bool,
    name: &dyn Fn() -> String,
) -> bool {
    let wanted = Twins::turbo(file, grey, scale);
    let found = ours.decode(file);
    if must_read {
        assert!(wanted.is_ok() && found.is_ok(), "{}: {:?}, {:?}", name(), wanted.err(), found.err());
    }
    let (Ok(wanted), Ok(Planes { shape, bytes: found })) = (&wanted, &found) else { return false };
    assert_eq!(wanted.len(), found.len(), "{}", name());
    if let Some(at) = (0..wanted.len()).find(|&at| wanted[at] != found[at]) {
        let (y, x) = (at / shape.width % shape.height, at % shape.width);
        keep(file);
        panic!("{}, of {shape}, row {y}, column {x}: {} is due, found {}", name(), wanted[at], found[at]);
    }
    true
}

/// Saves a file for inspection.
fn keep(file: &[u8]) {
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("jpeg_twin.jpg"), file).unwrap();
}

fn files() -> usize {
    std::env::var("PERCOLATOR_TWIN_FILES").map_or(300, |count| count.parse().unwrap())
}

fn photos() -> Vec<Vec<u8>> {
    let mut folders = vec![
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/photos"),
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/images"),
    ];
    folders.extend(std::env::var_os("PERCOLATOR_TWIN_FOLDER").map(Into::into));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jpg"));
    paths.sort();
    assert!(paths.len() > 20, "only {} files", paths.len());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// The pixels of a test picture.
fn picture(kind: usize, height: usize, width: usize, photo: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let (corner, slope) = (numbers.below(100_000), [numbers.below(9), numbers.below(9), numbers.below(40)]);
    let pixel = |y: usize, x: usize, channel: usize, numbers: &mut Numbers| match kind {
        0 => numbers.next() as u8,
        1 => (y * slope[0] + x * slope[1] + channel * slope[2]) as u8,
        2 => [0, 255][numbers.below(2)],
        _ => photo[(corner + 3 * (500 * y + x) + channel) % photo.len()],
    };
    let mut pixels = Vec::new();
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        pixels.extend([0, 1, 2].map(|channel| pixel(y, x, channel, numbers)));
    }
    pixels
}

#[test]
fn photographs_come_to_the_same() {
    let mut twins = Twins::new();
    for (at, file) in photos().iter().enumerate() {
        // A stray byte before the end marker is a warning.
        twins.compare(file, false, &|| format!("photograph {at}"));
    }
    assert!(twins.compared > 160, "only {} were compared", twins.compared);
    assert!(twins.reduced > 120, "only {} were compared that are reduced", twins.reduced);
}

#[test]
fn what_an_encoder_makes_comes_to_the_same() {
    let (mut numbers, mut twins) = (Numbers(1701), Twins::new());
    let photo = Twins::turbo(&photos()[photos().len() - 1], false, ScalingFactor::ONE).unwrap();
    for at in 0..files() {
        let (height, width) = (1 + numbers.below(70), 1 + numbers.below(70));
        let kind = numbers.below(5);
        let pixels = picture(kind, height, width, &photo, &mut numbers);
        let encoding = Encoding::random(&mut numbers);
        let file = encoding.encode(&pixels, height, width);
        twins.compare(&file, true, &|| format!("file {at}, picture {kind}, {encoding:?}"));
    }
}

#[test]
fn forged_files_come_to_the_same() {
    let (mut numbers, mut twins) = (Numbers(1702), Twins::new());
    for at in 0..files() {
        let file = forge::file(&mut numbers);
        twins.compare(&file, true, &|| format!("forged file {at}"));
    }
}

#[test]
fn forged_progressive_files_come_to_the_same() {
    let (mut numbers, mut twins) = (Numbers(1705), Twins::new());
    for at in 0..files() {
        let forged = forge::progressive::twins(&mut numbers);
        twins.compare(&forged.progressive, true, &|| format!("progressive file {at}, {:?}", forged.made_of));
        twins.compare(&forged.baseline, true, &|| format!("baseline file {at}"));
    }
}

#[test]
fn damaged_files_come_to_the_same_where_both_read_them() {
    let (mut numbers, mut twins) = (Numbers(1703), Twins::new());
    let small: Vec<_> = photos().into_iter().filter(|file| file.len() < 2000).collect();
    for at in 0..20 * files() {
        let mut file = match numbers.below(4) {
            0 | 1 => small[numbers.below(small.len())].clone(),
            2 => forge::progressive::twins(&mut numbers).progressive,
            _ => forge::file(&mut numbers),
        };
        for _ in 0..1 + numbers.below(3) {
            let place = numbers.below(file.len());
            file[place] = numbers.next() as u8;
        }
        twins.compare(&file, false, &|| format!("damaged file {at}"));
    }
    assert!(twins.compared > files(), "only {} were compared", twins.compared);
}

/// The expected values of `jpeg_scaled`, which needs no libjpeg-turbo. `PERCOLATOR_WRITE_SCALED=1` writes
/// them.
#[test]
fn the_kept_checksums_are_those_of_libjpeg_turbo() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let kept = data.join("images/scaled.json");
    let mut lines = Vec::new();
    for folder in ["images", "photos"] {
        let entries = std::fs::read_dir(data.join(folder)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name.ends_with(".jpg") && !name.starts_with("exif"));
        names.sort();
        for name in names {
            let file = std::fs::read(data.join(folder).join(&name)).unwrap();
            let shape = ImageFileDecoder::new(ColorMode::Native).shape(&file).unwrap();
            for scale in &SCALES[1..] {
                let [height, width] = [shape.height, shape.width].map(|side| scale.scale(side));
                // A file with stray bytes has a warning; one pixel cannot be made smaller.
                let Ok(planes) = Twins::turbo(&file, shape.channels == 1, *scale) else { continue };
                if shape.height * shape.width > 1 {
                    let (sha256, channels) = (hex(&planes), shape.channels);
                    lines.push(format!(
                        "{{\"file\": \"{folder}/{name}\", \"shape\": [{channels}, {height}, {width}], \
                         \"sha256\": \"{sha256}\"}}"
                    ));
                }
            }
        }
    }
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    if std::env::var_os("PERCOLATOR_WRITE_SCALED").is_some() {
        std::fs::write(&kept, &text).unwrap();
    }
    assert!(std::fs::read_to_string(&kept).unwrap() == text, "{} is not libjpeg-turbo's", kept.display());
}
