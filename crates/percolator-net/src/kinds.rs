//! Layer types: their names in each format of a net, and their role for a feed.

use super::text::notes::Fillers;
use crate::proto::V1LayerParameter;

/// A type's V1 number, its V1 name, its name in `layer`, and its name in a V0 layer.
const TYPES: &[(i32, &str, &str, Option<&str>)] = &[
    (35, "ABSVAL", "AbsVal", None),
    (1, "ACCURACY", "Accuracy", Some("accuracy")),
    (30, "ARGMAX", "ArgMax", None),
    (2, "BNLL", "BNLL", Some("bnll")),
    (3, "CONCAT", "Concat", Some("concat")),
    (37, "CONTRASTIVE_LOSS", "ContrastiveLoss", None),
    (4, "CONVOLUTION", "Convolution", Some("conv")),
    (5, "DATA", "Data", Some("data")),
    (39, "DECONVOLUTION", "Deconvolution", None),
    (6, "DROPOUT", "Dropout", Some("dropout")),
    (32, "DUMMY_DATA", "DummyData", None),
    (7, "EUCLIDEAN_LOSS", "EuclideanLoss", Some("euclidean_loss")),
    (25, "ELTWISE", "Eltwise", None),
    (38, "EXP", "Exp", None),
    (8, "FLATTEN", "Flatten", Some("flatten")),
    (9, "HDF5_DATA", "HDF5Data", Some("hdf5_data")),
    (10, "HDF5_OUTPUT", "HDF5Output", Some("hdf5_output")),
    (28, "HINGE_LOSS", "HingeLoss", None),
    (11, "IM2COL", "Im2col", Some("im2col")),
    (12, "IMAGE_DATA", "ImageData", Some("images")),
    (13, "INFOGAIN_LOSS", "InfogainLoss", Some("infogain_loss")),
    (14, "INNER_PRODUCT", "InnerProduct", Some("innerproduct")),
    (15, "LRN", "LRN", Some("lrn")),
    (29, "MEMORY_DATA", "MemoryData", None),
    (16, "MULTINOMIAL_LOGISTIC_LOSS", "MultinomialLogisticLoss", Some("multinomial_logistic_loss")),
    (34, "MVN", "MVN", None),
    (17, "POOLING", "Pooling", Some("pool")),
    (26, "POWER", "Power", None),
    (18, "RELU", "ReLU", Some("relu")),
    (19, "SIGMOID", "Sigmoid", Some("sigmoid")),
    (27, "SIGMOID_CROSS_ENTROPY_LOSS", "SigmoidCrossEntropyLoss", None),
    (36, "SILENCE", "Silence", None),
    (20, "SOFTMAX", "Softmax", Some("softmax")),
    (21, "SOFTMAX_LOSS", "SoftmaxWithLoss", Some("softmax_loss")),
    (22, "SPLIT", "Split", Some("split")),
    (33, "SLICE", "Slice", None),
    (23, "TANH", "TanH", Some("tanh")),
    (24, "WINDOW_DATA", "WindowData", Some("window_data")),
    (31, "THRESHOLD", "Threshold", None),
];

// The V1 numbers of those that read data.
pub(super) const V1_DATA: i32 = 5;
pub(super) const V1_HDF5_DATA: i32 = 9;
pub(super) const V1_IMAGE_DATA: i32 = 12;
pub(super) const V1_WINDOW_DATA: i32 = 24;

/// The number of a V1 type, by its V1 name.
pub(super) fn v1_named(name: &str) -> Option<i32> {
    if name == "NONE" {
        return Some(0);
    }
    TYPES.iter().find(|(_, v1, ..)| *v1 == name).map(|&(number, ..)| number)
}

/// The name of a V1 type in `layer`.
pub(super) fn of_v1(number: i32) -> Option<&'static str> {
    TYPES.iter().find(|(v1, ..)| *v1 == number).map(|&(_, _, name, _)| name)
}

/// The V1 type of a V0 type name.
pub(super) fn of_v0(kind: &str) -> Option<i32> {
    TYPES.iter().find(|(.., v0)| *v0 == Some(kind)).map(|&(v1, ..)| v1)
}

/// The name of a V1 type in a V0 layer.
pub(super) fn v0_name(v1: i32) -> Option<&'static str> {
    TYPES.iter().find(|(other, ..)| *other == v1).and_then(|&(.., v0)| v0)
}

/// Caffe's types without a V1 number, because they came after V1, that draw nothing at set-up.
const DRAWING_NOTHING: &[&str] = &[
    "BatchNorm",
    "BatchReindex",
    "Clip",
    "Crop",
    "ELU",
    "Filter",
    "Input",
    "Log",
    "Parameter",
    "Reduction",
    "Reshape",
    "SPP",
    "Swish",
    "Tile",
];

/// Types whose parameters or data a filler may draw.
const FILLED: &[&str] = &[
    "Bias",
    "Convolution",
    "Deconvolution",
    "DummyData",
    "Embed",
    "InnerProduct",
    "LSTM",
    "PReLU",
    "RNN",
    "Recurrent",
    "Scale",
];

/// Types that start a prefetch thread, or crop and mirror, and seed their own generators for it.
const DRAWING_DATA: &[&str] = &["MemoryData", "WindowData"];

/// Whether setting up a layer of this type may take numbers from the generator that all layers share.
///
/// An unknown type may do anything.
pub(super) fn may_draw(kind: &str, fillers: Fillers) -> bool {
    if FILLED.contains(&kind) || fillers == Fillers::Present {
        return fillers != Fillers::Absent;
    }
    let of_caffe = TYPES.iter().any(|&(_, _, name, _)| name == kind) || DRAWING_NOTHING.contains(&kind);
    !of_caffe || DRAWING_DATA.contains(&kind)
}

/// A layer's role for a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Reads records from a database. Percolator does this in its place.
    Data,
    /// Reads images from a list. Percolator does this in its place.
    ImageData,
    /// Supplies data in some other way.
    Supplier,
    /// Supplies no data.
    Other,
}

/// Types that supply data, whatever their blobs.
const SUPPLIERS: &[&str] =
    &["AnnotatedData", "DummyData", "HDF5Data", "Input", "MemoryData", "VideoData", "WindowData"];

/// Whether layers of this type are fed, by their name in `layer`.
pub(super) fn is_fed(kind: &str) -> bool {
    matches!(role(kind, 0, 0), Role::Data | Role::ImageData)
}

/// Whether a V1 layer, or the V0 layer in it, is fed.
pub(super) fn is_fed_v1(layer: &V1LayerParameter) -> bool {
    let v1 = match &layer.layer {
        Some(v0) => of_v0(v0.r#type()),
        None => Some(layer.r#type()),
    };
    v1.and_then(of_v1).is_some_and(is_fed)
}

/// The role of a layer of this type with these numbers of bottoms and tops.
pub(super) fn role(kind: &str, bottoms: usize, tops: usize) -> Role {
    match kind {
        "Data" => Role::Data,
        "ImageData" => Role::ImageData,
        // A learned blob has no bottom, but is not data.
        "Parameter" => Role::Other,
        _ if SUPPLIERS.contains(&kind) || (bottoms == 0 && tops > 0) => Role::Supplier,
        _ => Role::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "compiles the schema, for long")]
    fn the_v1_types_are_those_of_the_schema() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
        let schema = protox::compile(["caffe.proto"], [folder]).unwrap();
        let layer = schema.file[0].message_type.iter().find(|message| message.name() == "V1LayerParameter");
        let types = layer.unwrap().enum_type.iter().find(|one| one.name() == "LayerType").unwrap();
        for value in &types.value {
            assert_eq!(v1_named(value.name()), Some(value.number()));
        }
        assert_eq!(types.value.len(), TYPES.len() + 1);
    }

    #[test]
    fn every_v1_type_has_a_name() {
        for number in 1..=39 {
            let name = of_v1(number).unwrap_or_else(|| panic!("{number} is not in the table"));
            assert_eq!(TYPES.iter().filter(|(_, _, other, _)| *other == name).count(), 1, "{name}");
        }
        assert_eq!((of_v1(0), of_v1(40), TYPES.len()), (None, None, 39));
        assert_eq!((of_v1(5), of_v1(21), of_v1(35)), (Some("Data"), Some("SoftmaxWithLoss"), Some("AbsVal")));
        assert_eq!((of_v0("images"), of_v0("padding")), (Some(V1_IMAGE_DATA), None));
    }

    #[test]
    fn what_may_draw_is_known_or_suspected() {
        assert!(may_draw("Convolution", Fillers::Present) && may_draw("Convolution", Fillers::Unknown));
        assert!(!may_draw("Convolution", Fillers::Absent) && !may_draw("ReLU", Fillers::Unknown));
        assert!(may_draw("ReLU", Fillers::Present) && may_draw("ForkLayer", Fillers::Absent));
        assert!(may_draw("WindowData", Fillers::Absent) && !may_draw("HDF5Data", Fillers::Absent));
        assert!(may_draw("Python", Fillers::Absent));
    }

    #[test]
    fn what_has_no_bottoms_is_data() {
        assert_eq!(role("Python", 0, 2), Role::Supplier);
        assert_eq!(role("Python", 1, 1), Role::Other);
        assert_eq!(role("MemoryData", 0, 2), Role::Supplier);
        assert_eq!(role("Parameter", 0, 1), Role::Other);
        assert_eq!(role("Silence", 1, 0), Role::Other);
    }
}
