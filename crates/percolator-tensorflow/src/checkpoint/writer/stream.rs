//! The files of a checkpoint, written one after the other to wherever a caller puts them: into an archive, or
//! a file of another format.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use percolator_files::checksum::Crc32c;
use percolator_leveldb::table::{TableBuilder, TableOptions};
use prost::Message as _;

use super::data_file::Sink;
use super::plan::{check_tensor, entry_of, signed};
use super::strings::{put_strings, put_variants};
use super::{TAKEN, WriteError, check_name, header};
use crate::proto::BundleEntryProto;
use crate::{DataType, Elements, Tensor};

/// Returns how many bytes the data file has that [`write_data_file`] writes of these tensors.
#[must_use]
pub fn data_file_bytes<'t, 'e: 't>(tensors: impl IntoIterator<Item = &'t Tensor<'e>>) -> u64 {
    let mut nowhere = Streamed { to: &mut io::sink(), bytes: 0 };
    for tensor in tensors {
        match tensor.elements() {
            Elements::Bytes(bytes) => nowhere.bytes += bytes.len() as u64,
            // Their lengths, and checksums between them, have bytes of their own.
            Elements::Strings(_) => _ = put(&mut nowhere, tensor),
        }
    }
    nowhere.bytes
}

/// Writes the one data file of a checkpoint that has these tensors, in this order, and returns the bytes of
/// its index. They are byte for byte what [`CheckpointWriter`](super::CheckpointWriter) writes.
///
/// # Errors
///
/// The error of `to`, as it is; [`io::ErrorKind::InvalidInput`], with a [`WriteError`] inside, if no tensor
/// can have the name, or it comes twice, or no checkpoint can hold the type.
pub fn write_data_file<'t, 'e: 't>(
    to: &mut dyn Write,
    tensors: impl IntoIterator<Item = (&'t str, &'t Tensor<'e>)>,
) -> io::Result<Vec<u8>> {
    let refused = |name: &str, reason: &str| {
        let error = WriteError::tensor(Path::new("model"), name.as_bytes(), reason);
        io::Error::new(io::ErrorKind::InvalidInput, error)
    };
    let mut to = Streamed { to, bytes: 0 };
    let mut entries: BTreeMap<&str, BundleEntryProto> = BTreeMap::new();
    for (name, tensor) in tensors {
        check_name(name.as_bytes()).map_err(|reason| refused(name, reason))?;
        check_tensor(tensor.data_type(), tensor.shape()).map_err(|reason| refused(name, &reason))?;
        let offset = to.bytes;
        let mut entry = entry_of(tensor.data_type(), tensor.shape());
        entry.offset = signed(offset);
        entry.crc32c = put(&mut to, tensor)?;
        entry.size = signed(to.bytes - offset);
        if entries.insert(name, entry).is_some() {
            return Err(refused(name, TAKEN));
        }
    }
    let mut builder = TableBuilder::new(Vec::new(), TableOptions::default());
    builder.add(b"", &header(1).encode_to_vec()).map_err(io::Error::other)?;
    for (name, entry) in entries {
        builder.add(name.as_bytes(), &entry.encode_to_vec()).map_err(io::Error::other)?;
    }
    builder.finish().map_err(io::Error::other)
}

/// Writes a tensor's elements; returns their masked checksum.
fn put(to: &mut Streamed<'_>, tensor: &Tensor<'_>) -> io::Result<u32> {
    match (tensor.elements(), tensor.data_type()) {
        (Elements::Bytes(bytes), _) => {
            let mut checksum = Crc32c::new();
            to.put(bytes, &mut checksum)?;
            Ok(checksum.masked())
        }
        (Elements::Strings(variants), DataType::Variant) => put_variants(to, variants.iter()),
        (Elements::Strings(strings), _) => put_strings(to, strings.iter()),
    }
}

/// Counts what is written.
struct Streamed<'a> {
    to: &'a mut dyn Write,
    bytes: u64,
}

impl Sink for Streamed<'_> {
    fn put_unsummed(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Checkpoint, CheckpointWriter};

    fn tensors() -> Vec<(&'static str, Tensor<'static>)> {
        let long = vec![7_u8; 300_000];
        vec![
            ("z", Tensor::from_values([3], &[1.5_f32, -2.0, 0.25]).unwrap()),
            ("a", Tensor::strings([2, 1], [&b"a\0b"[..], &[1; 70_000]]).unwrap()),
            ("long", Tensor::new(DataType::Uint8, [300_000], long).unwrap()),
            ("variants", Tensor::variants([2], [&b""[..], b"serialized"]).unwrap()),
            ("none", Tensor::new(DataType::Int64, [0, 4], vec![]).unwrap()),
        ]
    }

    #[test]
    fn files_are_those_of_the_other_writer_and_are_read_from_memory() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("model");
        let (tensors, mut writer) = (tensors(), CheckpointWriter::create(&prefix).unwrap());
        tensors.iter().for_each(|(name, tensor)| writer.add(name, tensor).unwrap());
        writer.finish().unwrap();
        let mut data = Vec::new();
        let all = tensors.iter().map(|(name, tensor)| (*name, tensor));
        let index = write_data_file(&mut data, all).unwrap();
        let file = |ending: &str| std::fs::read(folder.path().join(format!("model{ending}"))).unwrap();
        assert!(data == file(".data-00000-of-00001") && index == file(".index"));
        assert_eq!(data_file_bytes(tensors.iter().map(|(_, tensor)| tensor)), data.len() as u64);

        let read = Checkpoint::from_memory("the archive", &index, vec![data.clone()]).unwrap();
        for (name, tensor) in &tensors {
            assert_eq!(read.tensor(name).unwrap(), *tensor, "{name}");
        }
        assert_eq!(read.load_all(2).unwrap().len(), tensors.len());
        let error = Checkpoint::from_memory("the archive", &index, vec![]).unwrap_err().to_string();
        assert!(error.contains("states 1 data files, and there are 0"), "{error}");
        data[4] ^= 1;
        let damaged = Checkpoint::from_memory("the archive", &index, vec![data.clone()]).unwrap();
        let error = damaged.tensor("z").unwrap_err().to_string();
        assert!(error.contains("the archive.data-00000-of-00001") && error.contains("\"z\""), "{error}");
        data.truncate(5);
        let cut = Checkpoint::from_memory("the archive", &index, vec![data]).unwrap();
        assert!(cut.load_all(1).unwrap_err().to_string().contains("the file has 5"));
    }

    #[test]
    fn names_that_no_tensor_can_have_are_refused() {
        let one = Tensor::new(DataType::Int8, [], vec![1]).unwrap();
        let cases = [(&["a", "a"][..], "\"a\": it is there already"), (&[""], "\"\": the empty key")];
        for (names, due) in cases {
            let all = names.iter().map(|&name| (name, &one));
            let error = write_data_file(&mut Vec::new(), all).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(due), "{error}");
        }
    }
}
