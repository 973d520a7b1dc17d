//! The unpacked copy of a compressed TFRecord file.

use std::fs;
use std::sync::LazyLock;

use percolator::source::{Access, IndexPlace, Source, TfRecord};
use percolator::tfrecord::Compression;
use percolator_files::checksum::crc32c;

use crate::accepted::accepted;
use crate::files::{Folder, walk};
use crate::frames::frames;
use crate::memory::{Budget, within};
use crate::repair;

/// The compressed file: two members, with seven records.
const PACKED: &[u8] = include_bytes!("../seeds/few.gz");

/// Buffers of those that unpack and write a copy, and what is walked.
const BUDGET: Budget = Budget::mebibytes(4, 64);

const FIXED_BYTES: usize = 32;
const MEMBER_BYTES: usize = 16;
const MAGIC: &[u8] = b"PRCLunp\n";
/// The members whose ends are kept, and the end of the file.
const MEMBERS_MAX: usize = (1 << 16) + 1;

/// The copy beside a compressed file, mapped and read. One whose trailer is wrong or belongs to another file
/// is made anew, and the records are the file's own. Of any other copy, each record is the one that stands
/// there if its checksum is right, and an error if it is not: whoever forges both may choose the records.
///
/// # Panics
///
/// If a property does not hold.
pub fn unpacked(bytes: &[u8]) {
    repair::both(bytes, put_right, |copy| {
        for access in [Access::Mapped, Access::Read] {
            check(copy, access);
        }
    });
}

/// The copy that is made of the file, and its records in order.
static MADE: LazyLock<(Vec<u8>, Vec<Vec<u8>>)> = LazyLock::new(|| {
    let folder = Folder::new();
    let source = TfRecord::open(folder.with("few.gz", PACKED)).expect("it is whole");
    let records = walk(&source, PACKED.len()).records.into_iter().map(|(_, value)| value).collect();
    source.index(&IndexPlace::Beside).expect("a copy can be made");
    let copy = fs::read(folder.path().join(COPY)).expect("there is a copy");
    (copy, records)
});

const COPY: &str = "few.gz.percolator-unpacked";

fn check(copy: &[u8], access: Access) {
    let (made, records) = &*MADE;
    let folder = Folder::new();
    let (path, copy_path) = (folder.with("few.gz", PACKED), folder.with(COPY, copy));
    let source = TfRecord::options().access(access).compression(Compression::Gzip).open(path);
    let source = source.expect("any file can be opened");
    let indexed = within(copy, BUDGET, || source.index(&IndexPlace::Beside));
    let there = fs::read(copy_path).expect("there is a copy");
    match records_bytes(copy).map(|bytes| frames(&copy[..bytes])) {
        None => {
            indexed.expect("a copy that is wrong is no obstacle");
            assert!(there == *made, "a copy that is wrong has not been made anew");
            let records: Vec<_> = records.iter().map(|record| Some(&record[..])).collect();
            within(copy, BUDGET, || check_records(&source, &records));
        }
        Some(frames) => {
            assert!(there == copy, "a copy that belongs to the file has been changed");
            let is_whole = frames.rest.is_empty();
            assert_eq!(indexed.is_ok(), is_whole, "{indexed:?}");
            if is_whole {
                accepted();
                within(copy, BUDGET, || check_records(&source, &frames.records));
            }
        }
    }
}

/// Reads each position, and one behind the last. `None` is a record with a wrong checksum.
fn check_records(source: &dyn Source, records: &[Option<&[u8]>]) {
    assert_eq!(source.records(), Some(records.len() as u64));
    let mut cursor = source.cursor().expect("it has been indexed");
    for (position, due) in records.iter().enumerate().rev() {
        let sought = cursor.seek(position as u64);
        let read = sought.and_then(|()| Ok(cursor.advance()?.map(|entry| entry.value().to_vec())));
        match due {
            Some(due) => assert_eq!(read.expect("its checksum is right").as_deref(), Some(*due)),
            None => assert!(read.is_err(), "record {position} has a wrong checksum, and is {read:?}"),
        }
    }
    cursor.seek(records.len() as u64).expect("behind the last record is the end");
    assert!(cursor.advance().expect("the end is no error").is_none(), "there is one more record");
}

/// How many bytes of records a copy has; `None` if it is no copy of the file.
fn records_bytes(copy: &[u8]) -> Option<usize> {
    let (bytes, members) = parts(copy)?;
    let (summed, end) = copy.split_at(copy.len() - 12);
    let is_sealed = end[..4] == crc32c(&summed[bytes..]).to_le_bytes() && end[4..] == *MAGIC;
    let is_ours = summed[bytes + members * MEMBER_BYTES..][..8] == (PACKED.len() as u64).to_le_bytes();
    let mut ends = copy[bytes..].chunks(MEMBER_BYTES).take(members);
    let all = ends.all(|member| tail_at(member).is_some_and(|tail| member[8..] == tail));
    (is_sealed && is_ours && all).then_some(bytes)
}

/// The bytes of records and the number of members that a trailer states, if they add up.
fn parts(copy: &[u8]) -> Option<(usize, usize)> {
    let fixed = copy.last_chunk::<FIXED_BYTES>()?;
    let bytes = usize::try_from(u64::from_le_bytes(*fixed[8..].first_chunk()?)).ok()?;
    let members = u32::from_le_bytes(*fixed[16..].first_chunk()?) as usize;
    let trailer = copy.len() - FIXED_BYTES;
    (members <= MEMBERS_MAX && bytes.checked_add(members * MEMBER_BYTES) == Some(trailer))
        .then_some((bytes, members))
}

/// The bytes of the file where a member ends.
fn tail_at(member: &[u8]) -> Option<[u8; 8]> {
    let end = usize::try_from(u64::from_le_bytes(*member.first_chunk()?)).ok()?;
    let before = PACKED.get(..end)?;
    Some(before.last_chunk().copied().unwrap_or_default())
}

/// Puts right the checksums of the records and what says whose copy it is.
fn put_right(copy: &mut [u8]) {
    let Some(trailer) = copy.len().checked_sub(FIXED_BYTES) else { return };
    // Whatever number of members is stated, as long as there is room for them.
    let stated = u32::from_le_bytes(*copy[trailer + 16..].first_chunk().expect("four bytes")) as usize;
    let members = if stated <= MEMBERS_MAX.min(trailer / MEMBER_BYTES) { stated } else { 0 };
    let bytes = trailer - members * MEMBER_BYTES;
    repair::tfrecord(&mut copy[..bytes]);
    for member in copy[bytes..trailer].chunks_mut(MEMBER_BYTES) {
        if let Some(tail) = tail_at(member) {
            member[8..].copy_from_slice(&tail);
        }
    }
    copy[trailer..][..8].copy_from_slice(&(PACKED.len() as u64).to_le_bytes());
    copy[trailer + 8..][..8].copy_from_slice(&(bytes as u64).to_le_bytes());
    copy[trailer + 16..][..4].copy_from_slice(&u32::try_from(members).unwrap_or_default().to_le_bytes());
    let sum = crc32c(&copy[bytes..trailer + 20]);
    copy[trailer + 20..][..4].copy_from_slice(&sum.to_le_bytes());
    copy[trailer + 24..].copy_from_slice(MAGIC);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_right_and_stays_as_it_is() {
        let (made, records) = &*MADE;
        let mut repaired = made.clone();
        put_right(&mut repaired);
        assert_eq!(&repaired, made);
        let frames = frames(&made[..records_bytes(made).expect("it is a copy of the file")]);
        assert!(
            frames.rest.is_empty() && frames.records.iter().flatten().eq(records),
            "it has other records"
        );
        assert_eq!(made[..], *include_bytes!("../corpus/unpacked/whole"));
    }
}
