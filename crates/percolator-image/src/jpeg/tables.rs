//! The Huffman tables that scans are read with. They are kept, because many files have the same ones.

use super::huffman::{Fault, LENGTHS, Meaning, Table};

/// The tables of one class, DC or AC.
#[derive(Debug, Default)]
pub(super) struct Tables([Option<Kept>; 4]);

#[derive(Debug)]
struct Kept {
    spec: Vec<u8>,
    meaning: Meaning,
    table: Box<Table>,
}

impl Tables {
    /// Sets the table at `at` to the one that `spec` describes.
    pub(super) fn set(&mut self, at: usize, spec: &[u8], meaning: Meaning) -> Result<(), Fault> {
        let kept = self.0.get_mut(at).ok_or(Fault::Table)?;
        if kept.as_ref().is_some_and(|kept| kept.spec == spec && kept.meaning == meaning) {
            return Ok(());
        }
        let table = Table::new(spec, meaning)?;
        match kept {
            Some(kept) => {
                kept.spec.clear();
                kept.spec.extend_from_slice(spec);
                (kept.meaning, *kept.table) = (meaning, table);
            }
            none => {
                // The length of the longest table.
                let mut room = Vec::with_capacity(LENGTHS + 256);
                room.extend_from_slice(spec);
                *none = Some(Kept { spec: room, meaning, table: Box::new(table) });
            }
        }
        Ok(())
    }

    /// Returns a table that was set.
    pub(super) fn get(&self, at: usize) -> Result<&Table, Fault> {
        self.0.get(at).and_then(Option::as_ref).map(|kept| &*kept.table).ok_or(Fault::Table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jpeg::bits::Bits;

    #[test]
    fn a_kept_table_gives_way_to_another() {
        let spec = |symbol| [&[1], &[0; LENGTHS - 1][..], &[symbol]].concat();
        let mut tables = Tables::default();
        assert!(tables.get(0).is_err());
        for symbol in [3, 3, 5] {
            tables.set(0, &spec(symbol), Meaning::Symbol).unwrap();
            assert_eq!(Bits::new(&[0]).symbol(tables.get(0).unwrap()), Ok(symbol));
        }
        assert!(tables.set(4, &spec(1), Meaning::Symbol).is_err());
    }
}
