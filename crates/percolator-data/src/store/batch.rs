//! Records that wait to be written together.

use std::ops::Range;

/// Records in the order in which they came. The buffers are kept from batch to batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    records: Vec<Place>,
}

/// Where a record's key and value are.
#[derive(Clone, Debug)]
struct Place {
    key: Range<usize>,
    value: Range<usize>,
}

impl Batch {
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.records.push(Place { key: start..middle, value: middle..self.bytes.len() });
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The memory that its records take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() + self.records.len() * size_of::<Place>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records in the order in which they came.
    pub(super) fn records(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.records.iter().map(|place| self.record(place))
    }

    /// The last record of each key, in key order.
    pub(super) fn sorted(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut records: Vec<_> = self.records().collect();
        // The order of equal keys stays: the last one is the newest.
        records.sort_by_key(|(key, _)| *key);
        let keys: Vec<&[u8]> = records.iter().map(|(key, _)| *key).collect();
        let is_last = move |number: usize| keys.get(number + 1) != keys.get(number);
        records.into_iter().enumerate().filter(move |(number, _)| is_last(*number)).map(|(_, record)| record)
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    fn record(&self, place: &Place) -> (&[u8], &[u8]) {
        (&self.bytes[place.key.clone()], &self.bytes[place.value.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_record_of_a_key_stays() {
        let mut batch = Batch::default();
        for (key, value) in [("b", "1"), ("a", "2"), ("b", "3"), ("", "4"), ("a", "5"), ("b", "6")] {
            batch.push(key.as_bytes(), value.as_bytes());
        }
        let sorted: Vec<_> = batch.sorted().collect();
        assert_eq!(sorted, [(&b""[..], &b"4"[..]), (b"a", b"5"), (b"b", b"6")]);
        assert_eq!(batch.records().count(), 6);
        batch.clear();
        assert!(batch.is_empty() && batch.sorted().next().is_none());
    }
}
