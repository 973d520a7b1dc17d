//! Files and operations as Pillow, torchvision and OpenCV have them: `data/pillow` has their sources, and the
//! checksums of what came out. Made with Pillow 13.0.0, torchvision 0.29.2 and OpenCV 5.0.0; pictures:
//! astronaut (NASA, public domain), chelsea, coffee, rocket (CC0), from scikit-image.

use std::fs;
use std::path::PathBuf;

use percolator_image::resample::{Filter, Resampler, Resampling, ResizeLaw};
use percolator_image::{ColorMode, ImageFileDecoder, ImageShape, Planes, Window};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// An image that owns its planes.
pub(crate) struct Picture {
    pub(crate) shape: ImageShape,
    pub(crate) bytes: Vec<u8>,
}

impl Picture {
    pub(crate) fn planes(&self) -> Planes<'_> {
        Planes { shape: self.shape, bytes: &self.bytes }
    }

    fn whole(&self) -> Window {
        Window { top: 0, left: 0, height: self.shape.height, width: self.shape.width }
    }

    /// The checksum of its pixels with the channels side by side.
    pub(crate) fn checksum(&self) -> String {
        let pixels = self.shape.height * self.shape.width;
        let interleaved: Vec<u8> =
            (0..pixels).flat_map(|at| self.bytes.iter().skip(at).step_by(pixels).copied()).collect();
        let digest = Sha256::digest(&interleaved);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/pillow")
}

/// What Pillow opens: grey stays grey, everything else becomes RGB.
pub(crate) fn opened(source: &str) -> Picture {
    let file = fs::read(folder().join(source)).unwrap();
    let color = if source.contains("grey.png") { ColorMode::Native } else { ColorMode::Rgb };
    decoded(&file, color)
}

fn decoded(file: &[u8], color: ColorMode) -> Picture {
    let mut decoder = ImageFileDecoder::new(color);
    let Planes { shape, bytes } = decoder.decode(file).unwrap();
    Picture { shape, bytes: bytes.to_vec() }
}

pub(crate) fn cases(group: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder().join("cases.jsonl")).unwrap();
    let cases = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    cases.filter(|case| case["group"] == group).collect()
}

pub(crate) fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap()
}

pub(crate) fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// Panics with all cases that differ.
pub(crate) fn check(found: impl Iterator<Item = (String, String, String)>, least: usize) {
    let (mut checked, mut differ) = (0, Vec::new());
    for (name, found, wanted) in found {
        checked += 1;
        if found != wanted {
            differ.push(name);
        }
    }
    assert!(differ.is_empty(), "{} of {checked} differ: {differ:?}", differ.len());
    assert!(checked >= least, "{checked} cases");
}

/// The mode that gives what a library opens this way, if one does.
fn mode_of(op: &str) -> Option<ColorMode> {
    Some(match op {
        "open, convert('RGB'); EXIF not applied" | "open, convert('RGB')" => ColorMode::Rgb,
        "open, ImageOps.exif_transpose, convert('RGB')" => ColorMode::Upright,
        "imread(IMREAD_COLOR), channels turned to RGB" => ColorMode::Color,
        "open, convert('RGBA')"
        | "open, as it is (mode L)"
        | "imread(IMREAD_COLOR|IGNORE_ORIENTATION), channels turned to RGB" => ColorMode::Native,
        // Grey of 16 bits is not kept.
        "open, as it is (mode I;16)" => return None,
        other => panic!("{other}"),
    })
}

#[test]
fn files_have_the_pixels_of_pillow_and_of_opencv() {
    // Where OpenCV and Pillow do not agree about what a file holds, Native is OpenCV's: the transparent
    // colour of a grey or a GIF, colours that are multiplied by their alpha, samples of 16 bits.
    const OPENCVS: [&str; 5] =
        ["png_grey8_trns.png", "gif_transparent.gif", "tiff_rgba.tif", "png_rgba16.png", "png_greya16.png"];
    let found = cases("decode").into_iter().filter_map(|case| {
        let (source, op) = (text(&case, "source"), text(&case, "op"));
        let file = fs::read(folder().join(source)).unwrap();
        let color = mode_of(op)?;
        // OpenCV makes up what a cut file lacks.
        if source == "jpg_cut.jpg" || op.contains("RGBA") && OPENCVS.contains(&source) {
            return None;
        }
        let mut picture = decoded(&file, color);
        if matches!(color, ColorMode::Color | ColorMode::Native) && picture.shape.channels > 1 {
            let plane = picture.shape.height * picture.shape.width;
            let (blue, rest) = picture.bytes.split_at_mut(plane);
            blue.swap_with_slice(&mut rest[plane..2 * plane]);
        }
        Some((text(&case, "name").to_owned(), picture.checksum(), text(&case, "sha256").to_owned()))
    });
    check(found, 170);
}

fn filter(name: &str) -> Filter {
    match name {
        "nearest" => Filter::Nearest,
        "nearest-exact" => Filter::NearestExact,
        "box" => Filter::Box,
        "bilinear" => Filter::Bilinear,
        "hamming" => Filter::Hamming,
        "bicubic" => Filter::Bicubic,
        "lanczos" => Filter::Lanczos,
        _ => panic!("{name}"),
    }
}

/// The size that a case resizes to.
fn size(params: &Value, [height, width]: [usize; 2]) -> [usize; 2] {
    let size = &params["size"];
    match size.as_array().map(Vec::as_slice) {
        Some([height, width]) => [number(height), number(width)],
        only => {
            let short = number(only.map_or(size, |only| &only[0]));
            let (less, more) = (height.min(width), height.max(width));
            let (mut short, mut long) = (short, short * more / less);
            if let Some(most) = params["max_size"].as_u64().filter(|most| long as u64 > *most) {
                let most = usize::try_from(most).unwrap();
                (short, long) = (most * short / long, most);
            }
            if height <= width { [short, long] } else { [long, short] }
        }
    }
}

#[test]
fn resizes_are_pillows_and_pytorchs() {
    let mut resampler = Resampler::default();
    let found = cases("geometry").into_iter().flat_map(|case| {
        let (params, op) = (&case["params"], text(&case, "op"));
        if !matches!(op, "resize shorter side" | "resize to h x w" | "resized_crop") {
            return Vec::new();
        }
        let picture = opened(text(&case, "source"));
        let window = match op {
            "resized_crop" => Window {
                top: number(&params["top"]),
                left: number(&params["left"]),
                height: number(&params["height"]),
                width: number(&params["width"]),
            },
            _ => picture.whole(),
        };
        let to = size(params, [window.height, window.width]);
        let law = match text(&case, "library") {
            "torchvision+torch" => ResizeLaw::Torch,
            _ => ResizeLaw::Pillow13,
        };
        let antialias = params["antialias"].as_bool().unwrap_or(true) || law != ResizeLaw::Torch;
        let how = Resampling { filter: filter(text(params, "interpolation")), antialias, law };
        let mut resize = |law| {
            let shape = ImageShape { channels: picture.shape.channels, height: to[0], width: to[1] };
            let mut out = vec![0; shape.checked_elements().unwrap()];
            resampler.resize(picture.planes(), window, Resampling { law, ..how }, to, &mut out).unwrap();
            Picture { shape, bytes: out }.checksum()
        };
        let name = text(&case, "name");
        let mut found = vec![(name.to_owned(), resize(law), text(&case, "sha256").to_owned())];
        if let Some(before) = case["pillow_12"].as_str() {
            found.push((format!("{name} as up to 12.3"), resize(ResizeLaw::Pillow), before.to_owned()));
        }
        found
    });
    check(found.collect::<Vec<_>>().into_iter(), 150);
}
