//! Checkpoints made by hand: the simplest writer of tables, and entries as a test wants them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use percolator_files::checksum::{crc32c, mask, masked_crc32c};
use percolator_tensorflow::DataType;
use percolator_tensorflow::proto::{
    BundleEntryProto, BundleHeaderProto, TensorShapeProto, VersionDef, tensor_shape_proto::Dim,
};
use prost::Message as _;

/// How a table is laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) entries_per_block: usize,
    pub(crate) interval: usize,
    pub(crate) is_snappy: bool,
}

pub(crate) const PLAIN: Layout = Layout { entries_per_block: 100, interval: 16, is_snappy: false };

pub(crate) fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// The bytes of a block.
fn block(entries: &[(&[u8], &[u8])], interval: usize) -> Vec<u8> {
    let (mut block, mut restarts, mut last) = (Vec::new(), vec![0_u32], &[][..]);
    for (count, (key, value)) in entries.iter().enumerate() {
        let mut shared = last.iter().zip(*key).take_while(|(one, other)| one == other).count();
        if count % interval == 0 && count > 0 {
            shared = 0;
            restarts.push(block.len() as u32);
        }
        [shared, key.len() - shared, value.len()]
            .iter()
            .for_each(|&length| varint(&mut block, length as u64));
        block.extend(&key[shared..]);
        block.extend(*value);
        last = key;
    }
    restarts.iter().for_each(|restart| block.extend(restart.to_le_bytes()));
    block.extend((restarts.len() as u32).to_le_bytes());
    block
}

/// A sorted table of these entries.
pub(crate) fn table(entries: &[(Vec<u8>, Vec<u8>)], layout: Layout) -> Vec<u8> {
    let mut table = Vec::new();
    let mut add = |contents: Vec<u8>, is_snappy: bool| {
        let contents =
            if is_snappy { snap::raw::Encoder::new().compress_vec(&contents).unwrap() } else { contents };
        let mut handle = Vec::new();
        varint(&mut handle, table.len() as u64);
        varint(&mut handle, contents.len() as u64);
        let covered = [&contents[..], &[u8::from(is_snappy)]].concat();
        table.extend(&covered);
        table.extend(masked_crc32c(&covered, &[]).to_le_bytes());
        handle
    };
    let entries: Vec<(&[u8], &[u8])> = entries.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    let index: Vec<(&[u8], Vec<u8>)> = entries
        .chunks(layout.entries_per_block)
        .map(|chunk| (chunk.last().unwrap().0, add(block(chunk, layout.interval), layout.is_snappy)))
        .collect();
    let index: Vec<(&[u8], &[u8])> = index.iter().map(|(key, handle)| (*key, &handle[..])).collect();
    let mut footer = add(block(&[], 1), false);
    footer.extend(add(block(&index, 1), layout.is_snappy));
    footer.resize(40, 0);
    table.extend(footer);
    table.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
    table
}

pub(crate) fn shape(extents: &[i64]) -> TensorShapeProto {
    let dim = extents.iter().map(|&size| Dim { size, name: String::new() }).collect();
    TensorShapeProto { dim, unknown_rank: false }
}

/// A checkpoint that is being made.
#[derive(Clone, Debug)]
pub(crate) struct Bundle {
    pub(crate) header: BundleHeaderProto,
    pub(crate) entries: BTreeMap<Vec<u8>, BundleEntryProto>,
    pub(crate) data: Vec<u8>,
    pub(crate) layout: Layout,
}

impl Bundle {
    pub(crate) fn new() -> Self {
        let version = VersionDef { producer: 1, ..VersionDef::default() };
        let header = BundleHeaderProto { num_shards: 1, endianness: 0, version: Some(version) };
        Bundle { header, entries: BTreeMap::new(), data: Vec::new(), layout: PLAIN }
    }

    /// Adds a tensor of these stored bytes, and their checksum as they are.
    pub(crate) fn add(&mut self, key: impl AsRef<[u8]>, data_type: DataType, extents: &[i64], bytes: &[u8]) {
        self.add_summed(key, data_type, extents, bytes, crc32c(bytes));
    }

    pub(crate) fn add_summed(
        &mut self,
        key: impl AsRef<[u8]>,
        data_type: DataType,
        extents: &[i64],
        bytes: &[u8],
        crc32c: u32,
    ) {
        let entry = BundleEntryProto {
            dtype: data_type.to_proto(),
            shape: Some(shape(extents)),
            offset: self.data.len() as i64,
            size: bytes.len() as i64,
            crc32c: mask(crc32c),
            ..BundleEntryProto::default()
        };
        self.data.extend(bytes);
        self.entries.insert(key.as_ref().to_owned(), entry);
    }

    pub(crate) fn entry(&mut self, key: impl AsRef<[u8]>) -> &mut BundleEntryProto {
        self.entries.get_mut(key.as_ref()).unwrap()
    }

    pub(crate) fn index(&self) -> Vec<u8> {
        let header = (Vec::new(), self.header.encode_to_vec());
        let entries = self.entries.iter().map(|(key, entry)| (key.clone(), entry.encode_to_vec()));
        table(&std::iter::once(header).chain(entries).collect::<Vec<_>>(), self.layout)
    }

    /// Writes a checkpoint with one data file, and returns its prefix.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        std::fs::write(folder.join("model.index"), self.index()).unwrap();
        std::fs::write(folder.join("model.data-00000-of-00001"), &self.data).unwrap();
        folder.join("model")
    }
}
