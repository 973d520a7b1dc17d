//! Writes the fields of batches as NumPy's files.
//!
//! ```text
//! a fixed shape   NAME.npy                 [records, ...]
//! padded          NAME.npy                 [records, most], or, of one string, [records] of bytes
//!                 NAME.lengths.npy         int64 [records]
//! ragged          NAME.npy                 [all elements]
//!                 NAME.offsets.npy         int64 [records + 1]
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use percolator::batch::{Element, FieldKind};
use percolator::half::{bf16, f16};
use percolator::{Batch, Dtype, Field};
use percolator_files::whole_file::{self, Existing};
use percolator_files::{input_file, shown};
use serde_json::{Value, json};

use super::npy::{NpyType, NpyWriter, WholeNpy};
use crate::output;

/// The endings of the files that one field may have.
const ENDINGS: [&str; 3] = ["npy", "lengths.npy", "offsets.npy"];

/// Checks that this field's files may be written: that there are none, or that they are to be replaced.
pub(super) fn check_free(folder: &Path, name: &str, existing: Existing) -> anyhow::Result<()> {
    for ending in ENDINGS {
        let path = folder.join(format!("{name}.{ending}"));
        match input_file::is_there(&path) {
            // Of a parent that is no folder, making the folder says what is wrong.
            Err(error) if error.kind() == ErrorKind::NotADirectory => continue,
            Ok(false) => continue,
            looked => looked.with_context(|| format!("cannot look at {}", shown::path(&path)))?,
        };
        // What is no regular file is not replaced, whatever the user says.
        whole_file::check(&path).with_context(|| format!("cannot write {}", shown::path(&path)))?;
        if existing == Existing::Refuse {
            return Err(output::exists(&path));
        }
    }
    Ok(())
}

/// Removes the arrays of this field from an earlier run.
pub(super) fn remove_stale(folder: &Path, name: &str) -> anyhow::Result<()> {
    for ending in ENDINGS {
        let path = folder.join(format!("{name}.{ending}"));
        match whole_file::remove(&path) {
            // If the parent is not a folder, there is no array either.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            done => done.with_context(|| format!("cannot write {}", shown::path(&path)))?,
        }
    }
    Ok(())
}

/// The arrays of one field, being written.
pub(super) struct Arrays {
    /// What the names of the files begin with.
    pub(super) name: String,
    /// The field's name in a batch.
    field: String,
    dtype: Dtype,
    values: NpyWriter,
    counts: Option<(Counts, NpyWriter)>,
    written: Written,
    /// The number of elements in the earlier batches, if rows have different lengths.
    elements: i64,
    bytes: Vec<u8>,
}

/// What the field's second file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    Lengths,
    Offsets,
}

impl Counts {
    fn ending(self) -> &'static str {
        match self {
            Counts::Lengths => "lengths.npy",
            Counts::Offsets => "offsets.npy",
        }
    }
}

/// What the files of a field are.
#[derive(Debug)]
pub(super) struct Written {
    path: PathBuf,
    element: NpyType,
    /// `None` if rows have different lengths.
    shape: Option<Vec<usize>>,
    counts: Option<(Counts, PathBuf)>,
}

impl Arrays {
    /// Starts the files of a field for this many records. Their names begin with `name`. `is_string` is
    /// whether each record has one string instead of an array.
    pub(super) fn create(
        folder: &Path,
        name: &str,
        field: &Field,
        records: usize,
        is_string: bool,
    ) -> anyhow::Result<Self> {
        let path = |ending: &str| folder.join(format!("{name}.{ending}"));
        let parent = path("npy").parent().unwrap_or(folder).to_owned();
        std::fs::create_dir_all(&parent)
            .with_context(|| format!("cannot make the folder {}", shown::path(&parent)))?;
        let mut element = npy_type(field.dtype());
        let (shape, counts) = match field.kind() {
            FieldKind::Ragged { .. } => {
                let shape = [records.saturating_add(1)];
                let mut offsets = NpyWriter::create(&path("offsets.npy"), NpyType::I64, Some(&shape))?;
                offsets.write(&0_i64.to_le_bytes())?;
                (None, Some((Counts::Offsets, offsets)))
            }
            FieldKind::Padded { max, .. } => {
                let lengths = NpyWriter::create(&path("lengths.npy"), NpyType::I64, Some(&[records]))?;
                if is_string {
                    element = NpyType { kind: 'S', size: max };
                }
                let shape = if is_string { vec![records] } else { vec![records, max] };
                (Some(shape), Some((Counts::Lengths, lengths)))
            }
            FieldKind::Fixed(extents) => (Some([&[records][..], &extents].concat()), None),
            _ => (Some(vec![records]), None),
        };
        let values = NpyWriter::create(&path("npy"), element, shape.as_deref())?;
        let written = Written {
            path: path("npy"),
            element,
            shape,
            counts: counts.as_ref().map(|&(counts, _)| (counts, path(counts.ending()))),
        };
        let (name, field, dtype) = (name.to_owned(), field.name().to_owned(), field.dtype());
        Ok(Arrays { name, field, dtype, values, counts, written, elements: 0, bytes: Vec::new() })
    }

    /// Appends the field's rows of a batch.
    pub(super) fn write(&mut self, batch: &Batch) -> anyhow::Result<()> {
        self.bytes.clear();
        match self.dtype {
            Dtype::F32 => self.take(batch, f32::to_le_bytes),
            Dtype::F64 => self.take(batch, f64::to_le_bytes),
            Dtype::F16 => self.take(batch, f16::to_le_bytes),
            // NumPy has no such type, but f32 has all of its values.
            Dtype::Bf16 => self.take(batch, |value: bf16| value.to_f32().to_le_bytes()),
            Dtype::I8 => self.take(batch, i8::to_le_bytes),
            Dtype::I16 => self.take(batch, i16::to_le_bytes),
            Dtype::I32 => self.take(batch, i32::to_le_bytes),
            Dtype::I64 => self.take(batch, i64::to_le_bytes),
            Dtype::U8 => self.take(batch, u8::to_le_bytes),
            Dtype::U16 => self.take(batch, u16::to_le_bytes),
            Dtype::U32 => self.take(batch, u32::to_le_bytes),
            Dtype::U64 => self.take(batch, u64::to_le_bytes),
            Dtype::Bool => self.take(batch, |value: bool| [u8::from(value)]),
            other => bail!("{}: this program does not know how NumPy stores {other}", self.field),
        }?;
        self.values.write(&self.bytes)
    }

    /// Writes the elements of a batch, converted by `to_bytes`, and their counts.
    fn take<T: Element, const N: usize>(
        &mut self,
        batch: &Batch,
        to_bytes: impl Fn(T) -> [u8; N],
    ) -> anyhow::Result<()> {
        let view = batch.field(&*self.field)?;
        let values = match &mut self.counts {
            Some((Counts::Offsets, offsets)) => {
                let ragged = view.ragged::<T>()?;
                for end in ragged.offsets().iter().skip(1) {
                    offsets.write(&(self.elements + end).to_le_bytes())?;
                }
                self.elements += ragged.offsets().last().copied().unwrap_or(0);
                ragged.values()
            }
            Some((Counts::Lengths, lengths)) => {
                for length in view.lengths()? {
                    lengths.write(&length.to_le_bytes())?;
                }
                view.get::<T>()?.into_slice()
            }
            None => view.get::<T>()?.into_slice(),
        };
        self.bytes.extend(values.iter().flat_map(|&value| to_bytes(value)));
        Ok(())
    }

    /// Completes the files and puts them on the disk, which may take long. They get their names in the order
    /// in which they are returned.
    pub(super) fn complete(self) -> anyhow::Result<(Written, Vec<WholeNpy>)> {
        let mut files = Vec::new();
        if let Some((_, counts)) = self.counts {
            files.push(counts.complete()?);
        }
        files.push(self.values.complete()?);
        Ok((self.written, files))
    }
}

impl Written {
    /// What the files are, in lines.
    pub(super) fn lines(&self) -> String {
        let Written { path, element, shape, counts } = self;
        let shape = shape.as_ref().map_or_else(|| ", ragged".to_owned(), |shape| format!(" {shape:?}"));
        let mut said = format!("{}: {element}{shape}\n", shown::path(path));
        if let Some((kind, path)) = counts {
            let what = kind.ending().trim_end_matches(".npy");
            said += &format!("  {what} in {}\n", shown::path(path));
        }
        said
    }

    /// The same for programs.
    pub(super) fn facts(&self) -> Value {
        let Written { path, element, shape, counts } = self;
        let counts_of = |wanted| {
            let path = counts.as_ref().filter(|(kind, _)| *kind == wanted).map(|(_, path)| path);
            path.map(|path| path.to_string_lossy())
        };
        json!({
            "path": path.to_string_lossy(), "dtype": element.to_string(), "shape": shape,
            "lengths": counts_of(Counts::Lengths), "offsets": counts_of(Counts::Offsets),
        })
    }
}

fn npy_type(dtype: Dtype) -> NpyType {
    let kind = match dtype {
        Dtype::Bf16 => return NpyType::F32,
        Dtype::F16 | Dtype::F32 | Dtype::F64 => 'f',
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => 'i',
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => 'u',
        // Other types are refused when the array is written.
        _ => 'b',
    };
    NpyType { kind, size: dtype.size() }
}
