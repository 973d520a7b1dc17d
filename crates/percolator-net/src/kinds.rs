//! Layer types: their names in each format of a net, and their role for a feed.

use super::text::notes::Fillers;
use crate::proto::V1LayerParameter;
use crate::proto::v1_layer_parameter::LayerType;

/// A type's V1 number, its name in `layer`, and its name in a V0 layer.
const TYPES: &[(LayerType, &str, Option<&str>)] = &[
    (LayerType::Absval, "AbsVal", None),
    (LayerType::Accuracy, "Accuracy", Some("accuracy")),
    (LayerType::Argmax, "ArgMax", None),
    (LayerType::Bnll, "BNLL", Some("bnll")),
    (LayerType::Concat, "Concat", Some("concat")),
    (LayerType::ContrastiveLoss, "ContrastiveLoss", None),
    (LayerType::Convolution, "Convolution", Some("conv")),
    (LayerType::Data, "Data", Some("data")),
    (LayerType::Deconvolution, "Deconvolution", None),
    (LayerType::Dropout, "Dropout", Some("dropout")),
    (LayerType::DummyData, "DummyData", None),
    (LayerType::EuclideanLoss, "EuclideanLoss", Some("euclidean_loss")),
    (LayerType::Eltwise, "Eltwise", None),
    (LayerType::Exp, "Exp", None),
    (LayerType::Flatten, "Flatten", Some("flatten")),
    (LayerType::Hdf5Data, "HDF5Data", Some("hdf5_data")),
    (LayerType::Hdf5Output, "HDF5Output", Some("hdf5_output")),
    (LayerType::HingeLoss, "HingeLoss", None),
    (LayerType::Im2col, "Im2col", Some("im2col")),
    (LayerType::ImageData, "ImageData", Some("images")),
    (LayerType::InfogainLoss, "InfogainLoss", Some("infogain_loss")),
    (LayerType::InnerProduct, "InnerProduct", Some("innerproduct")),
    (LayerType::Lrn, "LRN", Some("lrn")),
    (LayerType::MemoryData, "MemoryData", None),
    (LayerType::MultinomialLogisticLoss, "MultinomialLogisticLoss", Some("multinomial_logistic_loss")),
    (LayerType::Mvn, "MVN", None),
    (LayerType::Pooling, "Pooling", Some("pool")),
    (LayerType::Power, "Power", None),
    (LayerType::Relu, "ReLU", Some("relu")),
    (LayerType::Sigmoid, "Sigmoid", Some("sigmoid")),
    (LayerType::SigmoidCrossEntropyLoss, "SigmoidCrossEntropyLoss", None),
    (LayerType::Silence, "Silence", None),
    (LayerType::Softmax, "Softmax", Some("softmax")),
    (LayerType::SoftmaxLoss, "SoftmaxWithLoss", Some("softmax_loss")),
    (LayerType::Split, "Split", Some("split")),
    (LayerType::Slice, "Slice", None),
    (LayerType::Tanh, "TanH", Some("tanh")),
    (LayerType::WindowData, "WindowData", Some("window_data")),
    (LayerType::Threshold, "Threshold", None),
];

/// The name of a V1 type in `layer`.
pub(super) fn of_v1(number: i32) -> Option<&'static str> {
    TYPES.iter().find(|(v1, _, _)| *v1 as i32 == number).map(|&(_, name, _)| name)
}

/// The V1 type of a V0 type name.
pub(super) fn of_v0(kind: &str) -> Option<LayerType> {
    TYPES.iter().find(|(_, _, v0)| *v0 == Some(kind)).map(|&(v1, _, _)| v1)
}

/// The name of a V1 type in a V0 layer.
pub(super) fn v0_name(v1: LayerType) -> Option<&'static str> {
    TYPES.iter().find(|(other, _, _)| *other == v1).and_then(|&(_, _, v0)| v0)
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
    let of_caffe = TYPES.iter().any(|&(_, name, _)| name == kind) || DRAWING_NOTHING.contains(&kind);
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
    v1.and_then(|v1| of_v1(v1.into())).is_some_and(is_fed)
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
    fn every_v1_type_has_a_name() {
        for number in 1..=39 {
            let v1 = LayerType::try_from(number).unwrap();
            let name = of_v1(number).unwrap_or_else(|| panic!("{v1:?} is not in the table"));
            assert_eq!(TYPES.iter().filter(|(_, other, _)| *other == name).count(), 1, "{name}");
        }
        assert_eq!((of_v1(0), of_v1(40), TYPES.len()), (None, None, 39));
        assert_eq!((of_v1(5), of_v1(21), of_v1(35)), (Some("Data"), Some("SoftmaxWithLoss"), Some("AbsVal")));
        assert_eq!((of_v0("images"), of_v0("padding")), (Some(LayerType::ImageData), None));
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
