//! Upgrades old formats of a net to the current one, as Caffe's `UpgradeNetAsNeeded` does: V0 layers to V1,
//! the transform out of V1 data parameters, and V1 to `layer`.

use super::error::{NetCause, NetError, TextPlace, clip};
use super::kinds;
use super::layer_name;
use super::text::notes::{Form, LayerNotes};
use super::warning::{Ignored, WarningKind};
use crate::proto::{
    DataParameter, Hdf5DataParameter, ImageDataParameter, LayerParameter, NetParameter, ParamSpec,
    TransformationParameter, V0LayerParameter, V1LayerParameter, WindowDataParameter,
};

/// Returns the net with all layers in `layer`, and what was ignored of each.
///
/// `notes` has one entry for each layer, in either format.
///
/// # Errors
///
/// The net mixes two formats, or a V0 size is negative.
pub(super) fn upgrade(
    mut net: NetParameter,
    notes: &[(Form, LayerNotes)],
) -> Result<(NetParameter, Vec<Vec<Ignored>>), NetError> {
    check_forms(&net, notes)?;
    let mut ignored = vec![Vec::new(); notes.len()];
    if net.layers.is_empty() {
        return Ok((net, ignored));
    }
    let layers = std::mem::take(&mut net.layers).into_iter().zip(notes).zip(&mut ignored).enumerate();
    let layers = layers.map(|(index, ((mut layer, (_, notes)), ignored))| {
        let mut kind = notes.kind.clone();
        if let Some(v0) = layer.layer.take() {
            note_what_v0_hides(&layer, notes, ignored);
            let name = layer_name(v0.name.as_deref(), index);
            kind = v0.r#type.as_deref().filter(|kind| kinds::of_v0(kind).is_none()).map(clip);
            layer = v0_to_v1(v0, layer, notes, ignored).map_err(|(field, fault)| {
                let at = notes.place(&[("V0LayerParameter", field)]);
                NetError { at, ..NetError::new(NetCause::Layer { layer: name, fault }) }
            })?;
        }
        move_transform(&mut layer);
        Ok(v1_to_v2(layer, kind))
    });
    net.layer = layers.collect::<Result<_, NetError>>()?;
    Ok((net, ignored))
}

/// The blobs that Caffe's `UpgradeNetInput` turns into a layer, the net's first. Without a shape there is no
/// such layer.
pub(super) fn inputs(net: &NetParameter) -> &[String] {
    if net.input_shape.is_empty() && net.input_dim.is_empty() { &[] } else { &net.input }
}

/// Checks that all layers have one format. The error's place is where the second format begins.
fn check_forms(net: &NetParameter, notes: &[(Form, LayerNotes)]) -> Result<(), NetError> {
    let name_of = |layer: &V1LayerParameter, index| {
        let v0_name = layer.layer.as_ref().and_then(|v0| v0.name.as_deref());
        layer_name(v0_name.or(layer.name.as_deref()), index)
    };
    let described = |name: String, at: Option<TextPlace>| match at {
        Some(at) => format!("{name} at {at}"),
        None => name,
    };
    if let (Some(layer), Some(layers)) = (net.layer.first(), net.layers.first()) {
        let place = |wanted| notes.iter().find(|(form, _)| *form == wanted).and_then(|(_, notes)| notes.at);
        let (v2, v1) = (place(Form::V2), place(Form::V1));
        let fault = format!(
            "refusing to upgrade inconsistent NetParameter input; the definition includes both 'layer' and \
             'layers' fields (the first of either: {} and {}); use one of them for the whole net",
            described(layer_name(layer.name.as_deref(), 0), v2),
            described(name_of(layers, 0), v1)
        );
        return Err(NetError { at: v2.max(v1), ..NetError::new(NetCause::MixedFormats { fault }) });
    }
    let old = net.layers.iter().position(|layer| layer.layer.is_some());
    let new = net.layers.iter().position(|layer| layer.layer.is_none());
    let (Some(old), Some(new)) = (old, new) else { return Ok(()) };
    let place = |index: usize| notes.get(index).and_then(|(_, notes)| notes.at);
    let fault = format!(
        "the net has 'layers' both with a V0 'layer' in them ({}) and without ({}), of which Caffe would \
         keep only the names of the blobs; write all of them in one way",
        described(name_of(&net.layers[old], old), place(old)),
        described(name_of(&net.layers[new], new), place(new))
    );
    Err(NetError { at: place(old).max(place(new)), ..NetError::new(NetCause::MixedFormats { fault }) })
}

/// Notes the fields beside a V0 layer, which Caffe drops.
fn note_what_v0_hides(beside: &V1LayerParameter, notes: &LayerNotes, ignored: &mut Vec<Ignored>) {
    let hidden = [
        ("name", beside.name.is_some()),
        ("type", beside.r#type.is_some() || notes.kind.is_some()),
        ("include", !beside.include.is_empty()),
        ("exclude", !beside.exclude.is_empty()),
        ("data_param", beside.data_param.is_some()),
        ("hdf5_data_param", beside.hdf5_data_param.is_some()),
        ("image_data_param", beside.image_data_param.is_some()),
        ("window_data_param", beside.window_data_param.is_some()),
        ("memory_data_param", beside.memory_data_param.is_some()),
        ("transform_param", beside.transform_param.is_some()),
        ("loss_weight", !beside.loss_weight.is_empty()),
        ("param", !beside.param.is_empty()),
        ("blob_share_mode", !beside.blob_share_mode.is_empty()),
        ("blobs_lr", !beside.blobs_lr.is_empty()),
        ("weight_decay", !beside.weight_decay.is_empty()),
    ];
    let fields: Vec<_> = hidden.iter().filter(|(_, there)| *there).map(|&(field, _)| field).collect();
    if let Some(&first) = fields.first() {
        let at = notes.place(&[("V1LayerParameter", first)]);
        ignored.push((at, WarningKind::BesideV0 { fields: fields.join(", ") }));
    }
}

/// Caffe's `UpgradeV0LayerParameter`, for the fields that data layers read.
///
/// # Errors
///
/// The field that is negative, and the error.
fn v0_to_v1(
    v0: V0LayerParameter,
    beside: V1LayerParameter,
    notes: &LayerNotes,
    ignored: &mut Vec<Ignored>,
) -> Result<V1LayerParameter, (&'static str, String)> {
    let new_height = unsigned("new_height", v0.new_height)?;
    let new_width = unsigned("new_width", v0.new_width)?;
    let v1_type = v0.r#type.as_deref().and_then(kinds::of_v0);
    let mut layer = V1LayerParameter {
        name: v0.name.clone(),
        r#type: v1_type,
        bottom: beside.bottom,
        top: beside.top,
        transform_param: v0_transform(&v0),
        blobs_lr: v0.blobs_lr.clone(),
        weight_decay: v0.weight_decay.clone(),
        ..V1LayerParameter::default()
    };
    if let Some(v1_type) = v1_type {
        note_what_v0_misplaces(&v0, v1_type, notes, ignored);
    }
    match v1_type {
        Some(kinds::V1_DATA) => {
            layer.data_param = Some(DataParameter {
                source: v0.source,
                batch_size: v0.batchsize,
                rand_skip: v0.rand_skip,
                ..DataParameter::default()
            });
        }
        Some(kinds::V1_IMAGE_DATA) => {
            layer.image_data_param = Some(ImageDataParameter {
                source: v0.source,
                batch_size: v0.batchsize,
                rand_skip: v0.rand_skip,
                shuffle: v0.shuffle_images,
                new_height,
                new_width,
                ..ImageDataParameter::default()
            });
        }
        Some(kinds::V1_HDF5_DATA) => {
            layer.hdf5_data_param = Some(Hdf5DataParameter {
                source: v0.source,
                batch_size: v0.batchsize,
                ..Hdf5DataParameter::default()
            });
        }
        Some(kinds::V1_WINDOW_DATA) => layer.window_data_param = Some(v0_window(v0)),
        _ => {}
    }
    Ok(layer)
}

/// Notes fields of one V0 layer type in a layer of another, as Caffe does. Fields that Caffe moves to
/// `transform_param` whatever the type are excepted.
fn note_what_v0_misplaces(
    v0: &V0LayerParameter,
    v1_type: i32,
    notes: &LayerNotes,
    ignored: &mut Vec<Ignored>,
) {
    use kinds::{V1_DATA, V1_HDF5_DATA, V1_IMAGE_DATA, V1_WINDOW_DATA};
    let Some(kind) = kinds::v0_name(v1_type) else { return };
    let fields: [(_, _, &[i32]); 11] = [
        ("source", v0.source.is_some(), &[V1_DATA, V1_HDF5_DATA, V1_IMAGE_DATA, V1_WINDOW_DATA]),
        ("batchsize", v0.batchsize.is_some(), &[V1_DATA, V1_HDF5_DATA, V1_IMAGE_DATA, V1_WINDOW_DATA]),
        ("rand_skip", v0.rand_skip.is_some(), &[V1_DATA, V1_IMAGE_DATA]),
        ("shuffle_images", v0.shuffle_images.is_some(), &[V1_IMAGE_DATA]),
        ("new_height", v0.new_height.is_some(), &[V1_IMAGE_DATA]),
        ("new_width", v0.new_width.is_some(), &[V1_IMAGE_DATA]),
        ("det_fg_threshold", v0.det_fg_threshold.is_some(), &[V1_WINDOW_DATA]),
        ("det_bg_threshold", v0.det_bg_threshold.is_some(), &[V1_WINDOW_DATA]),
        ("det_fg_fraction", v0.det_fg_fraction.is_some(), &[V1_WINDOW_DATA]),
        ("det_context_pad", v0.det_context_pad.is_some(), &[V1_WINDOW_DATA]),
        ("det_crop_mode", v0.det_crop_mode.is_some(), &[V1_WINDOW_DATA]),
    ];
    let misplaced = fields.iter().filter(|(_, there, types)| *there && !types.contains(&v1_type));
    ignored.extend(misplaced.map(|&(field, _, _)| {
        (notes.place(&[("V0LayerParameter", field)]), WarningKind::V0Field { field, kind })
    }));
}

/// Converts a field that V0 declares as signed although only unsigned values make sense.
fn unsigned(field: &'static str, found: Option<i32>) -> Result<Option<u32>, (&'static str, String)> {
    let Some(found) = found else { return Ok(None) };
    u32::try_from(found).map(Some).map_err(|_| (field, format!("{field} is {found}: allowed are 0 or more")))
}

fn v0_transform(v0: &V0LayerParameter) -> Option<TransformationParameter> {
    let transform = TransformationParameter {
        scale: v0.scale,
        mean_file: v0.meanfile.clone(),
        crop_size: v0.cropsize,
        mirror: v0.mirror,
        ..TransformationParameter::default()
    };
    (transform != TransformationParameter::default()).then_some(transform)
}

fn v0_window(v0: V0LayerParameter) -> WindowDataParameter {
    WindowDataParameter {
        source: v0.source,
        batch_size: v0.batchsize,
        fg_threshold: v0.det_fg_threshold,
        bg_threshold: v0.det_bg_threshold,
        fg_fraction: v0.det_fg_fraction,
        context_pad: v0.det_context_pad,
        crop_mode: v0.det_crop_mode,
        ..WindowDataParameter::default()
    }
}

/// Caffe's `UpgradeNetDataTransformation`: the transform in a V1 data parameter replaces the fields of
/// `transform_param`.
fn move_transform(layer: &mut V1LayerParameter) {
    macro_rules! move_out_of {
        ($message:expr) => {
            if let Some(from) = &mut $message {
                let moved = TransformationParameter {
                    scale: from.scale.take(),
                    mean_file: from.mean_file.take(),
                    crop_size: from.crop_size.take(),
                    mirror: from.mirror.take(),
                    ..TransformationParameter::default()
                };
                replace_transform(&mut layer.transform_param, moved);
            }
        };
    }
    match layer.r#type() {
        kinds::V1_DATA => move_out_of!(layer.data_param),
        kinds::V1_IMAGE_DATA => move_out_of!(layer.image_data_param),
        kinds::V1_WINDOW_DATA => move_out_of!(layer.window_data_param),
        _ => {}
    }
}

fn replace_transform(transform: &mut Option<TransformationParameter>, moved: TransformationParameter) {
    if moved == TransformationParameter::default() {
        return;
    }
    let transform = transform.get_or_insert_default();
    transform.scale = moved.scale.or(transform.scale);
    transform.mean_file = moved.mean_file.or(transform.mean_file.take());
    transform.crop_size = moved.crop_size.or(transform.crop_size);
    transform.mirror = moved.mirror.or(transform.mirror);
}

/// Caffe's `UpgradeV1LayerParameter`. A type that the schema does not have keeps its written name.
fn v1_to_v2(v1: V1LayerParameter, kind: Option<String>) -> LayerParameter {
    let named = v1.r#type.and_then(|number| match (number, kinds::of_v1(number)) {
        (_, Some(name)) => Some(name.to_owned()),
        (0, None) => None,
        (unknown, None) => Some(format!("number {unknown} of V1")),
    });
    let params = [v1.param.len(), v1.blob_share_mode.len(), v1.blobs_lr.len(), v1.weight_decay.len()];
    LayerParameter {
        name: v1.name,
        r#type: named.or(kind),
        bottom: v1.bottom,
        top: v1.top,
        loss_weight: v1.loss_weight,
        param: vec![ParamSpec::default(); params.into_iter().max().unwrap_or(0)],
        propagate_down: Vec::new(),
        include: v1.include,
        exclude: v1.exclude,
        phase: None,
        transform_param: v1.transform_param,
        data_param: v1.data_param,
        hdf5_data_param: v1.hdf5_data_param,
        image_data_param: v1.image_data_param,
        memory_data_param: v1.memory_data_param,
        window_data_param: v1.window_data_param,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upgraded(text: &str) -> LayerParameter {
        let net = NetParameter::from_text(text).unwrap();
        let notes = vec![(Form::V1, LayerNotes::default()); net.layers.len()];
        let (mut net, ignored) = upgrade(net, &notes).unwrap();
        assert_eq!((net.layers.len(), ignored.concat().len()), (0, 0));
        net.layer.remove(0)
    }

    fn layer(text: &str) -> LayerParameter {
        NetParameter::from_text(text).unwrap().layer.remove(0)
    }

    #[test]
    fn every_v0_data_layer_is_upgraded() {
        let common = "name: 'n' source: 's' batchsize: 2 scale: 3 meanfile: 'm' cropsize: 4 mirror: true";
        let transform = "transform_param { scale: 3 mean_file: 'm' crop_size: 4 mirror: true }";
        for (v0, v2) in [
            ("type: 'data' rand_skip: 5", "type: 'Data' data_param { rand_skip: 5"),
            (
                "type: 'images' rand_skip: 5 shuffle_images: true new_height: 6 new_width: 7",
                "type: 'ImageData' image_data_param { rand_skip: 5 shuffle: true new_height: 6 new_width: 7",
            ),
            ("type: 'hdf5_data'", "type: 'HDF5Data' hdf5_data_param {"),
            (
                "type: 'window_data' det_fg_threshold: .1 det_bg_threshold: .2 det_fg_fraction: .3 \
                 det_context_pad: 8 det_crop_mode: 'square'",
                "type: 'WindowData' window_data_param { fg_threshold: .1 bg_threshold: .2 fg_fraction: .3 \
                 context_pad: 8 crop_mode: 'square'",
            ),
        ] {
            let old = format!("layers {{ layer {{ {common} {v0} }} top: 't' bottom: 'b' }}");
            let new = format!(
                "layer {{ name: 'n' top: 't' bottom: 'b' {transform} {v2} source: 's' batch_size: 2 }} }}"
            );
            assert_eq!(upgraded(&old), layer(&new), "{v0}");
        }
        let other = "layers { layer { name: 'p' type: 'padding' pad: 2 } bottom: 'b' top: 't' }";
        assert_eq!(upgraded(other), layer("layer { name: 'p' type: 'padding' bottom: 'b' top: 't' }"));
    }

    #[test]
    fn only_three_types_of_v1_move_their_transform() {
        let old = "scale: 3 mean_file: 'm' crop_size: 4 mirror: true";
        for (kind, param) in
            [("DATA", "data_param"), ("IMAGE_DATA", "image_data_param"), ("WINDOW_DATA", "window_data_param")]
        {
            // Moved fields replace those of transform_param.
            let there = "scale: 9 mean_file: 'x' crop_size: 9 mirror: false";
            let found = upgraded(&format!(
                "layers {{ type: {kind} {param} {{ {old} source: 's' }} transform_param {{ {there} }} }}"
            ));
            let name = kinds::of_v1(kinds::v1_named(kind).unwrap()).unwrap();
            let wanted =
                format!("layer {{ type: '{name}' {param} {{ source: 's' }} transform_param {{ {old} }} }}");
            assert_eq!(found, layer(&wanted), "{kind}");
        }
        // A parameter of another layer type stays where it is.
        let found = upgraded(&format!("layers {{ type: DATA image_data_param {{ {old} }} }}"));
        assert_eq!(found, layer(&format!("layer {{ type: 'Data' image_data_param {{ {old} }} }}")));
    }

    #[test]
    fn everything_else_of_v1_stays() {
        let rest = "name: 'n' bottom: 'b' top: 't' include { phase: TEST } exclude { stage: 's' } \
                    memory_data_param { batch_size: 1 channels: 2 height: 3 width: 4 } \
                    hdf5_data_param { shuffle: true } transform_param { mean_value: 1 force_gray: true }";
        let found = upgraded(&format!("layers {{ type: MEMORY_DATA {rest} }}"));
        assert_eq!(found, layer(&format!("layer {{ type: 'MemoryData' {rest} }}")));
    }

    #[test]
    fn a_type_without_a_name_keeps_its_number() {
        let v1 = V1LayerParameter { r#type: Some(77), ..V1LayerParameter::default() };
        let net = NetParameter { layers: vec![v1, V1LayerParameter::default()], ..NetParameter::default() };
        let notes = vec![(Form::V1, LayerNotes::default()); 2];
        let kinds = upgrade(net, &notes).unwrap().0.layer.into_iter().map(|layer| layer.r#type);
        assert_eq!(kinds.collect::<Vec<_>>(), [Some("number 77 of V1".to_owned()), None]);
    }
}
