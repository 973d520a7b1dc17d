//! The functions of a graph.

use super::node::Node;
use crate::DataType;
use crate::proto;

/// A function of a graph's library. Nodes call it by their operation, or name it in an attribute.
#[derive(Clone, Copy, Debug)]
pub struct GraphFunction<'a> {
    pub(super) proto: &'a proto::FunctionDef,
}

impl<'a> GraphFunction<'a> {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.proto.signature.as_ref().map_or("", |signature| &signature.name)
    }

    /// Returns its arguments: their names, and their types if they do not depend on attributes.
    pub fn arguments(&self) -> impl Iterator<Item = (&'a str, Option<DataType>)> + use<'a> {
        let signature = self.proto.signature.as_ref();
        signature.map_or(&[][..], |signature| &signature.input_arg).iter().map(argument)
    }

    /// Returns its results: their names, their types if they do not depend on attributes, and which output of
    /// which node each is, as inputs are written: `node:output:0`.
    pub fn results(&self) -> impl Iterator<Item = (&'a str, Option<DataType>, Option<&'a str>)> + use<'a> {
        let proto = self.proto;
        let signature = proto.signature.as_ref();
        signature.map_or(&[][..], |signature| &signature.output_arg).iter().map(|result| {
            let (name, data_type) = argument(result);
            (name, data_type, proto.ret.get(name).map(String::as_str))
        })
    }

    /// Returns its nodes, in the order of the file.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = Node<'a>> + use<'a> {
        self.proto.node_def.iter().map(|proto| Node { proto })
    }

    /// Returns the message, with the fields that [`proto`] has.
    #[must_use]
    pub fn proto(&self) -> &'a proto::FunctionDef {
        self.proto
    }
}

fn argument(proto: &proto::op_def::ArgDef) -> (&str, Option<DataType>) {
    (&proto.name, DataType::from_proto(proto.r#type))
}
