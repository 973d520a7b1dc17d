//! The simplest reader of checkpoints: what is stored, in the order in which it was written.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use percolator_leveldb::coding::Coded;
use percolator_leveldb::table::{TableCursor, Verify};
use percolator_tensorflow::checkpoint::Extent;
use percolator_tensorflow::proto::tensor_slice_proto::extent::HasLengthHack;
use percolator_tensorflow::proto::{BundleEntryProto, BundleHeaderProto, TensorSliceProto};
use percolator_tensorflow::{CheckpointWriter, DataType};
use prost::Message as _;

/// A tensor or a slice, with its bytes as a caller has them.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) name: Vec<u8>,
    pub(crate) data_type: DataType,
    pub(crate) shape: Vec<usize>,
    pub(crate) content: Content,
    /// The whole tensor's shape, and the region.
    pub(crate) slice: Option<(Vec<usize>, Vec<Extent>)>,
    pub(crate) shard: usize,
    offset: i64,
    size: i64,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Bytes(Vec<u8>),
    Strings(Vec<Vec<u8>>),
}

/// A path with something behind its name.
pub(crate) fn with_ending(prefix: &Path, ending: &str) -> PathBuf {
    let mut path: OsString = prefix.into();
    path.push(ending);
    path.into()
}

/// The names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// All entries of a table.
pub(crate) fn entries(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let table = fs::read(path).unwrap();
    let mut cursor = TableCursor::new(1 << 20);
    cursor.open(&table[..], Verify::AtOnce).unwrap();
    let mut entries = BTreeMap::new();
    while cursor.advance().unwrap() {
        entries.insert(cursor.key().to_vec(), cursor.value_bytes().to_vec());
    }
    entries
}

/// The number of data files, and all tensors and slices in the order of their bytes.
pub(crate) fn read(prefix: &Path) -> (usize, Vec<Stored>) {
    let mut entries = entries(&with_ending(prefix, ".index"));
    let header = BundleHeaderProto::decode(&entries.remove(&b""[..]).unwrap()[..]).unwrap();
    let shards = usize::try_from(header.num_shards).unwrap();
    let files: Vec<Vec<u8>> = (0..shards)
        .map(|shard| fs::read(with_ending(prefix, &format!(".data-{shard:05}-of-{shards:05}"))).unwrap())
        .collect();
    let entries: BTreeMap<_, _> = entries
        .into_iter()
        .map(|(key, value)| (key, BundleEntryProto::decode(&value[..]).unwrap()))
        .collect();
    let mut slices = BTreeMap::new();
    for (name, entry) in entries.iter().filter(|(_, entry)| !entry.slices.is_empty()) {
        for slice in &entry.slices {
            slices.insert(naive_key(name, slice), (name, shape_of(entry), region_of(slice)));
        }
    }
    let mut all: Vec<Stored> = entries
        .iter()
        .filter(|(_, entry)| entry.slices.is_empty())
        .map(|(key, entry)| {
            let shard = usize::try_from(entry.shard_id).unwrap();
            let start = usize::try_from(entry.offset).unwrap();
            let bytes = &files[shard][start..start + usize::try_from(entry.size).unwrap()];
            let data_type = DataType::from_proto(entry.dtype).unwrap();
            let shape = shape_of(entry);
            let count = shape.iter().product();
            let content = match data_type {
                DataType::String => Content::Strings(strings(bytes, count)),
                DataType::Variant => Content::Strings(variants(bytes, count)),
                _ => Content::Bytes(bytes.to_vec()),
            };
            let (name, slice) = match slices.get(key) {
                Some((name, shape, region)) => ((*name).clone(), Some((shape.clone(), region.clone()))),
                None => (key.clone(), None),
            };
            Stored { name, data_type, shape, content, slice, shard, offset: entry.offset, size: entry.size }
        })
        .collect();
    // A tensor of no bytes has the offset of the one after it.
    all.sort_by_key(|stored| (stored.shard, stored.offset, stored.size));
    (shards, all)
}

/// Writes the same.
pub(crate) fn write(prefix: &Path, shards: usize, all: &[Stored]) {
    let mut writer = CheckpointWriter::create_sharded(prefix, shards).unwrap();
    for Stored { name, data_type, shape, content, slice, shard, .. } in all {
        writer.set_shard(*shard).unwrap();
        match (content, slice) {
            (Content::Strings(strings), None) => {
                writer.add_strings(name, *data_type, shape, strings).unwrap();
            }
            (Content::Bytes(bytes), slice) => {
                let mut tensor = match slice {
                    None => writer.begin(name, *data_type, shape).unwrap(),
                    Some((whole, region)) => writer.begin_slice(name, *data_type, whole, region).unwrap(),
                };
                tensor.add(bytes).unwrap();
                tensor.finish().unwrap();
            }
            (Content::Strings(strings), Some((whole, region))) => {
                let strings = strings.iter().map(|string| &string[..]);
                let tensor = percolator_tensorflow::Tensor::strings(shape.clone(), strings).unwrap();
                writer.add_slice(name, whole, region, &tensor).unwrap();
            }
        }
    }
    writer.finish().unwrap();
}

/// Checks that two checkpoints have the same files.
pub(crate) fn assert_same(prefix: &Path, due: &Path, shards: usize) {
    let data = (0..shards).map(|shard| format!(".data-{shard:05}-of-{shards:05}"));
    for ending in data.chain([".index".to_owned()]) {
        let [found, due] = [prefix, due].map(|prefix| fs::read(with_ending(prefix, &ending)).unwrap());
        let first = found.iter().zip(&due).position(|(found, due)| found != due);
        assert!(
            found == due,
            "{ending} of {}: {} bytes, not {}; byte {first:?} differs",
            prefix.display(),
            found.len(),
            due.len()
        );
    }
}

fn shape_of(entry: &BundleEntryProto) -> Vec<usize> {
    let dims = &entry.shape.as_ref().unwrap().dim;
    dims.iter().map(|dim| usize::try_from(dim.size).unwrap()).collect()
}

fn region_of(slice: &TensorSliceProto) -> Vec<Extent> {
    let extent = slice.extent.iter().map(|extent| match extent.has_length_hack {
        None => Extent::All,
        Some(HasLengthHack::Length(length)) => {
            let [start, length] = [extent.start, length].map(|number| usize::try_from(number).unwrap());
            Extent::Part(start..start + length)
        }
    });
    extent.collect()
}

/// The key of a slice whose numbers are below 8192, of a name without bytes that need an escape.
fn naive_key(name: &[u8], slice: &TensorSliceProto) -> Vec<u8> {
    assert!(!name.iter().any(|byte| matches!(byte, 0 | 255)));
    let number = |number: i64| match u16::try_from(number) {
        Err(_) => vec![0x7f],
        Ok(small @ 0..64) => vec![0x80 | u8::try_from(small).unwrap()],
        Ok(number) => (0xc000 | number).to_be_bytes().to_vec(),
    };
    let mut key = [&[0][..], name, &[0, 1, 1, u8::try_from(slice.extent.len()).unwrap()]].concat();
    for extent in &slice.extent {
        let length = match extent.has_length_hack {
            None => -1,
            Some(HasLengthHack::Length(length)) => length,
        };
        assert!((-1..8192).contains(&length) && (0..8192).contains(&extent.start));
        key.extend([extent.start, length].into_iter().flat_map(number));
    }
    key
}

fn strings(bytes: &[u8], count: usize) -> Vec<Vec<u8>> {
    let mut coded = Coded::new(bytes);
    let lengths: Vec<usize> =
        (0..count).map(|_| usize::try_from(coded.varint64().unwrap()).unwrap()).collect();
    let mut rest = &bytes[coded.offset() + 4..];
    let strings = lengths.into_iter().map(|length| {
        let (string, after) = rest.split_at(length);
        rest = after;
        string.to_vec()
    });
    strings.collect()
}

fn variants(bytes: &[u8], count: usize) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let variants = (0..count).map(|_| {
        let mut coded = Coded::new(rest);
        let variant = coded.string().unwrap();
        rest = &rest[coded.offset() + 4..];
        variant.to_vec()
    });
    variants.collect()
}

/// An error with its causes, each once.
pub(crate) fn said(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}
