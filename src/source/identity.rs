//! What tells a data set from others, and from itself at another time.

use std::fmt::{Display, Write as _};

use crate::record::Key;
use crate::sealed_text::OneLine;

/// Facts of a data set, a line each. Two of the same data set, in the same state, are the same text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity(String);

impl Identity {
    /// No facts yet.
    #[must_use]
    pub fn new() -> Self {
        Identity::default()
    }

    /// Adds a fact. Line breaks and the like are written as Rust writes them in a string.
    #[must_use]
    pub fn with(mut self, name: &str, fact: impl Display) -> Self {
        writeln!(self.0, "{name} {}", OneLine(&fact.to_string()))
            .expect("a String takes what is written to it");
        self
    }

    /// Adds the facts of another data set, which this one holds.
    #[must_use]
    pub fn with_part(self, name: &str, part: &Identity) -> Self {
        part.lines().fold(self, |identity, line| identity.with(name, line))
    }

    /// Adds the beginning of the first record: what follows may lie on pages that nobody has touched, and to touch them one by
    /// one has the system read far ahead.
    pub(crate) fn with_first(self, name: &str, key: &[u8], value: &[u8]) -> Self {
        const BEGINNING: usize = 512;

        let bytes = value.len();
        let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &value[..bytes.min(BEGINNING)]);
        let key = Key(key.to_owned());
        self.with(&format!("first {name}"), format_args!("{key}: {bytes} bytes, checksum {checksum:08x}"))
    }

    /// The facts.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.lines()
    }

    /// Adds a line that [`lines`](Self::lines) gave.
    pub(crate) fn push_line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The first fact in which another identity differs from this one, in both, if one does.
    pub(crate) fn difference(&self, other: &[u8]) -> Option<(String, String)> {
        if self.as_bytes() == other {
            return None;
        }
        let other = String::from_utf8_lossy(other);
        let (mut ours, mut others) = (self.0.lines(), other.lines());
        loop {
            match (ours.next(), others.next()) {
                (Some(our), Some(other)) if our == other => {}
                (our, other) => {
                    let said = |line: Option<&str>| line.unwrap_or("nothing more").to_owned();
                    return Some((said(our), said(other)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fact_that_differs_is_told() {
        let identity = Identity::default().with("bytes", 4096).with("transaction", 7);
        let difference = |other: &str| identity.difference(other.as_bytes());
        let told = |ours: &str, other: &str| Some((ours.to_owned(), other.to_owned()));
        assert_eq!(difference("bytes 4096\ntransaction 7\n"), None);
        assert_eq!(difference("bytes 4096\ntransaction 8\n"), told("transaction 7", "transaction 8"));
        assert_eq!(difference("bytes 4096\n"), told("transaction 7", "nothing more"));
        assert_eq!(difference(""), told("bytes 4096", "nothing more"));
        assert_eq!(difference("bytes 4096\ntransaction 7"), told("nothing more", "nothing more"));
    }

    #[test]
    fn a_fact_is_a_line_whatever_it_says() {
        let identity =
            Identity::new().with("key", "a\nb\u{1b}é").with_part("second", &Identity::new().with("n", 3));
        assert_eq!(identity.lines().collect::<Vec<_>>(), ["key a\\nb\\u{1b}é", "second n 3"]);
        let mut copy = Identity::new();
        identity.lines().for_each(|line| copy.push_line(line));
        assert_eq!(copy, identity);
    }
}
