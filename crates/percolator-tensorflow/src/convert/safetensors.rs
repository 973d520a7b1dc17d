//! Safetensors: a header of JSON, then the tensors' bytes without gaps.
//!
//! The types and the entries of the header are those of the crate `safetensors`. Its reader needs the whole
//! file in memory; here the header is read, and then one tensor after the other. Files are written as the
//! crate writes them (the widest type first, then by name), byte for byte, but streamed.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorInfo as Entry};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::file::InputFile;
use super::{ConvertError, Format, TensorInfo};
use crate::tensor::elements;
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

/// What a header holds, in its order.
#[derive(Default)]
struct Header {
    metadata: Option<Metadata>,
    entries: Vec<(String, Entry)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object that has an entry for each tensor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let (mut header, mut has_metadata) = (Header::default(), false);
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        if std::mem::replace(&mut has_metadata, true) {
                            return Err(A::Error::custom(format!("{METADATA:?} is there twice")));
                        }
                        header.metadata = map.next_value::<Option<Texts>>()?.map(|Texts(texts)| texts);
                    } else {
                        header.entries.push((name, map.next_value()?));
                    }
                }
                Ok(header)
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

/// The texts of a header, each of its own key.
struct Texts(Metadata);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keyed;

        impl<'de> Visitor<'de> for Keyed {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts by their keys")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
                let mut texts = Metadata::new();
                while let Some((key, text)) = map.next_entry::<String, String>()? {
                    if texts.contains_key(&key) {
                        return Err(A::Error::custom(format!("its text {key:?} is there twice")));
                    }
                    texts.insert(key, text);
                }
                Ok(Texts(texts))
            }
        }

        deserializer.deserialize_map(Keyed)
    }
}

impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(metadata) = &self.metadata {
            map.serialize_entry(METADATA, metadata)?;
        }
        self.entries.iter().try_for_each(|(name, entry)| map.serialize_entry(name, entry))?;
        map.end()
    }
}

impl SafetensorsFile {
    /// Opens a file, and returns what its tensors are, in the order of their bytes.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<TensorInfo>), ConvertError> {
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
        let header: Header = serde_json::from_slice(&file.read(None, LENGTH_BYTES..start)?)
            .map_err(|error| damaged(LENGTH_BYTES, format!("the header: {error}"), "a header is JSON"))?;
        let Header { metadata, mut entries } = header;
        // Files need not list their tensors in the order of their bytes.
        entries.sort_by_key(|(_, entry)| entry.data_offsets);
        let mut names = HashSet::new();
        let mut infos = Vec::with_capacity(entries.len());
        let mut places = Vec::with_capacity(entries.len());
        let mut end = 0;
        for (name, entry) in &entries {
            if !names.insert(name) {
                return Err(damaged(
                    LENGTH_BYTES,
                    format!("two tensors {name:?}"),
                    "each name is there once",
                ));
            }
            let (info, bytes) = info(&file, start, name, entry, end)?;
            places.push(start.saturating_add(end)..start.saturating_add(bytes));
            infos.push(info);
            end = bytes;
        }
        let found = file.length().saturating_sub(start);
        if found != end {
            let allowed = format!("the tensors have {end}: the file has been cut or changed");
            return Err(damaged(start, format!("{found} bytes of tensors"), &allowed));
        }
        Ok((SafetensorsFile { file, places, metadata: metadata.unwrap_or_default() }, infos))
    }

    pub(super) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Reads the tensor at this place of the list that [`open`](Self::open) returned.
    pub(super) fn read(&self, place: usize, info: &TensorInfo) -> Result<Tensor<'static>, ConvertError> {
        let range = self.places.get(place).cloned().unwrap_or_default();
        let bytes = self.file.read(Some(&info.name), range)?;
        Tensor::new(info.data_type, &*info.shape, bytes).map_err(|source| ConvertError::Tensor {
            path: self.file.path().to_owned(),
            tensor: info.name.clone(),
            source,
        })
    }
}

/// The most axes that TensorFlow's tensors have.
const AXES_MAX: usize = 254;

/// Checks an entry whose bytes must start at `end`. Returns the tensor that it is, and where its bytes end.
fn info(
    file: &InputFile,
    start: u64,
    name: &str,
    entry: &Entry,
    end: u64,
) -> Result<(TensorInfo, u64), ConvertError> {
    let (from, to) = (entry.data_offsets.0 as u64, entry.data_offsets.1 as u64);
    let part = file.part(Some(name), start.saturating_add(from));
    if from != end || to < from {
        let found = format!("its bytes are {from} to {to} of the data");
        return Err(part.damaged(0, found, format!("they must start at {end}, where those before them end")));
    }
    if entry.shape.len() > AXES_MAX {
        let found = format!("it has {} axes", entry.shape.len());
        return Err(part.damaged(0, found, format!("TensorFlow's tensors have {AXES_MAX} at most")));
    }
    let known = TYPES.iter().find(|(_, dtype)| *dtype == entry.dtype).map(|(data_type, _)| *data_type);
    let data_type = known.ok_or_else(|| {
        part.foreign(format!("of type {}", entry.dtype), "TensorFlow has no such type: convert them first")
    })?;
    let bytes =
        elements(&entry.shape).zip(data_type.size()).and_then(|(count, size)| count.checked_mul(size));
    if bytes.map(|bytes| bytes as u64) != Some(to.saturating_sub(from)) {
        let found = format!("{} bytes", to.saturating_sub(from));
        let needed = bytes.map_or_else(|| "more than memory holds".to_owned(), |bytes| bytes.to_string());
        let allowed = format!("{} of shape {:?} needs {needed}", entry.dtype, entry.shape);
        return Err(part.damaged(0, found, allowed));
    }
    let (name, shape) = (name.to_owned(), entry.shape.clone());
    Ok((TensorInfo { name, data_type, shape }, to))
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
    pub(super) fn new(path: &Path, infos: &[TensorInfo], metadata: &Metadata) -> Result<Self, ConvertError> {
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
        let metadata = (!metadata.is_empty()).then(|| metadata.clone());
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
