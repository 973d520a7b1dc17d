//! Small values as human-readable text that shows whether it was cut or edited: a title, one fact a line, and
//! a checksum of the preceding lines.
//!
//! ```text
//! percolator snapshot 1
//! epoch 3
//! step 117
//! checksum 5c1e0f6b
//! ```

use std::fmt::{self, Display, Write as _};
use std::str::{FromStr, SplitTerminator};

use crate::checksum::crc32c;
use crate::shown;

/// The name of the last line.
const CHECKSUM: &str = "checksum";

/// What is wrong with a text.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextFault {
    /// It is not a text of the expected kind.
    #[error("it is not a {wanted}: it begins with {found:?}, not with \"percolator {wanted}\"")]
    Other {
        /// The expected kind.
        wanted: &'static str,
        /// The beginning of its first line.
        found: String,
    },
    /// A later release wrote it.
    #[error(
        "it is a {wanted} of version {found}, but this release reads versions up to {allowed}: use the \
         release that wrote it, or a later one"
    )]
    Newer {
        /// The kind of text.
        wanted: &'static str,
        /// Its version.
        found: u32,
        /// The latest version that this release reads.
        allowed: u32,
    },
    /// Its end is missing.
    #[error("it is cut short: its last line (of {lines}) is not a checksum; use a complete copy")]
    Cut {
        /// The number of lines that are there.
        lines: usize,
    },
    /// It differs from what was written.
    #[error(
        "it was changed: its lines have the checksum {computed:08x}, but its last line says {}; use an \
         unchanged copy",
        shown::bytes(found.as_bytes())
    )]
    Edited {
        /// The checksum computed from its lines.
        computed: u32,
        /// The checksum in its last line.
        found: String,
    },
    /// A line is not the expected one.
    #[error("line {line}: found {:?}, expected {}", shown::front(found), shown::front(wanted))]
    Line {
        /// The line's number, counted from 1.
        line: usize,
        /// The expected line.
        wanted: String,
        /// The line that is there.
        found: String,
    },
}

/// A text on one line: control characters are escaped as in a Rust string.
#[derive(Clone, Copy, Debug)]
pub struct OneLine<'a>(pub &'a str);

impl Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            if letter.is_control() { write!(f, "{}", letter.escape_debug())? } else { f.write_char(letter)? }
        }
        Ok(())
    }
}

/// The lines of a text. A carriage return is a part of its line, unlike in [`str::lines`], so that a text
/// that was read is written unchanged.
pub fn lines(text: &str) -> SplitTerminator<'_, char> {
    text.split_terminator('\n')
}

/// The text in a file of this kind.
///
/// # Errors
///
/// [`TextFault`] if the bytes are not of this kind, or not UTF-8.
pub fn text_of<'a>(kind: &'static str, bytes: &'a [u8]) -> Result<&'a str, TextFault> {
    /// What a message shows of a line.
    const SHOWN_BYTES: usize = 60;

    std::str::from_utf8(bytes).map_err(|error| {
        let is_break = |byte: &u8| *byte == b'\n';
        let shown = |start: usize| {
            let line = bytes[start..].split(is_break).next().unwrap_or_default();
            String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES)]).into_owned()
        };
        if !bytes.starts_with(format!("percolator {kind} ").as_bytes()) {
            return TextFault::Other { wanted: kind, found: shown(0) };
        }
        let before = &bytes[..error.valid_up_to()];
        let start = before.iter().rposition(is_break).map_or(0, |end| end + 1);
        let line = before.split(is_break).count();
        TextFault::Line { line, wanted: "text in UTF-8".to_owned(), found: shown(start) }
    })
}

/// A text that is being written.
#[derive(Debug)]
pub struct TextWriter(String);

impl TextWriter {
    /// Starts a text of this kind and version.
    pub fn new(kind: &str, version: u32) -> Self {
        TextWriter(format!("percolator {kind} {version}\n"))
    }

    /// Adds a fact. Neither name nor value has line breaks, and the name has no spaces.
    pub fn fact(&mut self, name: &str, value: impl Display) {
        writeln!(self.0, "{name} {value}").expect("a String takes what is written to it");
    }

    /// Ends the text with its checksum and returns it.
    pub fn checksum(mut self) -> String {
        let checksum = crc32c(self.0.as_bytes());
        self.fact(CHECKSUM, format_args!("{checksum:08x}"));
        self.0
    }
}

/// Reads a text's facts in the order in which they were written.
#[derive(Clone, Debug)]
pub struct TextReader<'a> {
    lines: SplitTerminator<'a, char>,
    /// The number of the next line.
    line: usize,
}

impl<'a> TextReader<'a> {
    /// Checks a text of this kind and returns its facts and its version, which is `newest` or earlier.
    ///
    /// # Errors
    ///
    /// [`TextFault`] if the text is of another kind, newer, cut short or edited.
    pub fn open(text: &'a str, kind: &'static str, newest: u32) -> Result<(Self, u32), TextFault> {
        // A copy with other line endings is still of this kind, and counts as edited.
        let first = text.lines().next().unwrap_or_default();
        let other = || TextFault::Other { wanted: kind, found: first.chars().take(60).collect() };
        let version = first.strip_prefix("percolator ").and_then(|rest| rest.strip_prefix(kind));
        let version: u32 = version.and_then(|rest| rest.strip_prefix(' ')?.parse().ok()).ok_or_else(other)?;
        if version > newest {
            // Checked before the checksum, which another version may compute differently.
            return Err(TextFault::Newer { wanted: kind, found: version, allowed: newest });
        }
        let body = text.strip_suffix('\n').and_then(|text| Some((text.rfind('\n')? + 1, text)));
        let unverified = body.and_then(|(end, text)| {
            Some((&text[..end], text[end..].strip_prefix(CHECKSUM)?.strip_prefix(' ')?))
        });
        let Some((body, found)) = unverified else {
            return Err(TextFault::Cut { lines: lines(text).count() });
        };
        let computed = crc32c(body.as_bytes());
        if found != format!("{computed:08x}") {
            return Err(TextFault::Edited { computed, found: found.to_owned() });
        }
        let mut lines = lines(body);
        lines.next();
        Ok((TextReader { lines, line: 2 }, version))
    }

    /// Returns the value of the next fact, if it has this name.
    pub fn next_if(&mut self, name: &str) -> Option<&'a str> {
        let mut ahead = self.lines.clone();
        let value = ahead.next()?.strip_prefix(name)?.strip_prefix(' ')?;
        self.lines = ahead;
        self.line += 1;
        Some(value)
    }

    /// Returns the value of the next fact, which must have this name.
    ///
    /// # Errors
    ///
    /// [`TextFault::Line`] if the next line is another fact, or there is none.
    pub fn value(&mut self, name: &str) -> Result<&'a str, TextFault> {
        self.next_if(name).ok_or_else(|| TextFault::Line {
            line: self.line,
            wanted: format!("\"{name} ...\""),
            found: self.lines.clone().next().unwrap_or("the end").to_owned(),
        })
    }

    /// Like [`value`](Self::value), parsed.
    ///
    /// # Errors
    ///
    /// As [`value_by`](Self::value_by).
    pub fn parse<T: FromStr>(&mut self, name: &str, wanted: &str) -> Result<T, TextFault> {
        self.value_by(name, wanted, |value| value.parse().ok())
    }

    /// Like [`value`](Self::value), converted by `read`, which returns `None` if the value is not what is
    /// `wanted`.
    ///
    /// # Errors
    ///
    /// [`TextFault::Line`] if the next line is another fact, or its value is not what is wanted.
    pub fn value_by<T>(
        &mut self,
        name: &str,
        wanted: &str,
        read: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<T, TextFault> {
        let value = self.value(name)?;
        read(value).ok_or_else(|| self.fault_before(&format!("\"{name} ...\" with {wanted}"), value))
    }

    /// The fault for the value that was read last.
    pub fn fault_before(&self, wanted: &str, found: &str) -> TextFault {
        TextFault::Line { line: self.line - 1, wanted: wanted.to_owned(), found: found.to_owned() }
    }

    /// Checks that there are no more facts.
    ///
    /// # Errors
    ///
    /// [`TextFault::Line`] if there is one.
    pub fn end(mut self) -> Result<(), TextFault> {
        match self.lines.next() {
            None => Ok(()),
            Some(found) => Err(TextFault::Line {
                line: self.line,
                wanted: "the checksum".to_owned(),
                found: found.to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> String {
        let mut text = TextWriter::new("snapshot", 2);
        text.fact("epoch", 3);
        text.fact("path", "/data/a b");
        text.checksum()
    }

    #[test]
    fn what_was_written_is_read() {
        let text = written();
        let (mut facts, version) = TextReader::open(&text, "snapshot", 2).unwrap();
        assert_eq!(version, 2);
        assert_eq!(facts.next_if("path"), None);
        assert_eq!(facts.parse::<u64>("epoch", "a number"), Ok(3));
        assert_eq!(facts.value("path"), Ok("/data/a b"));
        assert_eq!(facts.end(), Ok(()));
    }

    /// Found by the fuzz target `digest`: each time that a text was read and written, it lost one.
    #[test]
    fn a_carriage_return_is_a_part_of_its_line() {
        let mut text = TextWriter::new("snapshot", 2);
        text.fact("path", "a\r\r");
        let text = text.checksum();
        let (mut facts, _) = TextReader::open(&text, "snapshot", 2).unwrap();
        assert_eq!(facts.next_if("path"), Some("a\r\r"));
        assert_eq!(facts.end(), Ok(()));
    }

    #[test]
    fn a_copy_with_other_ends_of_lines_was_edited() {
        let copy = written().replace('\n', "\r\n");
        assert!(matches!(TextReader::open(&copy, "snapshot", 2), Err(TextFault::Edited { .. })));
    }

    #[test]
    fn a_text_that_was_cut_anywhere_is_found_out() {
        let text = written();
        for end in 0..text.len() {
            assert!(TextReader::open(&text[..end], "snapshot", 2).is_err(), "{end}");
        }
    }

    #[test]
    fn a_text_that_was_edited_anywhere_is_found_out() {
        let text = written();
        for position in 0..text.len() {
            let mut edited = text.clone().into_bytes();
            edited[position] ^= 1;
            let edited = String::from_utf8(edited).unwrap();
            assert!(TextReader::open(&edited, "snapshot", 9).is_err(), "{edited}");
        }
    }

    #[test]
    fn other_texts_and_later_versions_are_told_apart() {
        let text = written();
        let fault = |text: &str, kind| TextReader::open(text, kind, 1).unwrap_err();
        assert_eq!(fault(&text, "snapshot"), TextFault::Newer { wanted: "snapshot", found: 2, allowed: 1 });
        assert!(matches!(fault(&text, "receipt"), TextFault::Other { .. }));
        assert!(matches!(fault("", "receipt"), TextFault::Other { .. }));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let text = written();
        let (mut facts, _) = TextReader::open(&text, "snapshot", 2).unwrap();
        let fault = facts.value("step").unwrap_err();
        assert_eq!(fault.to_string(), "line 2: found \"epoch 3\", expected \"step ...\"");
        facts.value("epoch").unwrap();
        let fault = facts.parse::<u64>("path", "a number").unwrap_err();
        assert_eq!(fault.to_string(), "line 3: found \"/data/a b\", expected \"path ...\" with a number");
        assert_eq!(facts.end(), Ok(()));
    }
}
