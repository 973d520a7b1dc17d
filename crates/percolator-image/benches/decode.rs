//! How fast one thread decodes JPEGs: whole, and a random crop of 227 as a training net takes it. Then,
//! resized to a smaller size: from the whole image and from one decoded at a reduced size, and how far the
//! pixels of the two are apart. At last, decoded pictures are resized to 224x224 as Pillow and as PyTorch do.
//!
//! `cargo bench --package percolator-image`; with `--features turbojpeg` (cmake and nasm) beside
//! libjpeg-turbo, which always decodes the whole image, to interleaved pixels. The decoders alternate,
//! because the machine may slow down or speed up meanwhile; each round gives a ratio, and the results are
//! medians. The files are four photographs of 500x375, quality 90, 4:2:0, or those in the folder
//! `PERCOLATOR_PHOTOS`. Large files are made from them, four times as wide and high; they are blurred, so
//! they have fewer codes than photographs of their size.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use percolator_image::resample::{Filter, Resampler, Resampling, ResizeLaw};
use percolator_image::{ColorMode, ImageFileDecoder, ImageShape, Planes, Window};

const ROUNDS: usize = 15;

/// How often each file is decoded in a round.
const TIMES: usize = 8;

const CROP: usize = 227;

type Decode = Box<dyn FnMut(&[u8])>;

fn with(mut bench: ImageFileDecoder) -> Decode {
    Box::new(move |file| {
        black_box(bench.decode(file).unwrap());
    })
}

fn whole() -> Decode {
    with(ImageFileDecoder::new(ColorMode::Color))
}

fn cropped() -> Decode {
    let (mut bench, mut number) = (ImageFileDecoder::new(ColorMode::Color), 1701u64);
    Box::new(move |file| {
        let shape = bench.shape(file).unwrap();
        let mut below = |end: usize| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(number >> 33).unwrap() % end
        };
        let (top, left) = (below(shape.height - CROP + 1), below(shape.width - CROP + 1));
        let window = Window { top, left, height: CROP, width: CROP };
        black_box(bench.decode_window(file, window).unwrap());
    })
}

#[cfg(feature = "turbojpeg")]
fn turbo() -> Decode {
    use turbojpeg::{Decompressor, Image, PixelFormat};

    let (mut turbo, mut pixels) = (Decompressor::new().unwrap(), Vec::new());
    Box::new(move |file| {
        let header = turbo.read_header(file).unwrap();
        let (height, width, format) = (header.height, header.width, PixelFormat::BGR);
        pixels.resize(3 * height * width, 0);
        turbo
            .decompress(file, Image { pixels: &mut pixels[..], width, pitch: 3 * width, height, format })
            .unwrap();
        black_box(&pixels);
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs the decoders alternately, and returns how long they took.
fn compare(files: &[Vec<u8>], times_each: usize, mut decoders: Vec<(&str, Decode)>) {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); decoders.len()];
    // The first round warms up.
    for round in 0..=ROUNDS {
        for ((_, decode), times) in decoders.iter_mut().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..times_each {
                files.iter().for_each(|file| decode(file));
            }
            if round > 0 {
                times.push(start.elapsed().as_secs_f64() / (times_each * files.len()) as f64);
            }
        }
    }
    let (first, name) = (times[0].clone(), decoders[0].0);
    for ((decoder, _), times) in decoders.iter().zip(&times) {
        let ratio = median(first.iter().zip(times).map(|(first, time)| first / time).collect());
        let time = median(times.clone());
        println!("{decoder:<22} {:8.1} us, {:6.0}/s, {ratio:.2} times {name}", time * 1e6, time.recip());
    }
}

/// Files resized to a smaller size, from the whole image and from one decoded at a reduced size.
fn compare_resized(files: &[Vec<u8>], times_each: usize, size: (usize, usize)) {
    let benches = || [false, true].map(|scaled| bench(size, scaled));
    let [whole, scaled] = benches();
    compare(files, times_each, vec![("resized", with(whole)), ("resized, scaled", with(scaled))]);
    let [mut whole, mut scaled] = benches();
    let mut sum = [0.0; 2];
    for file in files {
        let whole = whole.decode(file).unwrap().bytes;
        let scaled = scaled.decode(file).unwrap().bytes;
        let apart: u64 = whole.iter().zip(scaled).map(|(&one, &other)| u64::from(one.abs_diff(other))).sum();
        sum = [sum[0] + apart as f64, sum[1] + whole.len() as f64];
    }
    println!("mean difference of their pixels: {:.2} levels of 255", sum[0] / sum[1]);
}

fn bench(size: (usize, usize), scaled: bool) -> ImageFileDecoder {
    let bench = ImageFileDecoder::new(ColorMode::Color).resize(size.0, size.1);
    if scaled { bench.scaled() } else { bench }
}

/// Resizes the pictures of these files, which are decoded before, in turn.
fn resampled(files: &[Vec<u8>], how: Resampling) -> Decode {
    const TO: [usize; 2] = [224, 224];

    let mut decoder = ImageFileDecoder::new(ColorMode::Rgb);
    let mut decoded = |file: &Vec<u8>| {
        let Planes { shape, bytes } = decoder.decode(file).unwrap();
        (shape, bytes.to_vec())
    };
    let pictures: Vec<(ImageShape, Vec<u8>)> = files.iter().map(&mut decoded).collect();
    let (mut resampler, mut out, mut next) = (Resampler::default(), vec![0; 3 * TO[0] * TO[1]], 0);
    Box::new(move |_| {
        let (shape, bytes) = &pictures[next % pictures.len()];
        let window = Window { top: 0, left: 0, height: shape.height, width: shape.width };
        resampler.resize(Planes { shape: *shape, bytes }, window, how, TO, &mut out).unwrap();
        black_box(&out);
        next += 1;
    })
}

fn compare_resampled(files: &[Vec<u8>], times_each: usize) {
    let of = |filter, law| resampled(files, Resampling { filter, law, ..Resampling::default() });
    let resizes = [
        ("bilinear", of(Filter::Bilinear, ResizeLaw::Pillow)),
        ("bicubic", of(Filter::Bicubic, ResizeLaw::Pillow)),
        ("lanczos", of(Filter::Lanczos, ResizeLaw::Pillow)),
        ("bilinear, PyTorch's", of(Filter::Bilinear, ResizeLaw::Torch)),
    ];
    compare(files, times_each, resizes.into());
}

/// A file of the same image, `times` as wide and high.
fn enlarged(file: &[u8], times: usize) -> Vec<u8> {
    let shape = ImageFileDecoder::new(ColorMode::Color).shape(file).unwrap();
    let (height, width) = (times * shape.height, times * shape.width);
    let mut bench = ImageFileDecoder::new(ColorMode::Color).resize(height, width);
    let planes = bench.decode(file).unwrap().bytes;
    let pixels = height * width;
    let rgb: Vec<u8> =
        (0..pixels).flat_map(|at| [2, 1, 0].map(|plane| planes[plane * pixels + at])).collect();
    let mut out = Vec::new();
    let mut encoder = Encoder::new(&mut out, 90);
    encoder.set_sampling_factor(SamplingFactor::F_2_2);
    let [width, height] = [width, height].map(|side| u16::try_from(side).unwrap());
    encoder.encode(&rgb, width, height, ColorType::Rgb).unwrap();
    out
}

fn main() {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/photos");
    let folder = std::env::var_os("PERCOLATOR_PHOTOS").map_or_else(default, PathBuf::from);
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "jpg")).collect();
    paths.sort();
    let files: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let bytes = |files: &[Vec<u8>]| files.iter().map(Vec::len).sum::<usize>() / files.len();
    println!(
        "{} files of {} bytes on average; one thread; {ROUNDS} rounds; medians",
        files.len(),
        bytes(&files)
    );
    let mut decoders = Vec::new();
    #[cfg(feature = "turbojpeg")]
    decoders.push(("libjpeg-turbo, whole", turbo()));
    decoders.extend([("whole", whole()), ("crop", cropped())]);
    compare(&files, TIMES, decoders);
    for size in [(128, 128), (90, 90), (40, 40)] {
        println!("\nto {}x{}", size.0, size.1);
        compare_resized(&files, TIMES, size);
    }
    println!("\nto 224x224, decoded before");
    compare_resampled(&files, TIMES);
    let large: Vec<Vec<u8>> = files.iter().map(|file| enlarged(file, 4)).collect();
    for size in [(512, 512), (256, 256), (128, 128)] {
        println!("\n4 times as wide and high, {} bytes on average, to {}x{}", bytes(&large), size.0, size.1);
        compare_resized(&large, 1, size);
    }
}
