//! What can be known of a data set for little, so that another one is not taken for it: its last record, and
//! some that a seed picks.

use super::{INDEX, Identity, Passes, Source, SourceError};
use crate::base::splitmix::{SplitMix, fold};

/// How many records are looked at, at the most, beside the last one: each may be two reads from a disk.
const RECORDS: u64 = 8;

/// Tells these draws from all others of the seed.
const CLUES: u64 = 0x636c_7565;

/// The clues that a seed picks: of some records by their positions, where a walk comes to them at once;
/// otherwise of the last one alone, where the source knows the way. What cannot be read is left out: that is
/// an error of the walk's, when it comes there.
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
            tracing::debug!(source = %source.path().display(), %error, "not all records are known that a snapshot looks at");
        }),
        None => source.look_at_last(&mut |key, value| add(&mut samples, "last", key, value, None)),
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
    look("last", last)
}

fn add(samples: &mut Identity, name: &str, key: &[u8], value: &[u8], companion: Option<&[u8]>) {
    *samples = std::mem::take(samples).with_record(name, key, value, companion);
}

/// In the order of the walk. Neither the first nor the last record is among them: those are known anyhow.
fn positions(seed: u64, records: u64) -> Vec<u64> {
    let between = records.saturating_sub(2);
    let mut draws = SplitMix(fold(seed, &[CLUES, records]));
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
