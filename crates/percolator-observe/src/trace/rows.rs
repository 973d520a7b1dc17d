//! Rows for what overlaps: a viewer draws the slices of one track as nested, so those of batches that are in
//! the ring at one time need tracks of their own.

use std::time::Duration;

/// The rows of one lane, or of one device.
#[derive(Debug, Default)]
pub(super) struct Rows(Vec<Row>);

#[derive(Debug)]
struct Row {
    track: u64,
    /// When it was left; `None` while it is taken.
    free_since: Option<Duration>,
}

impl Rows {
    /// Takes the first row that is free from this moment on; `new` makes one more if there is none, given its
    /// number.
    ///
    /// Moments come from several threads, so a row may be left, by the order in which they come, before it is
    /// taken, and after that by the clock. Such a row is skipped.
    pub(super) fn take(&mut self, from: Duration, new: impl FnOnce(usize) -> u64) -> u64 {
        let is_free = |row: &&mut Row| row.free_since.is_some_and(|since| since <= from);
        if let Some(row) = self.0.iter_mut().find(is_free) {
            row.free_since = None;
            return row.track;
        }
        let track = new(self.0.len());
        self.0.push(Row { track, free_since: None });
        track
    }

    /// Leaves a row.
    pub(super) fn leave(&mut self, track: u64, at: Duration) {
        if let Some(row) = self.0.iter_mut().find(|row| row.track == track) {
            row.free_since = Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_one_row_never_overlap() {
        let mut rows = Rows::default();
        let at = Duration::from_micros;
        let new = |number: usize| 100 + number as u64;
        assert_eq!(rows.take(at(0), new), 100);
        assert_eq!(rows.take(at(1), new), 101);
        rows.leave(100, at(5));
        assert_eq!(rows.take(at(4), new), 102, "the first is free only later");
        assert_eq!(rows.take(at(5), new), 100);
        rows.leave(7, at(6));
    }
}
