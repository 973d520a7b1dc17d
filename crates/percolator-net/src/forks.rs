//! The fields that known forks of Caffe added to the messages of data layers.
//!
//! They are recognised by name only: forks reuse the same field numbers for different fields, so wire bytes
//! do not tell them apart.

/// When a fork's field does not affect the arrays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Harmless {
    /// With any value: it affects speed only, or modifies another field of this table.
    Always,
    /// If it is false.
    False,
    /// If it is one of these numbers.
    Numbers(&'static [f64]),
    /// If it is this name.
    Word(&'static str),
    /// If it is an empty message.
    Empty,
    /// Never.
    Never,
}

/// A field that a fork of Caffe has and Caffe does not.
#[derive(Debug)]
pub(super) struct Fork {
    /// The message that it was added to.
    pub(super) message: &'static str,
    /// Its name.
    pub(super) field: &'static str,
    /// The fork, or forks, that have it.
    pub(super) owner: &'static str,
    /// When it does not affect the arrays.
    pub(super) harmless: Harmless,
}

impl Fork {
    /// The field as a net has it: `data_param.threads`.
    pub(super) fn name(&self) -> String {
        let message = match self.message {
            DATA => "data_param.",
            IMAGE_DATA => "image_data_param.",
            TRANSFORM => "transform_param.",
            _ => "",
        };
        format!("{message}{}", self.field)
    }

    /// What is wrong with a layer that has the field.
    pub(super) fn fault(&self) -> String {
        format!(
            "{} is a field of {} that Percolator does not support; ignoring it would change the arrays",
            self.name(),
            self.owner
        )
    }
}

const NVCAFFE: &str = "NVCaffe";
const INTEL: &str = "Intel Caffe";
/// All three have it; SSD's Caffe had it first.
const SSD_AND_OTHERS: &str = "SSD, NVCaffe and Intel Caffe";
const NVCAFFE_AND_INTEL: &str = "NVCaffe and Intel Caffe";

const DATA: &str = "DataParameter";
const IMAGE_DATA: &str = "ImageDataParameter";
const LAYER: &str = "LayerParameter";
const TRANSFORM: &str = "TransformationParameter";

const fn fork(message: &'static str, field: &'static str, owner: &'static str, harmless: Harmless) -> Fork {
    Fork { message, field, owner, harmless }
}

const ZERO: Harmless = Harmless::Numbers(&[0.0]);
/// A factor that scales nothing.
const ONE: Harmless = Harmless::Numbers(&[1.0]);

static FORKS: &[Fork] = &[
    fork(DATA, "threads", NVCAFFE, Harmless::Always),
    fork(DATA, "parser_threads", NVCAFFE, Harmless::Always),
    fork(DATA, "cache", NVCAFFE, Harmless::Always),
    fork(DATA, "precache", NVCAFFE, Harmless::Always),
    fork(DATA, "shuffle", NVCAFFE_AND_INTEL, Harmless::False),
    fork(DATA, "side", INTEL, Harmless::Never),
    fork(IMAGE_DATA, "threads", NVCAFFE, Harmless::Always),
    fork(IMAGE_DATA, "cache", NVCAFFE, Harmless::Always),
    fork(IMAGE_DATA, "precache", NVCAFFE, Harmless::Always),
    fork(IMAGE_DATA, "short_side", NVCAFFE, ZERO),
    // Lists are cut to a share only if this is above 1.
    fork(IMAGE_DATA, "dataset_share_per_node", NVCAFFE, Harmless::Numbers(&[0.0, 1.0])),
    fork(LAYER, "annotated_data_param", SSD_AND_OTHERS, Harmless::Never),
    fork(TRANSFORM, "use_gpu_transform", NVCAFFE, Harmless::Always),
    fork(TRANSFORM, "display", NVCAFFE, Harmless::Always),
    fork(TRANSFORM, "random_seed", NVCAFFE, Harmless::Numbers(&[-1.0])),
    fork(TRANSFORM, "var_sz_img_enabled", NVCAFFE, Harmless::False),
    fork(TRANSFORM, "img_rand_resize_lower", NVCAFFE, ZERO),
    fork(TRANSFORM, "img_rand_resize_upper", NVCAFFE, ZERO),
    fork(TRANSFORM, "rand_resize_ratio_lower", NVCAFFE, ONE),
    fork(TRANSFORM, "rand_resize_ratio_upper", NVCAFFE, ONE),
    fork(TRANSFORM, "vertical_stretch_lower", NVCAFFE, ONE),
    fork(TRANSFORM, "vertical_stretch_upper", NVCAFFE, ONE),
    fork(TRANSFORM, "horizontal_stretch_lower", NVCAFFE, ONE),
    fork(TRANSFORM, "horizontal_stretch_upper", NVCAFFE, ONE),
    // These three only set how the six fields before them are carried out.
    fork(TRANSFORM, "interpolation_algo_down", NVCAFFE, Harmless::Always),
    fork(TRANSFORM, "interpolation_algo_up", NVCAFFE, Harmless::Always),
    fork(TRANSFORM, "allow_upscale", NVCAFFE, Harmless::Always),
    fork(TRANSFORM, "forward_packing", NVCAFFE, Harmless::Word("NCHW")),
    fork(TRANSFORM, "num_labels", NVCAFFE, ZERO),
    fork(TRANSFORM, "crop_h", SSD_AND_OTHERS, ZERO),
    fork(TRANSFORM, "crop_w", SSD_AND_OTHERS, ZERO),
    fork(TRANSFORM, "resize_param", SSD_AND_OTHERS, Harmless::Never),
    fork(TRANSFORM, "noise_param", SSD_AND_OTHERS, Harmless::Empty),
    fork(TRANSFORM, "distort_param", SSD_AND_OTHERS, Harmless::Empty),
    fork(TRANSFORM, "expand_param", SSD_AND_OTHERS, Harmless::Empty),
    fork(TRANSFORM, "emit_constraint", SSD_AND_OTHERS, Harmless::Never),
    fork(TRANSFORM, "random_resize_param", INTEL, Harmless::Never),
    fork(TRANSFORM, "random_aspect_ratio_param", INTEL, Harmless::Never),
    fork(TRANSFORM, "flow", INTEL, Harmless::False),
    fork(TRANSFORM, "bgr2rgb", INTEL, Harmless::False),
    fork(TRANSFORM, "pad", INTEL, ZERO),
];

/// The fork's field with this name in this message.
pub(super) fn find(message: &str, field: &str) -> Option<&'static Fork> {
    FORKS.iter().find(|fork| fork.message == message && fork.field == field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_each_field_once() {
        for fork in FORKS {
            let named =
                FORKS.iter().filter(|other| (other.message, other.field) == (fork.message, fork.field));
            assert_eq!(named.count(), 1, "{}.{}", fork.message, fork.field);
        }
    }
}
