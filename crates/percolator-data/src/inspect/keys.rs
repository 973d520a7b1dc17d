//! The pattern of a data set's keys.
//!
//! The law: a key is *numbered* if it is only digits, and *named* if it is digits, an underscore, and at
//! least one byte more. If all keys that were read are numbers with the same number of digits, the pattern is
//! `%08d` (with that width); if they are names with the same number of digits before the underscore, it is
//! `%08d_NAME`; if they are numbered, and none but `0` begins with a zero, it is `%d`, and their order is not
//! that of the numbers. Anything else is `other`.

use serde::Serialize;

/// What is known of the keys.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Keys {
    /// `%08d`, `%08d_NAME` (with their width), `%d`, or `other`.
    pub pattern: String,
    /// Whether the number of each key is its record's position; `None` if the keys have no numbers.
    pub are_positions: Option<bool>,
    /// The first key, with bytes that are not printable ASCII escaped.
    pub first: String,
    /// The last one that was read.
    pub last: String,
    /// The length of the shortest key.
    pub bytes_min: usize,
    /// The length of the longest key.
    pub bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Numbered { digits: usize },
    Named { digits: usize },
}

/// Keys, seen one after the other.
#[derive(Debug, Default)]
pub(super) struct KeyTally {
    /// The class of all keys so far, unless they differ.
    class: Option<Class>,
    is_mixed: bool,
    /// Whether all are numbers without leading zeros.
    are_plain: bool,
    are_positions: bool,
    first: Option<Vec<u8>>,
    last: Vec<u8>,
    bytes_min: usize,
    bytes_max: usize,
}

impl KeyTally {
    pub(super) fn add(&mut self, position: u64, key: &[u8]) {
        let class = class(key);
        let digits = &key[..key.iter().take_while(|byte| byte.is_ascii_digit()).count()];
        let is_plain = digits.len() == key.len() && (digits == b"0" || !digits.starts_with(b"0"));
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
        let is_position = number == Some(position);
        if self.first.is_none() {
            self.first = Some(key.to_owned());
            (self.class, self.is_mixed) = (class, class.is_none());
            (self.are_plain, self.are_positions) = (is_plain && class.is_some(), is_position);
            (self.bytes_min, self.bytes_max) = (key.len(), key.len());
        }
        self.is_mixed |= class != self.class;
        self.are_plain &= is_plain && class.is_some();
        self.are_positions &= is_position;
        self.bytes_min = self.bytes_min.min(key.len());
        self.bytes_max = self.bytes_max.max(key.len());
        self.last.clear();
        self.last.extend_from_slice(key);
    }

    pub(super) fn finish(self) -> Option<Keys> {
        let pattern = match self.class.filter(|_| !self.is_mixed) {
            Some(Class::Numbered { digits: 1 }) => "%d".to_owned(),
            Some(Class::Numbered { digits }) => format!("%0{digits}d"),
            Some(Class::Named { digits }) => format!("%0{digits}d_NAME"),
            None if self.are_plain => "%d".to_owned(),
            None => "other".to_owned(),
        };
        let are_positions = (pattern != "other").then_some(self.are_positions);
        Some(Keys {
            pattern,
            are_positions,
            first: key_text(&self.first?),
            last: key_text(&self.last),
            bytes_min: self.bytes_min,
            bytes_max: self.bytes_max,
        })
    }
}

/// A key as text: bytes that are not printable ASCII are escaped.
#[must_use]
pub fn key_text(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

fn class(key: &[u8]) -> Option<Class> {
    let digits = key.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match &key[digits..] {
        _ if digits == 0 => None,
        [] => Some(Class::Numbered { digits }),
        [b'_', _, ..] => Some(Class::Named { digits }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(keys: &[&str]) -> Keys {
        let mut tally = KeyTally::default();
        keys.iter().enumerate().for_each(|(position, key)| tally.add(position as u64, key.as_bytes()));
        tally.finish().unwrap()
    }

    #[test]
    fn patterns_of_caffes_tools_are_recognised() {
        let pattern = |names: &[&str]| keys(names).pattern;
        assert_eq!(pattern(&["00000000_a/b.jpg", "00000001_c.png"]), "%08d_NAME");
        assert_eq!(pattern(&["00000", "00001"]), "%05d");
        assert_eq!(pattern(&["0", "1", "4"]), "%d");
        assert_eq!(pattern(&["0", "1", "10", "2"]), "%d");
        assert_eq!(pattern(&["0", "1", "01"]), "other");
        assert_eq!(pattern(&["00000000_", "00000001_a"]), "other");
        assert_eq!(pattern(&["00000000_a", "000000001_a"]), "other");
        assert_eq!(pattern(&["00000000", "00000001_a"]), "other");
        assert_eq!(pattern(&["cat", "dog"]), "other");
        assert_eq!(pattern(&["", "00"]), "other");
        assert_eq!(keys(&["00", "01"]).are_positions, Some(true));
        assert_eq!(keys(&["00", "02"]).are_positions, Some(false));
        assert_eq!(keys(&["x\u{e9}"]).first, "x\\xc3\\xa9");
        assert!(KeyTally::default().finish().is_none());
    }

    proptest! {
        #[test]
        fn a_written_pattern_is_read(
            width in 2usize..12,
            names in proptest::collection::vec("[a-z.]{1,9}", 1..9),
        ) {
            let mut numbered = KeyTally::default();
            let mut named = KeyTally::default();
            for (number, name) in names.iter().enumerate() {
                numbered.add(number as u64, format!("{number:0width$}").as_bytes());
                named.add(number as u64, format!("{number:0width$}_{name}").as_bytes());
            }
            let (numbered, named) = (numbered.finish().unwrap(), named.finish().unwrap());
            prop_assert_eq!(numbered.pattern, format!("%0{width}d"));
            prop_assert_eq!(named.pattern, format!("%0{width}d_NAME"));
            prop_assert_eq!((numbered.are_positions, named.are_positions), (Some(true), Some(true)));
        }
    }
}
