//! Nodes: their inputs and attributes.

use std::fmt;

use super::constant::Constant;
use super::shape::Shape;
use crate::DataType;
use crate::proto;

/// A node of a graph, or of a function.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub(super) proto: &'a proto::NodeDef,
}

impl<'a> Node<'a> {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.proto.name
    }

    /// Returns its operation, or the function that it calls.
    #[must_use]
    pub fn op(&self) -> &'a str {
        &self.proto.op
    }

    /// Returns the device it was placed on; empty if on none.
    #[must_use]
    pub fn device(&self) -> &'a str {
        &self.proto.device
    }

    /// Returns its inputs as they are written: `name`, `name:1`, `^control`.
    #[must_use]
    pub fn input_names(&self) -> &'a [String] {
        &self.proto.input
    }

    /// Returns its inputs.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = Input<'a>> + use<'a> {
        self.proto.input.iter().map(|input| Input::parse(input))
    }

    /// Returns an attribute, if it is set.
    #[must_use]
    pub fn attr(&self, name: &str) -> Option<Attr<'a>> {
        Attr::of(self.proto.attr.get(name)?)
    }

    /// Returns the attributes that are set, in the order of their names.
    pub fn attrs(&self) -> impl Iterator<Item = (&'a str, Attr<'a>)> + use<'a> {
        self.proto.attr.iter().filter_map(|(name, value)| Some((&**name, Attr::of(value)?)))
    }

    /// Returns the functions that it calls or names, through its operation's attributes, in the order of the
    /// attributes. (An operation that is itself a function is [`op`](Self::op).)
    #[must_use]
    pub fn functions(&self) -> Vec<&'a str> {
        let mut names = Vec::new();
        for (_, attr) in self.attrs() {
            match attr {
                Attr::Function(function) => names.push(&*function.name),
                Attr::List(list) => names.extend(list.func.iter().map(|function| &*function.name)),
                _ => {}
            }
        }
        names
    }

    /// Returns the message, with the fields that [`proto`] has.
    #[must_use]
    pub fn proto(&self) -> &'a proto::NodeDef {
        self.proto
    }
}

/// An input of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Input<'a> {
    /// A tensor: an output of a node of the graph, by its number. `name` is `name:0`.
    Tensor {
        /// The node.
        node: &'a str,
        /// The number of its output.
        output: usize,
    },
    /// An output of a node of a function, by the output's name: `name:output:0`.
    Named {
        /// The node.
        node: &'a str,
        /// The name of its output.
        output: &'a str,
        /// Which tensor, if the output is a list.
        number: usize,
    },
    /// A node that must have run before: `^name`.
    Control(&'a str),
}

impl<'a> Input<'a> {
    /// Reads an input, or the name of a tensor.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        if let Some(node) = text.strip_prefix('^') {
            return Input::Control(node);
        }
        let whole = Input::Tensor { node: text, output: 0 };
        let Some((front, number)) = text.rsplit_once(':') else { return whole };
        let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        let Some(number) = number.parse().ok().filter(|_| is_number) else { return whole };
        match front.split_once(':') {
            Some((node, output)) => Input::Named { node, output, number },
            None => Input::Tensor { node: front, output: number },
        }
    }

    /// Returns the name of the node.
    #[must_use]
    pub fn node(&self) -> &'a str {
        match *self {
            Input::Tensor { node, .. } | Input::Named { node, .. } | Input::Control(node) => node,
        }
    }

    /// Whether it only says what must run before.
    #[must_use]
    pub fn is_control(&self) -> bool {
        matches!(self, Input::Control(_))
    }
}

/// Writes `name` for a node's first output, `name:1`, `name:output:0` or `^name`.
impl fmt::Display for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Tensor { node, output: 0 } => f.write_str(node),
            Input::Tensor { node, output } => write!(f, "{node}:{output}"),
            Input::Named { node, output, number } => write!(f, "{node}:{output}:{number}"),
            Input::Control(node) => write!(f, "^{node}"),
        }
    }
}

/// The value of an attribute.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub enum Attr<'a> {
    /// A string, of any bytes.
    String(&'a [u8]),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f32),
    /// A truth value.
    Bool(bool),
    /// A type, by its number in TensorFlow's messages: [`DataType::from_proto`].
    Type(i32),
    /// A shape.
    Shape(&'a proto::TensorShapeProto),
    /// A tensor.
    Tensor(Constant<'a>),
    /// A list of any of the others. All its elements are of one kind; an empty one may be of any.
    List(&'a proto::attr_value::ListValue),
    /// A function of the graph's library, by its name, and the attributes that it is called with.
    Function(&'a proto::NameAttrList),
    /// A name that stands for an attribute of the function that the node is part of.
    Placeholder(&'a str),
}

impl<'a> Attr<'a> {
    /// Reads the value of an attribute, if it is set.
    #[must_use]
    pub fn of(value: &'a proto::AttrValue) -> Option<Self> {
        use proto::attr_value::Value as V;
        Some(match value.value.as_ref()? {
            V::S(bytes) => Attr::String(bytes),
            V::I(value) => Attr::Int(*value),
            V::F(value) => Attr::Float(*value),
            V::B(value) => Attr::Bool(*value),
            V::Type(number) => Attr::Type(*number),
            V::Shape(shape) => Attr::Shape(shape),
            V::Tensor(tensor) => Attr::Tensor(Constant::new(tensor)),
            V::List(list) => Attr::List(list),
            V::Func(function) => Attr::Function(function),
            V::Placeholder(name) => Attr::Placeholder(name),
        })
    }

    /// Returns the type, if it is one, and one of TensorFlow 2.21's.
    #[must_use]
    pub fn data_type(&self) -> Option<DataType> {
        match self {
            Attr::Type(number) => DataType::from_proto(*number),
            _ => None,
        }
    }

    /// Returns the string, if it is one, and UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        match self {
            Attr::String(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Returns the shape, if it is one, and its extents are.
    #[must_use]
    pub fn shape(&self) -> Option<Shape> {
        match self {
            Attr::Shape(shape) => Shape::of(shape).ok(),
            _ => None,
        }
    }
}
