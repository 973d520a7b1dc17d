//! The lists of a feature, in place.

use std::fmt;

use super::feature::{Kind, Pieces};
use super::varints::{self, Float, Integer, Stop, Unpacked};
use crate::datum::{Floats, Strided};
use crate::wire::{CHUNK, FIXED32, Key, VARINT, Wire, WireError};

/// The only field of each list.
const VALUES: u32 = 1;
const CHUNKS: Key = Key::new(VALUES, CHUNK);
const VARINTS: Key = Key::new(VALUES, VARINT);
const FIXED32S: Key = Key::new(VALUES, FIXED32);

/// Byte strings of a feature.
#[derive(Clone, Copy)]
pub struct BytesList<'a> {
    pub(super) pieces: Pieces<'a>,
}

impl<'a> BytesList<'a> {
    /// The strings.
    #[must_use]
    pub fn iter(&self) -> BytesIter<'a> {
        BytesIter { pieces: self.pieces, list: Wire::default() }
    }

    /// The number of strings. Counts them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The strings, of a list that may not have been checked.
    #[inline]
    pub fn each(&self) -> impl Iterator<Item = Result<&'a [u8], WireError>> + use<'a> {
        let mut strings = self.iter();
        std::iter::from_fn(move || strings.advance().transpose())
    }
}

impl fmt::Debug for BytesList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for BytesList<'a> {
    type Item = &'a [u8];
    type IntoIter = BytesIter<'a>;

    fn into_iter(self) -> BytesIter<'a> {
        self.iter()
    }
}

/// The strings of a [`BytesList`].
#[derive(Clone, Debug)]
pub struct BytesIter<'a> {
    pieces: Pieces<'a>,
    list: Wire<'a>,
}

impl<'a> BytesIter<'a> {
    fn advance(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        loop {
            if let Some((_, value)) = self.list.next_of(VALUES..=VALUES)? {
                return Ok(Some(value.rest()));
            }
            match self.pieces.advance()? {
                Some(piece) => self.list = piece.list,
                None => return Ok(None),
            }
        }
    }
}

impl<'a> Iterator for BytesIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        checked(self.advance())
    }
}

/// Floats of a feature.
#[derive(Clone, Copy)]
pub struct FloatList<'a> {
    pub(super) len: usize,
    pub(super) place: FloatPlace<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum FloatPlace<'a> {
    /// All in one run.
    Run(Strided<'a>),
    /// In several.
    Scattered(Pieces<'a>),
}

impl<'a> FloatList<'a> {
    pub(super) fn of_run(run: Strided<'a>) -> Self {
        FloatList { len: run.len(), place: FloatPlace::Run(run) }
    }

    /// Finds the floats of a list. It is one message if `is_whole` is true, and several otherwise; `pieces`
    /// then starts with it.
    pub(super) fn find(mut list: Wire<'a>, pieces: Pieces<'a>, is_whole: bool) -> Result<Self, WireError> {
        let run = next_floats(&mut list)?.unwrap_or(Strided::Packed(&[]));
        if is_whole && list.is_empty() {
            return Ok(FloatList::of_run(run));
        }
        let mut runs = FloatRuns { pieces, list: Wire::default() };
        let mut len = 0_usize;
        while let Some(run) = runs.advance()? {
            // Never saturates: each element takes four bytes of the record.
            len = len.saturating_add(run.len());
        }
        Ok(FloatList { len, place: FloatPlace::Scattered(pieces) })
    }

    /// The number of floats.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The floats.
    #[must_use]
    pub fn iter(&self) -> FloatIter<'a> {
        let runs = FloatRuns { list: Wire::default(), pieces: Pieces::default() };
        match self.place {
            FloatPlace::Run(run) => FloatIter { runs, run, at: 0 },
            FloatPlace::Scattered(pieces) => {
                FloatIter { runs: FloatRuns { pieces, ..runs }, run: Strided::Packed(&[]), at: 0 }
            }
        }
    }

    /// Reads as many floats as `out` has room for.
    #[inline]
    pub fn copy_to<T: Float>(&self, out: &mut [T]) {
        if let FloatPlace::Run(Strided::Packed(floats)) = self.place {
            out.iter_mut().zip(floats).for_each(|(to, float)| *to = T::of(f32::from_le_bytes(*float)));
        } else {
            out.iter_mut().zip(self.iter()).for_each(|(to, float)| *to = T::of(float));
        }
    }

    /// The floats of an Example's feature as those of a Datum.
    #[inline]
    #[must_use]
    pub fn floats(&self) -> Floats<'a> {
        match self.place {
            FloatPlace::Run(run) => Floats::of_run(run),
            FloatPlace::Scattered(pieces) => Floats::scattered(self.len, pieces.entry(), gather),
        }
    }
}

/// Appends the floats of a map's entry, which were found before.
fn gather(entry: &[u8], out: &mut Vec<f32>) {
    if let Ok(super::Feature::Floats(list)) = Pieces::of_entry(Wire::new(entry)).feature() {
        out.extend(list.iter());
    }
}

impl fmt::Debug for FloatList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for FloatList<'a> {
    type Item = f32;
    type IntoIter = FloatIter<'a>;

    fn into_iter(self) -> FloatIter<'a> {
        self.iter()
    }
}

/// The runs of floats of some lists.
#[derive(Clone, Debug)]
struct FloatRuns<'a> {
    pieces: Pieces<'a>,
    list: Wire<'a>,
}

impl<'a> FloatRuns<'a> {
    fn advance(&mut self) -> Result<Option<Strided<'a>>, WireError> {
        loop {
            if let Some(run) = next_floats(&mut self.list)? {
                return Ok(Some(run));
            }
            match self.pieces.advance()? {
                Some(piece) => self.list = piece.list,
                None => return Ok(None),
            }
        }
    }
}

/// The next run of floats in a list.
fn next_floats<'a>(list: &mut Wire<'a>) -> Result<Option<Strided<'a>>, WireError> {
    while !list.is_empty() {
        let offset = list.offset();
        match list.key()? {
            CHUNKS => return Ok(Some(Strided::Packed(list.packed()?))),
            FIXED32S => return Ok(Some(Strided::Unpacked(list.run(FIXED32S)?))),
            other if other.number() == VALUES => return Err(other.wrong_type(offset, "2 or 5")),
            other => list.skip(other, offset)?,
        }
    }
    Ok(None)
}

/// The floats of a [`FloatList`].
#[derive(Clone, Debug)]
pub struct FloatIter<'a> {
    runs: FloatRuns<'a>,
    run: Strided<'a>,
    at: usize,
}

impl Iterator for FloatIter<'_> {
    type Item = f32;

    fn next(&mut self) -> Option<f32> {
        while self.at >= self.run.len() {
            (self.run, self.at) = (checked(self.runs.advance())?, 0);
        }
        let mut value = [0.0];
        self.run.copy_to(self.at, &mut value);
        self.at = self.at.saturating_add(1);
        let [value] = value;
        Some(value)
    }
}

/// Integers of a feature.
#[derive(Clone, Copy)]
pub struct Int64List<'a> {
    pub(super) place: IntPlace<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum IntPlace<'a> {
    /// All in one packed run.
    Run(Wire<'a>),
    /// In several runs, or not packed.
    Scattered(Pieces<'a>),
}

impl<'a> Int64List<'a> {
    pub(super) fn of_run(run: Wire<'a>) -> Self {
        Int64List { place: IntPlace::Run(run) }
    }

    /// Finds the integers of a list. It is one message if `is_whole` is true, and several otherwise; `pieces`
    /// then starts with it.
    pub(super) fn find(mut list: Wire<'a>, pieces: Pieces<'a>, is_whole: bool) -> Result<Self, WireError> {
        if is_whole {
            match next_ints(&mut list)? {
                None => return Ok(Int64List::of_run(Wire::default())),
                Some(IntRun::Packed(run)) if list.is_empty() => return Ok(Int64List::of_run(run)),
                Some(_) => {}
            }
        }
        Ok(Int64List { place: IntPlace::Scattered(pieces) })
    }

    /// The number of integers. Counts them, which reads the whole list.
    #[must_use]
    pub fn len(&self) -> usize {
        checked(self.count().map(Some)).unwrap_or(0)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The integers.
    #[must_use]
    pub fn iter(&self) -> IntIter<'a> {
        let (runs, run) = self.runs();
        IntIter { runs, run }
    }

    /// The first run, if all integers are in one, and the runs after it.
    fn runs(&self) -> (IntRuns<'a>, Wire<'a>) {
        match self.place {
            IntPlace::Run(run) => (IntRuns { pieces: Pieces::default(), list: Wire::default() }, run),
            IntPlace::Scattered(pieces) => (IntRuns { pieces, list: Wire::default() }, Wire::default()),
        }
    }

    /// Reads the integers into `out`, from a list that may not have been checked. Returns their number.
    ///
    /// # Errors
    ///
    /// [`IntError`] if the record is damaged there, or the integers do not fit `out`.
    #[inline]
    pub fn copy_to<T: Integer>(&self, out: &mut [T]) -> Result<usize, IntError> {
        if let IntPlace::Run(run) = self.place {
            return varints::unpack(run.rest(), out).values_of(run, 0);
        }
        let (mut runs, first) = self.runs();
        let (mut values, mut run) = (0_usize, IntRun::Packed(first));
        loop {
            let room = out.get_mut(values..).unwrap_or_default();
            let done = match run {
                IntRun::Packed(packed) => varints::unpack(packed.rest(), room).values_of(packed, values)?,
                IntRun::One(value) => {
                    let to = room.first_mut().ok_or(IntError::TooMany)?;
                    let value = value.cast_signed();
                    *to = T::of(value).ok_or(IntError::Range { index: values, value })?;
                    1
                }
            };
            values = values.saturating_add(done);
            match runs.advance()? {
                Some(next) => run = next,
                None => return Ok(values),
            }
        }
    }

    /// Counts the integers of a list that may not have been checked.
    ///
    /// # Errors
    ///
    /// [`WireError`] if the record is damaged there.
    pub fn count(&self) -> Result<usize, WireError> {
        let (mut runs, first) = self.runs();
        let (mut values, mut run) = (0_usize, IntRun::Packed(first));
        loop {
            values = values.saturating_add(run.check()?);
            match runs.advance()? {
                Some(next) => run = next,
                None => return Ok(values),
            }
        }
    }
}

/// Why integers cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntError {
    /// The record is damaged there.
    Wire(WireError),
    /// There are more than there is room for.
    TooMany,
    /// One is not a value of the type.
    Range {
        /// Its number in the list, from 0.
        index: usize,
        /// The integer.
        value: i64,
    },
}

impl From<WireError> for IntError {
    fn from(error: WireError) -> Self {
        IntError::Wire(error)
    }
}

impl Unpacked {
    /// The number of values that were read from `packed`, or the error that stopped the reading. `before`
    /// values came before them.
    #[inline]
    fn values_of(self, packed: Wire<'_>, before: usize) -> Result<usize, IntError> {
        match self.stop {
            Stop::End => Ok(self.values),
            Stop::Full => Err(IntError::TooMany),
            Stop::Varint => {
                let offset = packed.offset().saturating_add(self.bytes);
                Err(WireError::Varint { offset }.into())
            }
            Stop::Range(value) => Err(IntError::Range { index: before.saturating_add(self.values), value }),
        }
    }
}

impl fmt::Debug for Int64List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for Int64List<'a> {
    type Item = i64;
    type IntoIter = IntIter<'a>;

    fn into_iter(self) -> IntIter<'a> {
        self.iter()
    }
}

/// A run of integers.
#[derive(Clone, Copy, Debug)]
enum IntRun<'a> {
    Packed(Wire<'a>),
    One(u64),
}

impl IntRun<'_> {
    /// Checks the integers, and returns how many there are.
    fn check(&self) -> Result<usize, WireError> {
        let IntRun::Packed(packed) = self else { return Ok(1) };
        varints::check(packed.rest())
            .map_err(|at| WireError::Varint { offset: packed.offset().saturating_add(at) })
    }
}

/// The runs of integers of some lists.
#[derive(Clone, Debug)]
struct IntRuns<'a> {
    pieces: Pieces<'a>,
    list: Wire<'a>,
}

impl<'a> IntRuns<'a> {
    #[inline]
    fn advance(&mut self) -> Result<Option<IntRun<'a>>, WireError> {
        loop {
            if let Some(run) = next_ints(&mut self.list)? {
                return Ok(Some(run));
            }
            match self.pieces.advance()? {
                Some(piece) => self.list = piece.list,
                None => return Ok(None),
            }
        }
    }
}

/// The next run of integers in a list.
#[inline]
fn next_ints<'a>(list: &mut Wire<'a>) -> Result<Option<IntRun<'a>>, WireError> {
    while !list.is_empty() {
        let offset = list.offset();
        match list.key()? {
            CHUNKS => return Ok(Some(IntRun::Packed(list.nested()?))),
            VARINTS => return Ok(Some(IntRun::One(list.varint()?))),
            other if other.number() == VALUES => return Err(other.wrong_type(offset, "0 or 2")),
            other => list.skip(other, offset)?,
        }
    }
    Ok(None)
}

/// The integers of an [`Int64List`].
#[derive(Clone, Debug)]
pub struct IntIter<'a> {
    runs: IntRuns<'a>,
    run: Wire<'a>,
}

impl Iterator for IntIter<'_> {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        while self.run.is_empty() {
            match checked(self.runs.advance())? {
                IntRun::Packed(run) => self.run = run,
                IntRun::One(value) => return Some(value.cast_signed()),
            }
        }
        checked(self.run.varint().map(Some)).map(u64::cast_signed)
    }
}

/// Checks the elements of a list of this kind.
pub(super) fn check(kind: Kind, mut list: Wire<'_>) -> Result<(), WireError> {
    match kind {
        Kind::Bytes => while list.next_of(VALUES..=VALUES)?.is_some() {},
        Kind::Float => while next_floats(&mut list)?.is_some() {},
        Kind::Int64 => {
            while let Some(run) = next_ints(&mut list)? {
                run.check()?;
            }
        }
    }
    Ok(())
}

/// The value that was read from a checked record.
fn checked<T>(read: Result<Option<T>, WireError>) -> Option<T> {
    debug_assert!(read.is_ok(), "the record was checked before: {:?}", read.err());
    read.unwrap_or(None)
}
