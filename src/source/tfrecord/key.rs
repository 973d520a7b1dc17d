//! A record's key: its position in its file.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::Write as _;

/// The minimum number of digits, as in Caffe's keys.
const DIGITS_MIN: usize = 8;
/// The number of digits of the greatest position.
const DIGITS_MAX: usize = 20;
/// Room before a value for its record's key, which goes to a run together with the value's buffer.
pub(super) const KEY_BYTES: usize = DIGITS_MAX;

/// The key of the record at a position, in decimal, with at least eight digits: `00000042`. TFRecord has no
/// keys of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecimalKey {
    /// Right-aligned.
    digits: [u8; DIGITS_MAX],
    begin: usize,
    position: u64,
}

impl DecimalKey {
    pub(super) fn new() -> Self {
        DecimalKey { digits: [b'0'; DIGITS_MAX], begin: DIGITS_MAX - DIGITS_MIN, position: 0 }
    }

    /// Moves to a position. The next position after the current one is the fastest.
    #[inline]
    pub(super) fn go_to(&mut self, position: u64) {
        let last = self.digits.last_mut();
        match last {
            Some(last) if self.position.checked_add(1) == Some(position) && *last != b'9' => {
                *last = last.saturating_add(1);
                self.position = position;
            }
            _ => self.write(position),
        }
    }

    fn write(&mut self, position: u64) {
        self.position = position;
        let mut text = [0; DIGITS_MAX];
        let mut rest = &mut text[..];
        // There is room for every position.
        let _ = write!(rest, "{position:020}");
        self.digits = text;
        let zeros = self.digits.iter().take_while(|digit| **digit == b'0').count();
        self.begin = zeros.min(DIGITS_MAX.saturating_sub(DIGITS_MIN));
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.digits.get(self.begin..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_positions_however_they_are_reached() {
        let mut key = DecimalKey::new();
        assert_eq!(key.bytes(), b"00000000");
        let far = [99, 100, 99_999_998, 99_999_999, 100_000_000, 100_000_001, u64::MAX - 1, u64::MAX, 7, 0];
        for position in (0..2000).chain(far).chain((0..2000).rev()) {
            key.go_to(position);
            assert_eq!(key.bytes(), format!("{position:08}").as_bytes());
        }
    }
}
