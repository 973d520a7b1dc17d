//! Safetensors: a header of JSON, then the tensors' bytes without gaps.
//!
//! Types and header are those of the crate `safetensors`, which checks what is read of a header. Its reader
//! needs the whole file in memory; here the header is read, and then one tensor after the other. Files are
//! written as the crate writes them (the widest type first, then by name), byte for byte, but streamed.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use safetensors::tensor::{Dtype, Metadata as ReadHeader, TensorInfo as Entry};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::file::{InputFile, Part};
use super::{ConvertError, Format, ModelTensor};
use crate::tensor::AXES_MAX;
use crate::{DataType, Tensor};

/// The bytes of the header's length.
const LENGTH_BYTES: u64 = 8;
/// The longest header of a file, by the format's definition.
const HEADER_BYTES_MAX: u64 = 100_000_000;
/// The key of what is said of the file as a whole.
const METADATA: &str = "__metadata__";

/// Texts about a file as a whole, by their keys.
pub type Metadata = BTreeMap<String, String>;

/// A file, open for reading.
#[derive(Debug)]
pub(super) struct SafetensorsFile {
    file: InputFile,
    /// Where each tensor's bytes are in the file, in their order there.
    places: Vec<Range<u64>>,
    metadata: Metadata,
}

const TYPES: [(DataType, Dtype); 18] = {
    use DataType as T;
    [
        (T::Float16, Dtype::F16),
        (T::Bfloat16, Dtype::BF16),
        (T::Float32, Dtype::F32),
        (T::Float64, Dtype::F64),
        (T::Int8, Dtype::I8),
        (T::Int16, Dtype::I16),
        (T::Int32, Dtype::I32),
        (T::Int64, Dtype::I64),
        (T::Uint8, Dtype::U8),
        (T::Uint16, Dtype::U16),
        (T::Uint32, Dtype::U32),
        (T::Uint64, Dtype::U64),
        (T::Bool, Dtype::BOOL),
        (T::Complex64, Dtype::C64),
        (T::Float8E5m2, Dtype::F8_E5M2),
        (T::Float8E4m3fn, Dtype::F8_E4M3),
        (T::Float8E4m3fnuz, Dtype::F8_E4M3FNUZ),
        (T::Float8E5m2fnuz, Dtype::F8_E5M2FNUZ),
    ]
};

fn dtype(data_type: DataType) -> Option<Dtype> {
    TYPES.iter().find(|(known, _)| *known == data_type).map(|(_, dtype)| *dtype)
}

/// Whether these files hold elements of this type.
pub(super) fn is_kept(data_type: DataType) -> bool {
    dtype(data_type).is_some()
}

/// A header that is written, in its order.
struct Header<'a> {
    metadata: &'a Metadata,
    entries: Vec<(String, Entry)>,
}

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry(METADATA, self.metadata)?;
        }
        self.entries.iter().try_for_each(|(name, entry)| map.serialize_entry(name, entry))?;
        map.end()
    }
}

impl SafetensorsFile {
    /// Opens a file, and returns what its tensors are, in the order of their bytes.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<ModelTensor>), ConvertError> {
        let file = InputFile::open(path)?;
        let damaged = |at, found: String, allowed: &str| file.part(None, at).damaged(0, found, allowed);
        let length = file.read(None, 0..LENGTH_BYTES)?;
        let length = length.iter().rev().fold(0_u64, |sum, &byte| (sum << 8) | u64::from(byte));
        let room = file.length().saturating_sub(LENGTH_BYTES).min(HEADER_BYTES_MAX);
        if length > room {
            let found = format!("a header of {length} bytes");
            return Err(damaged(0, found, &format!("this file can have one of at most {room}")));
        }
        let start = LENGTH_BYTES.saturating_add(length);
        let header = serde_json::from_slice::<ReadHeader>(&file.read(None, LENGTH_BYTES..start)?);
        let header = header.map_err(|error| {
            let allowed = "a header is JSON, and its tensors lie one behind the other";
            damaged(LENGTH_BYTES, format!("the header: {error}"), allowed)
        })?;
        let (found, end) = (file.length().saturating_sub(start), header.data_len() as u64);
        if found != end {
            let allowed = format!("the tensors have {end}: the file has been cut or changed");
            return Err(damaged(start, format!("{found} bytes of tensors"), &allowed));
        }
        let mut entries: Vec<_> = header.tensors().into_iter().collect();
        // Several without bytes may have one place.
        entries.sort_by(|(one, left), (other, right)| {
            left.data_offsets.cmp(&right.data_offsets).then_with(|| one.cmp(other))
        });
        let (mut infos, mut places) = (Vec::with_capacity(entries.len()), Vec::with_capacity(entries.len()));
        for (name, entry) in entries {
            let (from, to) = entry.data_offsets;
            let place = start.saturating_add(from as u64)..start.saturating_add(to as u64);
            infos.push(info(file.part(Some(&name), place.start), &name, entry)?);
            places.push(place);
        }
        let metadata = header.metadata().iter().flatten();
        let metadata = metadata.map(|(key, text)| (key.clone(), text.clone())).collect();
        Ok((SafetensorsFile { file, places, metadata }, infos))
    }

    pub(super) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Reads the tensor at this place of the list that [`open`](Self::open) returned.
    pub(super) fn read(&self, place: usize, info: &ModelTensor) -> Result<Tensor<'static>, ConvertError> {
        let range = self.places.get(place).cloned().unwrap_or_default();
        let bytes = self.file.read(Some(&info.name), range)?;
        Tensor::new(info.data_type, &*info.shape, bytes).map_err(|source| ConvertError::Tensor {
            path: self.file.path().to_owned(),
            tensor: info.name.clone(),
            source,
        })
    }
}

/// Returns the tensor that an entry is.
fn info(part: Part<'_>, name: &str, entry: &Entry) -> Result<ModelTensor, ConvertError> {
    if entry.shape.len() > AXES_MAX {
        let found = format!("it has {} axes", entry.shape.len());
        return Err(part.damaged(0, found, format!("TensorFlow's tensors have {AXES_MAX} at most")));
    }
    let known = TYPES.iter().find(|(_, dtype)| *dtype == entry.dtype).map(|(data_type, _)| *data_type);
    let data_type = known.ok_or_else(|| {
        part.foreign(format!("of type {}", entry.dtype), "TensorFlow has no such type: convert them first")
    })?;
    Ok(ModelTensor { name: name.to_owned(), data_type, shape: entry.shape.clone() })
}

/// The tensors of a file that is to be written.
#[derive(Debug)]
pub(super) struct Layout {
    /// The length of the header, and the header.
    header: Vec<u8>,
    /// Which tensor comes when: places in the list that was given.
    pub(super) order: Vec<usize>,
}

impl Layout {
    /// Lays out tensors.
    pub(super) fn new(path: &Path, infos: &[ModelTensor], metadata: &Metadata) -> Result<Self, ConvertError> {
        let mut typed = Vec::with_capacity(infos.len());
        for (place, info) in infos.iter().enumerate() {
            let tensor = info.name.clone();
            let (format, remedy) =
                (Format::Safetensors, "leave the tensor out, or write a checkpoint or .npz");
            if tensor == METADATA {
                let found = "safetensors keeps this name for itself".to_owned();
                let remedy = "rename the tensor".to_owned();
                return Err(ConvertError::Unfit { tensor, format, found, remedy });
            }
            let dtype = dtype(info.data_type).ok_or(ConvertError::NoSuchType {
                tensor,
                data_type: info.data_type,
                format,
                remedy,
            })?;
            typed.push((dtype, place, info));
        }
        typed.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.2.name.cmp(&other.2.name)));
        let mut end = 0_usize;
        let mut entries = Vec::with_capacity(typed.len());
        let too_large = || ConvertError::write(path)(io::ErrorKind::FileTooLarge.into());
        for (dtype, _, info) in &typed {
            let start = end;
            end = info.bytes().and_then(|bytes| start.checked_add(bytes)).ok_or_else(too_large)?;
            let entry = Entry { dtype: *dtype, shape: info.shape.clone(), data_offsets: (start, end) };
            entries.push((info.name.clone(), entry));
        }
        let json = serde_json::to_vec(&Header { metadata, entries });
        let mut json = json.map_err(|error| ConvertError::write(path)(error.into()))?;
        // The tensors start at a multiple of eight bytes.
        json.resize(json.len().next_multiple_of(8), b' ');
        if json.len() as u64 > HEADER_BYTES_MAX {
            return Err(too_large());
        }
        let header = [&(json.len() as u64).to_le_bytes(), &*json].concat();
        Ok(Layout { header, order: typed.into_iter().map(|(_, place, _)| place).collect() })
    }

    /// Writes what comes before the first tensor.
    pub(super) fn write_header(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.header)
    }
}
