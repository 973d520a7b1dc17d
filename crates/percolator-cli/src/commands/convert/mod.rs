//! `percolator convert`: stores from images, and from other stores; shards for other libraries.

mod shards;

use std::ffi::OsString;
use std::io::Write as _;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use percolator::Progress;
use percolator_data::Kind;
use percolator_data::convert::{
    self as conversion, Encoded, Encoding, ExampleNames, ImageOptions, RecordOptions, Summary,
};
use percolator_data::input::{
    Cifar, CifarKind, CifarLabel, CifarSplit, ClassFolders, Idx, Input, ListedImages, Records,
};
use percolator_data::store::Backend;
use percolator_files::shown;
use percolator_files::shown::count;
use serde_json::json;

use self::shards::ToShards;
use crate::args::formats::FormatArgs;
use crate::args::{OpenArgs, choices, with};
use crate::run::exit;
use crate::terminal::out::stdout;
use crate::terminal::progress::{megabytes_per_second, watched};

#[derive(Debug, Args)]
pub(super) struct Convert {
    #[command(subcommand)]
    from: Origin,
}

#[derive(Debug, Subcommand)]
enum Origin {
    /// Convert the images of a list, as Caffe's convert_imageset does: each line is a file's name, a space
    /// and a label.
    ///
    /// A record's key is the number of its line, after the shuffle, and the name: 00000000_cat.jpg.
    #[command(visible_alias = "imageset")]
    List(List),
    /// Convert a folder with a folder of images for each class, as torchvision's ImageFolder takes it.
    ///
    /// The labels are the numbers of the classes in the order of their names, which NAME.labels.txt lists.
    Folders(Folders),
    /// Convert MNIST's files, or others in the format IDX, as Caffe's convert_mnist_data does.
    Idx(IdxFiles),
    /// Convert CIFAR-10's binary files, as Caffe's convert_cifar_data does: planes in the order red, green,
    /// blue.
    Cifar10(CifarFiles),
    /// Convert CIFAR-100's binary files.
    Cifar100(Cifar100),
    /// Convert the records of an LMDB, a LevelDB, TFRecord files, or data of another library.
    ///
    /// Keys are kept. Records of TFRecord files have none, and get their numbers: 00000000. Those of another
    /// library (shards of WebDataset, Parquet, Arrow, JSON lines and more) become tf.train.Examples with a
    /// feature for each part, and are numbered.
    Records(RecordsOf),
    /// Write the records of any data as other libraries read them: shards of WebDataset, Parquet files.
    ///
    /// Several data sets become one, or many; they may be shuffled. Nothing is left out or rounded: what the
    /// format cannot hold ends the command. There is no --resume: the shards that are there are whole.
    Shards(ToShards),
}

/// Where the records go, and how the command runs.
#[derive(Debug, Args)]
struct OutputArgs {
    /// The store to write.
    #[arg(value_name = "NAME")]
    output: PathBuf,
    /// The kind of store.
    #[arg(long, value_enum, default_value_t)]
    backend: BackendArg,
    /// Write this many stores, NAME-00000-of-00004 and so on, each with a range of the records.
    #[arg(long, value_name = "N")]
    shards: Option<NonZeroU32>,
    /// Replace outputs that exist, once the new ones are whole; start over if a run did not finish.
    #[arg(short, long)]
    force: bool,
    /// Go on with what a run of the same command did not finish, if there is any.
    #[arg(long)]
    resume: bool,
    /// Exit with 0 although something was skipped.
    #[arg(long, alias = "keep_going")]
    keep_going: bool,
    /// Threads that decode [default: one per processor].
    #[arg(short = 'j', long)]
    threads: Option<NonZeroU16>,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
    /// Print no progress.
    #[arg(short, long)]
    quiet: bool,
}

/// What is made of image files: the flags of convert_imageset, with its names (hyphens or underscores) and
/// its bools: `--gray`, `--gray=true`, `--gray=0`.
#[derive(Debug, Args)]
struct ImageArgs {
    /// Decode to grey: one channel instead of three.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL",
        value_parser = BoolishValueParser::new())]
    gray: Option<bool>,
    /// Resize to this many rows, bilinearly as OpenCV does.
    #[arg(long, alias = "resize_height", value_name = "ROWS", requires = "resize_width")]
    resize_height: Option<u32>,
    /// Resize to this many columns.
    #[arg(long, alias = "resize_width", value_name = "COLUMNS", requires = "resize_height")]
    resize_width: Option<u32>,
    /// Store encoded files instead of pixels: as they are, unless they are resized or of another format.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL",
        value_parser = BoolishValueParser::new())]
    encoded: Option<bool>,
    /// Store encoded files of this format: jpg or png.
    #[arg(long, alias = "encode_type", value_name = "FORMAT", value_parser = encoding)]
    encode_type: Option<EncodingArg>,
    /// Skip images whose size differs from the first one's.
    #[arg(long, alias = "check_size", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_name = "BOOL", value_parser = BoolishValueParser::new())]
    check_size: Option<bool>,
}

fn encoding(name: &str) -> Result<EncodingArg, conversion::UnknownEncoding> {
    // Caffe's default is an empty name.
    Ok(EncodingArg(if name.is_empty() { None } else { Some(name.parse()?) }))
}

/// A format, if one is named.
#[derive(Clone, Copy, Debug)]
struct EncodingArg(Option<Encoding>);

#[derive(Debug, Args)]
struct List {
    /// Prepended to each name as it is, without a slash: end it with one.
    #[arg(value_name = "ROOT")]
    root: OsString,
    /// The list.
    #[arg(value_name = "LIST")]
    list: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    images: ImageArgs,
    /// Shuffle the list, in the order of Caffe's shuffle with a generator of --seed.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL",
        value_parser = BoolishValueParser::new())]
    shuffle: Option<bool>,
    /// Seeds the shuffle. Caffe takes another seed at each run.
    #[arg(long, default_value_t = 0)]
    seed: u32,
}

#[derive(Debug, Args)]
struct Folders {
    /// The folder with the classes' folders.
    #[arg(value_name = "ROOT")]
    root: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    images: ImageArgs,
}

#[derive(Debug, Args)]
struct IdxFiles {
    /// The images, such as train-images-idx3-ubyte; may be compressed with gzip.
    #[arg(value_name = "IMAGES")]
    images: PathBuf,
    /// Their labels, such as train-labels-idx1-ubyte.
    #[arg(value_name = "LABELS")]
    labels: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct CifarFiles {
    /// The folder with data_batch_1.bin and so on (CIFAR-10), or with train.bin and test.bin (CIFAR-100), or
    /// one of these files.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
    /// Which of a folder's files [default: train].
    #[arg(long, value_enum)]
    split: Option<SplitArg>,
}

#[derive(Debug, Args)]
struct Cifar100 {
    #[command(flatten)]
    files: CifarFiles,
    /// Which of an image's two labels.
    #[arg(long, value_enum, default_value_t)]
    label: LabelArg,
}

#[derive(Debug, Args)]
struct RecordsOf {
    /// The folder of an LMDB or a LevelDB, TFRecord files: one, a folder, or a quoted pattern, or data of
    /// another library, whose parts become features: floats of 32 bits, arrays without their shapes.
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    formats: FormatArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Take the records for Datums, and keep their images and labels alone.
    #[arg(long)]
    strip: bool,
    /// Take the records for tf.train.Examples, and make Datums of their images and labels: the names of the
    /// two features, such as image/encoded,image/class/label; of another library's records, those of the two
    /// parts, such as jpg,cls.
    #[arg(long, value_name = "IMAGE,LABEL", value_parser = example_names, conflicts_with = "strip")]
    example: Option<ExampleNames>,
}

fn example_names(names: &str) -> Result<ExampleNames, String> {
    match names.split(',').collect::<Vec<_>>()[..] {
        [image, label] if !image.is_empty() && !label.is_empty() => {
            Ok(ExampleNames { image: image.to_owned(), label: label.to_owned() })
        }
        _ => Err("give the names of two features with a comma between them".to_owned()),
    }
}

choices! {
    #[derive(Default)]
    enum BackendArg for Backend {
        #[default]
        Lmdb,
        #[value(name = "leveldb")]
        LevelDb,
        #[value(name = "tfrecord")]
        TfRecord,
    }
}

choices! {
    #[derive(Default)]
    enum SplitArg for CifarSplit {
        #[default]
        Train,
        Test,
    }
}

choices! {
    #[derive(Default)]
    enum LabelArg for CifarLabel {
        /// One of 100 classes.
        #[default]
        Fine,
        /// One of 20 groups of classes.
        Coarse,
    }
}

impl Convert {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.from {
            Origin::List(List { root, list, output, images, shuffle, seed }) => {
                let options = images.options()?;
                let input = ListedImages::open(&list, root, shuffle.unwrap_or_default().then_some(seed))?;
                output.run(input, options, RecordOptions::default())
            }
            Origin::Folders(Folders { root, output, images }) => {
                let options = images.options()?;
                output.run(ClassFolders::open(&root)?, options, RecordOptions::default())
            }
            Origin::Idx(IdxFiles { images, labels, output }) => {
                output.run_plain(Idx::open(&images, &labels)?)
            }
            Origin::Cifar10(files) => files.run(CifarKind::Ten),
            Origin::Cifar100(Cifar100 { files, label }) => files.run(CifarKind::Hundred(label.into())),
            Origin::Records(RecordsOf { source, open, formats, output, strip, example }) => {
                let options = RecordOptions { strip, example };
                let data = formats.opened(&source, open.options()).open(&source)?;
                if data.kind() == Kind::TfRecord {
                    output.check_apart_from(&source)?;
                }
                output.run(Records::of(data)?, ImageOptions::default(), options)
            }
            Origin::Shards(shards) => shards.run(),
        }
    }
}

impl CifarFiles {
    fn run(self, kind: CifarKind) -> anyhow::Result<ExitCode> {
        let CifarFiles { path, output, split } = self;
        ensure!(
            split.is_none() || !path.is_file(),
            "{}: --split chooses among the files of a folder, and this is one file: leave it out",
            shown::path(&path)
        );
        output.run_plain(Cifar::open(&path, kind, split.unwrap_or_default().into())?)
    }
}

impl ImageArgs {
    fn options(&self) -> anyhow::Result<ImageOptions> {
        let resize = match [self.resize_height, self.resize_width].map(Option::unwrap_or_default) {
            [0, 0] => None,
            [rows, columns] if rows == 0 || columns == 0 => bail!(
                "--resize-height {rows} and --resize-width {columns}: an image is resized to both, or with 0 \
                 for both not at all"
            ),
            sides => Some(sides),
        };
        let encoded = match self.encode_type {
            Some(EncodingArg(Some(encoding))) => Some(Encoded::As(encoding)),
            _ => self.encoded.unwrap_or_default().then_some(Encoded::AsNamed),
        };
        let [gray, check_size] = [self.gray, self.check_size].map(Option::unwrap_or_default);
        Ok(ImageOptions { gray, resize, encoded, check_size })
    }
}

impl OutputArgs {
    fn run_plain(self, input: impl Input + 'static) -> anyhow::Result<ExitCode> {
        self.run(input, ImageOptions::default(), RecordOptions::default())
    }

    /// Checks that no file that is to be written would be one of the TFRecord files that are read: they would
    /// have every record twice.
    fn check_apart_from(&self, data: &Path) -> anyhow::Result<()> {
        let mut first = self.output.clone().into_os_string();
        if let Some(shards) = self.shards {
            first.push(format!("-00000-of-{shards:05}"));
        }
        let is_among = Backend::from(self.backend) == Backend::TfRecord
            && percolator_tfrecord::is_among(&first, "", data);
        let [name, data] = [&self.output, data].map(shown::path);
        ensure!(!is_among, "{name}: it would be among the files of the data set {data}: give another path");
        Ok(())
    }

    fn run(
        self,
        input: impl Input + 'static,
        images: ImageOptions,
        records: RecordOptions,
    ) -> anyhow::Result<ExitCode> {
        let convert = conversion::Convert::new(input, &self.output, self.backend.into())
            .images(images)
            .records(records)
            .force(self.force)
            .resume(self.resume);
        let convert = with(convert, self.shards, conversion::Convert::shards);
        let threads = self.threads.map(|threads| threads.get().into());
        let convert = with(convert, threads, conversion::Convert::threads);
        let start = Instant::now();
        let summary = watched(self.quiet, rate, |progress, _| Ok(convert.run(progress)?))?;
        let print = if self.json { print_json } else { print };
        print(&summary, start.elapsed())?;
        Ok(exit::found(summary.skipped == 0 || self.keep_going))
    }
}

/// What a bar says beside its percentage.
fn rate(progress: &Progress, took: Duration) -> String {
    let skipped = match progress.skipped() {
        0 => String::new(),
        skipped => format!(", {skipped} skipped"),
    };
    format!("{}{skipped}, {:.1} MB/s", progress.done(), megabytes_per_second(progress.bytes(), took))
}

/// Prints what was written, and what was skipped.
fn print(summary: &Summary, took: Duration) -> anyhow::Result<()> {
    const LISTED_MAX: usize = 20;

    let mut out = stdout();
    for output in &summary.outputs {
        writeln!(out, "{}", shown::path(output))?;
    }
    let seconds = took.as_secs_f64().max(1e-3);
    let before = match summary.done_before {
        0 => String::new(),
        done => format!(", {} of them before", count(done, "item")),
    };
    let (records, bytes) = (count(summary.records, "record"), summary.bytes);
    writeln!(out, "{records}, {bytes} bytes, in {seconds:.2} s{before}")?;
    if let Some(labels) = &summary.labels {
        writeln!(out, "classes: {}", shown::path(labels))?;
    }
    if let Some(list) = &summary.skipped_list {
        writeln!(out, "skipped: {}, listed in {}", summary.skipped, shown::path(list))?;
        for skipped in summary.first_skipped.iter().take(LISTED_MAX) {
            // A record that cannot be read may have an unknown key.
            let key = if skipped.key.is_empty() { String::new() } else { format!(", {}", skipped.key) };
            let line = format!("item {}{key}: {}", skipped.item, skipped.reason);
            writeln!(out, "skipped: {}", shown::message(&line))?;
        }
    }
    out.finish()
}

fn print_json(summary: &Summary, took: Duration) -> anyhow::Result<()> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    stdout().json(
        "percolator.convert/1",
        &json!({
            "outputs": summary.outputs.iter().map(|path| text(path)).collect::<Vec<_>>(),
            "records": summary.records,
            "bytes": summary.bytes,
            "seconds": took.as_secs_f64(),
            "done_before": summary.done_before,
            "skipped": summary.skipped,
            "first_skipped": summary.first_skipped,
            "skipped_list": summary.skipped_list.as_deref().map(text),
            "labels": summary.labels.as_deref().map(text),
        }),
    )
}
