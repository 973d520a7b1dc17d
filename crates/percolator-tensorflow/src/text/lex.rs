//! The words of protobuf's text form.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;

use percolator_files::shown;

/// Why text is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextFault {
    /// Both count from 1; columns count characters.
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) message: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// A name, or one of the words `true`, `inf` and the like.
    Word(&'a str),
    /// What begins with a digit, or with a point and a digit.
    Number(&'a str),
    /// Strings that follow one another are one.
    String(Vec<u8>),
    Symbol(char),
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(text) | Token::Number(text) => write!(f, "`{}`", shown::message(text)),
            Token::String(_) => f.write_str("a string"),
            Token::Symbol(symbol) => write!(f, "`{}`", symbol.escape_debug()),
            Token::End => f.write_str("the end of the text"),
        }
    }
}

#[derive(Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Lexer { text, at: 0 }
    }

    pub(super) fn fault(&self, at: usize, message: impl Into<String>) -> TextFault {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count().saturating_add(1);
        let column = before.chars().rev().take_while(|character| *character != '\n').count();
        TextFault { line, column: column.saturating_add(1), message: message.into() }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len().saturating_sub(rest.trim_start_matches(is_blank).len());
            self.skip(blank);
            if !self.rest().starts_with('#') {
                return;
            }
            let comment = self.rest().find('\n').unwrap_or(self.rest().len());
            self.skip(comment);
        }
    }

    /// Takes the front of the rest, as long as `is_part`.
    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|character| !is_part(character)).unwrap_or(rest.len());
        self.skip(end);
        rest.get(..end).unwrap_or_default()
    }

    /// Returns the next token, and where it starts.
    pub(super) fn next(&mut self) -> Result<(Token<'a>, usize), TextFault> {
        self.skip_blank();
        let at = self.at;
        let mut characters = self.rest().chars();
        let (first, second) = (characters.next(), characters.next());
        let token = match (first, second) {
            (None, _) => Token::End,
            (Some('"' | '\''), _) => Token::String(self.strings()?),
            (Some('0'..='9'), _) | (Some('.'), Some('0'..='9')) => Token::Number(self.number()),
            (Some('a'..='z' | 'A'..='Z' | '_'), _) => {
                Token::Word(self.take_while(|part| part.is_ascii_alphanumeric() || part == '_'))
            }
            (Some(symbol), _) => {
                self.skip(symbol.len_utf8());
                Token::Symbol(symbol)
            }
        };
        Ok((token, at))
    }

    fn number(&mut self) -> &'a str {
        let start = self.at;
        loop {
            let part = self.take_while(|part| part.is_ascii_alphanumeric() || part == '.');
            let is_hexadecimal = self.text.get(start..).is_some_and(|text| text.starts_with("0x"));
            // The sign of an exponent.
            if part.ends_with(['e', 'E']) && !is_hexadecimal && self.rest().starts_with(['+', '-']) {
                self.skip(1);
            } else {
                return self.text.get(start..self.at).unwrap_or_default();
            }
        }
    }

    fn strings(&mut self) -> Result<Vec<u8>, TextFault> {
        let mut bytes = Vec::new();
        while self.rest().starts_with(['"', '\'']) {
            self.string(&mut bytes)?;
            self.skip_blank();
        }
        Ok(bytes)
    }

    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), TextFault> {
        let start = self.at;
        let quote = self.rest().chars().next().unwrap_or('"');
        self.skip(1);
        loop {
            let plain = self.take_while(|part| part != quote && part != '\\' && part != '\n');
            out.extend_from_slice(plain.as_bytes());
            match self.rest().chars().next() {
                Some('\\') => self.escape(out)?,
                Some('\n') | None => return Err(self.fault(start, "a string that does not end on its line")),
                Some(_) => {
                    self.skip(1);
                    return Ok(());
                }
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), TextFault> {
        let start = self.at;
        self.skip(1);
        let bad = |lexer: &Self| lexer.fault(start, "an escape that no string of protobuf has");
        let Some(escaped) = self.rest().chars().next() else { return Err(bad(self)) };
        let simple = match escaped {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 11,
            '\\' | '\'' | '"' | '?' => u8::try_from(escaped).unwrap_or_default(),
            '0'..='7' => {
                let byte = self.digits(3, 8).and_then(|number| u8::try_from(number).ok());
                out.push(byte.ok_or_else(|| bad(self))?);
                return Ok(());
            }
            'x' | 'X' => {
                self.skip(1);
                let byte = self.digits(2, 16).and_then(|number| u8::try_from(number).ok());
                out.push(byte.ok_or_else(|| bad(self))?);
                return Ok(());
            }
            'u' | 'U' => {
                self.skip(1);
                let digits = if escaped == 'u' { 4 } else { 8 };
                let before = self.at;
                let character = self.digits(digits, 16).and_then(char::from_u32);
                let is_whole = self.at.saturating_sub(before) == digits;
                let character = character.filter(|_| is_whole).ok_or_else(|| bad(self))?;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(bad(self)),
        };
        self.skip(1);
        out.push(simple);
        Ok(())
    }

    /// Takes up to so many digits; returns their number.
    fn digits(&mut self, most: usize, radix: u32) -> Option<u32> {
        let rest = self.rest();
        let count = rest.chars().take(most).take_while(|digit| digit.is_digit(radix)).count();
        self.skip(count);
        u32::from_str_radix(rest.get(..count)?, radix).ok()
    }
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}')
}
