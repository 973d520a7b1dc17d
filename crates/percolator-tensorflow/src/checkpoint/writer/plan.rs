//! What is known about a tensor before its bytes are written, and its entry afterwards.

use super::slices::Region;
use crate::proto::{BundleEntryProto, TensorShapeProto, tensor_shape_proto::Dim};
use crate::tensor::{AXES_MAX, elements};
use crate::{DataType, TensorError};

/// A tensor in slices.
#[derive(Debug)]
pub(super) struct Sliced {
    pub(super) data_type: DataType,
    pub(super) shape: Vec<usize>,
    /// Each with the data file it is in, in the order of adding.
    pub(super) regions: Vec<(usize, Region)>,
}

/// A tensor or slice that was checked, and can be written.
#[derive(Debug)]
pub(super) struct Planned {
    /// The whole tensor's.
    pub(super) name: String,
    pub(super) data_type: DataType,
    /// The shape and the bytes of what is written; 0 bytes for strings.
    pub(super) shape: Vec<usize>,
    pub(super) bytes: usize,
    /// Of a slice: the whole tensor's shape, and the region.
    pub(super) slice: Option<(Vec<usize>, Region)>,
}

impl Sliced {
    /// Checks a further slice against those before it.
    pub(super) fn check(&self, data_type: DataType, shape: &[usize], region: &Region) -> Result<(), String> {
        if (self.data_type, &self.shape[..]) != (data_type, shape) {
            let Sliced { data_type, shape, .. } = self;
            return Err(format!("earlier slices are of a tensor of type {data_type} and shape {shape:?}"));
        }
        match self.regions.iter().find(|(_, other)| other.overlaps(region)) {
            Some((_, other)) => Err(format!(
                "the region {} has elements in common with {}, which was written before",
                region.spelled(),
                other.spelled()
            )),
            None => Ok(()),
        }
    }

    /// Checks that the slices are the whole tensor: no two have an element in common, so their elements
    /// add up to its own.
    pub(super) fn check_whole(&self) -> Result<(), String> {
        let found: usize =
            self.regions.iter().map(|(_, region)| region.shape().iter().product::<usize>()).sum();
        let allowed = elements(&self.shape).unwrap_or_default();
        if found == allowed {
            return Ok(());
        }
        Err(format!(
            "its shape {:?} has {allowed} elements, and its {} slices have {found}: add the slices that are \
             missing, or write what there is as tensors of their own",
            self.shape,
            self.regions.len()
        ))
    }

    /// The entry of the whole tensor. TensorFlow merges the data files' slices in the order of the files, and
    /// leaves the number of the first file that has one.
    pub(super) fn into_entry(mut self) -> BundleEntryProto {
        self.regions.sort_by_key(|(shard, _)| *shard);
        let mut entry = entry_of(self.data_type, &self.shape);
        let shard = self.regions.first().map_or(0, |(shard, _)| *shard);
        entry.shard_id = i32::try_from(shard).unwrap_or(i32::MAX);
        entry.slices = self.regions.iter().map(|(_, region)| region.to_proto()).collect();
        entry
    }
}

/// Checks that a checkpoint can hold a tensor; returns its bytes, 0 for strings.
pub(super) fn check_tensor(data_type: DataType, shape: &[usize]) -> Result<usize, String> {
    if data_type == DataType::Resource {
        return Err(format!("its elements are of type {data_type}, which no checkpoint can hold"));
    }
    if shape.len() > AXES_MAX {
        let found = shape.len();
        return Err(format!("its shape has {found} extents: TensorFlow allows {AXES_MAX}"));
    }
    if let Some(&found) = shape.iter().find(|&&extent| i64::try_from(extent).is_err()) {
        let most = i64::MAX;
        return Err(format!("its extent {found} is greater than {most}, the greatest that is allowed"));
    }
    let bytes = elements(shape).and_then(|count| count.checked_mul(data_type.size().unwrap_or(0)));
    bytes.ok_or_else(|| TensorError::TooLarge { shape: shape.to_vec() }.to_string())
}

/// An entry without the place of its bytes.
pub(super) fn entry_of(data_type: DataType, shape: &[usize]) -> BundleEntryProto {
    let dim = shape.iter().map(|&extent| Dim { size: signed(extent as u64), name: String::new() });
    let shape = TensorShapeProto { dim: dim.collect(), unknown_rank: false };
    BundleEntryProto { dtype: data_type.to_proto(), shape: Some(shape), ..BundleEntryProto::default() }
}

/// A length in a file, or an extent that was checked.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
