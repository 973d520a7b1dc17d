//! Writes records of `tf.train.Example`, as TensorFlow reads them: the message, the frame around it, the
//! file.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crc_fast::{CrcAlgorithm, checksum};

/// An Example of lists of numbers. Its memory is reused for the next Example.
#[derive(Debug, Default)]
pub(crate) struct ExampleBuffer {
    bytes: Vec<u8>,
    entry: Vec<u8>,
}

impl ExampleBuffer {
    /// Starts an Example.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Appends a feature of the kind `int64_list`.
    pub(crate) fn put(&mut self, name: &str, values: impl Iterator<Item = u32> + Clone) {
        let list = values.clone().map(varint_bytes).sum();
        // Int64List { value = 1 }, Feature { int64_list = 3 }, and the map's entry { key = 1, value = 2 }.
        let feature = 1 + varint_bytes(list) + list;
        let value = 1 + varint_bytes(feature) + feature;
        let key = u32::try_from(name.len()).expect("a name is short");
        self.entry.clear();
        put_tagged(&mut self.entry, 1, key);
        self.entry.extend_from_slice(name.as_bytes());
        put_tagged(&mut self.entry, 2, value);
        put_tagged(&mut self.entry, 3, feature);
        put_tagged(&mut self.entry, 1, list);
        self.entry.reserve(list as usize);
        if list as usize == values.clone().count() {
            // Values of one byte are written as they are.
            self.entry.extend(values.map(|value| value.to_le_bytes()[0]));
        } else {
            values.for_each(|value| put_varint(&mut self.entry, value));
        }
        // Features { feature = 1 }
        let entry = u32::try_from(self.entry.len()).expect("a row is short");
        put_tagged(&mut self.bytes, 1, entry);
        self.bytes.append(&mut self.entry);
    }

    /// The message: Example { features = 1 }.
    pub(crate) fn message(&mut self) -> &[u8] {
        self.entry.clear();
        put_tagged(&mut self.entry, 1, u32::try_from(self.bytes.len()).expect("a row is short"));
        self.entry.extend_from_slice(&self.bytes);
        &self.entry
    }
}

/// Writes the tag of a field with a length, and the length.
fn put_tagged(bytes: &mut Vec<u8>, field: u8, length: u32) {
    bytes.push(field << 3 | 2);
    put_varint(bytes, length);
}

#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
fn put_varint(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn varint_bytes(value: u32) -> u32 {
    (38 - (value | 1).leading_zeros()) / 7
}

/// Writes a file of records. The file gets its name once it is complete; if the writer is dropped before
/// that, the file is removed.
#[derive(Debug)]
pub(crate) struct RecordWriter {
    file: WholeFile,
}

impl RecordWriter {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(RecordWriter { file: WholeFile::create(path)? })
    }

    pub(crate) fn write(&mut self, record: &[u8]) -> io::Result<()> {
        let length = (record.len() as u64).to_le_bytes();
        let file = &mut self.file.file;
        file.write_all(&length)?;
        file.write_all(&masked_crc32c(&length).to_le_bytes())?;
        file.write_all(record)?;
        file.write_all(&masked_crc32c(record).to_le_bytes())
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        self.file.finish()
    }
}

/// Writes a whole file.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = WholeFile::create(path)?;
    file.file.write_all(bytes)?;
    file.finish()
}

fn masked_crc32c(bytes: &[u8]) -> u32 {
    // The crate returns the 32-bit checksum in a 64-bit number.
    let [first, second, third, fourth, ..] = checksum(CrcAlgorithm::Crc32Iscsi, bytes).to_le_bytes();
    u32::from_le_bytes([first, second, third, fourth]).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// A file under a temporary name, beside its place.
#[derive(Debug)]
struct WholeFile {
    file: BufWriter<File>,
    temporary: PathBuf,
    place: PathBuf,
    is_finished: bool,
}

impl WholeFile {
    fn create(path: &Path) -> io::Result<Self> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{:x}.percolator-partial", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = File::create(&temporary)?;
        let file = BufWriter::with_capacity(1 << 20, file);
        Ok(WholeFile { file, temporary, place: path.to_owned(), is_finished: false })
    }

    fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::rename(&self.temporary, &self.place)?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_as_long_as_stated() {
        for shift in 0..32 {
            for value in [(1_u32 << shift) - 1, 1 << shift, u32::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                assert_eq!(bytes.len(), varint_bytes(value) as usize, "{value}");
            }
        }
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tfrecords");
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let mut dropped = RecordWriter::create(&path).unwrap();
        dropped.write(b"lost").unwrap();
        assert_eq!(count(), 1);
        drop(dropped);
        assert_eq!(count(), 0);
        let mut kept = RecordWriter::create(&path).unwrap();
        kept.write(b"").unwrap();
        kept.finish().unwrap();
        assert_eq!(count(), 1);
        // TensorFlow's frame of an empty record: its length and the two checksums.
        let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2];
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn a_full_disk_is_an_error_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let temporary = folder.path().join("a.partial");
        fs::write(&temporary, "").unwrap();
        let place = folder.path().join("a");
        let file = WholeFile { file: BufWriter::new(full), temporary, place, is_finished: false };
        let mut writer = RecordWriter { file };
        writer.write(b"little, and so kept in memory").unwrap();
        assert_eq!(writer.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
