//! NumPy's array files, version 1.0.

use std::io::{BufWriter, ErrorKind, IntoInnerError, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use percolator_files::shown;
use percolator_files::whole_file::{Existing, WholeFile};
use percolator_tensorflow::convert::npy_header;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::output;

/// A type of elements, as NumPy names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NpyType {
    /// `f`, `i`, `u`, `b`, or `S` for byte strings, with zeros after the end.
    pub(super) kind: char,
    /// The bytes of an element.
    pub(super) size: usize,
}

impl NpyType {
    pub(super) const F32: NpyType = NpyType { kind: 'f', size: 4 };
    pub(super) const I64: NpyType = NpyType { kind: 'i', size: 8 };

    /// The name as Python writes it.
    fn descr(self) -> String {
        let NpyType { kind, size } = self;
        // What consists of single bytes has no byte order.
        let order = if kind == 'S' || size == 1 { '|' } else { '<' };
        format!("'{order}{kind}{size}'")
    }
}

impl std::fmt::Display for NpyType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bits = 8 * self.size;
        match self.kind {
            'f' => write!(f, "float{bits}"),
            'i' => write!(f, "int{bits}"),
            'u' => write!(f, "uint{bits}"),
            'b' => write!(f, "bool"),
            _ => write!(f, "bytes of {}", self.size),
        }
    }
}

/// An array file under construction, which has a temporary name until it is complete. Dropping it unfinished
/// removes the file.
pub(super) struct NpyWriter {
    path: PathBuf,
    file: BufWriter<WholeFile>,
    element: NpyType,
    /// The bytes of all elements; `None` if the array grows with what is written.
    all: Option<usize>,
    written: usize,
}

impl NpyWriter {
    /// Starts the file of an array of this type and shape, and reserves its disk space: an array that does
    /// not fit is refused before any of it is written. Without a shape, it has one axis, and becomes as long
    /// as what is written.
    pub(super) fn create(path: &Path, element: NpyType, shape: Option<&[usize]>) -> anyhow::Result<Self> {
        let header = header(path, element, shape.unwrap_or(&[0]))?;
        let file = WholeFile::create(path).with_context(|| format!("cannot create {}", shown::path(path)))?;
        let (path, file) = (path.to_owned(), BufWriter::new(file));
        let mut writer = NpyWriter { path, file, element, all: None, written: 0 };
        if let Some(shape) = shape {
            writer.all = shape.iter().try_fold(element.size, |bytes, &extent| bytes.checked_mul(extent));
            let whole = writer.all.and_then(|bytes| bytes.checked_add(header.len()));
            let too_large = || format!("{}: an array of {shape:?} fits no disk", shown::path(&writer.path));
            writer.set_aside(whole.with_context(too_large)? as u64)?;
        }
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

    /// Appends elements as bytes, numbers with the lowest byte first, the last axis varying fastest.
    pub(super) fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.written += bytes.len();
        self.put(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.file.write_all(bytes).with_context(|| format!("cannot write {}", shown::path(&self.path)))
    }

    /// Completes the file and puts it on the disk. It has no name yet.
    pub(super) fn complete(self) -> anyhow::Result<WholeNpy> {
        let NpyWriter { path, file, element, all, written } = self;
        assert!(all.is_none_or(|all| all == written), "an array has all its elements");
        // Now the length of an array that grows is known.
        let header = match all {
            None => Some(header(&path, element, &[written / element.size])?),
            Some(_) => None,
        };
        let whole = file.into_inner().map_err(IntoInnerError::into_error).and_then(|whole| {
            if let Some(header) = header {
                // It is as long as the one that was there.
                let mut file = whole.file();
                file.seek(SeekFrom::Start(0))?;
                file.write_all(&header)?;
            }
            whole.file().sync_all()?;
            Ok(whole)
        });
        let file = whole.with_context(|| format!("cannot write {}", shown::path(&path)))?;
        Ok(WholeNpy { path, file })
    }
}

/// A complete array file, which has yet to get its name. Dropping it before that removes the file.
pub(super) struct WholeNpy {
    path: PathBuf,
    file: WholeFile,
}

impl WholeNpy {
    /// Gives the file its name.
    pub(super) fn name(self, existing: Existing) -> anyhow::Result<()> {
        let WholeNpy { path, file } = self;
        match file.finish_over(existing) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(output::exists(&path)),
            named => named.with_context(|| format!("cannot write {}", shown::path(&path))),
        }
    }
}

/// The header of an array.
fn header(path: &Path, element: NpyType, shape: &[usize]) -> anyhow::Result<Vec<u8>> {
    npy_header(&element.descr(), shape).with_context(|| {
        format!("{}: NumPy's arrays have no more than 64 axes, and not {}", shown::path(path), shape.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn an_array_of_too_many_axes_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.npy");
        let error = NpyWriter::create(&path, NpyType::F32, Some(&[1; 65])).err().expect("no such array");
        assert!(error.to_string().ends_with("no more than 64 axes, and not 65"), "{error}");
    }

    #[test]
    fn types_are_numpys() {
        for (element, descr, name) in [
            (NpyType::F32, "'<f4'", "float32"),
            (NpyType::I64, "'<i8'", "int64"),
            (NpyType { kind: 'u', size: 1 }, "'|u1'", "uint8"),
            (NpyType { kind: 'b', size: 1 }, "'|b1'", "bool"),
            (NpyType { kind: 'S', size: 256 }, "'|S256'", "bytes of 256"),
        ] {
            assert_eq!((&*element.descr(), &*element.to_string()), (descr, name));
        }
    }

    #[test]
    fn the_file_has_its_name_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.npy");
        let mut writer = NpyWriter::create(&path, NpyType::F32, Some(&[2])).unwrap();
        writer.write(&bytes_of(&[1.0])).unwrap();
        assert!(!path.exists());
        writer.write(&bytes_of(&[-2.0])).unwrap();
        writer.complete().unwrap().name(Existing::Refuse).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes[bytes.len() - 8..], [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
        assert_eq!(bytes.len(), 128 + 8);
    }

    #[test]
    fn an_array_that_grows_says_its_length_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.npy");
        let mut writer = NpyWriter::create(&path, NpyType::F32, None).unwrap();
        writer.write(&bytes_of(&[1.0])).unwrap();
        writer.write(&[]).unwrap();
        writer.write(&bytes_of(&[2.0, 3.0])).unwrap();
        writer.complete().unwrap().name(Existing::Refuse).unwrap();
        let whole = folder.path().join("whole.npy");
        let mut writer = NpyWriter::create(&whole, NpyType::F32, Some(&[3])).unwrap();
        writer.write(&bytes_of(&[1.0, 2.0, 3.0])).unwrap();
        writer.complete().unwrap().name(Existing::Refuse).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), std::fs::read(whole).unwrap());
    }

    #[test]
    fn what_is_not_finished_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.npy");
        drop(NpyWriter::create(&path, NpyType::F32, Some(&[2])).unwrap());
        drop(NpyWriter::create(&path, NpyType::F32, None).unwrap());
        assert!(NpyWriter::create(&path, NpyType::F32, Some(&[1 << 40, 1 << 10])).is_err());
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
