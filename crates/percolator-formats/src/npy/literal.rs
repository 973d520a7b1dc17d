//! The Python literal that an NPY header is.

use crate::Fault;

/// The most that values are nested. A structure inside a structure needs three levels.
const DEPTH_MAX: u32 = 48;

/// A value as Python writes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Text(String),
    Number(u64),
    Truth(bool),
    Tuple(Vec<Literal>),
    List(Vec<Literal>),
    Dict(Vec<(String, Literal)>),
}

/// Parses a literal with nothing but spaces behind it.
pub(super) fn parse(text: &str) -> Result<Literal, Fault> {
    let mut parser = LiteralParser { text, rest: text };
    let value = parser.value(0)?;
    match parser.peek() {
        None => Ok(value),
        Some(other) => Err(parser.wrong(&format!("{other:?} follows the value"))),
    }
}

struct LiteralParser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl LiteralParser<'_> {
    fn wrong(&self, what: &str) -> Fault {
        let at = self.text.len().saturating_sub(self.rest.len());
        Fault::new(format!("the header is no dict of Python: {what}, at its byte {at}"))
    }

    /// The next character that is no white space.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n', '\0']);
        self.rest.chars().next()
    }

    fn take(&mut self, token: &str) -> bool {
        self.peek();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), Fault> {
        if self.take(token) { Ok(()) } else { Err(self.wrong(&format!("{token:?} is missing"))) }
    }

    fn value(&mut self, depth: u32) -> Result<Literal, Fault> {
        if depth > DEPTH_MAX {
            return Err(self.wrong("values are nested too deeply"));
        }
        match self.peek() {
            Some('{') => self.dict(depth),
            Some('(') => self.tuple(depth),
            Some('[') => {
                self.take("[");
                self.items("]", depth).map(|(items, _)| Literal::List(items))
            }
            Some('\'' | '"') => self.text().map(Literal::Text),
            Some('0'..='9') => self.number(),
            Some(_) if self.take("True") => Ok(Literal::Truth(true)),
            Some(_) if self.take("False") => Ok(Literal::Truth(false)),
            // Python 2's prefix of text, and Python 3's of bytes.
            Some('u' | 'b') => {
                self.rest = self.rest.get(1..).unwrap_or_default();
                self.text().map(Literal::Text)
            }
            Some(other) => Err(self.wrong(&format!("{other:?} begins no value"))),
            None => Err(self.wrong("it ends where a value is due")),
        }
    }

    fn dict(&mut self, depth: u32) -> Result<Literal, Fault> {
        self.expect("{")?;
        let mut entries = Vec::new();
        while !self.take("}") {
            let key = self.text()?;
            self.expect(":")?;
            entries.push((key, self.value(depth.saturating_add(1))?));
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Literal::Dict(entries))
    }

    /// A value in parentheses is a tuple only with a comma.
    fn tuple(&mut self, depth: u32) -> Result<Literal, Fault> {
        self.expect("(")?;
        let (mut items, comma) = self.items(")", depth)?;
        Ok(match items.pop() {
            Some(item) if items.is_empty() && !comma => item,
            last => {
                items.extend(last);
                Literal::Tuple(items)
            }
        })
    }

    /// Values up to a closing bracket, and whether a comma stood behind the last one.
    fn items(&mut self, end: &str, depth: u32) -> Result<(Vec<Literal>, bool), Fault> {
        let (mut items, mut comma) = (Vec::new(), false);
        while !self.take(end) {
            items.push(self.value(depth.saturating_add(1))?);
            comma = self.take(",");
            if !comma {
                self.expect(end)?;
                break;
            }
        }
        Ok((items, comma))
    }

    fn number(&mut self) -> Result<Literal, Fault> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let number = digits.parse().map_err(|_| self.wrong(&format!("{digits} exceeds 64 bits")))?;
        // Python 2 marks long integers.
        self.rest = rest.strip_prefix('L').unwrap_or(rest);
        Ok(Literal::Number(number))
    }

    fn text(&mut self) -> Result<String, Fault> {
        let quote = match self.peek() {
            Some(quote @ ('\'' | '"')) => quote,
            _ => return Err(self.wrong("a text is due")),
        };
        let mut text = String::new();
        let mut chars = self.rest.chars();
        chars.next();
        loop {
            match chars.next() {
                Some('\\') => {
                    let escaped = escape(&mut chars).ok_or_else(|| self.wrong("an escape is unknown"))?;
                    text.push(escaped);
                }
                Some(end) if end == quote => break,
                Some(char) => text.push(char),
                None => return Err(self.wrong("a text does not end")),
            }
        }
        self.rest = chars.as_str();
        Ok(text)
    }
}

/// What stands behind a backslash, as `repr` writes it.
fn escape(chars: &mut std::str::Chars<'_>) -> Option<char> {
    let digits = match chars.next()? {
        'n' => return Some('\n'),
        'r' => return Some('\r'),
        't' => return Some('\t'),
        char @ ('\\' | '\'' | '"') => return Some(char),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => return None,
    };
    let mut code: u32 = 0;
    for _ in 0..digits {
        code = code.checked_mul(16)?.checked_add(chars.next()?.to_digit(16)?)?;
    }
    char::from_u32(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_numpy_writes_is_parsed() {
        let text = "{'descr': [('id', '<i4'), ('', '|V3')], 'fortran_order': False, 'shape': (6,), }    \n";
        let Literal::Dict(entries) = parse(text).unwrap() else { panic!("it is a dict") };
        let names: Vec<_> = entries.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["descr", "fortran_order", "shape"]);
        assert_eq!(entries.get(1).unwrap().1, Literal::Truth(false));
        assert_eq!(entries.get(2).unwrap().1, Literal::Tuple(vec![Literal::Number(6)]));
    }

    #[test]
    fn tuples_have_commas() {
        assert_eq!(parse("()"), Ok(Literal::Tuple(Vec::new())));
        assert_eq!(parse("(5)"), Ok(Literal::Number(5)));
        assert_eq!(parse("(5L, )"), Ok(Literal::Tuple(vec![Literal::Number(5)])));
        assert_eq!(parse("(5, 3)"), Ok(Literal::Tuple(vec![Literal::Number(5), Literal::Number(3)])));
    }

    #[test]
    fn texts_have_escapes() {
        assert_eq!(parse(r#""it's""#), Ok(Literal::Text("it's".to_owned())));
        assert_eq!(parse(r"'a\'\\\x7f\u4fe1\U0001f9ed'"), Ok(Literal::Text("a'\\\u{7f}信🧭".to_owned())));
        assert_eq!(parse("u'x'"), Ok(Literal::Text("x".to_owned())));
        for text in [r"'\q'", r"'\ud800'", r"'\x4'", "'open", r"'\"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_literal_is_an_error() {
        let deep = "[".repeat(100_000);
        let texts = [
            "",
            "[",
            "(",
            "{",
            "{'a'}",
            "{'a': 1",
            "{1: 2}",
            "[1 2]",
            "-1",
            "None",
            "1e3",
            "1 1",
            "99999999999999999999",
        ];
        for text in texts.into_iter().chain([deep.as_str()]) {
            assert!(parse(text).is_err(), "{}", text.get(..20).unwrap_or(text));
        }
    }
}
