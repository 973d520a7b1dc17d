//! The index of a file's records: the byte where each record starts. For a compressed file these count
//! unpacked bytes, and only their number is used.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::sync::Arc;

use percolator_files::shown;
use percolator_tfrecord::{PackedWalk, PlainFile, PlainWalk, RecordFile};

use super::TfRecord;
use crate::source::SourceError;
use crate::source::index::{Damage, IndexPlace, Kind, RecordIndex, Subject};

/// An index, and the file that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Indexed {
    /// The place that was requested.
    place: IndexPlace,
    pub(super) index: Arc<RecordIndex>,
    pub(super) plain: Arc<PlainFile>,
}

impl Indexed {
    /// Where the record at a position starts and ends; `None` past the last one.
    pub(super) fn place(&self, position: u64) -> Result<Option<(u64, u64)>, Damage> {
        let Some([start]) = self.index.place(position)? else { return Ok(None) };
        let next = self.index.place(position.saturating_add(1))?;
        Ok(Some((start, next.map_or(self.plain.state().bytes, |[next]| next))))
    }
}

impl TfRecord {
    pub(super) fn make_seekable(&self, place: &IndexPlace) -> Result<(), SourceError> {
        let mut indexed = self.indexed.lock();
        if indexed.as_ref().is_some_and(|indexed| indexed.place == *place) {
            return Ok(());
        }
        let plain = self.file.plain()?;
        let subject = self.subject(place);
        let found = RecordIndex::find(&subject).filter(|index| match why_unfit(index, plain) {
            None => true,
            Some(why) => {
                let path = shown::path(&self.path);
                tracing::warn!(%path, why, "a record index cannot be used: rebuilding it");
                false
            }
        });
        let index = match found {
            Some(index) => index,
            None => RecordIndex::keep(&subject, PlainWalk::scan(plain)?),
        };
        self.learn(index.records())?;
        *indexed = Some(Indexed { place: place.clone(), index: Arc::new(index), plain: plain.clone() });
        Ok(())
    }

    /// Counts the records, and makes those of a plain file seekable as well.
    pub(super) fn count_records(&self, place: &IndexPlace) -> Result<(), SourceError> {
        let RecordFile::Packed(packed) = &self.file else { return self.make_seekable(place) };
        if self.records.get().is_some() {
            return Ok(());
        }
        let subject = self.subject(place);
        let records = match RecordIndex::find(&subject) {
            Some(index) => index.records(),
            None => RecordIndex::keep(&subject, PackedWalk::scan(packed)?).records(),
        };
        self.learn(records)
    }

    /// Rebuilds an index that cannot be used.
    #[cold]
    pub(super) fn rebuild_index(&self, wrong: &Indexed, why: &str) -> Result<Indexed, SourceError> {
        let path = shown::path(&self.path);
        tracing::warn!(%path, why, "the record index cannot be used: rebuilding it");
        let mut indexed = self.indexed.lock();
        if let Some(anew) = indexed.as_ref().filter(|anew| !Arc::ptr_eq(&anew.index, &wrong.index)) {
            return Ok(anew.clone());
        }
        let index = RecordIndex::keep(&self.subject(&wrong.place), PlainWalk::scan(&wrong.plain)?);
        self.learn(index.records())?;
        let anew = Indexed { index: Arc::new(index), ..wrong.clone() };
        *indexed = Some(anew.clone());
        Ok(anew)
    }

    fn subject<'a>(&'a self, place: &'a IndexPlace) -> Subject<'a> {
        let file = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        Subject { kind: Kind::TfRecord, database: file.into(), identity: self.facts.clone(), place }
    }

    /// Stores the number of records. The first number stays, because plans depend on it; another one is an
    /// error.
    pub(super) fn learn(&self, records: u64) -> Result<(), SourceError> {
        let known = *self.records.get_or_init(|| records);
        if known == records {
            return Ok(());
        }
        Err(SourceError::Broken {
            path: self.path.clone(),
            index: records.min(known),
            message: format!(
                "expected {known} records, but the file has {records}; read it again, and if that does not \
                 help, remove its record index"
            ),
        })
    }
}

/// Why an index does not belong to this file, or cannot be read. Checks that its first record is the file's
/// first, which no seek looks up, and its last one the last. Every record that is read by the index is
/// checked in the same way.
fn why_unfit(index: &RecordIndex, plain: &Arc<PlainFile>) -> Option<String> {
    let unfit = || Some("its first or last record is not the file's".to_owned());
    let last = match index.records().checked_sub(1).map(|last| index.place(last)) {
        None => return if plain.state().bytes == 0 { None } else { unfit() },
        Some(Ok(Some([last]))) => last,
        Some(Ok(None)) => return unfit(),
        Some(Err(damage)) => return Some(damage.to_string()),
    };
    match index.place(0) {
        Ok(Some([0])) => {}
        Ok(_) => return unfit(),
        Err(damage) => return Some(damage.to_string()),
    }
    let mut walk = PlainWalk::new(plain, 0);
    walk.jump(0, (last, plain.state().bytes));
    let map = plain.map().cloned();
    match walk.step(map.as_deref()) {
        Ok(Some(_)) if walk.offset() == plain.state().bytes => None,
        Ok(_) => unfit(),
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(all(test, not(shuttle)))]
#[allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::decoder::RawBytes;
    use crate::feed::Feed;
    use crate::order::Shuffle;
    use crate::source::tfrecord::{Compression, TfRecordWriter};
    use crate::source::{Joined, Source};

    const RECORDS: u64 = 360;

    /// The number of records that a feed delivers, and the error that it ends with.
    fn fed(source: impl Source + 'static, shuffle: Shuffle, seed: u64) -> (usize, Option<String>) {
        let feed = Feed::builder().source(source).decoder(RawBytes::up_to(8)).batch_size(8);
        let mut records = 0;
        for batch in feed.shuffle(shuffle).seed(seed).epochs(1).build().unwrap() {
            match batch {
                Ok(batch) => records += batch.len(),
                Err(error) => return (records, Some(error.to_string())),
            }
        }
        (records, None)
    }

    /// The indexes have right checksums, and the facts of their file.
    #[test]
    #[cfg_attr(miri, ignore = "needs the system's files")]
    fn an_index_without_some_of_its_files_records_hides_none_of_them() {
        for compression in [Compression::Plain, Compression::Gzip] {
            for left_out in [0..60, 100..160, 300..360] {
                let folder = tempfile::tempdir().unwrap();
                let [path, whole] = ["file.tfrecord", "whole.tfrecord"].map(|name| folder.path().join(name));
                for path in [&path, &whole] {
                    let mut writer = TfRecordWriter::create(path, compression).unwrap();
                    (0..RECORDS).for_each(|number| writer.write(&number.to_le_bytes()).unwrap());
                    writer.finish().unwrap();
                }
                let open = || TfRecord::open(&path).unwrap();
                let forge = || {
                    let places = (0..RECORDS).filter(|number| !left_out.contains(number));
                    let places = places.map(|number| number * 24).collect();
                    RecordIndex::keep(&open().subject(&IndexPlace::Beside), places);
                };
                for shuffle in [Shuffle::No, Shuffle::Files, Shuffle::Global] {
                    if shuffle == Shuffle::Global && compression != Compression::Plain {
                        continue;
                    }
                    forge();
                    let (records, error) = fed(open(), shuffle, 0);
                    let is_told = records == 360 || error.is_some();
                    assert!(is_told, "{compression:?} without {left_out:?}, {shuffle:?}: {records}");
                }
                for seed in 0..4 {
                    forge();
                    let joined = Joined::new(open()).and(TfRecord::open(&whole).unwrap());
                    let (records, error) = fed(joined, Shuffle::Files, seed);
                    let is_told = records == 720 || error.is_some();
                    assert!(is_told, "{compression:?} without {left_out:?}, seed {seed}: {records}");
                }
            }
        }
    }
}
