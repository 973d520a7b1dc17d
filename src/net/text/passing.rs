//! What no data layer needs: its form is checked, and it is passed over.

use super::lexer::Token;
use super::literal;
use super::reader::Reader;
use crate::net::error::NetError;
use crate::net::forks::Harmless;

/// What was passed over.
#[derive(Clone, Copy, Debug)]
pub(super) enum Passed<'a> {
    /// A number or a name.
    Scalar {
        /// Whether a minus stands before it.
        negative: bool,
        /// The token.
        token: Token<'a>,
    },
    /// A message that says nothing.
    Empty,
    /// Anything else.
    Other,
}

impl Passed<'_> {
    /// Whether a fork's field of this value changes nothing.
    pub(super) fn is_harmless(self, harmless: Harmless) -> bool {
        match (harmless, self) {
            (Harmless::Always, _) | (Harmless::Empty, Passed::Empty) => true,
            (Harmless::False, Passed::Scalar { negative: false, token }) => is_false(token),
            (Harmless::Numbers(numbers), Passed::Scalar { negative, token }) => {
                number(token).is_some_and(|found| numbers.contains(&if negative { -found } else { found }))
            }
            (Harmless::Word(word), Passed::Scalar { negative: false, token }) => token == Token::Word(word),
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
        #[expect(clippy::cast_precision_loss, reason = "what is compared with is small")]
        Token::Integer(digits) => literal::integer(digits).map(|number| number as f64),
        _ => None,
    }
}

impl<'a> Reader<'a> {
    /// Passes over the value of a field whose name has just been read.
    pub(super) fn pass_over(&mut self) -> Result<Passed<'a>, NetError> {
        let colon = self.take(b':')?;
        match self.next {
            Token::Symbol(b'{' | b'<') => self.pass_over_message(),
            Token::Symbol(b'[') => self.pass_over_list(),
            _ if colon => self.pass_over_scalar(),
            _ => Err(self.expected("\":\" or \"{\"")),
        }
    }

    /// Passes over an extension, or the message of an `Any`: its name in brackets, and its value.
    pub(super) fn pass_over_extension(&mut self) -> Result<(), NetError> {
        self.pass_over_bracketed_name()?;
        self.pass_over().map(drop)
    }

    fn pass_over_bracketed_name(&mut self) -> Result<(), NetError> {
        loop {
            // First the bracket, then the point or the stroke between two words.
            self.advance()?;
            if !matches!(self.next, Token::Word(_)) {
                return Err(self.expected("a name"));
            }
            self.advance()?;
            // A type's address may hold hyphens too.
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

    fn pass_over_message(&mut self) -> Result<Passed<'a>, NetError> {
        let close = self.open()?;
        let empty = self.next == close;
        while self.next != close {
            match self.next {
                Token::Word(name) => {
                    self.note_filler(name);
                    self.advance()?;
                    self.pass_over()?;
                }
                Token::Symbol(b'[') => self.pass_over_extension()?,
                _ => return Err(self.expected("a field")),
            }
            self.separator()?;
        }
        self.close()?;
        Ok(if empty { Passed::Empty } else { Passed::Other })
    }

    fn pass_over_list(&mut self) -> Result<Passed<'a>, NetError> {
        self.advance()?;
        if self.take(b']')? {
            return Ok(Passed::Other);
        }
        loop {
            match self.next {
                Token::Symbol(b'{' | b'<') => self.pass_over_message()?,
                _ => self.pass_over_scalar()?,
            };
            if self.take(b']')? {
                return Ok(Passed::Other);
            }
            if !self.take(b',')? {
                return Err(self.expected("\",\" or \"]\""));
            }
        }
    }

    fn pass_over_scalar(&mut self) -> Result<Passed<'a>, NetError> {
        if matches!(self.next, Token::Quoted(_)) {
            while matches!(self.next, Token::Quoted(_)) {
                self.advance()?;
            }
            return Ok(Passed::Other);
        }
        let negative = self.take(b'-')?;
        let token = self.next;
        match token {
            Token::Integer(_) | Token::Float(_) => {}
            Token::Word(word) if !negative || literal::constant(word).is_some() => {}
            _ => return Err(self.expected("a value")),
        }
        self.advance()?;
        Ok(Passed::Scalar { negative, token })
    }
}
