//! Arguments that several subcommands share.
//!
//! ```text
//! what to read, by its path                                  source; described: the feed of it
//! a net's state, how data are opened, a transform; choices   this file; operations
//! lengths of time; numbers of bytes; addresses to listen at      durations, sizes, addresses
//! a whole data set                                           data_set
//! Examples' features; records' named parts                    fields
//! data of other libraries; the records of any format           formats, records
//! a feed and its pipeline                                    input, pipeline
//! an order of a job                                          job
//! the records of processes                                   metadata
//! ```

pub(crate) mod addresses;
pub(crate) mod data_set;
pub(crate) mod described;
pub(crate) mod durations;
pub(crate) mod fields;
pub(crate) mod formats;
pub(crate) mod input;
pub(crate) mod job;
pub(crate) mod metadata;
mod operations;
pub(crate) mod pipeline;
pub(crate) mod records;
pub(crate) mod sizes;
pub(crate) mod source;

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use clap::Args;
use percolator::leveldb::LogGaps;
use percolator::net::{DataLayer, NetState};
use percolator::source::Access;
use percolator::{ColorMode, Feed, Net, Phase, Transform};
use percolator_data::{ChannelOrder, Content};
use percolator_files::shown;

use crate::args::described::Described;
use crate::args::source::Source;

use self::operations::OperationArgs;

/// Selects a net's layer, and how its source is read.
#[derive(Debug, Args)]
pub(super) struct StateArgs {
    /// Training (random crops) or testing (centre crops).
    #[arg(long, value_enum, ignore_case = true, default_value_t)]
    phase: PhaseArg,
    /// The net's level, for its min_level and max_level rules [default: 0].
    #[arg(long, allow_negative_numbers = true)]
    level: Option<i32>,
    /// The net's stages, for its stage and not_stage rules.
    #[arg(long, value_delimiter = ',')]
    stage: Vec<String>,
    /// The net's data layer; needed only if it has several.
    #[arg(long, value_name = "NAME")]
    layer: Option<String>,
    /// The data layer that fills this blob; needed only if several layers share a name.
    #[arg(long, value_name = "BLOB")]
    top: Option<String>,
    /// The folder that relative paths (of sources, and in the net) start from [default: the working
    /// directory].
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    #[command(flatten)]
    pub(super) open: OpenArgs,
}

/// How databases are opened.
#[derive(Debug, Args)]
pub(super) struct OpenArgs {
    /// Read a LevelDB whose logs lack writes as it is, and warn of each gap.
    #[arg(long)]
    allow_log_gaps: bool,
    /// How the files of databases are read.
    #[arg(long, value_enum, default_value_t)]
    access: AccessArg,
    /// Read the database of this name in each LMDB.
    #[arg(long, value_name = "NAME")]
    pub(super) database: Option<String>,
}

/// The transform of each record, if no net sets it.
#[derive(Debug, Default, Args)]
pub(super) struct TransformArgs {
    /// First resize every image to this many rows and columns.
    #[arg(long, value_name = "HxW", value_parser = size)]
    resize: Option<[u32; 2]>,
    /// Crop every image to a square with sides of this many pixels; 0 turns cropping off.
    #[arg(long)]
    crop: Option<u32>,
    /// Mirror images at random, half of them on average; `--mirror=false` turns mirroring off.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    mirror: Option<bool>,
    /// Subtract these values: one for all channels, or one per channel.
    #[arg(long, value_delimiter = ',', value_parser = finite, allow_hyphen_values = true,
        conflicts_with = "mean_file")]
    mean_value: Vec<f32>,
    /// Subtract the image in this binaryproto.
    #[arg(long, value_name = "FILE")]
    mean_file: Option<PathBuf>,
    /// Multiply by this factor, after subtracting.
    #[arg(long, allow_negative_numbers = true, value_parser = finite)]
    scale: Option<f32>,
    /// The channels to decode encoded images to [default: the recipe's, otherwise native].
    #[arg(long, value_enum)]
    color: Option<ColorArg>,
    #[command(flatten)]
    operations: OperationArgs,
}

/// The choices of an option: an enum for clap, and the value of the library that each of them stands for,
/// which has its name.
macro_rules! choices {
    ($(#[$of_all:meta])* enum $name:ident for $library:ident {
        $($(#[$of_one:meta])* $choice:ident),+ $(,)?
    }) => {
        $(#[$of_all])*
        #[derive(Clone, Copy, Debug, clap::ValueEnum)]
        pub(crate) enum $name {
            $($(#[$of_one])* $choice),+
        }

        impl From<$name> for $library {
            fn from(choice: $name) -> Self {
                match choice {
                    $($name::$choice => $library::$choice),+
                }
            }
        }
    };
}

pub(crate) use choices;

/// A builder with an option, if it was given.
pub(super) fn with<B, T>(builder: B, value: Option<T>, set: impl FnOnce(B, T) -> B) -> B {
    match value {
        Some(value) => set(builder, value),
        None => builder,
    }
}

choices! {
    #[derive(Default)]
    enum AccessArg for Access {
        /// Map local files; read files on network file systems.
        #[default]
        Auto,
        /// Map files: the fastest. If a file is truncated or becomes unreadable during the run, the system
        /// kills the process.
        Mapped,
        /// Read with pread instead of mapping: an I/O failure is an error, and does not kill the process.
        Read,
    }
}

choices! {
    /// What the values of a data set are stated to be.
    enum ContentArg for Content {
        /// Caffe's Datums.
        Datum,
        /// TensorFlow's tf.train.Examples.
        Example,
        /// TensorFlow's tf.train.SequenceExamples.
        SequenceExample,
        /// Anything else: values are not looked into.
        Bytes,
    }
}

choices! {
    /// The order of channels in the records.
    #[derive(Default)]
    enum ChannelsArg for ChannelOrder {
        #[default]
        Bgr,
        Rgb,
    }
}

choices! {
    #[derive(Default)]
    enum PhaseArg for Phase {
        #[default]
        Train,
        Test,
    }
}

choices! {
    #[derive(Default)]
    enum ColorArg for ColorMode {
        /// The image's own channels.
        #[default]
        Native,
        /// Three channels: Caffe's force_color.
        Color,
        /// One channel: Caffe's force_gray.
        Gray,
        /// Three channels, red first, as Pillow has them.
        Rgb,
        /// As rgb, turned upright as EXIF says.
        Upright,
    }
}

impl StateArgs {
    /// The folder that relative paths start from.
    pub(super) fn root(&self) -> &Path {
        self.root.as_deref().unwrap_or(Path::new(""))
    }

    /// Checks that no option is given for which the source has no use.
    fn check_use(&self, source: &Source) -> anyhow::Result<()> {
        source.check_open(&self.open)?;
        let StateArgs { phase: _, level, stage, layer, top, root: _, open: _ } = self;
        let selects = level.is_some() || !stage.is_empty() || layer.is_some() || top.is_some();
        ensure!(
            source.is_net() || !selects,
            "--level, --stage, --layer and --top select a layer of a net, and no net is given"
        );
        Ok(())
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.into()
    }

    /// The layer that the arguments select.
    fn layer_of(&self, net: &Net, path: &Path) -> anyhow::Result<Described> {
        let state =
            NetState { phase: self.phase(), level: self.level.unwrap_or(0), stages: self.stage.clone() };
        let layers: Vec<_> = net.data_layers(&state)?;
        let feeds = Feed::layers_of(net, &state)?;
        let meant = |layer: &DataLayer| {
            self.layer.as_ref().is_none_or(|name| layer.name == *name)
                && self.top.as_ref().is_none_or(|top| layer.tops.contains(top))
        };
        let meant: Vec<usize> = (0..layers.len()).filter(|&number| meant(&layers[number])).collect();
        let &[position] = &*meant else {
            let named = self.layer.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
            let filling = self.top.as_ref().map(|top| format!(" that fills {top:?}")).unwrap_or_default();
            let (count, noun) = match meant.len() {
                0 => ("no".to_owned(), "layer"),
                found => (found.to_string(), "layers"),
            };
            let found = format!("{count} data {noun}{named}{filling}");
            let choose = match meant.len() {
                2.. if self.layer.is_some() => {
                    let tops = meant.iter().filter_map(|&number| layers[number].tops.first());
                    format!("--top: {}", listed(tops.map(|top| &**top).collect::<Vec<_>>().into_iter()))
                }
                _ => format!("--layer: {}", listed(layers.iter().map(|layer| &*layer.name))),
            };
            bail!("{}: {found} in {state}: choose one with {choose}", shown::path(path));
        };
        let feed = feeds.into_iter().nth(position).expect("there is a feed for each layer");
        let has_labels = layers[position].tops.len() > 1;
        Ok(Described { feed, origin: path.to_owned(), has_labels })
    }
}

impl OpenArgs {
    pub(super) fn access(&self) -> Access {
        self.access.into()
    }

    pub(super) fn log_gaps(&self) -> LogGaps {
        if self.allow_log_gaps { LogGaps::Allow } else { LogGaps::Refuse }
    }

    /// Checks that no option is given for which the sources have no use: a database is named only if all of
    /// them are LMDBs.
    pub(super) fn check_use(&self, are_lmdbs: bool, has_leveldb: bool) -> anyhow::Result<()> {
        let is_lmdb = are_lmdbs || self.database.is_none();
        ensure!(is_lmdb, "--database names a database of an LMDB: leave it out for other data");
        let has_logs = has_leveldb || !self.allow_log_gaps;
        ensure!(has_logs, "--allow-log-gaps is for a LevelDB, and none is given");
        Ok(())
    }
}

/// The most names that a message lists, and the most characters of each.
const LISTED_MAX: usize = 20;
const SHOWN_MAX: usize = 60;

/// Formats names for a message.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(LISTED_MAX);
    let shown = |name: &str| format!("{:?}", name.chars().take(SHOWN_MAX).collect::<String>());
    let mut listed: Vec<_> = names.take(LISTED_MAX).map(shown).collect();
    if more > 0 {
        listed.push(format!("{more} more"));
    }
    listed.join(", ")
}

impl TransformArgs {
    /// The configured transform. Options that are not set stay as in `transform`.
    pub(super) fn or(&self, transform: Transform) -> anyhow::Result<Transform> {
        let resized = |transform: Transform, [height, width]: [u32; 2]| transform.resize(height, width);
        let transform = self.operations.or(transform)?;
        let transform = with(transform, self.resize, resized);
        let transform = with(transform, self.crop, Transform::crop);
        let transform = with(transform, self.mirror, Transform::mirror);
        let transform = with(transform, self.scale, Transform::scale);
        Ok(with(transform, self.color.map(ColorMode::from), Transform::color))
    }

    /// Whether any of the options is given.
    pub(super) fn is_given(&self) -> bool {
        let TransformArgs { resize, crop, mirror, mean_value, mean_file, scale, color, operations } = self;
        let has_mean = !mean_value.is_empty() || mean_file.is_some();
        let is_changed = resize.is_some() || crop.is_some() || mirror.is_some() || scale.is_some();
        has_mean || is_changed || color.is_some() || operations.is_given()
    }

    /// Whether a mean to subtract is set.
    pub(super) fn has_mean(&self) -> bool {
        !self.mean_value.is_empty() || self.mean_file.is_some()
    }

    /// Adds the mean to subtract.
    pub(super) fn mean(&self, transform: Transform) -> Transform {
        match &self.mean_file {
            Some(path) => transform.mean_file(path),
            None => transform.mean_values(&*self.mean_value),
        }
    }
}

/// Parses a height and a width.
pub(super) fn size(text: &str) -> Result<[u32; 2], String> {
    let sides = text.split_once('x').and_then(|(height, width)| {
        let [height, width] = [height, width].map(|side| side.parse().ok().filter(|&side| side > 0));
        Some([height?, width?])
    });
    sides.ok_or_else(|| {
        "not a height and a width: give two whole numbers of 1 or more, such as 256x256".to_owned()
    })
}

/// Parses a finite number for pixel arithmetic.
fn finite(text: &str) -> Result<f32, String> {
    let number: f32 = text.parse().map_err(|_| "not a number")?;
    if number.is_finite() {
        Ok(number)
    } else {
        Err("not a finite 32-bit number: all pixels would become infinite or NaN".to_owned())
    }
}
