//! Many tensors at once: loaded or verified by several threads.
//!
//! A large tensor is divided into parts. A thread copies a part in small pieces, and computes the checksum of
//! each while it is in the processor's cache; the checksums of the parts are combined into that of the whole.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crc_fast::{CrcAlgorithm, Digest, checksum_combine};
use percolator_files::parallel;

use super::Checkpoint;
use super::data::DataFile;
use super::error::CheckpointError;
use super::index::TensorInfo;
use super::read::{Piece, check, crc32c_of};
use super::region::{Run, Runs};
use super::zeroed::zeroed;
use crate::tensor::elements;
use crate::{DataType, Tensor};

/// The most bytes that one thread takes at a time: a whole number of elements of any type.
const PART_BYTES: usize = 16 << 20;
/// How many bytes are copied before their checksum is taken.
const COPY_BYTES: usize = 64 << 10;

/// What was found when a checkpoint was verified.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// How many tensors the checkpoint has.
    pub tensors: usize,
    /// How many checksums were right: one a tensor, or one a slice of it.
    pub checksums: usize,
    /// How many bytes of the data files those are over.
    pub bytes: u64,
    /// What is wrong, in the order of the tensors' names; nothing if all checksums are right. A data file
    /// that is missing is one fault.
    pub faults: Vec<CheckpointError>,
}

/// A part of a piece, and where in the file it starts.
#[derive(Clone, Copy)]
struct Part<'a> {
    piece: Piece<'a>,
    file: &'a DataFile,
    offset: u64,
    bytes: usize,
}

/// What a thread does at a time.
enum Work<'a, 'm> {
    /// Takes the crc32c of a part.
    Sum(Part<'a>),
    /// Copies a part, and takes its crc32c.
    Copy(Part<'a>, &'m mut [u8]),
    /// Reads all slices of a tensor, of which some are not next to one another in it.
    Slices(usize, &'m mut [u8]),
    /// Verifies a piece of strings or variants.
    Strings(Piece<'a>),
}

/// What came of it.
enum Done<'a> {
    /// The crc32c of a part.
    Part(Part<'a>, u32),
    /// All of it is verified.
    Whole(Piece<'a>),
    Slices,
    /// Nothing: something failed before.
    Stopped,
}

impl Checkpoint {
    /// Loads these tensors into memory of their own, in the order of the names, with `threads` threads (0:
    /// one a processor). All checksums are verified.
    ///
    /// # Errors
    ///
    /// As [`tensor`](Self::tensor), for one of the tensors; [`CheckpointError::Tensor`] if there
    /// is not enough memory.
    pub fn load<S: AsRef<str>>(
        &self,
        names: &[S],
        threads: usize,
    ) -> Result<Vec<Tensor<'static>>, CheckpointError> {
        let numbers: Result<Vec<_>, _> = names.iter().map(|name| self.number(name.as_ref())).collect();
        self.load_numbers(&numbers?, threads)
    }

    /// Does the same as [`load`](Self::load), with all tensors, in the order of their names.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn load_all(&self, threads: usize) -> Result<Vec<Tensor<'static>>, CheckpointError> {
        self.load_numbers(&(0..self.len()).collect::<Vec<_>>(), threads)
    }

    fn load_numbers(
        &self,
        numbers: &[usize],
        threads: usize,
    ) -> Result<Vec<Tensor<'static>>, CheckpointError> {
        let is_text = |number: &usize| self.get(*number).data_type.size().is_none();
        self.check_sharing(numbers)?;
        let mut memory = Vec::new();
        for &number in numbers {
            let TensorInfo { name, data_type, shape, .. } = self.get(number);
            self.check_complete(number)?;
            self.check_byte_order(name, data_type)?;
            // Before memory is reserved: a cut or forged file may have far less than the index states.
            for (piece, _) in self.pieces(number) {
                self.data.at(piece.place, name)?;
            }
            if let Some(bytes) = bytes_of(data_type, shape) {
                let zeroed = zeroed(bytes as u64).map_err(|error| self.no_memory(name, bytes, &error))?;
                memory.push((number, zeroed));
            }
        }
        self.fill(memory.iter_mut().map(|(number, memory)| (*number, &mut memory[..])).collect(), threads)?;
        let texts: Vec<_> = numbers.iter().copied().filter(is_text).collect();
        let texts = parallel::map("checkpoint", threads, texts, |number| {
            let whole: Vec<_> = self.get(number).shape.iter().map(|&extent| 0..extent).collect();
            self.read(number, &whole).map(Tensor::into_owned)
        });
        let (mut texts, mut memory) = (texts.into_iter(), memory.into_iter());
        let mut tensors = Vec::with_capacity(numbers.len());
        for number in numbers {
            let TensorInfo { name, data_type, shape, .. } = self.get(*number);
            let next = if is_text(number) {
                texts.next().transpose()?
            } else {
                let tensor = memory.next().map(|(_, bytes)| Tensor::new(data_type, shape, bytes));
                tensor.transpose().map_err(|error| self.entry_error(name, error.to_string()))?
            };
            tensors.extend(next);
        }
        Ok(tensors)
    }

    /// Loads tensors into memory of the caller's, each in row-major order, little-endian,
    /// with `threads` threads (0: one a processor). All checksums are verified. After an error the memory has
    /// any bytes.
    ///
    /// # Errors
    ///
    /// As [`tensor`](Self::tensor), for one of the tensors; [`CheckpointError::Tensor`] if memory
    /// is not as long as its tensor, or a tensor is of strings.
    pub fn load_into(&self, memory: &mut [(&str, &mut [u8])], threads: usize) -> Result<(), CheckpointError> {
        let mut wanted = Vec::with_capacity(memory.len());
        for (name, memory) in memory {
            let number = self.number(name)?;
            self.check_complete(number)?;
            let TensorInfo { data_type, shape, .. } = self.get(number);
            let message = match bytes_of(data_type, shape) {
                None => Some(format!("it is of type {data_type}, whose elements have no fixed length")),
                Some(due) if due != memory.len() => {
                    Some(format!("it takes {due} bytes, and the memory for it has {}", memory.len()))
                }
                Some(_) => None,
            };
            if let Some(message) = message {
                return Err(self.tensor_error(name, message));
            }
            wanted.push((number, &mut **memory));
        }
        self.fill(wanted, threads)
    }

    /// Verifies every checksum of the data files, with `threads` threads (0: one a processor). The index was
    /// verified when it was opened.
    #[must_use]
    pub fn verify(&self, threads: usize) -> Verification {
        match self.verify_watched(threads, |_| Ok::<(), Infallible>(())) {
            Ok(found) => found,
            Err(never) => match never {},
        }
    }

    /// Does the same as [`verify`](Self::verify), and says how far it is: `watch` is called with the number
    /// of bytes of each part that is done, of all that the tensors [take](TensorInfo::bytes), by several
    /// threads.
    ///
    /// # Errors
    ///
    /// The error of `watch`, which ends the work.
    pub fn verify_watched<E: Send>(
        &self,
        threads: usize,
        watch: impl Fn(u64) -> Result<(), E> + Sync,
    ) -> Result<Verification, E> {
        let mut found = Verification { tensors: self.len(), ..Verification::default() };
        if let Err(error) = self.check_all_sharing() {
            found.faults.push(error);
            return Ok(found);
        }
        let works: Vec<_> = (0..self.len()).flat_map(|number| self.sums(number)).collect();
        let stopped: Mutex<Option<E>> = Mutex::new(None);
        let lock = || stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let done = parallel::map("checkpoint", threads, works, |work| {
            let work = work?;
            if lock().is_some() {
                return Ok(Done::Stopped);
            }
            let bytes = match &work {
                Work::Sum(part) | Work::Copy(part, _) => part.bytes as u64,
                Work::Strings(piece) => piece.place.bytes,
                Work::Slices(..) => 0,
            };
            let done = self.work(work);
            if let Err(error) = watch(bytes) {
                lock().get_or_insert(error);
            }
            done
        });
        if let Some(error) = stopped.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        found.faults = self.join(done, |piece| {
            found.checksums = found.checksums.saturating_add(1);
            found.bytes = found.bytes.saturating_add(piece.place.bytes);
        });
        let mut missing = BTreeSet::new();
        found.faults.retain(|fault| match fault {
            CheckpointError::MissingShard { file, .. } => missing.insert(file.clone()),
            _ => true,
        });
        Ok(found)
    }

    /// The work of verifying a tensor.
    fn sums(&self, number: usize) -> Vec<Result<Work<'_, 'static>, CheckpointError>> {
        let mut works: Vec<_> = self.check_complete(number).err().map(Err).into_iter().collect();
        for (piece, _) in self.pieces(number) {
            if piece.data_type.size().is_none() {
                works.push(Ok(Work::Strings(piece)));
            } else {
                match self.parts(piece) {
                    Ok(parts) => works.extend(parts.into_iter().map(|part| Ok(Work::Sum(part)))),
                    Err(error) => works.push(Err(error)),
                }
            }
        }
        works
    }

    /// Loads tensors of fixed-size elements. The memory of each is as long as the tensor.
    fn fill(&self, wanted: Vec<(usize, &mut [u8])>, threads: usize) -> Result<(), CheckpointError> {
        let mut works = Vec::new();
        for (number, memory) in wanted {
            self.add_works(number, memory, &mut works)?;
        }
        let has_failed = AtomicBool::new(false);
        let done = parallel::map("checkpoint", threads, works, |work| {
            if has_failed.load(Ordering::Relaxed) {
                return Ok(Done::Stopped);
            }
            self.work(work).inspect_err(|_| has_failed.store(true, Ordering::Relaxed))
        });
        self.join(done, |_| {}).into_iter().next().map_or(Ok(()), Err)
    }

    /// Divides the work on a tensor.
    fn add_works<'a, 'm>(
        &'a self,
        number: usize,
        memory: &'m mut [u8],
        works: &mut Vec<Work<'a, 'm>>,
    ) -> Result<(), CheckpointError> {
        let TensorInfo { name, data_type, shape, .. } = self.get(number);
        let whole: Vec<_> = shape.iter().map(|&extent| 0..extent).collect();
        let size = data_type.size().unwrap_or_default();
        let mut pieces: Vec<_> =
            self.pieces(number).map(|(piece, region)| (Runs::new(&region, &whole).next(), piece)).collect();
        let is_one_run =
            |(run, piece): &(Option<Run>, Piece<'_>)| run.is_none_or(|run| run.elements == piece.count);
        if !pieces.iter().all(is_one_run) {
            for (_, piece) in pieces {
                self.data.at(piece.place, name)?;
            }
            works.push(Work::Slices(number, memory));
            return Ok(());
        }
        // Slices make up the tensor, so each starts where the one before it ends.
        pieces.sort_unstable_by_key(|(run, _)| run.map_or(0, |run| run.to));
        let mut rest = memory;
        for (_, piece) in pieces {
            let bytes = piece.count.saturating_mul(size).min(rest.len());
            let (mut memory, after) = rest.split_at_mut(bytes);
            rest = after;
            for part in self.parts(piece)? {
                let (now, later) = memory.split_at_mut(part.bytes.min(memory.len()));
                memory = later;
                works.push(Work::Copy(part, now));
            }
        }
        Ok(())
    }

    /// Divides a piece of fixed-size elements into parts: one at least.
    fn parts<'a>(&'a self, piece: Piece<'a>) -> Result<Vec<Part<'a>>, CheckpointError> {
        let (file, Range { start, end }) = self.data.at(piece.place, piece.name)?;
        let starts = (start..end.max(start.saturating_add(1))).step_by(PART_BYTES);
        let part = |offset: u64| {
            let bytes = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).min(PART_BYTES);
            Part { piece, file, offset, bytes }
        };
        Ok(starts.map(part).collect())
    }

    fn work<'a>(&'a self, work: Work<'a, '_>) -> Result<Done<'a>, CheckpointError> {
        match work {
            Work::Sum(part) => Ok(Done::Part(part, sum(part)?)),
            Work::Copy(part, memory) => {
                let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
                let mut offset = part.offset;
                for memory in memory.chunks_mut(COPY_BYTES) {
                    part.file.copy(offset, memory)?;
                    digest.update(memory);
                    self.convert(part.piece.data_type, memory);
                    offset = offset.saturating_add(memory.len() as u64);
                }
                Ok(Done::Part(part, crc32c_of(&digest)))
            }
            Work::Slices(number, memory) => self.fill_slices(number, memory).map(|()| Done::Slices),
            Work::Strings(piece) => self.verify_strings(piece).map(|()| Done::Whole(piece)),
        }
    }

    /// Joins the checksums of parts, and compares those of pieces. Returns the errors, in order, and calls
    /// `right` for each piece that is right.
    fn join<'a>(
        &self,
        done: Vec<Result<Done<'a>, CheckpointError>>,
        mut right: impl FnMut(Piece<'a>),
    ) -> Vec<CheckpointError> {
        let mut errors = Vec::new();
        let mut so_far: Option<(Piece<'a>, u64, u64)> = None;
        for done in done {
            match done {
                Err(error) => errors.push(error),
                Ok(Done::Slices | Done::Stopped) => {}
                Ok(Done::Whole(piece)) => right(piece),
                Ok(Done::Part(part, crc32c)) => {
                    let bytes = part.bytes as u64;
                    let (sum, length) = match so_far.take() {
                        Some((piece, sum, length)) if piece.number == part.piece.number => {
                            let sum = checksum_combine(CrcAlgorithm::Crc32Iscsi, sum, crc32c.into(), bytes);
                            (sum, length.saturating_add(bytes))
                        }
                        _ => (crc32c.into(), bytes),
                    };
                    if length < part.piece.place.bytes {
                        so_far = Some((part.piece, sum, length));
                        continue;
                    }
                    match check(part.file, part.piece, u32::try_from(sum).unwrap_or_default()) {
                        Ok(()) => {
                            self.set_verified(part.piece.number);
                            right(part.piece);
                        }
                        Err(error) => errors.push(error),
                    }
                }
            }
        }
        errors
    }

    /// Checks that no tensors of the checkpoint claim the same bytes.
    pub(crate) fn check_all_sharing(&self) -> Result<(), CheckpointError> {
        self.check_sharing(&(0..self.len()).collect::<Vec<_>>())
    }

    /// Checks that different tensors do not claim the same bytes: a forged index could claim any number of
    /// bytes of a small file.
    fn check_sharing(&self, numbers: &[usize]) -> Result<(), CheckpointError> {
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        let mut left = BTreeMap::new();
        for number in numbers {
            for (piece, _) in self.pieces(number) {
                // What cannot be read is reported when it is read.
                let Ok((file, _)) = self.data.at(piece.place, piece.name) else { continue };
                let left: &mut u64 = left.entry(piece.place.shard).or_insert(file.length());
                *left = left.checked_sub(piece.place.bytes).ok_or_else(|| {
                    let file = file.path.clone();
                    CheckpointError::Shared { file, tensor: piece.name.to_owned() }
                })?;
            }
        }
        Ok(())
    }
}

/// Returns the crc32c of a part.
fn sum(part: Part<'_>) -> Result<u32, CheckpointError> {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let end = part.offset.saturating_add(part.bytes as u64);
    if part.file.is_mapped() {
        digest.update(&part.file.bytes(part.offset..end)?);
        return Ok(crc32c_of(&digest));
    }
    let mut buffer = vec![0; COPY_BYTES.min(part.bytes)];
    let mut offset = part.offset;
    while offset < end {
        let bytes = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = buffer.get_mut(..bytes).unwrap_or_default();
        part.file.copy(offset, buffer)?;
        digest.update(buffer);
        offset = offset.saturating_add(bytes as u64);
    }
    Ok(crc32c_of(&digest))
}

/// The bytes of a tensor in memory, or `None` if its elements have no fixed length. The index was checked:
/// the product fits.
fn bytes_of(data_type: DataType, shape: &[usize]) -> Option<usize> {
    elements(shape)?.checked_mul(data_type.size()?)
}
