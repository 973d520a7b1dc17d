//! Logs checked against the simplest writer of them.

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
#![allow(clippy::cast_possible_truncation, reason = "what is cut off is meant to be")]

use proptest::prelude::*;

use super::*;

/// Adds a fragment of any kind.
fn fragment(log: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    let covered = [&[kind], payload].concat();
    log.extend(masked_crc32c(&covered, &[]).to_le_bytes());
    log.extend(u16::try_from(payload.len()).unwrap().to_le_bytes());
    log.extend(covered);
}

/// Adds a record as LevelDB writes it.
fn record(log: &mut Vec<u8>, mut record: &[u8]) {
    let mut is_first = true;
    loop {
        let room = BLOCK_BYTES - log.len() % BLOCK_BYTES;
        if room < HEADER_BYTES {
            log.resize(log.len() + room, 0);
            continue;
        }
        let (payload, rest) = record.split_at(record.len().min(room - HEADER_BYTES));
        let kind = match (is_first, rest.is_empty()) {
            (true, true) => FULL,
            (true, false) => FIRST,
            (false, false) => MIDDLE,
            (false, true) => LAST,
        };
        fragment(log, kind, payload);
        if rest.is_empty() {
            return;
        }
        (record, is_first) = (rest, false);
    }
}

fn written(records: &[Vec<u8>]) -> Vec<u8> {
    let mut log = Vec::new();
    records.iter().for_each(|bytes| record(&mut log, bytes));
    log
}

type Records = Vec<Vec<u8>>;

fn read(log: &[u8]) -> Result<(Records, Option<Cut>), LogError> {
    let mut reader = LogReader::new(log);
    let mut records = Vec::new();
    while let Some(pieces) = reader.next()? {
        records.push(pieces.iter().flat_map(|piece| &log[piece.clone()]).copied().collect());
    }
    Ok((records, reader.cut()))
}

fn fault(log: &[u8]) -> (usize, LogFault) {
    let error = read(log).unwrap_err();
    assert_eq!(error.block(), error.offset / BLOCK_BYTES);
    (error.offset, error.fault)
}

/// Records of all sizes relative to a block: far shorter, about as long, far longer, and ending exactly at
/// its end.
fn records() -> impl Strategy<Value = Records> {
    let near = (BLOCK_BYTES - 30)..(BLOCK_BYTES + 30);
    let length = prop_oneof![8 => 0..200_usize, 2 => near, 1 => 60_000..100_000_usize];
    let record = (length, any::<u8>()).prop_map(|(length, seed)| {
        (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
    });
    prop::collection::vec(record, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_written_is_read(records in records()) {
        prop_assert_eq!(read(&written(&records)), Ok((records, None)));
    }

    #[test]
    fn a_cut_log_is_served_up_to_the_cut(records in records(), cut in any::<prop::sample::Index>()) {
        let mut log = written(&records);
        let at = cut.index(log.len() + 1);
        let ends: Vec<usize> = (0..=records.len()).map(|count| written(&records[..count]).len()).collect();
        let intact = ends.iter().rposition(|&end| end <= at).unwrap();
        log.truncate(at);
        let (read, cut) = read(&log).unwrap();
        prop_assert_eq!(&read[..], &records[..intact]);
        // At the end of a block that has no room for a header, the zeros belong to no record.
        let room = BLOCK_BYTES - ends[intact] % BLOCK_BYTES;
        let start = if room < HEADER_BYTES { ends[intact] + room } else { ends[intact] };
        if at == ends[intact] || at == start {
            prop_assert_eq!(cut, None);
        } else {
            let cut = cut.unwrap();
            prop_assert_eq!(cut.offset + cut.dropped_bytes, at);
            prop_assert!(cut.offset == ends[intact] || cut.offset == start, "{cut:?}, {start}");
        }
    }

    #[test]
    fn a_changed_byte_is_found_or_harms_nothing(
        records in records(), at in any::<prop::sample::Index>(), change in 1..=255_u8,
    ) {
        let mut log = written(&records);
        prop_assume!(!log.is_empty());
        let at = at.index(log.len());
        log[at] ^= change;
        match read(&log) {
            Err(_) => {}
            Ok((read, None)) => prop_assert_eq!(read, records),
            // Only damage of the last record can look like a cut.
            Ok((read, Some(cut))) => {
                let last = records.len() - 1;
                prop_assert_eq!(&read[..], &records[..last]);
                prop_assert!(cut.offset <= at && cut.offset + cut.dropped_bytes == log.len());
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri minutes")]
    fn any_bytes_end(mut bytes in prop::collection::vec(any::<u8>(), 0..70_000), zeros in 0..70_000_usize) {
        bytes.resize(bytes.len() + zeros, 0);
        let _ = read(&bytes);
    }
}

/// A write to reserved space that was cut short leaves the same bytes.
#[test]
fn damage_of_a_last_record_that_ends_in_zeros_before_zeros_is_told_as_a_cut() {
    let records = [vec![7; 100], [vec![8; 50], vec![0; 50]].concat()];
    let mut log = written(&records);
    let (first, end) = (written(&records[..1]).len(), log.len());
    log[first + HEADER_BYTES + 10] ^= 1;
    assert!(matches!(fault(&log), (at, LogFault::Checksum { .. }) if at == first), "no zeros follow it");
    log.resize(end + 100, 0);
    let cut = Cut { offset: first, dropped_bytes: end + 100 - first, tail: LogTail::PartOfARecord };
    assert_eq!(read(&log), Ok((records[..1].to_vec(), Some(cut))));
}

#[test]
fn zeros_up_to_the_end_of_a_block_are_skipped_as_in_leveldb() {
    let records = vec![vec![7; 100], vec![8; 100]];
    let written = written(&records);
    let end = written.len();
    for length in [end + 1, end + 6, end + 7, end + 4096, BLOCK_BYTES, BLOCK_BYTES + 3, 3 * BLOCK_BYTES] {
        let mut log = written.clone();
        log.resize(length, 0);
        let cut = Cut { offset: end, dropped_bytes: length - end, tail: LogTail::Zeros };
        assert_eq!(read(&log), Ok((records.clone(), Some(cut))), "{length}");
        // A writer that reuses the file goes on behind them. LevelDB drops data behind them in the same
        // block.
        record(&mut log, b"more");
        if length % BLOCK_BYTES > 0 {
            assert!(read(&log).is_err(), "{length}");
            continue;
        }
        assert_eq!(read(&log), Ok(([&records[..], &[b"more".to_vec()]].concat(), None)));
        let mut reader = LogReader::new(&log);
        let zeros = [None, None, Some(end)];
        for zeros in zeros {
            assert!(reader.next().unwrap().is_some());
            assert_eq!(reader.zeros(), zeros);
        }
    }
}

#[test]
fn a_record_whose_rest_is_zeros_is_cut() {
    let tail = LogTail::PartOfARecord;
    let mut log = written(&[vec![9; 40_000]]);
    log.truncate(BLOCK_BYTES);
    log.resize(2 * BLOCK_BYTES, 0);
    assert_eq!(read(&log).unwrap().1, Some(Cut { offset: 0, dropped_bytes: log.len(), tail }));
    // With data behind the zeros, it is damage.
    record(&mut log, b"more");
    let data = 2 * BLOCK_BYTES;
    assert_eq!(fault(&log), (BLOCK_BYTES, LogFault::Zeros { data }));
    // Each length of a record in reserved space, of which the front was written.
    let first = vec![vec![3; 20]];
    let whole = written(&[vec![3; 20], vec![4; 50]]);
    let start = written(&first).len();
    for written_to in start + 1..whole.len() {
        let mut log = whole[..written_to].to_vec();
        log.resize(5000, 0);
        let cut = Cut { offset: start, dropped_bytes: 5000 - start, tail };
        assert_eq!(read(&log), Ok((first.clone(), Some(cut))), "{written_to}");
    }
    let mut log = whole.clone();
    log.resize(5000, 0);
    assert_eq!(read(&log).unwrap().0.len(), 2);
    // A changed byte is damage there as well.
    log[start + 20] ^= 1;
    assert!(matches!(fault(&log), (at, LogFault::Checksum { .. }) if at == start));
}

#[test]
fn a_length_that_hides_records_is_no_cut() {
    let records = vec![vec![1; 100], vec![2; 100], vec![3; 100]];
    let mut log = written(&records);
    let second = HEADER_BYTES + 100;
    log[second + 5] = 0x70;
    let intact = 2 * second;
    assert_eq!(fault(&log), (second, LogFault::HidesRecords { found: 0x7064, intact }));
    // A damaged length of the last record cannot be distinguished from a cut.
    log[second + 5] = 0;
    log[intact + 5] = 1;
    let (read_back, cut) = read(&log).unwrap();
    assert_eq!(read_back, records[..2]);
    assert_eq!(cut.map(|cut| (cut.offset, cut.dropped_bytes)), Some((intact, second)));
    // The same holds if no block has room for it, unless the block is complete.
    log[intact + 5] = 0xff;
    assert_eq!(read(&log).unwrap().1.map(|cut| cut.offset), Some(intact));
    log.resize(BLOCK_BYTES, 7);
    let allowed = BLOCK_BYTES - intact - HEADER_BYTES;
    assert_eq!(fault(&log), (intact, LogFault::Length { found: 0xff64, allowed }));
}

/// A cut with an intact fragment at its end; earlier bytes could start fragments too.
#[test]
#[cfg_attr(miri, ignore = "it goes through many thousands of places")]
fn a_search_for_fragments_ends() {
    // Pixel labels.
    let mut tail: Vec<u8> = (0..BLOCK_BYTES - 100).map(|at| (at / 50 % 4) as u8).collect();
    let intact = tail.len();
    fragment(&mut tail, FULL, b"intact");
    assert_eq!(find_fragment(&tail), Some(intact));
    // One possible fragment in three has 15 KiB.
    let mut tail: Vec<u8> = (0..BLOCK_BYTES - 100).map(|at| if at % 3 == 0 { 60 } else { 1 }).collect();
    let intact = tail.len();
    fragment(&mut tail, FULL, b"intact");
    let asked: usize = (1..intact)
        .filter_map(|at| header(&tail[at..]).map(|(length, kind)| (at, length, kind)))
        .filter(|&(at, length, kind)| (1..=4).contains(&kind) && at + HEADER_BYTES + length <= tail.len())
        .map(|(_, length, _)| length)
        .sum();
    assert!(asked > SEARCHED_BYTES_MAX, "{asked}");
    assert_eq!(find_fragment(&tail), None);
}

#[test]
fn a_wrong_checksum_is_damage_in_the_last_record_too() {
    let mut log = written(&[vec![1; 10], vec![2; 10]]);
    log[30] ^= 1;
    let (offset, fault) = fault(&log);
    assert_eq!(offset, 17);
    assert!(matches!(fault, LogFault::Checksum { bytes: 10, .. }), "{fault}");
}

#[test]
fn fragments_must_be_in_order() {
    let log = |fragments: &[(u8, &[u8])]| {
        let mut log = Vec::new();
        fragments.iter().for_each(|(kind, payload)| fragment(&mut log, *kind, payload));
        log
    };
    assert_eq!(fault(&log(&[(FIRST, b"a"), (FULL, b"b")])), (8, LogFault::NoEnd { unfinished: 0 }));
    assert_eq!(fault(&log(&[(FIRST, b"a"), (FIRST, b"b")])), (8, LogFault::NoEnd { unfinished: 0 }));
    assert_eq!(fault(&log(&[(FULL, b"a"), (MIDDLE, b"b")])), (8, LogFault::NoStart));
    assert_eq!(fault(&log(&[(LAST, b"a")])), (0, LogFault::NoStart));
    assert_eq!(fault(&log(&[(5, b"a")])), (0, LogFault::Kind { found: 5 }));
    assert_eq!(fault(&log(&[(0, b"a")])), (0, LogFault::Kind { found: 0 }));
    // Early versions of LevelDB left an empty start behind.
    assert_eq!(read(&log(&[(FIRST, b""), (FULL, b"a")])), Ok((vec![b"a".to_vec()], None)));
    assert_eq!(read(&log(&[(FIRST, b""), (FIRST, b"a"), (LAST, b"b")])), Ok((vec![b"ab".to_vec()], None)));
}
