//! A text token by token, with the next one in view.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::lex::{Lexer, TextFault, Token};
use crate::wire::DEPTH_MAX;

#[derive(Debug)]
pub(crate) struct Tokens<'a> {
    lexer: Lexer<'a>,
    /// The next token, and where it starts.
    pub(crate) token: Token<'a>,
    pub(super) at: usize,
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(text: &'a str) -> Result<Self, TextFault> {
        let mut lexer = Lexer::new(text);
        let (token, at) = lexer.next()?;
        Ok(Tokens { lexer, token, at })
    }

    /// A fault at the next token.
    pub(crate) fn fault(&self, message: impl Into<String>) -> TextFault {
        self.fault_at(self.at, message)
    }

    pub(super) fn fault_at(&self, at: usize, message: impl Into<String>) -> TextFault {
        self.lexer.fault(at, message)
    }

    pub(crate) fn expected<T>(&self, what: &str) -> Result<T, TextFault> {
        Err(self.fault(format!("{what} should be here, and {} is", self.token)))
    }

    pub(super) fn too_deep(&self) -> TextFault {
        self.fault(format!("messages lie more than {DEPTH_MAX} deep in one another"))
    }

    /// Takes the next token.
    pub(crate) fn advance(&mut self) -> Result<Token<'a>, TextFault> {
        let (token, at) = self.lexer.next()?;
        self.at = at;
        Ok(std::mem::replace(&mut self.token, token))
    }

    /// Takes this symbol, if it is next.
    pub(crate) fn take(&mut self, symbol: char) -> Result<bool, TextFault> {
        let is_next = self.token == Token::Symbol(symbol);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    /// Takes a floating-point number. Its sign is a symbol of its own.
    pub(crate) fn number(&mut self) -> Result<f64, TextFault> {
        let value = match self.token {
            Token::Word(word) if ["inf", "infinity"].iter().any(|inf| word.eq_ignore_ascii_case(inf)) => {
                f64::INFINITY
            }
            Token::Word(word) if word.eq_ignore_ascii_case("nan") => f64::NAN,
            // It has no octal digits: 010 is ten. Neither has it hexadecimal ones.
            Token::Number(text) => match text.strip_suffix(['f', 'F']).unwrap_or(text).parse() {
                Ok(value) => value,
                Err(_) => return self.expected("a number"),
            },
            _ => return self.expected("a number"),
        };
        self.advance()?;
        Ok(value)
    }

    /// Skips the value of a field that the schema does not have, and the `:` before it. Messages may lie only
    /// so deep in it.
    pub(crate) fn skip_value(&mut self, depth: usize) -> Result<(), TextFault> {
        let mut open: Vec<char> = Vec::new();
        let has_colon = self.take(':')?;
        loop {
            if open.len() > depth {
                return Err(self.too_deep());
            }
            let is_inside = !open.is_empty();
            match self.token {
                Token::Symbol('{') => open.push('}'),
                Token::Symbol('<') => open.push('>'),
                Token::Symbol('[') => open.push(']'),
                Token::Symbol(end @ ('}' | '>' | ']')) if open.last() == Some(&end) => {
                    open.pop();
                }
                Token::Symbol('-') if has_colon => {
                    self.advance()?;
                    continue;
                }
                Token::Symbol(':' | ',' | ';') if is_inside => {}
                Token::Symbol(part) if is_inside && is_address(part) => {}
                Token::Word(_) | Token::Number(_) | Token::String(_) if is_inside || has_colon => {}
                _ => return self.expected("a value"),
            }
            self.advance()?;
            if open.is_empty() {
                return Ok(());
            }
        }
    }
}

/// Whether the name of an extension, or the address of a message of any type, may have the character where
/// text has it in brackets.
pub(super) fn is_address(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | '/' | '-' | '%' | '~' | '_')
}
