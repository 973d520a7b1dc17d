//! Which state of a database an index is of.

use std::fmt::{Display, Write as _};

/// A line a fact. Two identities are of one state where they are the same text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::source) struct Identity(String);

impl Identity {
    /// Adds a fact, which has no line breaks.
    pub(in crate::source) fn with(mut self, name: &str, fact: impl Display) -> Self {
        writeln!(self.0, "{name} {fact}").expect("a String takes what is written to it");
        self
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The first fact in which another identity differs from this one, in both, if one does.
    pub(super) fn difference(&self, other: &[u8]) -> Option<(String, String)> {
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
}
