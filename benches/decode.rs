//! How fast one thread decodes JPEGs: whole, and a random crop of 227 as a training net takes it.
//!
//! `cargo bench --bench decode`; with `--features turbojpeg` (cmake and nasm) beside libjpeg-turbo, which always
//! decodes the whole image, to interleaved pixels. They take turns, because the machine may slow down or speed up
//! meanwhile; each round gives a ratio, and the medians are the result. The files are four photographs of 500x375,
//! quality 90, 4:2:0, or those in the folder `PERCOLATOR_PHOTOS`.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use percolator::ColorMode;
use percolator::bench_support::DecodeBench;

const ROUNDS: usize = 15;

/// How often each file is decoded in a round.
const TIMES: usize = 8;

const CROP: usize = 227;

type Decode = Box<dyn FnMut(&[u8])>;

fn whole() -> Decode {
    let mut bench = DecodeBench::new(ColorMode::Color, None);
    Box::new(move |file| {
        black_box(bench.decode(file).unwrap());
    })
}

fn cropped() -> Decode {
    let (mut bench, mut number) = (DecodeBench::new(ColorMode::Color, None), 1701u64);
    Box::new(move |file| {
        let shape = bench.shape(file).unwrap();
        let mut below = |end: usize| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(number >> 33).unwrap() % end
        };
        let (top, left) = (below(shape.height - CROP + 1), below(shape.width - CROP + 1));
        black_box(bench.decode_window(file, [top, left, CROP, CROP]).unwrap());
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

fn main() {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/photos");
    let folder = std::env::var_os("PERCOLATOR_PHOTOS").map_or_else(default, PathBuf::from);
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "jpg")).collect();
    paths.sort();
    let files: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let bytes = files.iter().map(Vec::len).sum::<usize>() / files.len();
    println!("{} files of {bytes} bytes on average; one thread; {ROUNDS} rounds; medians", files.len());
    let mut decoders = Vec::new();
    #[cfg(feature = "turbojpeg")]
    decoders.push(("libjpeg-turbo, whole", turbo()));
    decoders.extend([("whole", whole()), ("crop", cropped())]);
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); decoders.len()];
    // The first round warms up.
    for round in 0..=ROUNDS {
        for ((_, decode), times) in decoders.iter_mut().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..TIMES {
                files.iter().for_each(|file| decode(file));
            }
            if round > 0 {
                times.push(start.elapsed().as_secs_f64() / (TIMES as f64 * files.len() as f64));
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
