//! Signatures: what a graph computes for a caller.

use std::fmt;

use super::constant::Constant;
use super::error::GraphError;
use super::meta_graph::MetaGraph;
use super::shape::Shape;
use crate::DataType;
use crate::proto::{self, tensor_info};

/// What a graph computes for a caller: its inputs and outputs by name.
#[derive(Clone, Debug)]
pub struct Signature<'a> {
    name: &'a str,
    proto: &'a proto::SignatureDef,
    inputs: Vec<SignatureTensor<'a>>,
    outputs: Vec<SignatureTensor<'a>>,
}

/// An input or output of a signature.
#[derive(Clone, Debug, PartialEq)]
pub struct SignatureTensor<'a> {
    name: &'a str,
    encoding: Encoding<'a>,
    data_type: Option<DataType>,
    shape: Shape,
}

/// Which tensors of the graph an input or output is.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub enum Encoding<'a> {
    /// One tensor: its name in the graph, `x:0`.
    Dense(&'a str),
    /// A sparse tensor in coordinates, of three tensors.
    Sparse {
        /// The name of the tensor with the values, `[n]`.
        values: &'a str,
        /// The name of the tensor with the indices, `[n, rank]`, `int64`.
        indices: &'a str,
        /// The name of the tensor with the shape, `[rank]`, `int64`.
        dense_shape: &'a str,
    },
    /// A value of several tensors: ragged, sparse, or of a type of the program's.
    Composite {
        /// What it is, `RaggedTensorSpec` for one.
        type_name: &'a str,
        /// Its tensors, in their order.
        components: Vec<SignatureTensor<'a>>,
    },
    /// The model does not say.
    Missing,
}

impl<'a> Signature<'a> {
    pub(super) fn of(
        graph: &'a MetaGraph,
        name: &'a str,
        proto: &'a proto::SignatureDef,
    ) -> Result<Self, GraphError> {
        let tensors = |tensors: &'a std::collections::BTreeMap<String, proto::TensorInfo>| {
            tensors.iter().map(|(name, info)| SignatureTensor::of(graph, name, info)).collect()
        };
        let (inputs, outputs): (Result<Vec<_>, _>, Result<Vec<_>, _>) =
            (tensors(&proto.inputs), tensors(&proto.outputs));
        Ok(Signature { name, proto, inputs: inputs?, outputs: outputs? })
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the name of its method, `tensorflow/serving/predict` for one; empty if it has none.
    #[must_use]
    pub fn method(&self) -> &'a str {
        &self.proto.method_name
    }

    /// Returns its inputs, in the order of their names.
    #[must_use]
    pub fn inputs(&self) -> &[SignatureTensor<'a>] {
        &self.inputs
    }

    /// Returns one of its inputs.
    #[must_use]
    pub fn input(&self, name: &str) -> Option<&SignatureTensor<'a>> {
        self.inputs.iter().find(|input| input.name == name)
    }

    /// Returns its outputs, in the order of their names.
    #[must_use]
    pub fn outputs(&self) -> &[SignatureTensor<'a>] {
        &self.outputs
    }

    /// Returns one of its outputs.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<&SignatureTensor<'a>> {
        self.outputs.iter().find(|output| output.name == name)
    }

    /// Returns the values of inputs that may be left out, in the order of the inputs' names.
    pub fn defaults(&self) -> impl Iterator<Item = (&'a str, Constant<'a>)> + use<'a> {
        self.proto.defaults.iter().map(|(name, value)| (&**name, Constant::new(value)))
    }

    /// Returns the value of an input that may be left out.
    #[must_use]
    pub fn default_of(&self, input: &str) -> Option<Constant<'a>> {
        self.proto.defaults.get(input).map(Constant::new)
    }
}

impl<'a> SignatureTensor<'a> {
    pub(super) fn of(
        graph: &'a MetaGraph,
        name: &'a str,
        info: &'a proto::TensorInfo,
    ) -> Result<Self, GraphError> {
        let encoding = match &info.encoding {
            None => Encoding::Missing,
            Some(tensor_info::Encoding::Name(name)) => Encoding::Dense(name),
            Some(tensor_info::Encoding::CooSparse(sparse)) => Encoding::Sparse {
                values: &sparse.values_tensor_name,
                indices: &sparse.indices_tensor_name,
                dense_shape: &sparse.dense_shape_tensor_name,
            },
            Some(tensor_info::Encoding::CompositeTensor(composite)) => {
                let components = composite.components.iter();
                // Messages lie only so deep in one another, and with them this call in itself.
                let components = components.map(|component| SignatureTensor::of(graph, "", component));
                Encoding::Composite {
                    type_name: composite.type_spec.as_ref().map_or("", type_name),
                    components: components.collect::<Result<_, _>>()?,
                }
            }
        };
        let shape = match &info.tensor_shape {
            Some(shape) => graph.shape(name, shape)?,
            None => Shape::Unknown,
        };
        Ok(SignatureTensor { name, encoding, data_type: DataType::from_proto(info.dtype), shape })
    }

    /// Returns its name in the signature; empty for a part of a composite tensor.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Returns which tensors of the graph it is.
    #[must_use]
    pub fn encoding(&self) -> &Encoding<'a> {
        &self.encoding
    }

    /// Returns the name of its tensor in the graph, `x:0`, if it is one.
    #[must_use]
    pub fn tensor(&self) -> Option<&'a str> {
        match self.encoding {
            Encoding::Dense(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the names of all its tensors in the graph.
    #[must_use]
    pub fn tensors(&self) -> Vec<&'a str> {
        match &self.encoding {
            Encoding::Dense(name) => vec![name],
            Encoding::Sparse { values, indices, dense_shape } => vec![values, indices, dense_shape],
            Encoding::Composite { components, .. } => {
                components.iter().flat_map(SignatureTensor::tensors).collect()
            }
            Encoding::Missing => Vec::new(),
        }
    }

    /// Returns the type of its elements, or `None` if the model does not say, or names a type that TensorFlow
    /// 2.21 does not have.
    #[must_use]
    pub fn data_type(&self) -> Option<DataType> {
        self.data_type
    }

    /// Returns its shape.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }
}

/// Writes `x: float32 [?, 100]`.
impl fmt::Display for SignatureTensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SignatureTensor { name, encoding, data_type, shape } = self;
        let data_type = data_type.map_or("unknown type", DataType::name);
        write!(f, "{name}: ")?;
        match encoding {
            Encoding::Dense(_) => {}
            Encoding::Sparse { .. } => f.write_str("sparse ")?,
            Encoding::Composite { type_name, .. } => write!(f, "{type_name} ")?,
            Encoding::Missing => f.write_str("no tensor, ")?,
        }
        write!(f, "{data_type} {shape}")
    }
}

/// The classes of composite tensors, by their numbers in the schema, which has no 11.
const CLASSES: [&str; 14] = [
    "UNKNOWN",
    "SPARSE_TENSOR_SPEC",
    "INDEXED_SLICES_SPEC",
    "RAGGED_TENSOR_SPEC",
    "TENSOR_ARRAY_SPEC",
    "DATA_DATASET_SPEC",
    "DATA_ITERATOR_SPEC",
    "OPTIONAL_SPEC",
    "PER_REPLICA_SPEC",
    "VARIABLE_SPEC",
    "ROW_PARTITION_SPEC",
    "",
    "REGISTERED_TYPE_SPEC",
    "EXTENSION_TYPE_SPEC",
];

/// The name of a composite tensor's type.
fn type_name(spec: &proto::TypeSpecProto) -> &str {
    if !spec.type_spec_class_name.is_empty() {
        return &spec.type_spec_class_name;
    }
    usize::try_from(spec.type_spec_class)
        .ok()
        .and_then(|class| CLASSES.get(class))
        .copied()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_classes_are_those_of_the_schema() {
        let field = crate::proto::descriptor("TypeSpecProto").get_field_by_name("type_spec_class").unwrap();
        let kind = field.kind();
        let classes = kind.as_enum().unwrap();
        for (number, name) in (0..).zip(super::CLASSES) {
            assert_eq!(
                classes.get_value(number).map_or(String::new(), |class| class.name().to_owned()),
                name
            );
        }
        assert_eq!(classes.values().len(), super::CLASSES.len() - 1);
    }
}
