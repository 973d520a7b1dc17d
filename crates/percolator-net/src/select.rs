//! The data layers of a net that are part of it in a given state, in the order of the net.

use std::collections::HashMap;

use super::error::{LISTED_MAX, NetCause, NetError, TextPlace, clip, clip_list};
use super::kinds::{self, Role};
use super::layer::{self, LayerSource, TransformSpec};
use super::state::{self, NetState, Phase};
use super::warning::{NetWarning, WarningKind};
use super::{LayerInfo, Net, layer_name, upgrade};
use crate::proto::LayerParameter;

/// A layer that reads records from a database, or images from a list, as the net defines it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct DataLayer {
    /// The layer's name. May be empty.
    pub name: String,
    /// The blobs that the layer fills: data, or data and labels.
    pub tops: Vec<String>,
    /// The layer's own phase, or else the state's.
    pub phase: Phase,
    /// The number of records in a batch.
    pub batch_size: usize,
    /// The number of batches that are read ahead, if the net sets it. Caffe's default is 4.
    pub prefetch: Option<usize>,
    /// The transform of each image.
    pub transform: TransformSpec,
    /// Where the records come from.
    pub source: LayerSource,
    /// Whether an earlier layer, other than those returned here, may draw random numbers at set-up.
    ///
    /// All of Caffe's layers draw from one generator, in the order of the net. So if this is true, this
    /// layer's random numbers are not those that Caffe would draw.
    pub preceded_by_other: bool,
    /// The layer's place in the text.
    pub at: Option<TextPlace>,
    /// What is ignored of the layer.
    pub warnings: Vec<NetWarning>,
}

/// A layer that is part of the net in the given state.
#[derive(Clone, Copy)]
struct Kept<'a> {
    index: usize,
    layer: &'a LayerParameter,
    info: &'a LayerInfo,
    role: Role,
}

impl Kept<'_> {
    fn name(&self) -> String {
        layer_name(self.layer.name.as_deref(), self.index)
    }

    fn may_draw(&self) -> bool {
        kinds::may_draw(self.layer.r#type(), self.info.notes.fillers)
    }
}

/// For each blob, the last of the layers that reads it.
struct LastReaders<'a>(HashMap<&'a str, usize>);

impl<'a> LastReaders<'a> {
    fn of(kept: &[Kept<'a>]) -> Self {
        let layers = kept.iter().map(|kept| kept.layer).enumerate();
        let read = layers.flat_map(|(place, layer)| layer.bottom.iter().map(move |blob| (&**blob, place)));
        LastReaders(read.collect())
    }

    /// Whether Caffe's `InsertSplits` moves a layer's weights to a split layer of its own making, so that
    /// their number is not checked. It does so if a later layer reads a top that has a weight.
    fn are_weights_moved(&self, layer: &LayerParameter, place: usize) -> bool {
        let mut weighted = layer.top.iter().zip(&layer.loss_weight).filter(|(_, weight)| **weight != 0.0);
        weighted.any(|(top, _)| self.0.get(&**top).is_some_and(|&reader| reader > place))
    }
}

impl Net {
    /// Returns the layers that read a database or a list of images and are part of the net in this state, in
    /// the order of the net. There is at least one.
    ///
    /// # Errors
    ///
    /// No such layer is left: the error lists the layers found and why each is left out. Two layers produce
    /// one blob. A layer has both include and exclude rules. Or one of the layers cannot be set up: it has a
    /// field that Caffe does not know there, no batch size, no source, two means, and so on.
    pub fn data_layers(&self, state: &NetState) -> Result<Vec<DataLayer>, NetError> {
        let state = state.with(self.parameter.state.as_ref());
        let kept = self.kept(&state)?;
        self.check_tops(&kept)?;
        let readers = LastReaders::of(&kept);
        let mut fed = Vec::new();
        let mut preceded_by_other = false;
        for (place, layer) in kept.iter().enumerate() {
            if matches!(layer.role, Role::Data | Role::ImageData) {
                let are_weights_moved = || readers.are_weights_moved(layer.layer, place);
                fed.push(self.data_layer(*layer, are_weights_moved, &state, preceded_by_other)?);
            } else {
                preceded_by_other |= layer.may_draw();
            }
        }
        if fed.is_empty() {
            return Err(self.no_data_layer(&state, &kept));
        }
        Ok(fed)
    }

    /// Returns what is ignored in this state and belongs to no layer that [`data_layers`](Self::data_layers)
    /// returns: fields of the net itself, and layers that supply data in another way.
    ///
    /// # Errors
    ///
    /// A layer has both include and exclude rules.
    pub fn warnings(&self, state: &NetState) -> Result<Vec<NetWarning>, NetError> {
        let own = self.parameter.state.as_ref();
        let overridden = state.overrides(own).into_iter().map(|kind| (None, kind));
        let of_net = self.ignored.iter().cloned().chain(overridden);
        let mut warnings: Vec<_> = of_net.map(|(at, kind)| self.warning(at, None, kind)).collect();
        let inputs = upgrade::inputs(&self.parameter);
        if !inputs.is_empty() {
            warnings.push(self.warning(None, None, WarningKind::Inputs { names: clip_list(inputs) }));
        }
        for kept in self.kept(&state.with(own))? {
            if kept.role == Role::Supplier {
                let kind = WarningKind::NotFed { kind: kind_of(kept.layer) };
                warnings.push(self.warning(kept.info.notes.at, Some(kept.name()), kind));
            }
        }
        Ok(warnings)
    }

    fn warning(&self, at: Option<TextPlace>, layer: Option<String>, kind: WarningKind) -> NetWarning {
        NetWarning { path: self.path.clone(), at, layer, kind }
    }

    /// All layers in the order of the net, with what is known about each.
    fn all_layers(&self) -> impl Iterator<Item = Kept<'_>> {
        self.parameter.layer.iter().zip(&self.layers).enumerate().map(|(index, (layer, info))| {
            let role = kinds::role(layer.r#type(), layer.bottom.len(), layer.top.len());
            Kept { index, layer, info, role }
        })
    }

    /// The layers that are part of the net in `state`, which includes the net's own stages.
    fn kept(&self, state: &NetState) -> Result<Vec<Kept<'_>>, NetError> {
        let mut kept = Vec::new();
        let state = state.matcher();
        for layer in self.all_layers() {
            let at = layer.info.notes.at;
            if state.keeps(layer.layer).map_err(|fault| self.layer_error(&layer, at, fault))? {
                kept.push(layer);
            }
        }
        Ok(kept)
    }

    fn layer_error(&self, kept: &Kept<'_>, at: Option<TextPlace>, fault: String) -> NetError {
        self.named_error(kept.name(), at, fault)
    }

    fn named_error(&self, layer: String, at: Option<TextPlace>, fault: String) -> NetError {
        let error = NetError::new(NetCause::Layer { layer, fault });
        NetError { at, ..error }.within(self.path.as_deref())
    }

    /// Checks blob names as Caffe's `AppendTop` does. A layer may work in place, on the bottom with the same
    /// index as the top; every other top must be a new name. The net's own inputs come first, as one layer.
    fn check_tops(&self, kept: &[Kept<'_>]) -> Result<(), NetError> {
        let inputs = || "\"input\" (the net's own inputs)".to_owned();
        // Names are formatted only for an error: many tops may belong to one layer with a long name.
        let mut seen: HashMap<&str, Option<&Kept<'_>>> = HashMap::new();
        let same = |top: &str, earlier: Option<&Kept<'_>>| {
            let earlier = earlier.map_or_else(inputs, Kept::name);
            let top = clip(top);
            format!("top blob \"{top}\" produced by multiple sources: layer {earlier} has it too")
        };
        for input in upgrade::inputs(&self.parameter) {
            if let Some(earlier) = seen.insert(input, None) {
                return Err(self.named_error(inputs(), None, same(input, earlier)));
            }
        }
        for kept in kept {
            for (index, top) in kept.layer.top.iter().enumerate() {
                if kept.layer.bottom.get(index) == Some(top) {
                    continue;
                }
                if let Some(earlier) = seen.insert(top, Some(kept)) {
                    return Err(self.layer_error(kept, kept.info.notes.top(index), same(top, earlier)));
                }
            }
        }
        Ok(())
    }

    fn data_layer(
        &self,
        kept: Kept<'_>,
        are_weights_moved: impl FnOnce() -> bool,
        state: &NetState,
        preceded_by_other: bool,
    ) -> Result<DataLayer, NetError> {
        let Kept { layer, info: LayerInfo { notes, ignored }, .. } = kept;
        if let Some(error) = notes.refusal() {
            return Err(error.within(self.path.as_deref()));
        }
        let mut warnings = ignored.clone();
        for foreign in &notes.foreign {
            let (fork, at) = (foreign.fork, Some(foreign.at));
            if !foreign.harmless {
                return Err(self.layer_error(&kept, at, fork.fault()));
            }
            warnings.push((at, WarningKind::Foreign { field: fork.name(), owner: fork.owner }));
        }
        warnings.extend(notes.unknown.warnings());
        let checked = match kept.role {
            Role::ImageData => layer::image_data(layer, notes),
            _ => layer::data(layer, notes),
        };
        let checked = checked
            .and_then(|checked| layer::check_counts(layer, notes, || !are_weights_moved()).map(|()| checked));
        let checked = checked.map_err(|(at, fault)| self.layer_error(&kept, at, fault))?;
        warnings.extend(checked.warnings);
        let warnings = warnings.into_iter().map(|(at, kind)| self.warning(at, Some(kept.name()), kind));
        Ok(DataLayer {
            name: layer.name().to_owned(),
            tops: layer.top.clone(),
            phase: state::phase(layer.phase).unwrap_or(state.phase),
            batch_size: checked.batch_size,
            prefetch: checked.prefetch,
            transform: checked.transform,
            source: checked.source,
            preceded_by_other,
            at: notes.at,
            warnings: warnings.collect(),
        })
    }

    /// The error that says of every layer that may have been meant why it is not fed.
    fn no_data_layer(&self, state: &NetState, kept: &[Kept<'_>]) -> NetError {
        let is_kept = |found: &Kept<'_>| kept.binary_search_by_key(&found.index, |kept| kept.index).is_ok();
        let reason = |found: &Kept<'_>| match found.role {
            Role::Data | Role::ImageData => "its include or exclude rules leave it out of this state",
            _ if is_kept(found) => "layers of this type are not fed",
            _ => "layers of this type are not fed, and its rules leave it out of this state",
        };
        let suppliers: Vec<_> = self.all_layers().filter(|found| found.role != Role::Other).collect();
        let mut listed: Vec<_> = suppliers
            .iter()
            .take(LISTED_MAX)
            .map(|found| {
                format!("layer {} of type {}: {}", found.name(), kind_of(found.layer), reason(found))
            })
            .collect();
        let mut count = |count: usize, of: &str| {
            if count > 0 {
                listed.push(format!("{count} {of}"));
            }
        };
        count(suppliers.len().saturating_sub(LISTED_MAX), "more that supply data");
        count(self.parameter.input.len(), "input blobs, which the caller fills");
        count(self.layers.len() - suppliers.len(), "layers that supply no data");
        if listed.is_empty() {
            listed.push("it has no layers".to_owned());
        }
        let (state, found) = (state.to_string(), listed.join("; "));
        NetError::new(NetCause::NoDataLayer { state, found }).within(self.path.as_deref())
    }
}

/// A layer's type in messages.
fn kind_of(layer: &LayerParameter) -> String {
    let kind = clip(layer.r#type());
    if kind.is_empty() { "(none)".to_owned() } else { kind }
}
