//! A value written as Python writes it, like the header of a `.npy` file.
//!
//! Only what such a header can hold is read: texts, numbers, booleans, `None`, tuples, lists, dictionaries.
//! Nothing is evaluated. The depth is limited, and so is the length, which is the header's.

/// How many brackets may be open at once.
const DEPTH_MAX: usize = 8;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    None,
    Bool(bool),
    Number(u64),
    Text(String),
    Tuple(Vec<Literal>),
    List(Vec<Literal>),
    Dictionary(Vec<(Literal, Literal)>),
}

/// What is wrong with a text, and at which character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotLiteral {
    pub(super) at: usize,
    pub(super) found: String,
}

/// Reads a text that is one value, with white space around it.
pub(super) fn parse(text: &str) -> Result<Literal, NotLiteral> {
    let mut parser = Parser { text: text.chars().collect(), at: 0 };
    let value = parser.value(0)?;
    parser.skip_space();
    if parser.peek().is_some() {
        return Err(parser.wrong("text after the value"));
    }
    Ok(value)
}

struct Parser {
    text: Vec<char>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at = self.at.saturating_add(1);
        Some(next)
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|next| matches!(next, ' ' | '\t' | '\n' | '\r')) {
            self.next();
        }
    }

    fn wrong(&self, found: impl Into<String>) -> NotLiteral {
        NotLiteral { at: self.at, found: found.into() }
    }

    fn value(&mut self, depth: usize) -> Result<Literal, NotLiteral> {
        if depth > DEPTH_MAX {
            return Err(self.wrong(format!("more than {DEPTH_MAX} brackets in brackets")));
        }
        self.skip_space();
        match self.peek() {
            None => Err(self.wrong("the end, where a value should be")),
            Some('(') => self.tuple(depth),
            Some('[') => Ok(Literal::List(self.items(']', depth)?.0)),
            Some('{') => self.dictionary(depth),
            Some(quote @ ('\'' | '"')) => self.text(quote).map(Literal::Text),
            Some('0'..='9') => self.number().map(Literal::Number),
            Some(letter) if letter.is_ascii_alphabetic() => self.word(),
            Some(other) => Err(self.wrong(format!("{other:?}, where a value should be"))),
        }
    }

    /// Values up to this bracket, and whether a comma follows the last one.
    fn items(&mut self, end: char, depth: usize) -> Result<(Vec<Literal>, bool), NotLiteral> {
        self.next();
        let mut items = Vec::new();
        let mut has_comma = true;
        loop {
            self.skip_space();
            if self.peek() == Some(end) {
                self.next();
                return Ok((items, has_comma));
            }
            if !has_comma {
                return Err(self.wrong(format!("no comma and no {end:?} after a value")));
            }
            items.push(self.value(depth.saturating_add(1))?);
            self.skip_space();
            has_comma = self.peek() == Some(',');
            if has_comma {
                self.next();
            }
        }
    }

    fn tuple(&mut self, depth: usize) -> Result<Literal, NotLiteral> {
        let (mut items, has_comma) = self.items(')', depth)?;
        // As in Python, `(2)` is a number in brackets, and `(2,)` is a tuple.
        match items.pop() {
            Some(only) if items.is_empty() && !has_comma => Ok(only),
            last => {
                items.extend(last);
                Ok(Literal::Tuple(items))
            }
        }
    }

    fn dictionary(&mut self, depth: usize) -> Result<Literal, NotLiteral> {
        self.next();
        let mut entries = Vec::new();
        let mut has_comma = true;
        loop {
            self.skip_space();
            if self.peek() == Some('}') {
                self.next();
                return Ok(Literal::Dictionary(entries));
            }
            if !has_comma {
                return Err(self.wrong("no comma and no '}' after a value"));
            }
            let key = self.value(depth.saturating_add(1))?;
            self.skip_space();
            if self.next() != Some(':') {
                return Err(self.wrong("no colon after a key"));
            }
            entries.push((key, self.value(depth.saturating_add(1))?));
            self.skip_space();
            has_comma = self.peek() == Some(',');
            if has_comma {
                self.next();
            }
        }
    }

    fn number(&mut self) -> Result<u64, NotLiteral> {
        let mut number = 0_u64;
        while let Some(digit) = self.peek().and_then(|next| next.to_digit(10)) {
            let larger = number.checked_mul(10).and_then(|number| number.checked_add(u64::from(digit)));
            number = larger.ok_or_else(|| self.wrong("a number of more than 64 bits"))?;
            self.next();
        }
        // Python 2 marks its long integers.
        if self.peek() == Some('L') {
            self.next();
        }
        Ok(number)
    }

    fn word(&mut self) -> Result<Literal, NotLiteral> {
        let start = self.at;
        while self.peek().is_some_and(|next| next.is_ascii_alphanumeric() || next == '_') {
            self.next();
        }
        let word: String = self.text.get(start..self.at).unwrap_or_default().iter().collect();
        match &*word {
            "True" => Ok(Literal::Bool(true)),
            "False" => Ok(Literal::Bool(false)),
            "None" => Ok(Literal::None),
            _ => Err(NotLiteral { at: start, found: format!("{word:?}, where a value should be") }),
        }
    }

    fn text(&mut self, quote: char) -> Result<String, NotLiteral> {
        self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n') => return Err(self.wrong("a text without an end")),
                Some(end) if end == quote => return Ok(text),
                Some('\\') => text.push(self.escaped()?),
                Some(plain) => text.push(plain),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, NotLiteral> {
        let digits = match self.next() {
            Some(plain @ ('\\' | '\'' | '"')) => return Ok(plain),
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => return Err(self.wrong("an escape that Python does not write")),
        };
        let mut code = 0_u32;
        for _ in 0..digits {
            let digit = self.next().and_then(|next| next.to_digit(16));
            let digit = digit.ok_or_else(|| self.wrong("an escape with too few digits"))?;
            // Eight digits of four bits are as many as a u32 has.
            code = (code << 4) | digit;
        }
        char::from_u32(code).ok_or_else(|| self.wrong("an escape of no character"))
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;

    fn text(text: &str) -> Literal {
        Literal::Text(text.to_owned())
    }

    #[test]
    fn what_numpy_writes_is_read() {
        let header = "{'descr': [('qint8', '|i1')], 'fortran_order': False, 'shape': (2, 3L), }  \n";
        let field = Literal::Tuple(vec![text("qint8"), text("|i1")]);
        let shape = Literal::Tuple(vec![Literal::Number(2), Literal::Number(3)]);
        let expected = Literal::Dictionary(vec![
            (text("descr"), Literal::List(vec![field])),
            (text("fortran_order"), Literal::Bool(false)),
            (text("shape"), shape),
        ]);
        assert_eq!(parse(header), Ok(expected));
        assert_eq!(parse("()"), Ok(Literal::Tuple(vec![])));
        assert_eq!(parse("(7,)"), Ok(Literal::Tuple(vec![Literal::Number(7)])));
        assert_eq!(parse("(7)"), Ok(Literal::Number(7)));
        assert_eq!(parse("None"), Ok(Literal::None));
        assert_eq!(parse(r#""it's \x41é\u00e9\\""#), Ok(text("it's Aéé\\")));
    }

    #[test]
    fn anything_else_is_refused() {
        for wrong in [
            "",
            " ",
            "{",
            "{'a'",
            "{'a':",
            "{'a': 1",
            "{'a': 1 'b': 2}",
            "(1 2)",
            "(,)",
            "[1,,2]",
            "'a",
            "'a\nb'",
            "-1",
            "1.5",
            "99999999999999999999",
            "open('x')",
            "true",
            "'\\x4'",
            "'\\ud800'",
            "'\\q'",
            "1 2",
            "+",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert_eq!(parse("[1, ?]").unwrap_err().at, 4);
    }
}
