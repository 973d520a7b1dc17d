//! NumPy's array files, version 1.0, of f32.

use std::io::{BufWriter, IntoInnerError, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use percolator::shown;
use percolator::whole_file::WholeFile;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// The header is padded so that the elements start at a multiple of this many bytes.
const ALIGNMENT: usize = 64;
/// The bytes before the header's text: the magic number, the version, the text's length.
const PREFIX: usize = 10;

/// An array file under construction, which has a temporary name until it is complete. Dropping it unfinished
/// removes the file.
pub(super) struct NpyWriter {
    path: PathBuf,
    file: BufWriter<WholeFile>,
    left: usize,
}

impl NpyWriter {
    /// Starts the file of an array of this shape and reserves its disk space: an array that does not fit is
    /// refused before any of it is made.
    pub(super) fn create(path: &Path, shape: &[usize]) -> anyhow::Result<Self> {
        let file = WholeFile::create(path).with_context(|| format!("cannot create {}", shown::path(path)))?;
        let header = header(shape);
        let left = shape.iter().try_fold(1_usize, |elements, &sizing| elements.checked_mul(sizing));
        let bytes = left
            .and_then(|elements| elements.checked_mul(size_of::<f32>())?.checked_add(header.len()))
            .with_context(|| format!("{}: an array of {shape:?} fits no disk", shown::path(path)));
        let mut writer =
            NpyWriter { path: path.to_owned(), file: BufWriter::new(file), left: left.unwrap_or(0) };
        writer.set_aside(bytes? as u64)?;
        writer.put(&header)?;
        Ok(writer)
    }

    fn set_aside(&self, bytes: u64) -> anyhow::Result<()> {
        match rustix::fs::fallocate(self.file.get_ref().file(), FallocateFlags::KEEP_SIZE, 0, bytes) {
            // Not every file system can reserve space.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::INVAL) => Ok(()),
            Err(error) => {
                Err(error).with_context(|| format!("{}: no room for {bytes} bytes", shown::path(&self.path)))
            }
        }
    }

    /// Appends elements, the last axis varying fastest.
    pub(super) fn write(&mut self, elements: &[f32]) -> anyhow::Result<()> {
        self.left = self.left.checked_sub(elements.len()).expect("no more elements than the shape has");
        elements.iter().try_for_each(|element| self.put(&element.to_le_bytes()))
    }

    fn put(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.file.write_all(bytes).with_context(|| format!("cannot write {}", shown::path(&self.path)))
    }

    /// Gives the file its name.
    pub(super) fn finish(self) -> anyhow::Result<PathBuf> {
        assert_eq!(self.left, 0, "an array has all its elements");
        let file = self.file.into_inner().map_err(IntoInnerError::into_error);
        file.and_then(WholeFile::finish)
            .with_context(|| format!("cannot write {}", shown::path(&self.path)))?;
        Ok(self.path)
    }
}

fn header(shape: &[usize]) -> Vec<u8> {
    let extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
    // Like a Python tuple: one of a single element has a comma.
    let comma = if shape.len() == 1 { "," } else { "" };
    let extents = extents.join(", ");
    let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({extents}{comma}), }}");
    let length = (PREFIX + text.len() + 1).next_multiple_of(ALIGNMENT) - PREFIX;
    let length = u16::try_from(length).expect("a handful of axes take a few hundred characters");
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend(length.to_le_bytes());
    header.extend(text.bytes());
    header.resize(PREFIX + usize::from(length) - 1, b' ');
    header.push(b'\n');
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_numpys() {
        // numpy.save(f, numpy.zeros((2, 3), 'f4'))
        let header = header(&[2, 3]);
        assert_eq!(header.len() % ALIGNMENT, 0);
        assert_eq!(&header[..10], b"\x93NUMPY\x01\x00\x76\x00");
        let text = std::str::from_utf8(&header[10..]).unwrap();
        assert!(text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  "), "{text}");
        assert!(text.ends_with(" \n"));
        let header = super::header(&[70]);
        assert!(std::str::from_utf8(&header[10..]).unwrap().contains("'shape': (70,), }"));
    }

    #[test]
    fn the_file_has_its_name_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.npy");
        let mut writer = NpyWriter::create(&path, &[2]).unwrap();
        writer.write(&[1.0]).unwrap();
        assert!(!path.exists());
        writer.write(&[-2.0]).unwrap();
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes[bytes.len() - 8..], [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
        assert_eq!(bytes.len(), 128 + 8);
    }

    #[test]
    fn what_is_not_finished_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.npy");
        drop(NpyWriter::create(&path, &[2]).unwrap());
        assert!(NpyWriter::create(&path, &[1 << 40, 1 << 10]).is_err());
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
