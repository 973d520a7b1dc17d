//! The normaliser: the model's table of replacements, and its rules for white space.

use super::double_array::DoubleArray;
use super::model::Rules;
use super::{ModelError, TooLong};

/// U+2581, which stands for a blank in pieces.
pub(super) const SPACE: &[u8] = "\u{2581}".as_bytes();

/// No text becomes longer than this many times its bytes, and [`GROWTH_MORE`]. Of Unicode's own
/// decompositions, the longest makes 39 bytes of 3.
const GROWTH_MAX: usize = 16;

/// Room for a short text.
const GROWTH_MORE: usize = 256;

/// The longest text that a table may replace. A damaged table could lead round in circles.
const REPLACED_BYTES_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Normalizer {
    /// The trie of the texts that are replaced, in the units of the Darts library.
    units: Vec<u32>,
    /// The replacements, each ended by a NUL.
    replacements: Vec<u8>,
    /// Symbols that the trainer's user defined, which stay as they are.
    user_defined: DoubleArray,
    /// ASCII characters that stay as they are when another ASCII character follows, whatever it is. Looked up
    /// first, because most text consists of them.
    is_plain: [bool; 128],
    rules: Rules,
}

impl Normalizer {
    /// `table` is the model's table of replacements; empty if there is none.
    pub(super) fn new(table: &[u8], rules: Rules, user_defined: DoubleArray) -> Result<Self, ModelError> {
        let (units, replacements) = match table {
            [] => (Vec::new(), Vec::new()),
            [a, b, c, d, rest @ ..] => {
                let bytes = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
                if bytes >= rest.len() {
                    return Err(ModelError::Damaged(format!(
                        "its table of replacements states a trie of {bytes} bytes, and {} follow",
                        rest.len()
                    )));
                }
                let (trie, replacements) = rest.split_at(bytes);
                let (units, _) = trie.as_chunks();
                (units.iter().map(|unit| u32::from_le_bytes(*unit)).collect(), replacements.to_vec())
            }
            short => {
                let bytes = short.len();
                return Err(ModelError::Damaged(format!("its table of replacements has {bytes} bytes")));
            }
        };
        let mut normalizer = Normalizer { units, replacements, user_defined, is_plain: [false; 128], rules };
        normalizer.is_plain = std::array::from_fn(|code| normalizer.stays_plain(code));
        Ok(normalizer)
    }

    /// Normalises UTF-8 text into `normalized`, whose content is replaced.
    pub(super) fn normalize(&self, text: &[u8], normalized: &mut Vec<u8>) -> Result<(), TooLong> {
        let Rules { adds_dummy_prefix, removes_extra_space, escapes_space, space_is_suffix } = self.rules;
        normalized.clear();
        // Places in a text have 32 bits, and a blank that is written takes up to three bytes.
        let allowed = text.len().saturating_mul(GROWTH_MAX).saturating_add(GROWTH_MORE);
        let allowed = allowed.min(u32::MAX as usize / 4);
        let mut rest = text;
        if removes_extra_space {
            while let (b" ", used) = self.first(rest) {
                rest = &rest[used..];
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        let space = if escapes_space { SPACE } else { b" " };
        if adds_dummy_prefix && !space_is_suffix {
            normalized.extend_from_slice(space);
        }
        let mut was_space = removes_extra_space;
        while !rest.is_empty() {
            let (mut piece, used) = self.first(rest);
            if was_space {
                let spaces = piece.iter().take_while(|byte| **byte == b' ').count();
                piece = &piece[spaces..];
            }
            if normalized.len() + piece.len() > allowed {
                return Err(TooLong { bytes: text.len(), allowed });
            }
            for byte in piece {
                match byte {
                    b' ' => normalized.extend_from_slice(space),
                    other => normalized.push(*other),
                }
            }
            if let Some(last) = piece.last() {
                was_space = removes_extra_space && *last == b' ';
            }
            rest = &rest[used..];
        }
        if removes_extra_space {
            while normalized.ends_with(space) {
                normalized.truncate(normalized.len() - space.len());
            }
        }
        if adds_dummy_prefix && space_is_suffix {
            normalized.extend_from_slice(space);
        }
        Ok(())
    }

    /// What the beginning of a text becomes, and how many bytes of the text that uses: a user-defined symbol,
    /// or the longest text that the table replaces, or one character.
    fn first<'a>(&'a self, text: &'a [u8]) -> (&'a [u8], usize) {
        if let [first, rest @ ..] = text
            && self.is_plain.get(usize::from(*first)) == Some(&true)
            && rest.first().is_none_or(u8::is_ascii)
        {
            return (&text[..1], 1);
        }
        let mut symbol = 0;
        self.user_defined.prefixes(text, |bytes, _| symbol = bytes);
        if symbol > 0 {
            return (&text[..symbol], symbol);
        }
        if let Some((replacement, used)) = self.replaced(text) {
            return (replacement, used);
        }
        match text {
            [] => (&[], 0),
            // Reached only if a table replaces parts of characters.
            [0x80..=0xbf, ..] => ("\u{fffd}".as_bytes(), 1),
            [first, ..] => {
                let bytes = char_bytes(*first).min(text.len());
                (&text[..bytes], bytes)
            }
        }
    }

    /// Whether no symbol starts with this character, and no replacement with it alone or with it and another
    /// ASCII character.
    fn stays_plain(&self, code: usize) -> bool {
        let Some(first) = u8::try_from(code).ok().filter(|first| !self.user_defined.has_start(*first)) else {
            return false;
        };
        let root = self.units.first().map_or(0, |unit| offset(*unit));
        match self.step(root, first) {
            None => true,
            Some((_, Some(_))) => false,
            Some((place, None)) => (0..128).all(|second| self.step(place, second).is_none()),
        }
    }

    /// The replacement of the longest prefix that has one, and that prefix's length.
    fn replaced(&self, text: &[u8]) -> Option<(&[u8], usize)> {
        let mut longest = None;
        let mut place = offset(*self.units.first()?);
        for (at, byte) in text.iter().take(REPLACED_BYTES_MAX).enumerate() {
            let Some((next, value)) = self.step(place, *byte) else { break };
            place = next;
            longest = value.map(|value| (value, at + 1)).or(longest);
        }
        let (from, used) = longest?;
        let replacement = self.replacements.get(from as usize..)?;
        let end = replacement.iter().position(|byte| *byte == 0).unwrap_or(replacement.len());
        Some((&replacement[..end], used))
    }

    /// Where a byte leads in the trie of replacements; and, if a text ends there, where its replacement is.
    fn step(&self, place: usize, byte: u8) -> Option<(usize, Option<u32>)> {
        let place = place ^ usize::from(byte);
        let unit = self.units.get(place).filter(|unit| **unit & (1 << 31 | 0xff) == u32::from(byte))?;
        let place = place ^ offset(*unit);
        let ends = unit >> 8 & 1 == 1;
        Some((place, self.units.get(place).filter(|_| ends).map(|leaf| leaf & !(1 << 31))))
    }
}

/// Where the children of a unit of Darts are, relative to it.
fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}

/// The length of a character in UTF-8, from its first byte.
pub(super) fn char_bytes(first: u8) -> usize {
    match first >> 4 {
        0xc | 0xd => 2,
        0xe => 3,
        0xf => 4,
        _ => 1,
    }
}
