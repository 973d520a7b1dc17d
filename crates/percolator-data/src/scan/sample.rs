//! A few records of a data set, read before it is scanned.

use super::chunk::{Chunk, Held, Seen};
use super::feeder::Feeder;
use super::selection::Selection;
use super::{OnDamage, Progress, ScanError};
use crate::open::DataSet;

/// How many records are read.
const RECORDS: u64 = 64;
/// Reading ends after this many bytes, because records may be long.
const BYTES_ENOUGH: u64 = 64 << 20;
/// The same for a database that has to be walked through from its first record.
const WALKED_RECORDS: u64 = 64 * RECORDS;
const WALKED_BYTES_ENOUGH: u64 = 4 * BYTES_ENOUGH;

/// Looks at the first 64 records that can be read, or at fewer if they are long.
pub(crate) fn look_at_first(
    data: &DataSet,
    progress: &Progress,
    look: impl FnMut(Seen<'_>),
) -> Result<(), ScanError> {
    Sample::new(look).walk(data, progress, RECORDS, BYTES_ENOUGH)
}

/// Looks at about 64 records spread over the data set. Of several files, it reads the first records of some
/// of them. A database that neither knows its number of records nor can seek is walked through instead, up to
/// 4096 records.
pub(crate) fn look_at_spread(
    data: &DataSet,
    progress: &Progress,
    look: impl FnMut(Seen<'_>),
) -> Result<(), ScanError> {
    let mut sample = Sample::new(look);
    match (data.sources().len() as u64, data.records()) {
        (0 | 1, Some(records)) => sample.spread(data, progress, records),
        (0 | 1, None) => sample.walk(data, progress, WALKED_RECORDS, WALKED_BYTES_ENOUGH),
        (files, _) => sample.each(data, progress, files),
    }
}

/// What was read so far.
struct Sample<L> {
    look: L,
    chunk: Chunk,
    records: u64,
    bytes: u64,
}

impl<L: FnMut(Seen<'_>)> Sample<L> {
    fn new(look: L) -> Self {
        Sample { look, chunk: Chunk::with_records(RECORDS), records: 0, bytes: 0 }
    }

    /// Looks at the records from the first one on.
    fn walk(
        &mut self,
        data: &DataSet,
        progress: &Progress,
        records: u64,
        bytes: u64,
    ) -> Result<(), ScanError> {
        let mut feeder = Feeder::new(data, Selection::All, OnDamage::GoOn);
        while self.records < records && self.bytes < bytes {
            go_on(progress)?;
            feeder.fill(&mut self.chunk)?;
            if self.chunk.is_empty() {
                break;
            }
            self.look_at_chunk();
        }
        Ok(())
    }

    /// Looks at evenly spread records.
    fn spread(&mut self, data: &DataSet, progress: &Progress, records: u64) -> Result<(), ScanError> {
        let selection = Selection::Spread { wanted: RECORDS, records };
        let mut feeder = Feeder::new(data, selection, OnDamage::GoOn);
        for place in 0..RECORDS.min(records) {
            go_on(progress)?;
            feeder.fill_range(&mut self.chunk, place..place + 1)?;
            self.look_at_chunk();
            if self.bytes >= BYTES_ENOUGH {
                break;
            }
        }
        Ok(())
    }

    /// Looks at the first records of evenly spread files.
    fn each(&mut self, data: &DataSet, progress: &Progress, files: u64) -> Result<(), ScanError> {
        let selection = Selection::Spread { wanted: RECORDS, records: files };
        let of_each = RECORDS.div_ceil(files);
        for file in (0..).map_while(|place| selection.position(place)) {
            let Some(file) = usize::try_from(file).ok().and_then(|file| data.only(file)) else { break };
            go_on(progress)?;
            let mut feeder = Feeder::new(&file, Selection::All, OnDamage::GoOn);
            feeder.fill_range(&mut self.chunk, 0..of_each)?;
            self.look_at_chunk();
            if self.bytes >= BYTES_ENOUGH {
                break;
            }
        }
        Ok(())
    }

    fn look_at_chunk(&mut self) {
        for held in self.chunk.held() {
            if let Held::Record(seen) = held {
                (self.look)(seen);
            }
        }
        self.records += self.chunk.records();
        self.bytes += self.chunk.bytes();
    }
}

fn go_on(progress: &Progress) -> Result<(), ScanError> {
    if progress.is_stopped() { Err(ScanError::Stopped) } else { Ok(()) }
}
