//! How a pipeline runs: options of `feed`, `doctor` and `bench`.

use clap::Args;
use percolator::transform::{Mixing, TransformPlace};
use percolator::{Device, Dtype, FeedBuilder, Layout};

use crate::args::{choices, with};

/// How the pipeline runs.
#[derive(Debug, Args)]
pub(crate) struct PipelineArgs {
    /// The devices to feed, one lane each: host, host:N, cuda:N.
    #[arg(long, value_delimiter = ',', default_value = "host:0")]
    pub(crate) devices: Vec<String>,
    /// Records per batch of one device [default: the net's, otherwise 64].
    #[arg(long)]
    pub(crate) batch_size: Option<usize>,
    /// Worker threads [default: one per core, of which only as many are active as the consumers need].
    #[arg(short = 'j', long)]
    threads: Option<usize>,
    /// Batches in a lane's ring [default: the net's, otherwise 4, and up to 8 if bursts empty the ring].
    #[arg(long)]
    prefetch: Option<usize>,
    /// The type of a batch's elements [default: f32].
    #[arg(long, value_enum)]
    pub(crate) dtype: Option<DtypeArg>,
    /// The order of a batch's axes.
    #[arg(long, value_enum, default_value_t)]
    layout: LayoutArg,
    /// Where to transform pixels: on the host, or, after cropping and copying, on the devices.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) transform_on: PlaceArg,
    /// Decode JPEGs that are resized to fewer pixels at a half, a quarter or an eighth of their size: the
    /// smallest that is large enough. Faster, but the pixels are not Caffe's.
    #[arg(long)]
    scaled_decode: bool,
    /// Mix each image of a batch with the one before it: each is a share of itself, of the distribution
    /// Beta(ALPHA, ALPHA). With --cutmix, too, each batch gets either.
    #[arg(long, value_name = "ALPHA")]
    mixup: Option<f64>,
    /// Put a box of the image before it into each image of a batch, of a random area by Beta(ALPHA, ALPHA).
    #[arg(long, value_name = "ALPHA")]
    cutmix: Option<f64>,
    /// Add a field with the share of each of so many classes, label_soft: what mixed images are trained on.
    #[arg(long, value_name = "CLASSES")]
    soft_labels: Option<usize>,
    /// How often a batch is mixed [default: 1].
    #[arg(long, value_name = "P")]
    mix_probability: Option<f64>,
    /// The seed of all that is drawn: crops, mirroring, operations, mixing.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

choices! {
    #[derive(Default)]
    enum DtypeArg for Dtype {
        #[default]
        F32,
        U8,
        F16,
        Bf16,
    }
}

choices! {
    #[derive(Default)]
    enum LayoutArg for Layout {
        #[default]
        Nchw,
        Nhwc,
    }
}

choices! {
    #[derive(Default)]
    enum PlaceArg for TransformPlace {
        #[default]
        Host,
        Device,
    }
}

impl PipelineArgs {
    /// A feed with all these options except the batch size, for which each subcommand has its own rule.
    pub(crate) fn with_options(&self, feed: FeedBuilder, dtype: DtypeArg) -> anyhow::Result<FeedBuilder> {
        let devices = self.devices.iter().map(|name| name.parse()).collect::<Result<Vec<Device>, _>>()?;
        // Even a `false` would be an option for images, which not all records are.
        let feed = if self.scaled_decode { with_scaled_decode(&feed) } else { feed };
        let feed = feed
            .devices(devices)
            .dtype(self.dtype.unwrap_or(dtype).into())
            .layout(self.layout.into())
            .transform_on(self.transform_on.into())
            .seed(self.seed);
        let feed = with(feed, self.soft_labels, FeedBuilder::soft_labels);
        let feed = with(feed, self.mixing(), FeedBuilder::mixing);
        let feed = with(feed, self.prefetch, FeedBuilder::prefetch);
        Ok(with(feed, self.threads, FeedBuilder::threads))
    }

    fn mixing(&self) -> Option<Mixing> {
        self.mixup.or(self.cutmix).or(self.mix_probability)?;
        let mixing = with(Mixing::new(), self.mixup, Mixing::mixup);
        let mixing = with(mixing, self.cutmix, Mixing::cutmix);
        Some(with(mixing, self.mix_probability, Mixing::probability))
    }
}

/// The same feed, decoding files smaller whatever its transform says. So far it is plain data.
fn with_scaled_decode(feed: &FeedBuilder) -> FeedBuilder {
    let mut spec = feed.spec().clone();
    spec.scaled_decode = Some(true);
    spec.into()
}
