//! Numbers of bytes.

/// The units, and how many bits a number of them is shifted.
const UNITS: [(&str, u32); 3] = [("KiB", 10), ("MiB", 20), ("GiB", 30)];

/// Parses a number of bytes with its unit.
pub(crate) fn with_unit(text: &str) -> Option<u64> {
    let (number, shift) =
        UNITS.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|&bytes| bytes > 0)
}

/// Parses a number of bytes, with a unit or without.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let bare = || text.parse().ok().filter(|&bytes| bytes > 0);
    with_unit(text).or_else(bare).ok_or_else(|| {
        "not a number of bytes: give a whole number of 1 or more, also with KiB, MiB or GiB, such as 512MiB"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_bytes_may_have_a_unit() {
        for (text, due) in
            [("1", 1), ("4096", 4096), ("3KiB", 3 << 10), ("512MiB", 512 << 20), ("2GiB", 2 << 30)]
        {
            assert_eq!(bytes(text), Ok(due), "{text}");
        }
        for text in ["", "0", "0MiB", "-1", "1.5GiB", "1 GiB", "1GB", "99999999999GiB", "MiB"] {
            assert!(bytes(text).unwrap_err().starts_with("not a number of bytes"), "{text}");
        }
        assert_eq!((with_unit("7"), with_unit("7KiB")), (None, Some(7 << 10)));
    }
}
