//! How a data set is recognised, now and later.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};

use percolator_files::checked_text::{OneLine, TextFault, TextReader, TextWriter, lines};

/// The name of the sample of a data set's index, which depends on the database's pages.
pub(crate) const INDEX: &str = "index";

/// The name of the sample of a data set's first record.
pub(crate) const FIRST: &str = "first";

/// The name of the sample of its last record.
pub(crate) const LAST: &str = "last";

/// What a text calls a sample.
const SAMPLE: &str = "clue";

/// Facts about a data set, one per line. Two identities of the same data set in the same state are the same
/// text.
///
/// In addition there are samples: checksums of some of its records, and the like. Two identities of one data
/// set may have different samples, because some are available only if there is an index. Samples that both
/// have must agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    facts: String,
    /// One per line: a name without spaces, and the sample.
    samples: String,
}

impl Identity {
    /// Creates an identity without facts.
    #[must_use]
    pub fn new() -> Self {
        Identity::default()
    }

    /// Adds a fact. Line breaks and other control characters are escaped as in a Rust string.
    #[must_use]
    pub fn with(mut self, name: &str, fact: impl Display) -> Self {
        add(&mut self.facts, name, &fact);
        self
    }

    /// Adds the facts of a data set that is a part of this one.
    #[must_use]
    pub fn with_part(self, name: &str, part: &Identity) -> Self {
        part.lines().fold(self, |identity, line| identity.with(name, line))
    }

    /// Adds the beginning of the first record. The rest may be on pages that are not in memory, and touching
    /// them one by one makes the kernel read far ahead.
    pub(crate) fn with_first(self, name: &str, key: &[u8], value: &[u8]) -> Self {
        self.with(&format!("first {name}"), described(key, value, false))
    }

    /// Adds a sample. Its name has no spaces.
    pub(crate) fn with_sample(mut self, name: &str, sample: impl Display) -> Self {
        debug_assert!(!name.contains(' '), "a name of two words is taken for a shorter one");
        add(&mut self.samples, name, &sample);
        self
    }

    /// Adds a sample of a record: its key, and the beginning and the end of its value and of its companion's
    /// value. Of the first record only the beginning is sampled, for the reason above.
    pub(crate) fn with_record(self, name: &str, key: &[u8], value: &[u8], companion: Option<&[u8]>) -> Self {
        let has_end = name != FIRST;
        let sample = described(key, value, has_end);
        match companion {
            None => self.with_sample(name, sample),
            Some(companion) => {
                self.with_sample(name, format_args!("{sample}, with {}", described_value(companion, has_end)))
            }
        }
    }

    /// The same facts with the samples of another identity.
    pub(crate) fn with_samples_of(self, other: &Identity) -> Self {
        Identity { samples: other.samples.clone(), ..self }
    }

    /// Only the sample of this name, if there is one.
    pub(crate) fn only(&self, sample: &str) -> Self {
        let mut only = Identity::new();
        self.samples().filter(|line| name(line) == sample).for_each(|line| only.push_sample(line));
        only
    }

    /// Only the samples that a copy also has, even one written differently: with other pages, or by another
    /// database.
    pub(crate) fn of_records(&self) -> Self {
        let mut samples = Identity::new();
        self.samples().filter(|line| name(line) != INDEX).for_each(|line| samples.push_sample(line));
        samples
    }

    /// Adds the samples of another identity that this one lacks.
    pub(crate) fn merge(&mut self, other: &Identity) {
        let known: BTreeSet<String> = self.samples().map(|line| name(line).to_owned()).collect();
        other.samples().filter(|line| !known.contains(name(line))).for_each(|line| self.push_sample(line));
    }

    /// Writes the samples, one fact each.
    pub(crate) fn write_samples(&self, text: &mut TextWriter) {
        self.samples().for_each(|sample| text.fact(SAMPLE, sample));
    }

    /// Reads what [`write_samples`](Self::write_samples) wrote. Each name may come once, and those that are
    /// `taken` not at all: an identity with two samples of one name would contradict its own copy.
    pub(crate) fn read_samples(facts: &mut TextReader<'_>, taken: &[&str]) -> Result<Self, TextFault> {
        let mut names: BTreeSet<&str> = taken.iter().copied().collect();
        let mut identity = Identity::new();
        while let Some(sample) = facts.next_if(SAMPLE) {
            if !names.insert(name(sample)) {
                let wanted = format!("\"{SAMPLE} ...\" with a name that is not taken");
                return Err(facts.fault_before(&wanted, sample));
            }
            identity.push_sample(sample);
        }
        Ok(identity)
    }

    /// The facts.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        lines(&self.facts)
    }

    fn samples(&self) -> impl Iterator<Item = &str> {
        lines(&self.samples)
    }

    /// Adds a line returned by [`lines`](Self::lines).
    pub(crate) fn push_line(&mut self, line: &str) {
        push(&mut self.facts, line);
    }

    fn push_sample(&mut self, line: &str) {
        push(&mut self.samples, line);
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.facts.as_bytes()
    }

    /// The first fact in which another identity differs from this one, as both have it, if there is one.
    /// Samples are ignored.
    pub(crate) fn difference(&self, other: &[u8]) -> Option<(String, String)> {
        if self.as_bytes() == other {
            return None;
        }
        let other = String::from_utf8_lossy(other);
        let (mut ours, mut others) = (self.lines(), lines(&other));
        loop {
            match (ours.next(), others.next()) {
                (Some(our), Some(other)) if our == other => {}
                (our, other) => {
                    let line = |line: Option<&str>| line.unwrap_or("nothing more").to_owned();
                    return Some((line(our), line(other)));
                }
            }
        }
    }

    /// The first sample that both have and that differs, as both have it, if there is one. Then they are of
    /// different data sets.
    #[must_use]
    pub fn contradiction(&self, other: &Identity) -> Option<(String, String)> {
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

fn described(key: &[u8], value: &[u8], has_end: bool) -> String {
    // The whole key: messages shorten long ones.
    format!("\"{}\": {}", key.escape_ascii(), described_value(value, has_end))
}

/// A checksum of up to 512 bytes at the beginning, and at the end, where a Caffe record has its label.
fn described_value(value: &[u8], has_end: bool) -> String {
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
    fn the_first_fact_that_differs_is_returned() {
        let identity = Identity::default().with("bytes", 4096).with("transaction", 7);
        let difference = |other: &str| identity.difference(other.as_bytes());
        let both = |ours: &str, other: &str| Some((ours.to_owned(), other.to_owned()));
        assert_eq!(difference("bytes 4096\ntransaction 7\n"), None);
        assert_eq!(difference("bytes 4096\ntransaction 8\n"), both("transaction 7", "transaction 8"));
        assert_eq!(difference("bytes 4096\n"), both("transaction 7", "nothing more"));
        assert_eq!(difference(""), both("bytes 4096", "nothing more"));
        assert_eq!(difference("bytes 4096\ntransaction 7"), both("nothing more", "nothing more"));
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
    fn samples_that_both_have_are_compared() {
        let at = |name: &str, value: &[u8]| Identity::new().with_record(name, b"k", value, None);
        let known = at("at-3", b"three").with_sample("index", "0123abcd");
        assert_eq!(known.contradiction(&at("at-4", b"four")), None);
        assert_eq!(known.contradiction(&at("at-3", b"three")), None);
        let both = known.contradiction(&at("at-3", b"throe")).unwrap();
        assert!(both.0.starts_with("at-3 \"k\": 5 bytes, checksum ") && both.0 != both.1, "{both:?}");
        assert!(at("at-3", b"three").with_sample("index", "f").contradiction(&known).is_some());
        let paired = Identity::new().with_record("at-3", b"k", b"three", Some(b"mask"));
        assert!(paired.contradiction(&known).unwrap().0.contains("with 4 bytes"));
        assert_eq!(known.difference(b""), None, "samples are not facts");
        assert_eq!(known.of_records(), at("at-3", b"three"));
    }

    #[test]
    fn samples_are_read_as_they_were_written_and_none_twice() {
        let known =
            Identity::new().with_record("at-3", b"k", b"three", None).with_sample("index", "0123abcd");
        let read = |samples: &Identity| {
            let mut text = TextWriter::new("thing", 1);
            samples.write_samples(&mut text);
            let text = text.checksum();
            let (mut facts, _) = TextReader::open(&text, "thing", 1)?;
            let copy = Identity::read_samples(&mut facts, &["contents"])?;
            facts.end().map(|()| copy)
        };
        assert_eq!(read(&known), Ok(known.clone()));
        let wanted = "\"clue ...\" with a name that is not taken";
        for (name, found) in [("at-3", "at-3 another"), ("contents", "contents another")] {
            let (wanted, found) = (wanted.to_owned(), found.to_owned());
            let twice = known.clone().with_sample(name, "another");
            assert_eq!(read(&twice), Err(TextFault::Line { line: 4, wanted, found }));
        }
    }

    #[test]
    fn a_record_is_known_by_all_of_its_key() {
        let key = |last: u8| [vec![b'k'; 300], vec![last]].concat();
        let of = |last| Identity::new().with_record("last", &key(last), b"value", None);
        assert!(of(b'a').contradiction(&of(b'b')).is_some());
        assert!(of(b'a').contradiction(&of(b'a')).is_none());
    }
}
