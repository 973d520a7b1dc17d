//! Undoes what filters did to a chunk.

use flate2::{Decompress, FlushDecompress, Status};

/// A filter that is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Deflate,
    Shuffle,
    Fletcher32,
    Lzf,
    /// Any other, which some chunks may have skipped.
    Other(u16),
}

impl Filter {
    pub(super) fn of(id: u16) -> Self {
        match id {
            1 => Filter::Deflate,
            2 => Filter::Shuffle,
            3 => Filter::Fletcher32,
            32000 => Filter::Lzf,
            other => Filter::Other(other),
        }
    }

    /// Its name, for messages.
    pub(super) fn name(self) -> String {
        let id = match self {
            Filter::Deflate => return "gzip".to_owned(),
            Filter::Shuffle => return "shuffle".to_owned(),
            Filter::Fletcher32 => return "Fletcher-32".to_owned(),
            Filter::Lzf => return "LZF".to_owned(),
            Filter::Other(id) => id,
        };
        let known = match id {
            4 => "szip",
            5 => "n-bit",
            6 => "scale-offset",
            32001 => "Blosc",
            32004 => "LZ4",
            32008 => "bitshuffle",
            32013 => "ZFP",
            32015 => "Zstd",
            32026 => "Blosc2",
            _ => return format!("the filter {id}"),
        };
        format!("{known} (the filter {id})")
    }
}

/// The filters that were applied to a chunk, first to last: those that its mask does not skip.
pub(super) fn applied(filters: &[Filter], mask: u32) -> impl DoubleEndedIterator<Item = Filter> {
    let skips =
        move |index: usize| u32::try_from(index).is_ok_and(|bit| mask.checked_shr(bit).unwrap_or(0) & 1 == 1);
    filters.iter().copied().enumerate().filter(move |(index, _)| !skips(*index)).map(|(_, filter)| filter)
}

/// Undoes filters, the last one first, which gives `bytes` bytes.
pub(super) fn undo(
    filters: impl DoubleEndedIterator<Item = Filter>,
    stored: &[u8],
    element_bytes: usize,
    bytes: usize,
) -> Result<Vec<u8>, String> {
    // A filter before may have made the chunk longer.
    let most = bytes.saturating_add(bytes / 8).saturating_add(1 << 10);
    let mut undone: Option<Vec<u8>> = None;
    for filter in filters.rev() {
        let input = undone.as_deref().unwrap_or(stored);
        undone = Some(match filter {
            Filter::Deflate => inflated(input, most)?,
            Filter::Shuffle => unshuffled(input, element_bytes),
            Filter::Fletcher32 => verified(input)?,
            Filter::Lzf => unpacked(input, most).ok_or("its LZF data are damaged")?,
            Filter::Other(_) => return Err(format!("it has {}, which is not read", filter.name())),
        });
    }
    let undone = undone.unwrap_or_else(|| stored.to_vec());
    if undone.len() == bytes {
        return Ok(undone);
    }
    Err(format!("it has {bytes} bytes, and {} are unpacked", undone.len()))
}

/// Unpacks a zlib stream, and verifies its checksum.
fn inflated(input: &[u8], most: usize) -> Result<Vec<u8>, String> {
    /// Enough for what most chunks unpack to at first.
    const FIRST_BYTES: usize = 1 << 16;

    let mut inflater = Decompress::new(true);
    let mut output = Vec::with_capacity(most.min(input.len().saturating_mul(4).max(FIRST_BYTES)));
    loop {
        let taken = usize::try_from(inflater.total_in()).unwrap_or(usize::MAX);
        let (before, rest) = (output.len(), input.get(taken..).unwrap_or_default());
        let status = inflater.decompress_vec(rest, &mut output, FlushDecompress::None);
        match status.map_err(|error| format!("it cannot be inflated, or has a checksum mismatch: {error}"))? {
            Status::StreamEnd => return Ok(output),
            _ if output.len() >= most => return Err("it inflates to more than a chunk has".to_owned()),
            _ if output.len() == output.capacity() => {
                output.reserve(output.len().min(most.saturating_sub(output.len())).max(1));
            }
            _ => {
                let consumed = usize::try_from(inflater.total_in()).unwrap_or(usize::MAX) > taken;
                if !consumed && output.len() == before {
                    return Err("it cannot be inflated: the stream is cut".to_owned());
                }
            }
        }
    }
}

/// Puts the bytes of each element beside one another again. What is left behind the last element lies as it
/// is.
fn unshuffled(input: &[u8], element_bytes: usize) -> Vec<u8> {
    let elements = input.len().checked_div(element_bytes).unwrap_or_default();
    if element_bytes < 2 || elements < 2 {
        return input.to_vec();
    }
    let mut output = input.to_vec();
    for (at, plane) in input.chunks_exact(elements).take(element_bytes).enumerate() {
        let places = output.iter_mut().skip(at).step_by(element_bytes);
        places.zip(plane).for_each(|(place, byte)| *place = *byte);
    }
    output
}

/// Takes the checksum off the end, and verifies it.
fn verified(input: &[u8]) -> Result<Vec<u8>, String> {
    let (data, sum) = input.split_last_chunk::<4>().ok_or("it is shorter than its Fletcher-32 checksum")?;
    let (found, [a, b, c, d]) = (fletcher32(data), *sum);
    // Old versions of HDF5 swapped the bytes on machines with the other end first.
    if found == u32::from_le_bytes(*sum) || found == u32::from_le_bytes([b, a, d, c]) {
        return Ok(data.to_vec());
    }
    let stored = u32::from_le_bytes(*sum);
    Err(format!("checksum mismatch: Fletcher-32 is {found:08x}, and {stored:08x} is stored"))
}

fn fletcher32(data: &[u8]) -> u32 {
    /// So many words cannot make a sum overflow.
    const WORDS: usize = 360;

    let folded = |sum: u32| (sum & 0xffff).saturating_add(sum >> 16);
    let (mut one, mut two) = (0_u32, 0_u32);
    for block in data.chunks(WORDS * 2) {
        for pair in block.chunks(2) {
            let [high, low] = [pair.first().copied(), pair.get(1).copied()].map(Option::unwrap_or_default);
            one = one.saturating_add(u32::from(u16::from_be_bytes([high, low])));
            two = two.saturating_add(one);
        }
        (one, two) = (folded(one), folded(two));
    }
    (folded(two) << 16) | folded(one)
}

/// Unpacks LZF, as h5py's filter packs.
fn unpacked(input: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut output = Vec::with_capacity(most.min(input.len().saturating_mul(4)));
    let mut rest = input;
    while let Some((&control, after)) = rest.split_first() {
        let length = usize::from(control >> 5);
        if length == 0 {
            let (literal, after) = after.split_at_checked(usize::from(control).checked_add(1)?)?;
            output.extend_from_slice(literal);
            rest = after;
        } else {
            let (more, after) = if length == 7 { after.split_first()? } else { (&0, after) };
            let (&low, after) = after.split_first()?;
            let length = length.checked_add(usize::from(*more))?.checked_add(2)?;
            let back = usize::from(u16::from_be_bytes([control & 0x1f, low])).checked_add(1)?;
            let mut from = output.len().checked_sub(back)?;
            // What is copied may reach into what it makes.
            for _ in 0..length {
                output.push(*output.get(from)?);
                from = from.checked_add(1)?;
            }
            rest = after;
        }
        if output.len() > most {
            return None;
        }
    }
    Some(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_hdf5() {
        // As h5py writes the chunk 1, 2, 3.
        assert_eq!(fletcher32(&[1, 2, 3]), 0x0504_0402);
        assert!(verified(&[1, 2, 3, 0x02, 0x04, 0x04, 0x05]).is_ok_and(|data| data == [1, 2, 3]));
        assert!(verified(&[1, 2, 3, 0x04, 0x02, 0x05, 0x04]).is_ok(), "swapped");
        assert!(verified(&[1, 2, 3, 0x02, 0x04, 0x04, 0x06]).unwrap_err().contains("checksum mismatch"));
        assert!(verified(&[1, 2, 3]).is_err());
    }

    #[test]
    fn lzf_copies_what_it_makes() {
        assert_eq!(unpacked(&[0, b'a', 0x20, 0], 100).unwrap(), b"aaaa");
        assert_eq!(unpacked(&[1, b'a', b'b', 0xe0, 1, 1], 100).unwrap(), b"ab".repeat(6));
        for wrong in
            [&[5, b'a'][..], &[0x20, 0], &[0, b'a', 0x20, 1], &[0, b'a', 0xe0], &[0, b'a', 0xe0, 255, 0]]
        {
            assert!(unpacked(wrong, 100).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn shuffling_is_undone_in_whole_elements() {
        assert_eq!(unshuffled(&[1, 3, 5, 2, 4, 6, 9], 2), [1, 2, 3, 4, 5, 6, 9]);
        assert_eq!(unshuffled(&[1, 2, 3], 1), [1, 2, 3]);
        assert_eq!(unshuffled(&[], 4), [0; 0]);
    }

    #[test]
    fn filters_are_skipped_by_their_bits() {
        let filters = [Filter::Shuffle, Filter::Lzf];
        assert_eq!(applied(&filters, 2).collect::<Vec<_>>(), [Filter::Shuffle]);
        assert_eq!(applied(&filters, 1).collect::<Vec<_>>(), [Filter::Lzf]);
        assert!(undo([Filter::Other(32015)].into_iter(), &[], 1, 0).unwrap_err().contains("Zstd"));
    }
}
