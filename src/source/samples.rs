//! Samples that identify a data set cheaply, so that another one is not mistaken for it: the last record, and
//! some records that a seed picks.

use super::{INDEX, Identity, LAST, Passes, Source, SourceError};
use crate::base::splitmix::{SplitMix, fold};
use percolator_files::shown;

/// The most records sampled besides the last one: each may take two disk reads.
const RECORDS: u64 = 8;

/// Separates these draws from all others of the seed.
const SAMPLES: u64 = 0x636c_7565;

/// The samples that a seed picks: some records by position if the source is seekable; otherwise only the last
/// one, if the source reaches it directly. A record that cannot be read is left out: a cursor reports that
/// error when it gets there.
pub(crate) fn look(source: &dyn Source, seed: u64) -> Identity {
    let mut samples = match source.index_checksum() {
        Some(checksum) => Identity::new().with_sample(INDEX, format_args!("checksum {checksum:08x}")),
        None => Identity::new(),
    };
    if source.passes() != Passes::Alike {
        return samples;
    }
    match source.records().filter(|_| source.is_seekable()) {
        Some(records) => add_records(&mut samples, source, seed, records).unwrap_or_else(|error| {
            let source = shown::path(source.path());
            tracing::debug!(%source, %error, "some of the records that a snapshot samples cannot be read");
        }),
        None => source.look_at_last(&mut |key, value| add(&mut samples, LAST, key, value, None)),
    }
    samples
}

fn add_records(
    samples: &mut Identity,
    source: &dyn Source,
    seed: u64,
    records: u64,
) -> Result<(), SourceError> {
    let Some(last) = records.checked_sub(1) else { return Ok(()) };
    let mut cursor = source.cursor()?;
    let mut look = |name: &str, position| -> Result<(), SourceError> {
        cursor.seek(position)?;
        if let Some(entry) = cursor.advance()? {
            add(samples, name, entry.key(), entry.value(), entry.companion());
        }
        Ok(())
    };
    for position in positions(seed, records) {
        look(&format!("at-{position}"), position)?;
    }
    look(LAST, last)
}

fn add(samples: &mut Identity, name: &str, key: &[u8], value: &[u8], companion: Option<&[u8]>) {
    *samples = std::mem::take(samples).with_record(name, key, value, companion);
}

/// Sorted. The first and the last record are excluded, because they are sampled anyway.
fn positions(seed: u64, records: u64) -> Vec<u64> {
    let between = records.saturating_sub(2);
    let mut draws = SplitMix(fold(seed, &[SAMPLES, records]));
    let mut position = || {
        let high = (u128::from(draws.next()) * u128::from(between)) >> 64;
        u64::try_from(high).expect("less than as many") + 1
    };
    let mut positions: Vec<u64> = (0..RECORDS.min(between)).map(|_| position()).collect();
    positions.sort_unstable();
    positions.dedup();
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_between_the_first_and_the_last_and_the_seeds_own() {
        for records in 0..40 {
            for seed in 0..20 {
                let positions = positions(seed, records);
                assert!(positions.iter().all(|&at| 0 < at && at + 1 < records), "{positions:?} of {records}");
                assert!(positions.is_sorted_by(|one, next| one < next));
                assert!(!positions.is_empty() || records < 3);
            }
        }
        assert_eq!(positions(7, 1_000_000), positions(7, 1_000_000));
        assert_ne!(positions(7, 1_000_000), positions(8, 1_000_000));
        assert_eq!(positions(7, u64::MAX).len(), 8);
    }
}
