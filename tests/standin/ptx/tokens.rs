//! Splits a text into words and marks.

use super::{Parsed, Problem};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Names, directives, opcodes, registers, labels and numbers.
    Word(&'a str),
    Mark(char),
}

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Word(word) => write!(f, "{word:?}"),
            Token::Mark(mark) => write!(f, "{mark:?}"),
        }
    }
}

/// The tokens of a text, read once, in order.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    list: Vec<(Token<'a>, u32)>,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn of(text: &'a str) -> Parsed<Tokens<'a>> {
        let mut list = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let mut rest = line.split("//").next().unwrap_or_default().trim_start();
            while let Some(first) = rest.chars().next() {
                let len = rest.find(|c: char| !is_of_a_word(c)).unwrap_or(rest.len());
                let token = match first {
                    _ if len > 0 => Token::Word(&rest[..len]),
                    '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | ',' | ';' | ':' | '+' | '-' | '@' => {
                        Token::Mark(first)
                    }
                    _ => {
                        return Err(Problem {
                            line: number,
                            words: format!("{first:?} is no mark of PTX's"),
                        });
                    }
                };
                list.push((token, number));
                rest = rest[len.max(first.len_utf8())..].trim_start();
            }
        }
        Ok(Tokens { list, at: 0 })
    }

    /// The line of the token that was read last.
    pub(super) fn line(&self) -> u32 {
        self.list.get(self.at.saturating_sub(1)).map_or(1, |&(_, line)| line)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.list.len()
    }

    pub(super) fn problem(&self, words: String) -> Problem {
        Problem { line: self.line(), words }
    }

    pub(super) fn next(&mut self) -> Parsed<Token<'a>> {
        let Some(&(token, _)) = self.list.get(self.at) else {
            return Err(self.problem("the text ends in the middle".to_owned()));
        };
        self.at += 1;
        Ok(token)
    }

    /// Reads a mark, if it is the next token.
    pub(super) fn take(&mut self, mark: char) -> bool {
        let is_next = self.list.get(self.at).is_some_and(|&(token, _)| token == Token::Mark(mark));
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn mark(&mut self, mark: char) -> Parsed<()> {
        match self.next()? {
            Token::Mark(found) if found == mark => Ok(()),
            found => Err(self.problem(format!("{found} stands where {mark:?} should"))),
        }
    }

    pub(super) fn word(&mut self, what: &str) -> Parsed<&'a str> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            found => Err(self.problem(format!("{found} stands where {what} should"))),
        }
    }

    /// Reads this word, and fails on any other.
    pub(super) fn keyword(&mut self, wanted: &str) -> Parsed<()> {
        match self.word(wanted)? {
            word if word == wanted => Ok(()),
            found => Err(self.problem(format!("{found:?} stands where {wanted} should"))),
        }
    }

    pub(super) fn number(&mut self, what: &str) -> Parsed<u32> {
        let word = self.word(what)?;
        word.parse().map_err(|_| self.problem(format!("{word:?} stands where {what} should")))
    }
}

fn is_of_a_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '%')
}
