//! Feeds described by a Caffe net.

use std::path::Path;

use super::Feed;
use super::builder::FeedBuilder;
use super::config::ConfigError;
use super::error::FeedError;
use super::spec::SourceSpec;
use crate::base::shape::Phase;
use crate::net::{DataLayer, LayerSource, Net, NetState, TransformSpec};
use crate::transform::{Taken, Transform};
use percolator_files::shown;
use percolator_image::ColorMode;

/// A feed's layer in its net.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub(crate) struct NetLayer {
    /// How many of Caffe's random numbers the data layers before it take when they are set up.
    pub(super) taken: Taken,
    /// Whether other layers before it may draw random numbers when they are set up.
    pub(super) preceded_by_other: bool,
    /// The file, the place and the layer, for messages.
    title: String,
    /// What is ignored in the layer; logged when the feed is resolved.
    #[cfg_attr(feature = "serde", serde(default))]
    warnings: Vec<String>,
}

impl NetLayer {
    /// Adds to an error of the layer's feed which layer of which net the feed comes from.
    pub(super) fn with_origin(layer: Option<&NetLayer>, error: FeedError) -> FeedError {
        match layer {
            Some(layer) => FeedError::Layer { layer: layer.title.clone(), error: Box::new(error) },
            None => error,
        }
    }

    /// Logs what is ignored in the layer.
    pub(super) fn warn(&self) {
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
    }
}

impl Feed {
    /// Describes the feed of a Caffe net's data layer, as a `.prototxt` (or a `.caffemodel`) has it: the
    /// source, the batch size, the prefetch, the transform. What is ignored in the net is logged as a
    /// warning; what is ignored in the layer is logged when the feed is resolved.
    ///
    /// ```no_run
    /// use percolator::transform::CaffeEra;
    /// use percolator::{Device, Feed, Phase, Seed};
    ///
    /// let mut feed = Feed::from_prototxt("models/bvlc_reference_caffenet/train_val.prototxt", Phase::Train)?
    ///     .root("/data/caffe")
    ///     .seed(Seed::Caffe { seed: 1701, era: CaffeEra::Today })
    ///     .devices([Device::host(0), Device::host(1)])
    ///     .build()?;
    /// # Ok::<(), percolator::FeedError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`FeedError`] if the net cannot be read, if its data layer cannot be set up, or if it has several data
    /// layers: [`layers_of`](Feed::layers_of) returns them all.
    pub fn from_prototxt(path: impl AsRef<Path>, phase: Phase) -> Result<FeedBuilder, FeedError> {
        let path = path.as_ref();
        let mut layers = Feed::layers_of(&Net::open(path)?, &NetState::from(phase))?;
        match layers.len() {
            1 => Ok(layers.remove(0)),
            count => Err(ConfigError::SeveralLayers { net: shown::path(path).to_string(), count }.into()),
        }
    }

    /// Describes one feed for each data layer that a net has in this state, in the order of the net.
    ///
    /// Two layers that belong together, such as images and their labels, make one feed:
    ///
    /// ```no_run
    /// use percolator::{Feed, Net, Phase, Target};
    /// use percolator::net::NetState;
    /// use percolator::source::Matching;
    ///
    /// let net = Net::open("multilabel.prototxt")?;
    /// let mut layers = Feed::layers_of(&net, &NetState::from(Phase::Train))?;
    /// let (labels, images) = (layers.remove(1), layers.remove(0));
    /// let feed = images.target(Target::from_feed(labels, Matching::Keys)).build()?;
    /// # Ok::<(), percolator::FeedError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`FeedError`] if the net has no such layer, or one of them cannot be set up.
    pub fn layers_of(net: &Net, state: &NetState) -> Result<Vec<FeedBuilder>, FeedError> {
        let mut taken = Taken::default();
        let mut feeds = Vec::new();
        for warning in net.warnings(state)? {
            tracing::warn!("{warning}");
        }
        for layer in net.data_layers(state)? {
            let place = NetLayer {
                taken,
                preceded_by_other: layer.preceded_by_other,
                title: net.title_of(&layer),
                warnings: layer.warnings.iter().map(ToString::to_string).collect(),
            };
            let feed = FeedBuilder::of_layer(&layer, place);
            taken.add(feed.set_up());
            feeds.push(feed);
        }
        Ok(feeds)
    }
}

impl FeedBuilder {
    fn of_layer(layer: &DataLayer, place: NetLayer) -> Self {
        let mut transform = transform(&layer.transform);
        let source = match &layer.source {
            LayerSource::Lmdb { path } => SourceSpec::lmdb(path),
            LayerSource::LevelDb { path } => SourceSpec::leveldb(path),
            LayerSource::ImageList {
                list,
                root_folder,
                shuffle,
                rand_skip,
                new_height,
                new_width,
                is_color,
            } => {
                transform = transform.color(if *is_color { ColorMode::Color } else { ColorMode::Gray });
                if *new_height > 0 {
                    transform = transform.resize(*new_height, *new_width);
                }
                SourceSpec::ImageList {
                    list: list.clone(),
                    root_folder: root_folder.clone(),
                    shuffle: *shuffle,
                    rand_skip: *rand_skip,
                }
            }
        };
        let mut feed = Feed::builder()
            .layer(&*layer.name)
            .phase(layer.phase)
            .batch_size(layer.batch_size)
            .transform(transform);
        feed.spec.sources = vec![source];
        feed.spec.prefetch = layer.prefetch;
        feed.spec.net = Some(place);
        feed
    }
}

fn transform(spec: &TransformSpec) -> Transform {
    let transform = Transform::new()
        .crop(spec.crop_size)
        .mirror(spec.mirror)
        .scale(spec.scale)
        .mean_values(&*spec.mean_values)
        .color(match (spec.force_color, spec.force_gray) {
            (true, _) => ColorMode::Color,
            (_, true) => ColorMode::Gray,
            _ => ColorMode::Native,
        });
    match &spec.mean_file {
        Some(path) => transform.mean_file(path),
        None => transform,
    }
}
