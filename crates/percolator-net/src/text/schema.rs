//! The messages of a net, field by field, as in `proto/caffe.proto`.

use super::notes::Form;
use super::reader::{Message, Others, Reader};
use super::value::{Enumeration, EnumerationSlot as _, Slot as _};
use crate::error::NetError;
use crate::proto;

/// Implements [`Message`] for fields that are each read by their own type: `name`, or `name: ENUM` for the
/// number of an enum.
macro_rules! message {
    ($message:ident, $others:expr, $layer:expr, { $($field:ident $(: $enumeration:ident)?),* $(,)? }) => {
        impl Message for proto::$message {
            const NAME: &'static str = message!(@message $message);
            const FIELDS: &'static [&'static str] = &[$(message!(@name $field)),*];
            const OTHERS: Others = $others;
            const LAYER: Option<Form> = $layer;

            fn home(name: &str) -> Option<&'static str> {
                home(Self::NAME, name)
            }

            fn read(&mut self, field: &'static str, text: &mut Reader<'_>) -> Result<(), NetError> {
                match field {
                    $(message!(@name $field) => message!(@fill self.$field, field, text $(, $enumeration)?),)*
                    _ => text.skip().map(drop),
                }
            }
        }
    };
    (@message Hdf5DataParameter) => { "HDF5DataParameter" };
    (@message $message:ident) => { stringify!($message) };
    (@name r#type) => { "type" };
    (@name $field:ident) => { stringify!($field) };
    (@fill $slot:expr, $field:ident, $text:ident) => { $slot.fill($field, $text) };
    (@fill $slot:expr, $field:ident, $text:ident, $enumeration:ident) => {
        $slot.fill_enumeration($field, &$enumeration, $text)
    };
}

const PHASE: Enumeration = Enumeration::Closed(&[("TRAIN", 0), ("TEST", 1)]);
const DB: Enumeration = Enumeration::Closed(&[("LEVELDB", 0), ("LMDB", 1)]);
const DIM_CHECK_MODE: Enumeration = Enumeration::Closed(&[("STRICT", 0), ("PERMISSIVE", 1)]);
const LAYER_TYPE: Enumeration = Enumeration::LayerType;

message!(NetParameter, Others::Skipped(&[]), None, {
    name, layers, input, input_dim, force_backward, state, debug_info, input_shape, layer,
});

message!(BlobShape, Others::Refused, None, { dim });

message!(NetState, Others::Refused, None, { phase: PHASE, level, stage });

message!(NetStateRule, Others::Refused, None, {
    phase: PHASE, min_level, max_level, stage, not_stage,
});

message!(LayerParameter, Others::Skipped(OF_OTHER_LAYERS), Some(Form::V2), {
    name, r#type, bottom, top, loss_weight, param, propagate_down, include, exclude, phase: PHASE,
    transform_param, data_param, hdf5_data_param, image_data_param, memory_data_param, window_data_param,
});

message!(ParamSpec, Others::Skipped(&["name", "share_mode", "lr_mult", "decay_mult"]), None, {});

message!(V1LayerParameter, Others::Skipped(OF_OTHER_LAYERS), Some(Form::V1), {
    layer, bottom, top, name, r#type: LAYER_TYPE, data_param, hdf5_data_param,
    image_data_param, window_data_param, memory_data_param, include, exclude, transform_param, loss_weight,
    param, blob_share_mode: DIM_CHECK_MODE, blobs_lr, weight_decay,
});

message!(V0LayerParameter, Others::Skipped(OF_OTHER_V0_LAYERS), None, {
    name, r#type, source, scale, meanfile, batchsize, cropsize, mirror, rand_skip, det_fg_threshold,
    det_bg_threshold, det_fg_fraction, det_context_pad, det_crop_mode, new_height, new_width, shuffle_images,
    blobs_lr, weight_decay,
});

message!(TransformationParameter, Others::RefusedIfFed, None, {
    scale, mirror, crop_size, mean_file, mean_value, force_color, force_gray,
});

message!(DataParameter, Others::RefusedIfFed, None, {
    source, scale, mean_file, batch_size, crop_size, mirror, rand_skip, backend: DB,
    force_encoded_color, prefetch,
});

message!(ImageDataParameter, Others::RefusedIfFed, None, {
    source, scale, mean_file, batch_size, crop_size, mirror, rand_skip, shuffle, new_height, new_width,
    is_color, root_folder,
});

message!(Hdf5DataParameter, Others::RefusedIfFed, None, { source, batch_size, shuffle });

message!(MemoryDataParameter, Others::RefusedIfFed, None, { batch_size, channels, height, width });

message!(WindowDataParameter, Others::RefusedIfFed, None, {
    source, scale, mean_file, batch_size, crop_size, mirror, fg_threshold, bg_threshold, fg_fraction,
    context_pad, crop_mode, cache_images, root_folder,
});

/// For a field name that `message` does not have: where a data layer has it.
fn home(message: &str, name: &str) -> Option<&'static str> {
    fn has<M: Message>(name: &str) -> bool {
        M::FIELDS.contains(&name)
    }
    let of_data = has::<proto::DataParameter>(name);
    let of_images = has::<proto::ImageDataParameter>(name);
    let is_layer = matches!(message, "V0LayerParameter" | "V1LayerParameter");
    Some(match name {
        "phase" if is_layer => "it belongs in include { }",
        _ if has::<proto::TransformationParameter>(name) => "it belongs in transform_param",
        _ if of_data && of_images => "it belongs in data_param or image_data_param",
        _ if of_data => "it belongs in data_param",
        _ if of_images => "it belongs in image_data_param",
        _ if message == "V0LayerParameter" && has::<proto::V1LayerParameter>(name) => {
            "it belongs beside the V0 layer, in layers"
        }
        "propagate_down" if is_layer => "it is a field of LayerParameter",
        _ if has::<proto::LayerParameter>(name) => "it belongs in the layer itself",
        _ if has::<proto::V1LayerParameter>(name) => "it is a field of V1LayerParameter",
        _ if has::<proto::V0LayerParameter>(name) => "it is a field of V0LayerParameter",
        _ => return None,
    })
}

/// The other fields of Caffe's layers, of either format.
const OF_OTHER_LAYERS: &[&str] = &[
    "accuracy_param",
    "argmax_param",
    "batch_norm_param",
    "bias_param",
    "blobs",
    "clip_param",
    "concat_param",
    "contrastive_loss_param",
    "convolution_param",
    "crop_param",
    "dropout_param",
    "dummy_data_param",
    "eltwise_param",
    "elu_param",
    "embed_param",
    "exp_param",
    "flatten_param",
    "hdf5_output_param",
    "hinge_loss_param",
    "infogain_loss_param",
    "inner_product_param",
    "input_param",
    "log_param",
    "loss_param",
    "lrn_param",
    "mvn_param",
    "parameter_param",
    "pooling_param",
    "power_param",
    "prelu_param",
    "python_param",
    "recurrent_param",
    "reduction_param",
    "relu_param",
    "reshape_param",
    "scale_param",
    "sigmoid_param",
    "slice_param",
    "softmax_param",
    "spp_param",
    "swish_param",
    "tanh_param",
    "threshold_param",
    "tile_param",
];

/// The other fields of Caffe's one message for V0 layers.
const OF_OTHER_V0_LAYERS: &[&str] = &[
    "alpha",
    "beta",
    "bias_filler",
    "biasterm",
    "blobs",
    "concat_dim",
    "dropout_ratio",
    "group",
    "hdf5_output_param",
    "k",
    "kernelsize",
    "local_size",
    "new_channels",
    "new_num",
    "num_output",
    "pad",
    "pool",
    "stride",
    "weight_filler",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn fields<M: Message>() -> (&'static str, BTreeSet<&'static str>) {
        (M::NAME, M::FIELDS.iter().copied().collect())
    }

    #[test]
    fn every_field_of_the_schema_is_read() {
        let schema = include_str!("../../../../proto/caffe.proto");
        let messages = [
            fields::<proto::NetParameter>(),
            fields::<proto::BlobShape>(),
            fields::<proto::NetState>(),
            fields::<proto::NetStateRule>(),
            fields::<proto::LayerParameter>(),
            fields::<proto::ParamSpec>(),
            fields::<proto::V1LayerParameter>(),
            fields::<proto::V0LayerParameter>(),
            fields::<proto::TransformationParameter>(),
            fields::<proto::DataParameter>(),
            fields::<proto::ImageDataParameter>(),
            fields::<proto::MemoryDataParameter>(),
            fields::<proto::WindowDataParameter>(),
            fields::<proto::Hdf5DataParameter>(),
        ];
        for (message, read) in messages {
            let body = schema.split(&format!("message {message} {{")).nth(1).unwrap();
            let body = body.split("\n}").next().unwrap();
            let named = body.lines().filter_map(|line| {
                let mut words = line.split_whitespace();
                matches!(words.next(), Some("optional" | "repeated")).then(|| words.nth(1))?
            });
            assert_eq!(named.collect::<BTreeSet<_>>(), read, "{message}");
        }
    }
}
