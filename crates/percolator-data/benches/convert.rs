//! Measures conversions of photographs beside the decoder alone:
//!
//! ```text
//! cargo bench -p percolator-data --bench convert [-- FOLDER [IMAGES]]
//! ```
//!
//! It writes JPEG files of 500x375 pixels to a temporary folder below FOLDER (the system's own by default),
//! 10,000 of them: 400 windows of four photographs, each in 25 files. Then it takes turns: the decoder alone,
//! on one thread (`limits::decodes_per_second` of percolator-measure), and conversions with one worker and
//! with as many as there are processors; after each, as many bytes as it wrote are written to a plain file,
//! by one thread. The medians of three turns count. The files are in the page cache.
#![allow(missing_docs, clippy::cast_precision_loss, reason = "a bench")]

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jpeg_encoder::{ColorType, Encoder};
use percolator::ColorMode;
use percolator::decoder::ImageFileDecoder;
use percolator::source::ImageList;
use percolator_data::convert::{Convert, Encoded, ImageOptions, Progress};
use percolator_data::input::ListedImages;
use percolator_data::store::Backend;
use percolator_measure::limits::decodes_per_second;

const HEIGHT: usize = 375;
const WIDTH: usize = 500;
const WINDOWS: usize = 400;
const TURNS: usize = 3;

type Done<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let parent = arguments.first().map_or_else(std::env::temp_dir, PathBuf::from);
    let images = arguments.get(1).map_or(Ok(10_000), |images| images.parse())?;
    let folder = tempfile::tempdir_in(parent)?;
    let list = write_images(folder.path(), images)?;
    let processors = std::thread::available_parallelism()?.get();
    let raw = ImageOptions::default();
    let cases = [
        ("pixels, LMDB", raw, Backend::Lmdb, 1),
        ("pixels, LMDB", raw, Backend::Lmdb, processors),
        (
            "resized to 256x256, LMDB",
            ImageOptions { resize: Some([256, 256]), ..raw },
            Backend::Lmdb,
            processors,
        ),
        (
            "resized to 256x256, LevelDB",
            ImageOptions { resize: Some([256, 256]), ..raw },
            Backend::LevelDb,
            processors,
        ),
        ("encoded, LMDB", ImageOptions { encoded: Some(Encoded::AsNamed), ..raw }, Backend::Lmdb, processors),
        (
            "encoded, TFRecord",
            ImageOptions { encoded: Some(Encoded::AsNamed), ..raw },
            Backend::TfRecord,
            processors,
        ),
    ];
    let mut decoder = Vec::new();
    let mut rates = vec![Vec::new(); cases.len()];
    let source = ImageList::open(&list)?;
    for _ in 0..TURNS {
        for (rates, (_, options, backend, threads)) in rates.iter_mut().zip(cases) {
            let alone = decodes_per_second(&source, ColorMode::Color, Duration::from_secs(3))?;
            let alone = alone.ok_or("the files are encoded")?;
            decoder.push(alone);
            let (rate, bytes) = convert(&list, &folder.path().join("made"), options, backend, threads)?;
            let plain = write_plainly(&folder.path().join("plain"), bytes)?;
            let bytes_per_second = rate * bytes as f64 / images as f64;
            rates.push([rate, rate / alone, bytes_per_second / plain]);
        }
    }
    println!("{images} JPEGs of {WIDTH}x{HEIGHT}; the decoder alone, one thread: {:.0}/s", median(decoder));
    println!(
        "| written | workers | images/s | of the decoder's rate | of plain writing |\n|---|---|---|---|---|"
    );
    for (turns, (name, _, _, threads)) in rates.into_iter().zip(cases) {
        let [rate, of_decoder, of_writing] =
            [0, 1, 2].map(|column| median(turns.iter().map(|turn: &[f64; 3]| turn[column]).collect()));
        println!("| {name} | {threads} | {rate:.0} | {of_decoder:.2} | {of_writing:.2} |");
    }
    Ok(())
}

/// The rate of a conversion, and the bytes of its records. The output is removed.
fn convert(
    list: &Path,
    output: &Path,
    options: ImageOptions,
    backend: Backend,
    threads: usize,
) -> Done<(f64, u64)> {
    let start = Instant::now();
    let summary = Convert::new(ListedImages::open(list, "", None)?, output, backend)
        .images(options)
        .threads(threads)
        .run(&Progress::new())?;
    let rate = summary.records as f64 / start.elapsed().as_secs_f64();
    if output.is_dir() { fs::remove_dir_all(output) } else { fs::remove_file(output) }?;
    Ok((rate, summary.bytes))
}

/// The bytes a second at which one thread writes a file, and syncs it.
fn write_plainly(path: &Path, bytes: u64) -> Done<f64> {
    let piece = vec![7; 4 << 20];
    let start = Instant::now();
    let mut file = fs::File::create(path)?;
    let mut left = usize::try_from(bytes)?;
    while left > 0 {
        left -= file.write(&piece[..left.min(piece.len())])?;
    }
    file.sync_data()?;
    let rate = bytes as f64 / start.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    Ok(rate)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Writes the files, and a list of them.
fn write_images(folder: &Path, images: usize) -> Done<PathBuf> {
    let photos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../percolator-cli/src/commands/bench/photos");
    let mut windows = Vec::new();
    for (number, name) in ["astronaut", "chelsea", "coffee", "rocket"].into_iter().enumerate() {
        let file = fs::read(photos.join(name).with_extension("jpg"))?;
        let count = WINDOWS / 4;
        for window in 0..count {
            // Larger than a window by up to a quarter.
            let (height, width) = (HEIGHT + window % 94, WIDTH + (window * 7) % 125);
            let mut decoder = ImageFileDecoder::new(ColorMode::Color).resize(height, width);
            let planes = decoder.decode(&file)?.bytes;
            let (top, left) = ((height - HEIGHT) * (number + 1) / 5, (width - WIDTH) * (number + 1) / 5);
            let pixel =
                |y: usize, x: usize, plane: usize| planes[(plane * height + top + y) * width + left + x];
            let pixels: Vec<u8> = (0..HEIGHT * WIDTH)
                .flat_map(|at| [0, 1, 2].map(|plane| pixel(at / WIDTH, at % WIDTH, plane)))
                .collect();
            let mut jpeg = Vec::new();
            let mut encoder = Encoder::new(&mut jpeg, 90);
            encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_2_2);
            encoder.encode(&pixels, u16::try_from(WIDTH)?, u16::try_from(HEIGHT)?, ColorType::Bgr)?;
            windows.push(jpeg);
        }
    }
    let mut list = String::new();
    for number in 0..images {
        let path = folder.join(format!("{number:06}.jpg"));
        fs::write(&path, &windows[number % windows.len()])?;
        list += &format!("{} {}\n", path.display(), number % 10);
    }
    let path = folder.join("list.txt");
    fs::write(&path, list)?;
    Ok(path)
}
