//! Regions of tensors that are written in slices.

use std::fmt::Write as _;
use std::ops::Range;

use crate::checkpoint::slices::{self, Extent};
use crate::proto::TensorSliceProto;

/// A region of a tensor, checked against its shape. It is neither empty nor the whole tensor.
#[derive(Clone, Debug)]
pub(super) struct Region {
    extents: Vec<Extent>,
    /// The places on each axis.
    places: Vec<Range<usize>>,
}

impl Region {
    /// Returns the region, or `None` if it is the whole tensor.
    pub(super) fn new(extents: &[Extent], shape: &[usize]) -> Result<Option<Self>, String> {
        let refused = |message: &str| {
            let region = spelled(extents);
            Err(format!("the region {region} is not one of a tensor of shape {shape:?}: {message}"))
        };
        if extents.len() != shape.len() {
            return refused("give one extent an axis");
        }
        let mut places = Vec::with_capacity(shape.len());
        for (extent, &size) in extents.iter().zip(shape) {
            match extent {
                Extent::All => places.push(0..size),
                Extent::Part(part) if part.start > part.end => {
                    return refused("an extent ends before it starts");
                }
                Extent::Part(part) if part.end > size => return refused("an extent ends past its axis"),
                Extent::Part(part) => places.push(part.clone()),
            }
        }
        // TensorFlow goes by the shape.
        if places.iter().map(Range::len).eq(shape.iter().copied()) {
            return Ok(None);
        }
        if places.iter().any(Range::is_empty) {
            return refused("it is empty, and TensorFlow reads no empty slice: leave it out");
        }
        Ok(Some(Region { extents: extents.to_vec(), places }))
    }

    /// The shape of the slice.
    pub(super) fn shape(&self) -> Vec<usize> {
        self.places.iter().map(Range::len).collect()
    }

    /// Whether an element is in both regions of one tensor.
    pub(super) fn overlaps(&self, other: &Region) -> bool {
        let mut axes = self.places.iter().zip(&other.places);
        axes.all(|(one, other)| one.start.max(other.start) < one.end.min(other.end))
    }

    /// The key of the slice: in ordered code, so that slices follow one another.
    pub(super) fn key(&self, name: &str) -> Vec<u8> {
        slices::key(name, &self.to_proto().extent)
    }

    pub(super) fn to_proto(&self) -> TensorSliceProto {
        TensorSliceProto { extent: self.extents.iter().map(Extent::stored).collect() }
    }

    /// The region as TensorFlow writes it: start and length of each axis, `-` for a whole one.
    pub(super) fn spelled(&self) -> String {
        spelled(&self.extents)
    }
}

fn spelled(extents: &[Extent]) -> String {
    let mut text = String::new();
    for (axis, extent) in extents.iter().enumerate() {
        let colon = if axis == 0 { "" } else { ":" };
        // Writing to a string cannot fail.
        let _ = match extent {
            Extent::All => write!(text, "{colon}-"),
            Extent::Part(part) => write!(text, "{colon}{},{}", part.start, part.len()),
        };
    }
    text
}
