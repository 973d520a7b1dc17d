//! What several subcommands ask for: a source, a transform, a state.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};
use percolator::{ColorMode, DataLayer, Feed, FeedBuilder, Net, NetState, Phase, Transform};

/// Where the records come from.
#[derive(Debug, Args)]
#[group(required = true)]
pub(super) struct SourceArgs {
    /// The Caffe net whose data layer to feed: a .prototxt, or a .caffemodel.
    #[arg(value_name = "NET")]
    net: Option<PathBuf>,
    /// The Caffe LMDB to read: its folder, or its data.mdb.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["net", "leveldb"])]
    lmdb: Option<PathBuf>,
    /// The Caffe LevelDB to read: its folder.
    #[arg(long, value_name = "PATH", conflicts_with = "net")]
    leveldb: Option<PathBuf>,
}

/// Which of a net's layers are meant.
#[derive(Debug, Args)]
pub(super) struct StateArgs {
    /// Training (random crops) or testing (central ones).
    #[arg(long, value_enum, ignore_case = true, default_value_t)]
    phase: PhaseArg,
    /// The net's level, for its rules of min_level and max_level.
    #[arg(long, default_value_t = 0, conflicts_with_all = ["lmdb", "leveldb"], allow_negative_numbers = true)]
    level: i32,
    /// The net's stages, for its rules of stage and not_stage.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["lmdb", "leveldb"])]
    stage: Vec<String>,
    /// The net's data layer; needed only if it has several.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["lmdb", "leveldb"])]
    layer: Option<String>,
    /// Where the relative paths of the source, and those in the net, begin [default: the working directory].
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// What is done to each record, where no net says it.
#[derive(Debug, Args)]
#[group(multiple = true, conflicts_with = "net")]
pub(super) struct TransformArgs {
    /// Cut a square of this many pixels out of every image; 0 is no crop.
    #[arg(long, default_value_t = 0)]
    crop: u32,
    /// Mirror every second image, at random.
    #[arg(long)]
    mirror: bool,
    /// Subtract these values: one for all channels, or one a channel.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, conflicts_with = "mean_file")]
    mean_value: Vec<f32>,
    /// Subtract the image in this binaryproto.
    #[arg(long, value_name = "FILE")]
    mean_file: Option<PathBuf>,
    /// Multiply by this.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    scale: f32,
    /// The channels that encoded images are decoded to.
    #[arg(long, value_enum, default_value_t)]
    color: ColorArg,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum PhaseArg {
    #[default]
    Train,
    Test,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ColorArg {
    /// Those that the image has.
    #[default]
    Native,
    /// Three: Caffe's force_color.
    Color,
    /// One: Caffe's force_gray.
    Gray,
}

/// A feed, and what is known of it from its net.
pub(super) struct Described {
    pub(super) feed: FeedBuilder,
    /// Where its records come from, as it was given.
    pub(super) origin: PathBuf,
    /// Whether the layer gives out labels: one without a second top does not.
    pub(super) has_labels: bool,
}

impl SourceArgs {
    pub(super) fn is_net(&self) -> bool {
        self.net.is_some()
    }

    /// Describes the feed that the arguments ask for.
    pub(super) fn describe(&self, state: &StateArgs, transform: &TransformArgs) -> anyhow::Result<Described> {
        let mut described = match self {
            SourceArgs { net: Some(path), .. } if path.is_dir() => bail!(
                "{}: a net is a file, and this is a folder: a database is given with --lmdb or --leveldb",
                path.display()
            ),
            SourceArgs { net: Some(path), .. } => state.layer_of(&Net::open(path)?, path)?,
            SourceArgs { leveldb: Some(path), .. } => {
                Described { feed: Feed::builder().leveldb(path), origin: path.clone(), has_labels: true }
            }
            SourceArgs { lmdb, .. } => {
                let path = lmdb.clone().unwrap_or_default();
                Described { feed: Feed::builder().lmdb(&path), origin: path, has_labels: true }
            }
        };
        if !self.is_net() {
            described.feed = described.feed.phase(state.phase()).transform(transform.transform());
        }
        if let Some(root) = &state.root {
            described.feed = described.feed.root(root);
        }
        Ok(described)
    }
}

impl StateArgs {
    pub(super) fn phase(&self) -> Phase {
        match self.phase {
            PhaseArg::Train => Phase::Train,
            PhaseArg::Test => Phase::Test,
        }
    }

    /// The layer that is meant.
    fn layer_of(&self, net: &Net, path: &std::path::Path) -> anyhow::Result<Described> {
        let state = NetState { phase: self.phase(), level: self.level, stages: self.stage.clone() };
        let layers: Vec<_> = net.data_layers(&state)?;
        let feeds = Feed::layers_of(net, &state)?;
        let meant = |layer: &DataLayer| self.layer.as_ref().is_none_or(|name| layer.name == *name);
        let meant: Vec<usize> = (0..layers.len()).filter(|&number| meant(&layers[number])).collect();
        let &[position] = &*meant else {
            let found = match &self.layer {
                Some(name) if meant.is_empty() => format!("no data layer {name:?}"),
                Some(name) => format!("{} data layers {name:?}", meant.len()),
                None => format!("{} data layers", layers.len()),
            };
            let names = listed(layers.iter().map(|layer| &*layer.name));
            bail!("{}: {found} in {state}: choose with --layer one of {names}", path.display());
        };
        let feed = feeds.into_iter().nth(position).expect("there is a feed for each layer");
        Ok(Described { feed, origin: path.to_owned(), has_labels: layers[position].tops.len() > 1 })
    }
}

/// The most names that a message lists, and the most characters of each.
const LISTED_MAX: usize = 20;
const SHOWN_MAX: usize = 60;

/// Names as a message lists them.
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
    fn transform(&self) -> Transform {
        let transform = Transform::new()
            .crop(self.crop)
            .mirror(self.mirror)
            .mean_values(&*self.mean_value)
            .scale(self.scale)
            .color(match self.color {
                ColorArg::Native => ColorMode::Native,
                ColorArg::Color => ColorMode::Color,
                ColorArg::Gray => ColorMode::Gray,
            });
        match &self.mean_file {
            Some(path) => transform.mean_file(path),
            None => transform,
        }
    }
}
