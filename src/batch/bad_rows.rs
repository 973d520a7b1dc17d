//! What becomes of the rows of bad records when their batch is complete.

#![expect(unsafe_code, reason = "a complete batch is written once more before anybody reads it")]

use super::layout::Count;
use super::row::part;
use super::{BatchLayout, FieldKind, Filled, Pointers};
use crate::bad::{BadAction, BadRecord};
use crate::batch::layout::Place;
use crate::transform::Cut;

impl Filled {
    /// Moves the rows after bad records up, or writes copies of good records in the places of bad ones;
    /// without a good record, it leaves out the bad ones, too. Rows that are left over are filled with zeros
    /// if the batch is padded, and otherwise do not belong to it.
    ///
    /// Ragged fields are not joined yet: each row is in its place.
    pub(super) fn settle_bad(&mut self, mut bad: Vec<BadRecord>, action: BadAction, pads: bool) {
        bad.sort_unstable_by_key(|bad| bad.row);
        match action {
            BadAction::Replace if bad.len() < self.records => self.replace(&mut bad),
            _ => self.skip(&bad, pads),
        }
        self.bad = bad;
    }

    fn skip(&mut self, bad: &[BadRecord], pads: bool) {
        let mut bad = bad.iter().map(|bad| bad.row).peekable();
        let mut to = 0;
        for row in 0..self.records {
            if bad.next_if_eq(&row).is_none() {
                self.copy_row(row, to);
                to += 1;
            }
        }
        if pads {
            (to..self.records).for_each(|row| self.clear_row(row));
        } else {
            self.rows = to;
        }
        self.records = to;
    }

    /// Writes the next good record in the place of each bad one, and the first good one after the last. There
    /// is at least one good record.
    fn replace(&mut self, bad: &mut [BadRecord]) {
        let mut good = vec![true; self.records];
        bad.iter().for_each(|bad| good[bad.row] = false);
        let Some(first) = good.iter().position(|good| *good) else { return };
        let mut next = first;
        for row in (0..self.records).rev() {
            match bad.binary_search_by_key(&row, |bad| bad.row) {
                Ok(place) => {
                    self.copy_row(next, row);
                    bad[place].replaced_by = Some(self.ids()[row]);
                }
                Err(_) => next = row,
            }
        }
    }

    /// Copies everything that one row has to another.
    fn copy_row(&mut self, from: usize, to: usize) {
        if from == to {
            return;
        }
        let layout = self.layout.clone();
        let memory = self.memory_mut();
        let mut copy = |start: usize, bytes: usize| {
            let from = start + from * bytes;
            memory.copy_within(from..from + bytes, start + to * bytes);
        };
        for (number, field) in layout.fields().iter().enumerate() {
            let &Place { values, row_bytes, counts, .. } = layout.place(number);
            copy(values, row_bytes);
            match field.kind() {
                FieldKind::Fixed(_) => {}
                FieldKind::Padded { .. } => copy(counts, size_of::<Count>()),
                // The first offset belongs to the batch.
                FieldKind::Ragged { .. } => copy(counts + size_of::<Count>(), size_of::<Count>()),
            }
        }
        if let Some((_, _, cuts)) = layout.staged(layout.rows()) {
            copy(cuts, size_of::<Cut>());
        }
        let (Pointers { ids, draws, contents, has_contents, .. }, rows) = (self.pointers, layout.rows());
        // SAFETY: `begin` found room for as many ids as the layout has rows, and `&mut self` is the only
        // access to a complete batch.
        unsafe { part(ids, 0, rows) }.copy_within(from..=from, to);
        // SAFETY: as above, for the draws.
        unsafe { part(draws, 0, rows) }.copy_within(from..=from, to);
        if has_contents {
            // SAFETY: as above, for the hashes: there is room for all of them if there are any.
            unsafe { part(contents, 0, rows) }.copy_within(from..=from, to);
        }
    }

    /// Turns a row into padding.
    fn clear_row(&mut self, row: usize) {
        let layout: &BatchLayout = &self.layout;
        // SAFETY: the pointers are those of this buffer and layout, `row` is one of the batch's, and `&mut
        // self` is the only access to a complete batch.
        unsafe { self.pointers.row(layout, row, 0) }.clear();
    }
}
