//! What tells a data set from others, and from itself at another time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};

use crate::base::checked_text::OneLine;

/// The name of what is known of the index of a data set's records, which is of its pages.
pub(crate) const INDEX: &str = "index";

/// The name of what is known of a data set's first record.
pub(crate) const FIRST: &str = "first";

/// Facts of a data set, a line each. Two of the same data set, in the same state, are the same text.
///
/// Beside them are clues: what is known of some of its records, and the like. Not every look at a data set
/// finds the same clues, for some are found only where there is an index; those that two looks have in common
/// must agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    facts: String,
    /// A line each: a name without spaces, and what is known by it.
    samples: String,
}

impl Identity {
    /// No facts yet.
    #[must_use]
    pub fn new() -> Self {
        Identity::default()
    }

    /// Adds a fact. Line breaks and the like are written as Rust writes them in a string.
    #[must_use]
    pub fn with(mut self, name: &str, fact: impl Display) -> Self {
        add(&mut self.facts, name, &fact);
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
        self.with(&format!("first {name}"), told(key, value, false))
    }

    /// Adds what is known by a name, which has no spaces.
    pub(crate) fn with_sample(mut self, name: &str, sample: impl Display) -> Self {
        debug_assert!(!name.contains(' '), "a name of two words is taken for a shorter one");
        add(&mut self.samples, name, &sample);
        self
    }

    /// Adds what is known of a record: its key, and the beginning and the end of its value and of its
    /// companion's. Of the first record it is the beginning, as above.
    pub(crate) fn with_record(self, name: &str, key: &[u8], value: &[u8], companion: Option<&[u8]>) -> Self {
        let has_end = name != FIRST;
        let sample = told(key, value, has_end);
        match companion {
            None => self.with_sample(name, sample),
            Some(companion) => {
                self.with_sample(name, format_args!("{sample}, with {}", told_value(companion, has_end)))
            }
        }
    }

    /// The same with another one's clues instead of its own.
    pub(crate) fn with_samples_of(self, other: &Identity) -> Self {
        Identity { samples: other.samples.clone(), ..self }
    }

    /// The clues alone that a copy has, too, which was written in another way: with other pages, by another database.
    pub(crate) fn of_records(&self) -> Self {
        let mut samples = Identity::new();
        self.samples().filter(|line| name(line) != INDEX).for_each(|line| samples.push_sample(line));
        samples
    }

    /// Adds those of another one's clues that this one has not.
    pub(crate) fn take_in(&mut self, other: &Identity) {
        let known: BTreeSet<String> = self.samples().map(|line| name(line).to_owned()).collect();
        other.samples().filter(|line| !known.contains(name(line))).for_each(|line| self.push_sample(line));
    }

    /// The facts.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.facts.lines()
    }

    /// The clues.
    pub(crate) fn samples(&self) -> impl Iterator<Item = &str> {
        self.samples.lines()
    }

    /// Adds a line that [`lines`](Self::lines) gave.
    pub(crate) fn push_line(&mut self, line: &str) {
        push(&mut self.facts, line);
    }

    /// Adds a line that [`samples`](Self::samples) gave.
    pub(crate) fn push_sample(&mut self, line: &str) {
        push(&mut self.samples, line);
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.facts.as_bytes()
    }

    /// The first fact in which another identity differs from this one, in both, if one does. Clues are not
    /// looked at.
    pub(crate) fn difference(&self, other: &[u8]) -> Option<(String, String)> {
        if self.as_bytes() == other {
            return None;
        }
        let other = String::from_utf8_lossy(other);
        let (mut ours, mut others) = (self.facts.lines(), other.lines());
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

    /// The first clue that both have, and that differs, in both, if one does.
    pub(crate) fn contradiction(&self, other: &Identity) -> Option<(String, String)> {
        let others: BTreeMap<&str, &str> = other.samples().map(|line| (name(line), line)).collect();
        self.samples().find_map(|our| {
            let other = others.get(name(our)).filter(|other| **other != our)?;
            Some((our.to_owned(), (*other).to_owned()))
        })
    }
}

fn name(sample: &str) -> &str {
    sample.split_once(' ').map_or(sample, |(name, _)| name)
}

fn add(lines: &mut String, name: &str, fact: &dyn Display) {
    writeln!(lines, "{name} {}", OneLine(&fact.to_string())).expect("a String takes what is written to it");
}

fn push(lines: &mut String, line: &str) {
    lines.push_str(line);
    lines.push('\n');
}

fn told(key: &[u8], value: &[u8], has_end: bool) -> String {
    // All of the key: messages shorten what is long.
    format!("\"{}\": {}", key.escape_ascii(), told_value(value, has_end))
}

/// A checksum of so many bytes at the beginning, and at the end, where a Caffe record has its label.
fn told_value(value: &[u8], has_end: bool) -> String {
    const PART: usize = 512;

    let bytes = value.len();
    let mut checksum = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    checksum.update(&value[..bytes.min(PART)]);
    if has_end {
        checksum.update(&value[bytes.saturating_sub(PART).max(bytes.min(PART))..]);
    }
    format!("{bytes} bytes, checksum {:08x}", checksum.finalize())
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

    #[test]
    fn clues_are_held_against_each_other_where_both_have_them() {
        let at = |name: &str, value: &[u8]| Identity::new().with_record(name, b"k", value, None);
        let said = at("at-3", b"three").with_sample("index", "0123abcd");
        assert_eq!(said.contradiction(&at("at-4", b"four")), None);
        assert_eq!(said.contradiction(&at("at-3", b"three")), None);
        let told = said.contradiction(&at("at-3", b"throe")).unwrap();
        assert!(told.0.starts_with("at-3 \"k\": 5 bytes, checksum ") && told.0 != told.1, "{told:?}");
        assert!(at("at-3", b"three").with_sample("index", "f").contradiction(&said).is_some());
        let paired = Identity::new().with_record("at-3", b"k", b"three", Some(b"mask"));
        assert!(paired.contradiction(&said).unwrap().0.contains("with 4 bytes"));
        assert_eq!(said.difference(b""), None, "clues are no facts");
        assert_eq!(said.of_records(), at("at-3", b"three"));
        let mut copy = Identity::new();
        said.samples().for_each(|line| copy.push_sample(line));
        assert_eq!(copy, said);
    }

    #[test]
    fn a_record_is_known_by_all_of_its_key() {
        let key = |last: u8| [vec![b'k'; 300], vec![last]].concat();
        let of = |last| Identity::new().with_record("last", &key(last), b"value", None);
        assert!(of(b'a').contradiction(&of(b'b')).is_some());
        assert!(of(b'a').contradiction(&of(b'a')).is_none());
    }
}
