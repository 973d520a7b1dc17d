//! Skips fields that no data layer needs, after a check of their syntax.

use super::lexer::Token;
use super::literal;
use super::reader::Reader;
use crate::error::NetError;
use crate::forks::Harmless;

/// A skipped value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Skipped<'a> {
    /// A number or a name.
    Scalar {
        /// Whether a minus sign precedes it.
        negative: bool,
        /// The token.
        token: Token<'a>,
    },
    /// An empty message.
    Empty,
    /// Anything else.
    Other,
}

impl Skipped<'_> {
    /// Whether a fork's field with this value does not affect the arrays.
    pub(super) fn is_harmless(self, harmless: Harmless) -> bool {
        match (harmless, self) {
            (Harmless::Always, _) | (Harmless::Empty, Skipped::Empty) => true,
            (Harmless::False, Skipped::Scalar { negative: false, token }) => is_false(token),
            (Harmless::Numbers(numbers), Skipped::Scalar { negative, token }) => {
                number(token).is_some_and(|found| numbers.contains(&if negative { -found } else { found }))
            }
            (Harmless::Word(word), Skipped::Scalar { negative: false, token }) => token == Token::Word(word),
            _ => false,
        }
    }
}

fn is_false(token: Token<'_>) -> bool {
    match token {
        Token::Word(word) => matches!(word, "false" | "False" | "f"),
        Token::Integer(digits) => literal::integer(digits) == Some(0),
        _ => false,
    }
}

fn number(token: Token<'_>) -> Option<f64> {
    match token {
        Token::Float(digits) => literal::float(digits),
        #[expect(clippy::cast_precision_loss, reason = "the numbers compared with are small")]
        Token::Integer(digits) => literal::integer(digits).map(|number| number as f64),
        _ => None,
    }
}

impl<'a> Reader<'a> {
    /// Skips the value of a field whose name has just been read.
    pub(super) fn skip(&mut self) -> Result<Skipped<'a>, NetError> {
        let colon = self.take(b':')?;
        match self.next {
            Token::Symbol(b'{' | b'<') => self.skip_message(),
            Token::Symbol(b'[') => self.skip_list(),
            _ if colon => self.skip_scalar(),
            _ => Err(self.expected("\":\" or \"{\"")),
        }
    }

    /// Skips an extension, or the message of an `Any`: its name in brackets, and its value.
    pub(super) fn skip_extension(&mut self) -> Result<(), NetError> {
        self.skip_bracketed_name()?;
        self.skip().map(drop)
    }

    fn skip_bracketed_name(&mut self) -> Result<(), NetError> {
        loop {
            // Takes the opening bracket first, and then the dot or the slash between two words.
            self.advance()?;
            if !matches!(self.next, Token::Word(_)) {
                return Err(self.expected("a name"));
            }
            self.advance()?;
            // A type URL may contain hyphens too.
            while matches!(self.next, Token::Symbol(b'-') | Token::Word(_)) {
                self.advance()?;
            }
            if self.take(b']')? {
                return Ok(());
            }
            if !matches!(self.next, Token::Symbol(b'.' | b'/')) {
                return Err(self.expected("\"]\""));
            }
        }
    }

    fn skip_message(&mut self) -> Result<Skipped<'a>, NetError> {
        let close = self.open()?;
        let empty = self.next == close;
        while self.next != close {
            match self.next {
                Token::Word(name) => {
                    self.note_filler(name);
                    self.advance()?;
                    self.skip()?;
                }
                Token::Symbol(b'[') => self.skip_extension()?,
                _ => return Err(self.expected("a field")),
            }
            self.separator()?;
        }
        self.close()?;
        Ok(if empty { Skipped::Empty } else { Skipped::Other })
    }

    fn skip_list(&mut self) -> Result<Skipped<'a>, NetError> {
        self.advance()?;
        if self.take(b']')? {
            return Ok(Skipped::Other);
        }
        loop {
            match self.next {
                Token::Symbol(b'{' | b'<') => self.skip_message()?,
                _ => self.skip_scalar()?,
            };
            if self.take(b']')? {
                return Ok(Skipped::Other);
            }
            if !self.take(b',')? {
                return Err(self.expected("\",\" or \"]\""));
            }
        }
    }

    fn skip_scalar(&mut self) -> Result<Skipped<'a>, NetError> {
        if matches!(self.next, Token::Quoted(_)) {
            while matches!(self.next, Token::Quoted(_)) {
                self.advance()?;
            }
            return Ok(Skipped::Other);
        }
        let negative = self.take(b'-')?;
        let token = self.next;
        match token {
            Token::Integer(_) | Token::Float(_) => {}
            Token::Word(word) if !negative || literal::constant(word).is_some() => {}
            _ => return Err(self.expected("a value")),
        }
        self.advance()?;
        Ok(Skipped::Scalar { negative, token })
    }
}
