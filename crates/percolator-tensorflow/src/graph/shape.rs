//! Shapes that may be partly unknown.

use std::fmt;

use crate::proto;
use crate::tensor::AXES_MAX;

/// The shape of a tensor, as far as a graph says it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum Shape {
    /// Any number of axes.
    #[default]
    Unknown,
    /// As many axes as there are extents, the outermost first; `None` is any extent. A scalar has none.
    Known(Vec<Option<u64>>),
}

impl Shape {
    /// Reads a shape, or says what is wrong with it.
    pub(super) fn of(proto: &proto::TensorShapeProto) -> Result<Self, String> {
        if proto.unknown_rank {
            return Ok(Shape::Unknown);
        }
        if proto.dim.len() > AXES_MAX {
            return Err(format!("has {} axes, where {AXES_MAX} are allowed", proto.dim.len()));
        }
        let extent = |dim: &proto::tensor_shape_proto::Dim| match (dim.size, u64::try_from(dim.size)) {
            (-1, _) => Ok(None),
            (_, Ok(size)) => Ok(Some(size)),
            (size, Err(_)) => {
                Err(format!("has the extent {size}, where extents are 0 or more, or -1 for any"))
            }
        };
        proto.dim.iter().map(extent).collect::<Result<_, _>>().map(Shape::Known)
    }

    /// Returns its extents, or `None` if even their number is not known.
    #[must_use]
    pub fn extents(&self) -> Option<&[Option<u64>]> {
        match self {
            Shape::Unknown => None,
            Shape::Known(extents) => Some(extents),
        }
    }

    /// Returns the number of axes, if it is known.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        self.extents().map(<[_]>::len)
    }
}

/// Writes `[?, 100]`, `[]` for a scalar, or `unknown rank`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape::Known(extents) = self else { return f.pad("unknown rank") };
        let shown = |extent: &Option<u64>| extent.map_or_else(|| "?".to_owned(), |extent| extent.to_string());
        f.pad(&format!("[{}]", extents.iter().map(shown).collect::<Vec<_>>().join(", ")))
    }
}
