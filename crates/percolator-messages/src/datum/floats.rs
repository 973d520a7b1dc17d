//! The elements of `float_data`, which a writer may have packed or not.

use super::error::DatumError;
use super::key;
use crate::wire::Wire;

/// The elements of a record's `float_data`, in place.
#[derive(Clone, Copy, Debug)]
pub struct Floats<'a> {
    len: usize,
    place: Place<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    /// All in one run.
    Run(Strided<'a>),
    /// In several runs, somewhere in this message, which was parsed to its end.
    Scattered(&'a [u8], Gather),
}

/// Appends the floats that are scattered in a message.
type Gather = fn(&[u8], &mut Vec<f32>);

impl<'a> Floats<'a> {
    pub(super) const EMPTY: Floats<'static> = Floats { len: 0, place: Place::Run(Strided::Packed(&[])) };

    /// Floats that are all in one run.
    pub(crate) fn of_run(run: Strided<'a>) -> Self {
        Floats { len: run.len(), place: Place::Run(run) }
    }

    /// `len` floats somewhere in a message, from which `gather` reads them.
    pub(crate) fn scattered(len: usize, message: &'a [u8], gather: Gather) -> Self {
        Floats { len, place: Place::Scattered(message, gather) }
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements as one run, or `None` if they are in several runs, which no known writer produces.
    #[must_use]
    pub fn strided(&self) -> Option<Strided<'a>> {
        match self.place {
            Place::Run(run) => Some(run),
            Place::Scattered(..) => None,
        }
    }

    /// Appends all elements to `out`, in the record's order. It is slow, but always works.
    pub fn gather(&self, out: &mut Vec<f32>) {
        match self.place {
            Place::Run(run) => run.append_to(out),
            Place::Scattered(message, gather) => gather(message, out),
        }
    }

    /// Adds a run of `message`, which follows those added before.
    pub(super) fn add(&mut self, run: Strided<'a>, message: &'a [u8]) {
        if run.is_empty() {
            return;
        }
        self.place = if self.is_empty() { Place::Run(run) } else { Place::Scattered(message, gather) };
        // Never saturates: each element takes four bytes of the message.
        self.len = self.len.saturating_add(run.len());
    }
}

impl Default for Floats<'_> {
    fn default() -> Self {
        Floats::EMPTY
    }
}

/// Appends the floats of a Datum that was parsed to its end.
fn gather(message: &[u8], out: &mut Vec<f32>) {
    let gathered = gather_runs(message, out);
    debug_assert_eq!(gathered, Ok(()), "the message was parsed to its end before");
}

fn gather_runs(message: &[u8], out: &mut Vec<f32>) -> Result<(), DatumError> {
    let mut wire = Wire::new(message);
    while !wire.is_empty() {
        let offset = wire.offset();
        match wire.key()? {
            key::FLOAT_DATA => Strided::Unpacked(wire.run(key::FLOAT_DATA)?).append_to(out),
            key::FLOAT_DATA_PACKED => Strided::Packed(wire.packed()?).append_to(out),
            other => wire.skip(other, offset)?,
        }
    }
    Ok(())
}

/// A run of floats at a fixed distance from each other, little-endian as in protobuf.
#[derive(Clone, Copy, Debug)]
pub enum Strided<'a> {
    /// One packed field, without gaps between the elements.
    Packed(&'a [[u8; 4]]),
    /// One field for each element, as Caffe writes them: the key's last byte precedes the element's four.
    Unpacked(&'a [[u8; 5]]),
}

impl Strided<'_> {
    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Strided::Packed(elements) => elements.len(),
            Strided::Unpacked(fields) => fields.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` with the elements from number `start` on.
    ///
    /// # Panics
    ///
    /// If there are fewer than `start + out.len()` elements.
    #[inline]
    pub fn copy_to(&self, start: usize, out: &mut [f32]) {
        match self {
            Strided::Packed(elements) => {
                let elements = window(elements, start, out.len());
                out.iter_mut().zip(elements).for_each(|(out, element)| *out = packed_value(element));
            }
            Strided::Unpacked(fields) => {
                let fields = window(fields, start, out.len());
                out.iter_mut().zip(fields).for_each(|(out, field)| *out = unpacked_value(field));
            }
        }
    }

    fn append_to(&self, out: &mut Vec<f32>) {
        match self {
            Strided::Packed(elements) => out.extend(elements.iter().map(packed_value)),
            Strided::Unpacked(fields) => out.extend(fields.iter().map(unpacked_value)),
        }
    }
}

fn packed_value(element: &[u8; 4]) -> f32 {
    f32::from_le_bytes(*element)
}

fn unpacked_value(&[_key, a, b, c, d]: &[u8; 5]) -> f32 {
    f32::from_le_bytes([a, b, c, d])
}

fn window<T>(elements: &[T], start: usize, len: usize) -> &[T] {
    let window = elements.get(start..).and_then(|rest| rest.get(..len));
    window.unwrap_or_else(|| panic!("{len} elements from number {start} on, of {}", elements.len()))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::super::Datum;
    use super::*;

    /// Unpacked fields of these values.
    fn unpacked(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| [&[0x35], &value.to_le_bytes()[..]].concat()).collect()
    }

    /// One packed field of these values, at most 31.
    fn packed(values: &[f32]) -> Vec<u8> {
        let elements: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        [&[0x32, u8::try_from(elements.len()).unwrap()], &elements[..]].concat()
    }

    fn gathered(floats: Floats<'_>) -> Vec<f32> {
        let mut out = vec![-1.0];
        floats.gather(&mut out);
        assert_eq!(out.remove(0), -1.0, "gather appends");
        out
    }

    #[test]
    fn a_packed_field_is_one_run() {
        let record = packed(&[1.0, 2.0, 3.0]);
        let floats = Datum::parse(&record).unwrap().floats;
        assert!(matches!(floats.strided(), Some(Strided::Packed(elements)) if elements.len() == 3));
        assert_eq!(gathered(floats), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn adjacent_unpacked_fields_are_one_run() {
        let record = [&[0x28, 1], &unpacked(&[1.0, 2.0, 3.0])[..], &[0x28, 2]].concat();
        let floats = Datum::parse(&record).unwrap().floats;
        assert!(matches!(floats.strided(), Some(Strided::Unpacked(fields)) if fields.len() == 3));
        assert_eq!(gathered(floats), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn only_the_first_key_of_a_run_may_be_padded() {
        let padded = [0xb5, 0x80, 0, 0, 0, 0x80, 0x3f];
        let record = [&padded[..], &unpacked(&[2.0])].concat();
        let floats = Datum::parse(&record).unwrap().floats;
        assert!(floats.strided().is_some());
        assert_eq!(gathered(floats), [1.0, 2.0]);

        let record = [&unpacked(&[2.0]), &padded[..]].concat();
        let floats = Datum::parse(&record).unwrap().floats;
        assert!(floats.strided().is_none());
        assert_eq!(gathered(floats), [2.0, 1.0]);
    }

    #[test]
    fn several_runs_are_gathered_in_order() {
        let record =
            [unpacked(&[1.0]), packed(&[2.0, 3.0]), vec![0x43, 0x44, 0x28, 1], unpacked(&[4.0, 5.0])]
                .concat();
        let floats = Datum::parse(&record).unwrap().floats;
        assert_eq!(floats.len(), 5);
        assert!(floats.strided().is_none());
        assert_eq!(gathered(floats), [1.0, 2.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn an_empty_packed_field_does_not_scatter() {
        let record = [packed(&[]), unpacked(&[1.0]), packed(&[])].concat();
        let floats = Datum::parse(&record).unwrap().floats;
        assert_eq!(floats.strided().map(|run| run.len()), Some(1));
    }

    #[test]
    fn a_packed_field_ends_between_elements() {
        let error = Datum::parse(&[0x28, 1, 0x32, 5, 0, 0, 0, 0, 0]).unwrap_err();
        assert_eq!(error, DatumError::PackedLength { offset: 3, found: 5, allowed: 4 });
    }

    #[test]
    fn an_unpacked_field_is_whole() {
        let error = Datum::parse(&[0x35, 0, 0, 0, 0, 0x35, 0, 0, 0]).unwrap_err();
        assert_eq!(error, DatumError::Truncated { offset: 6, wanted: 4, found: 3 });
    }

    #[test]
    fn copies_any_part_of_a_run() {
        let values = [1.0, f32::NEG_INFINITY, 3.0, 4.0];
        for record in [packed(&values), unpacked(&values)] {
            let run = Datum::parse(&record).unwrap().floats.strided().unwrap();
            for start in 0..=values.len() {
                for end in start..=values.len() {
                    let mut out = vec![0.0; end - start];
                    run.copy_to(start, &mut out);
                    assert_eq!(out, values[start..end]);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "2 elements from number 1 on, of 2")]
    fn copies_no_further_than_the_run() {
        let record = packed(&[1.0, 2.0]);
        let run = Datum::parse(&record).unwrap().floats.strided().unwrap();
        run.copy_to(1, &mut [0.0; 2]);
    }
}
