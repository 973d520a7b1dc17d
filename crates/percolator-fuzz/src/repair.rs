//! Right checksums in changed bytes.
//!
//! Whoever makes a hostile file makes its checksums too. A fuzzer does not: of what it changes, a checksum
//! lets nothing through. So the bodies try each input twice, as it is and repaired.

use percolator_files::checksum::{crc32c, masked_crc32c};
use percolator_leveldb::coding::{Coded, fixed32, fixed64};

/// Calls `body` with the bytes, and with what `repair` makes of them if that differs.
pub(crate) fn both(bytes: &[u8], repair: impl FnOnce(&mut [u8]), mut body: impl FnMut(&[u8])) {
    body(bytes);
    let mut repaired = bytes.to_vec();
    repair(&mut repaired);
    if repaired != bytes {
        body(&repaired);
    }
}

/// A sorted table: the checksums of the blocks that the footer and an uncompressed index name.
pub(crate) fn table(file: &mut [u8]) {
    let _ = table_blocks(file);
}

fn table_blocks(file: &mut [u8]) -> Option<()> {
    const FOOTER_BYTES: usize = 48;
    let mut footer = Coded::new(file.get(file.len().checked_sub(FOOTER_BYTES)?..)?);
    let _filters = (footer.varint64()?, footer.varint64()?);
    let index = block(file, footer.varint64()?, footer.varint64()?)?.to_vec();
    // Its entries, up to the restart points, whose number is at its end.
    let restarts = fixed32(&index, index.len().checked_sub(4)?)? as usize;
    let end = index.len().checked_sub(restarts.checked_add(1)?.checked_mul(4)?)?;
    let mut at = 0;
    while at < end {
        let mut entry = Coded::new(index.get(at..end)?);
        let (_shared, key, value) = (entry.varint32()?, entry.varint32()?, entry.varint32()?);
        let handle_at = at.checked_add(entry.offset())?.checked_add(key as usize)?;
        at = handle_at.checked_add(value as usize)?;
        let mut handle = Coded::new(index.get(handle_at..at)?);
        if let (Some(offset), Some(bytes)) = (handle.varint64(), handle.varint64()) {
            let _ = block(file, offset, bytes);
        }
    }
    Some(())
}

/// Gives a block its checksum, and returns its bytes.
fn block(file: &mut [u8], offset: u64, bytes: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let kind = start.checked_add(usize::try_from(bytes).ok()?)?;
    let sum = masked_crc32c(file.get(start..=kind)?, &[]);
    file.get_mut(kind.checked_add(1)?..)?.first_chunk_mut::<4>().map(|at| *at = sum.to_le_bytes())?;
    file.get(start..kind)
}

/// A LevelDB's log or MANIFEST: the checksum of each fragment, as far as the lengths lead.
pub(crate) fn log(file: &mut [u8]) {
    const BLOCK_BYTES: usize = 32_768;
    const HEADER_BYTES: usize = 7;
    for block in file.chunks_mut(BLOCK_BYTES) {
        let mut at = 0;
        while let Some([_, _, _, _, low, high, _]) = block.get(at..).and_then(|rest| rest.first_chunk()) {
            let end = at + HEADER_BYTES + usize::from(u16::from_le_bytes([*low, *high]));
            let Some(covered) = block.get(at + 6..end) else { break };
            let sum = masked_crc32c(covered, &[]).to_le_bytes();
            block[at..at + 4].copy_from_slice(&sum);
            at = end;
        }
    }
}

/// A TFRecord file: the checksums of lengths and data, as far as the lengths lead.
pub(crate) fn tfrecord(file: &mut [u8]) {
    let mut at = 0;
    while let Some(head) = file.get(at..).and_then(|rest| rest.get(..8)) {
        let (length, sum) = (fixed64(head, 0).unwrap_or_default(), masked_crc32c(head, &[]));
        if let Some(stored) = file.get_mut(at + 8..).and_then(|rest| rest.first_chunk_mut()) {
            *stored = sum.to_le_bytes();
        }
        let data = at + 12;
        let Some(end) = usize::try_from(length).ok().and_then(|length| data.checked_add(length)) else {
            return;
        };
        let Some(sum) = file.get(data..end).map(|data| masked_crc32c(data, &[])) else { return };
        let Some(stored) = file.get_mut(end..).and_then(|rest| rest.first_chunk_mut()) else { return };
        *stored = sum.to_le_bytes();
        at = end + 4;
    }
}

/// A snapshot, receipt or digest: its last line. Returns what is to be parsed.
pub(crate) fn text(text: &str) -> String {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let end = match body.rfind('\n') {
        Some(end) if body[end + 1..].starts_with("checksum ") => end + 1,
        _ => body.len(),
    };
    let body = &text[..end];
    format!("{body}checksum {:08x}\n", crc32c(body.as_bytes()))
}

/// The sidecar of an index: the checksums of its parts, and of its head.
pub(crate) fn sidecar(file: &mut [u8]) {
    const FIXED_BYTES: usize = 36;
    const PART_BYTES: usize = 64 << 10;
    // The file's length, too: it is one more way to be found out.
    let length = file.len() as u64;
    let (Some(stated), true) = (file.get_mut(16..24), length >= FIXED_BYTES as u64) else { return };
    stated.copy_from_slice(&length.to_le_bytes());
    let numbers = fixed64(file, 24).unwrap_or_default();
    let identity = fixed32(file, 32).unwrap_or_default() as usize;
    let places = numbers.checked_mul(8).and_then(|bytes| length.checked_sub(bytes));
    let Some(places_at) = places.and_then(|at| usize::try_from(at).ok()) else { return };
    let sums: Vec<_> = file[places_at..].chunks(PART_BYTES).map(crc32c).collect();
    let first = FIXED_BYTES + identity;
    for (part, sum) in sums.iter().enumerate() {
        let at = first + part * 4;
        if at + 4 <= places_at.saturating_sub(4) {
            file[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
    if let Some(head) = places_at.checked_sub(4) {
        let sum = crc32c(&file[..head]);
        file[head..places_at].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A PNG: the checksum of each chunk, as far as the lengths lead.
pub(crate) fn png(file: &mut [u8]) {
    let mut at = 8;
    while let Some(length) = file.get(at..).and_then(|rest| rest.first_chunk()) {
        let length = u32::from_be_bytes(*length) as usize;
        let (kind, end) = (at + 4, at + 8 + length);
        let Some(covered) = file.get(kind..end) else { return };
        let mut crc = flate2::Crc::new();
        crc.update(covered);
        let Some(stored) = file.get_mut(end..).and_then(|rest| rest.first_chunk_mut()) else { return };
        *stored = crc.sum().to_be_bytes();
        at = end + 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_right_checksums_stays_as_it_is() {
        for (repair, file) in [
            (table as fn(&mut [u8]), &include_bytes!("../../../tests/data/leveldb/snappy/000005.ldb")[..]),
            (log, include_bytes!("../../../tests/data/leveldb/killed/000006.log")),
            (tfrecord, include_bytes!("../../../tests/data/tensorflow/examples.tfrecord")),
            (png, include_bytes!("../../../tests/data/images/rgba_8.png")),
        ] {
            let mut repaired = file.to_vec();
            repair(&mut repaired);
            assert!(repaired == file, "{} bytes", file.len());
        }
    }
}
