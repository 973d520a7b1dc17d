//! What does not fit, in words.

use std::fmt;

use percolator::Layout;
use percolator_files::shown;

use crate::DataType;
use crate::graph::Shape;

/// A feed does not give what a signature takes.
#[derive(Clone, Debug, PartialEq)]
pub struct SignatureMismatch {
    pub(super) signature: String,
    pub(super) faults: Vec<SignatureFault>,
}

impl SignatureMismatch {
    /// Returns all that does not fit: faults of the pairs in their order, then the inputs that nothing feeds.
    #[must_use]
    pub fn faults(&self) -> &[SignatureFault] {
        &self.faults
    }
}

impl std::error::Error for SignatureMismatch {}

impl fmt::Display for SignatureMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SignatureMismatch { signature, faults } = self;
        write!(f, "the feed does not fit the signature {:?}: ", shown::message(signature).to_string())?;
        if let [fault] = &**faults {
            return write!(f, "{fault}");
        }
        write!(f, "{} faults", faults.len())?;
        faults.iter().try_for_each(|fault| write!(f, "\n- {fault}"))
    }
}

/// One thing that does not fit.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub enum SignatureFault {
    /// The signature has no such input.
    UnknownInput {
        /// The name in the pair.
        input: String,
        /// The inputs that there are.
        there: Vec<String>,
    },
    /// The feed has no such field.
    UnknownField {
        /// The input.
        input: String,
        /// The name in the pair.
        field: String,
        /// The fields that there are.
        there: Vec<String>,
    },
    /// Two pairs feed one input.
    FedTwice {
        /// The input.
        input: String,
    },
    /// No pair feeds an input that has no default.
    NotFed {
        /// The input, as the signature describes it.
        input: String,
    },
    /// The input is not one tensor, and the field does not give its parts.
    NotDense {
        /// The input, as the signature describes it.
        input: String,
        /// The field.
        field: String,
    },
    /// The input takes strings, and fields are numbers.
    Strings {
        /// The input.
        input: String,
        /// The field.
        field: String,
    },
    /// The field's elements are of a type that is not known to be one of TensorFlow's.
    UnknownType {
        /// The input.
        input: String,
        /// The field.
        field: String,
    },
    /// The types of the elements differ.
    Type {
        /// The input.
        input: String,
        /// The type it takes, or `None` if the signature has a type that TensorFlow 2.21 does not know.
        wanted: Option<DataType>,
        /// The field.
        field: String,
        /// The type of the field.
        found: DataType,
        /// What to do.
        remedy: String,
    },
    /// The numbers of axes differ.
    Rank {
        /// The input.
        input: String,
        /// The shape it takes.
        wanted: Shape,
        /// The field.
        field: String,
        /// The shape of a batch of it.
        found: Shape,
        /// What may be the matter; empty if it is not known.
        hint: &'static str,
    },
    /// An axis that is not the batch's has another extent.
    Extent {
        /// The input.
        input: String,
        /// The shape it takes.
        wanted: Shape,
        /// The field.
        field: String,
        /// The shape of a batch of it.
        found: Shape,
        /// The number of the axis, from 0.
        axis: usize,
    },
    /// The extents are right, in another order: NCHW for NHWC, or the other way about.
    Layout {
        /// The input.
        input: String,
        /// The shape it takes.
        wanted: Shape,
        /// The order of its axes.
        wanted_layout: Layout,
        /// The field.
        field: String,
        /// The shape of a batch of it.
        found: Shape,
        /// Whether the feed itself orders the axes, as it does those of its images.
        is_image: bool,
    },
    /// The input takes batches of one size, and the feed gives others.
    BatchSize {
        /// The input.
        input: String,
        /// The size it takes.
        wanted: u64,
        /// The field.
        field: String,
        /// The size of the feed's batches.
        found: u64,
    },
    /// The input takes batches of one size, which is the feed's, but not all of the feed's batches are full.
    ShortBatch {
        /// The input.
        input: String,
        /// The size it takes.
        wanted: u64,
        /// The field.
        field: String,
        /// The size of a batch that is not full, if it is known before the records are read.
        found: Option<u64>,
    },
    /// The field is ragged: the elements of all records follow one another, in an array without a batch axis.
    Ragged {
        /// The input.
        input: String,
        /// The shape it takes.
        wanted: Shape,
        /// The field.
        field: String,
        /// The most elements of a record.
        max: usize,
    },
}

impl fmt::Display for SignatureFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SignatureFault as F;
        let name = |name: &str| shown::message(name).to_string();
        let pair =
            |input: &str, field: &str| format!("input {}, fed by field {}: ", name(input), name(field));
        match self {
            F::UnknownInput { input, there } => {
                write!(f, "the signature has no input {}: there are {}", name(input), listed(there))
            }
            F::UnknownField { input, field, there } => {
                write!(f, "input {}: the feed has no field {}: ", name(input), name(field))?;
                write!(f, "there are {}", listed(there))
            }
            F::FedTwice { input } => write!(f, "input {} is fed by two fields: name one", name(input)),
            F::NotFed { input } => write!(f, "no field feeds input {}", name(input)),
            F::NotDense { input, field } => {
                write!(f, "input {} is not one array, as field {} is: ", name(input), name(field))?;
                f.write_str("only a ragged field feeds a ragged input, and no field a sparse one")
            }
            F::Strings { input, field } => {
                write!(f, "{}it takes strings, and a feed gives numbers: ", pair(input, field))?;
                f.write_str("export the model with an input of what the strings decode to")
            }
            F::UnknownType { input, field } => {
                write!(
                    f,
                    "{}the field is of a type that TensorFlow is not known to have: ",
                    pair(input, field)
                )?;
                f.write_str("describe the field with the input's type")
            }
            F::Type { input, wanted, field, found, remedy } => {
                let wanted = wanted.map_or("a type that is not known", DataType::name);
                write!(f, "{}it takes {wanted}, and the field is {found}: {remedy}", pair(input, field))
            }
            F::Rank { input, wanted, field, found, hint } => {
                write!(f, "{}it takes {wanted}, and a batch is {found}, ", pair(input, field))?;
                f.write_str(if wanted.rank() > found.rank() { "with fewer axes" } else { "with more axes" })?;
                if hint.is_empty() { Ok(()) } else { write!(f, ": {hint}") }
            }
            F::Extent { input, wanted, field, found, axis } => {
                write!(f, "{}it takes {wanted}, and a batch is {found}: ", pair(input, field))?;
                write!(f, "axis {axis} differs")
            }
            F::Layout { input, wanted, wanted_layout, field, found, is_image } => {
                let other = if *wanted_layout == Layout::Nhwc { Layout::Nchw } else { Layout::Nhwc };
                write!(f, "{}it takes {wanted_layout}, {wanted}, ", pair(input, field))?;
                write!(f, "and a batch is {other}, {found}: ")?;
                f.write_str(layout_remedy(*wanted_layout, *is_image))
            }
            F::BatchSize { input, wanted, field, found } => {
                write!(
                    f,
                    "{}it takes batches of {wanted}, and the feed gives {found}: ",
                    pair(input, field)
                )?;
                write!(f, "set .batch_size({wanted}), or export the model with a free batch dimension")
            }
            F::ShortBatch { input, wanted, field, found } => {
                write!(f, "{}it takes batches of {wanted}, and ", pair(input, field))?;
                match found {
                    Some(found) => write!(f, "some batches have {found} records: ")?,
                    None => f.write_str("the last batch may be short: ")?,
                }
                f.write_str("set .last_batch(LastBatch::Drop) or LastBatch::Pad on the feed")
            }
            F::Ragged { input, wanted, field, max } => {
                write!(f, "{}it takes {wanted}, and the field is ragged, ", pair(input, field))?;
                write!(f, "an array [?] of all records' elements: pad it to {max} elements a record")
            }
        }
    }
}

fn layout_remedy(wanted: Layout, is_image: bool) -> &'static str {
    match (is_image, wanted) {
        (true, Layout::Nchw) => "set .layout(Layout::Nchw) on the feed",
        (true, Layout::Nhwc) => "set .layout(Layout::Nhwc) on the feed",
        (false, Layout::Nchw) => "store the field channel by channel",
        (false, Layout::Nhwc) => "store the field with the channels innermost",
    }
}

fn listed(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().map(|name| shown::message(name).to_string()).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}
