//! Tensors, read from the data files: verified, converted and put together.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use crc_fast::Digest;
use percolator_files::checksum::{crc32c, mask};

use super::Checkpoint;
use super::data::DataFile;
use super::error::CheckpointError;
use super::index::{Place, TensorInfo};
use super::region::{Run, Runs};
use super::slices::lengths;
use super::strings::{Strings, read_strings, read_variants};
use super::zeroed::zeroed;
use crate::tensor::elements;
use crate::{DataType, Tensor};

/// A piece of a tensor: all of it, or one of its slices.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    /// Its number among all pieces.
    pub(super) number: usize,
    pub(super) name: &'a str,
    pub(super) data_type: DataType,
    /// How many elements it has.
    pub(super) count: usize,
    pub(super) place: Place,
}

impl Checkpoint {
    /// Returns the pieces of a tensor, each with its region.
    pub(super) fn pieces(&self, number: usize) -> impl Iterator<Item = (Piece<'_>, Vec<Range<usize>>)> {
        let TensorInfo { name, data_type, shape, place, slices, .. } = self.get(number);
        let whole = place.map(|place| {
            let region: Vec<_> = shape.iter().map(|&extent| 0..extent).collect();
            (number, place, region)
        });
        let first = self.len().saturating_add(self.index.slices_of(number).start);
        let slices = (first..).zip(slices).map(|(number, slice)| (number, slice.place, slice.region(shape)));
        whole.into_iter().chain(slices).map(move |(number, place, region)| {
            // The index was checked: it is a number.
            let count = elements(&lengths(&region)).unwrap_or(usize::MAX);
            (Piece { number, name, data_type, count, place }, region)
        })
    }

    /// Reads a region of a tensor, which is within it.
    pub(super) fn read(&self, number: usize, region: &[Range<usize>]) -> Result<Tensor<'_>, CheckpointError> {
        let TensorInfo { name, data_type, .. } = self.get(number);
        self.check_complete(number)?;
        self.check_byte_order(name, data_type)?;
        let shape = lengths(region);
        let tensor = if let Some(size) = data_type.size() {
            let mut bytes = self.read_bytes(number, region, size)?;
            if self.swapped_bytes(data_type).is_some() {
                let mut swapped = bytes.into_owned();
                self.convert(data_type, &mut swapped);
                bytes = Cow::Owned(swapped);
            }
            Tensor::new(data_type, shape, bytes)
        } else {
            let strings = self.read_strings(number, region)?;
            match data_type {
                DataType::Variant => Tensor::variants(shape, strings),
                _ => Tensor::strings(shape, strings),
            }
        };
        tensor.map_err(|error| self.entry_error(name, error.to_string()))
    }

    /// Refuses a variable that its slices do not make up.
    pub(super) fn check_complete(&self, number: usize) -> Result<(), CheckpointError> {
        match self.index.fault(number) {
            None => Ok(()),
            Some(fault) => Err(self.entry_error(self.index.name(number), fault.to_owned())),
        }
    }

    /// Refuses what cannot be converted.
    pub(super) fn check_byte_order(&self, name: &str, data_type: DataType) -> Result<(), CheckpointError> {
        if data_type != DataType::Variant || !self.is_big_endian() {
            return Ok(());
        }
        let message = format!(
            "it is of type {data_type}, and was written by a big-endian machine: what is in it cannot be \
             converted"
        );
        Err(self.tensor_error(name, message))
    }

    pub(super) fn entry_error(&self, name: &str, message: String) -> CheckpointError {
        CheckpointError::Entry { index: self.index_path.clone(), tensor: name.to_owned(), message }
    }

    pub(super) fn tensor_error(&self, name: &str, message: String) -> CheckpointError {
        CheckpointError::Tensor { index: self.index_path.clone(), tensor: name.to_owned(), message }
    }

    /// Reads a region of a tensor whose elements have `size` bytes each.
    fn read_bytes(
        &self,
        number: usize,
        region: &[Range<usize>],
        size: usize,
    ) -> Result<Cow<'_, [u8]>, CheckpointError> {
        let total = self.count_of(number, region)?;
        let bytes = |elements: usize| elements.saturating_mul(size);
        let mut assembled = None;
        for (piece, from) in self.pieces(number) {
            if from == region {
                return self.verified_bytes(piece);
            }
            let Some(first) = Runs::new(&from, region).next() else { continue };
            let found = self.verified_bytes(piece)?;
            if first.elements == total {
                // All of it is next to one another in this piece.
                let range = bytes(first.from)..bytes(first.from.saturating_add(total));
                return Ok(match found {
                    Cow::Borrowed(found) => Cow::Borrowed(found.get(range).unwrap_or_default()),
                    Cow::Owned(found) => Cow::Owned(found.get(range).unwrap_or_default().to_owned()),
                });
            }
            let into = match &mut assembled {
                Some(into) => into,
                None => assembled.insert(self.room(number, bytes(total))?),
            };
            copy_runs(&found, &from, into, region, size);
        }
        Ok(Cow::Owned(assembled.unwrap_or_default()))
    }

    /// Reads all slices of a tensor of fixed-size elements into memory as long as the tensor.
    pub(super) fn fill_slices(&self, number: usize, memory: &mut [u8]) -> Result<(), CheckpointError> {
        let TensorInfo { data_type, shape, .. } = self.get(number);
        let whole: Vec<_> = shape.iter().map(|&extent| 0..extent).collect();
        for (piece, from) in self.pieces(number) {
            let found = self.verified_bytes(piece)?;
            copy_runs(&found, &from, memory, &whole, data_type.size().unwrap_or_default());
        }
        self.convert(data_type, memory);
        Ok(())
    }

    /// Reads a region of a tensor of strings, or of variants.
    fn read_strings(
        &self,
        number: usize,
        region: &[Range<usize>],
    ) -> Result<Vec<Cow<'_, [u8]>>, CheckpointError> {
        let total = self.count_of(number, region)?;
        if let Some((piece, _)) = self.pieces(number).find(|(_, from)| from == region) {
            return self.verified_strings(piece);
        }
        let pieces = || self.pieces(number).filter(|(_, from)| Runs::new(from, region).next().is_some());
        // Each takes a byte at least.
        self.check_room(number, total)?;
        // Before memory is taken: then there are as many strings as the index states.
        pieces().try_for_each(|(piece, _)| self.verify_strings(piece))?;
        let mut into: Vec<Cow<'_, [u8]>> = Vec::new();
        if into.try_reserve_exact(total).is_err() {
            let bytes = total.saturating_mul(size_of::<Cow<'_, [u8]>>());
            let error = io::ErrorKind::OutOfMemory.into();
            return Err(self.no_memory(self.index.name(number), bytes, &error));
        }
        into.resize(total, Cow::default());
        for (piece, from) in pieces() {
            let mut found = self.verified_strings(piece)?;
            for Run { from, to, elements } in Runs::new(&from, region) {
                let source = found.get_mut(from..from.saturating_add(elements)).unwrap_or_default();
                let target = into.get_mut(to..to.saturating_add(elements)).unwrap_or_default();
                target.swap_with_slice(source);
            }
        }
        Ok(into)
    }

    /// How many elements a region has.
    fn count_of(&self, number: usize, region: &[Range<usize>]) -> Result<usize, CheckpointError> {
        elements(&lengths(region)).ok_or_else(|| {
            self.entry_error(self.index.name(number), "it has more elements than memory can hold".to_owned())
        })
    }

    /// Returns memory for a tensor that is put together from slices.
    pub(super) fn room(&self, number: usize, bytes: usize) -> Result<Vec<u8>, CheckpointError> {
        self.check_room(number, bytes)?;
        zeroed(bytes as u64).map_err(|error| self.no_memory(self.index.name(number), bytes, &error))
    }

    /// Checks that the data files of a tensor in slices have as many bytes as its elements take at least:
    /// slices that share bytes could claim any number.
    fn check_room(&self, number: usize, bytes: usize) -> Result<(), CheckpointError> {
        let name = self.index.name(number);
        let mut files = BTreeMap::new();
        for (piece, _) in self.pieces(number) {
            let (file, _) = self.data.at(piece.place, name)?;
            files.insert(piece.place.shard, file.length());
        }
        let allowed = files.into_values().fold(0, u64::saturating_add);
        if bytes as u64 > allowed {
            let message =
                format!("it takes at least {bytes} bytes, and its data files have {allowed} together");
            return Err(self.entry_error(name, message));
        }
        Ok(())
    }

    pub(super) fn no_memory(&self, name: &str, bytes: usize, error: &io::Error) -> CheckpointError {
        self.tensor_error(name, format!("there is no memory for its {bytes} bytes: {error}"))
    }

    /// Returns the bytes of a piece as they are stored, once they are verified.
    pub(super) fn verified_bytes(&self, piece: Piece<'_>) -> Result<Cow<'_, [u8]>, CheckpointError> {
        let (file, range) = self.data.at(piece.place, piece.name)?;
        let bytes = file.bytes(range)?;
        if !file.is_mapped() || !self.is_verified(piece.number) {
            check(file, piece, crc32c(&bytes))?;
            self.set_verified(piece.number);
        }
        Ok(bytes)
    }

    /// Returns the strings or variants of a piece, once they are verified.
    pub(super) fn verified_strings(&self, piece: Piece<'_>) -> Result<Vec<Cow<'_, [u8]>>, CheckpointError> {
        let (file, range) = self.data.at(piece.place, piece.name)?;
        match file.bytes(range)? {
            Cow::Borrowed(bytes) => self.strings_in(file, piece, bytes, Cow::Borrowed),
            Cow::Owned(bytes) => self.strings_in(file, piece, &bytes, |string| Cow::Owned(string.to_owned())),
        }
    }

    /// Verifies the strings or variants of a piece.
    pub(super) fn verify_strings(&self, piece: Piece<'_>) -> Result<(), CheckpointError> {
        let (file, range) = self.data.at(piece.place, piece.name)?;
        self.strings_in(file, piece, &file.bytes(range)?, |_| ()).map(drop)
    }

    /// Splits and verifies the bytes of a piece of strings or variants.
    fn strings_in<'b, T>(
        &self,
        file: &DataFile,
        piece: Piece<'_>,
        bytes: &'b [u8],
        make: impl Fn(&'b [u8]) -> T,
    ) -> Result<Vec<T>, CheckpointError> {
        let found = match piece.data_type {
            DataType::Variant => read_variants(bytes, piece.count, self.is_big_endian(), make),
            _ => read_strings(bytes, piece.count, self.is_big_endian(), make),
        };
        let Strings { strings, crc32c } = found.map_err(|message| CheckpointError::Strings {
            file: file.path.clone(),
            tensor: piece.name.to_owned(),
            offset: piece.place.offset,
            message,
        })?;
        check(file, piece, crc32c)?;
        self.set_verified(piece.number);
        Ok(strings)
    }

    /// Returns how many bytes are one number, if their order must be reversed.
    pub(super) fn swapped_bytes(&self, data_type: DataType) -> Option<usize> {
        data_type.number_size().filter(|&size| self.is_big_endian() && size > 1)
    }

    /// Makes elements little-endian.
    pub(super) fn convert(&self, data_type: DataType, bytes: &mut [u8]) {
        if let Some(size) = self.swapped_bytes(data_type) {
            bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
    }
}

/// Compares the crc32c of a piece's bytes with that of the index.
pub(super) fn check(file: &DataFile, piece: Piece<'_>, crc32c: u32) -> Result<(), CheckpointError> {
    let (found, Place { offset, bytes, crc32c: stored, .. }) = (mask(crc32c), piece.place);
    if found == stored {
        return Ok(());
    }
    let (file, tensor) = (file.path.clone(), piece.name.to_owned());
    Err(CheckpointError::Checksum { file, tensor, offset, bytes, found, stored })
}

/// Copies what two regions share from the elements of one to those of the other.
fn copy_runs(found: &[u8], from: &[Range<usize>], into: &mut [u8], to: &[Range<usize>], size: usize) {
    let bytes = |first: usize, elements: usize| {
        first.saturating_mul(size)..first.saturating_add(elements).saturating_mul(size)
    };
    for Run { from, to, elements } in Runs::new(from, to) {
        let source = found.get(bytes(from, elements));
        let target = into.get_mut(bytes(to, elements));
        if let (Some(source), Some(target)) = (source, target) {
            target.copy_from_slice(source);
        }
    }
}

/// Returns the crc32c of what a digest was given.
pub(super) fn crc32c_of(digest: &Digest) -> u32 {
    // The crate returns it in a 64-bit number.
    let [first, second, third, fourth, ..] = digest.finalize().to_le_bytes();
    u32::from_le_bytes([first, second, third, fourth])
}
