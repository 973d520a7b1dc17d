//! JSON texts as values, in which no number is lost: RFC 8259, strictly.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::borrow::Cow;
use std::collections::HashMap;

use crate::{Fault, Part, Value};

/// How deep values may be nested.
const DEPTH_MAX: usize = 128;

/// From this number of members on, repeated names are found with a table.
const TABLE_FROM: usize = 16;

/// Reads one value, which is all of the text but white space.
///
/// # Errors
///
/// [`Fault`] with the column, from 1.
pub(crate) fn value(text: &[u8]) -> Result<Value<'_>, Fault> {
    let mut parser = JsonParser::new(text)?;
    let value = parser.value(JsonBuild::All)?;
    parser.end()?;
    Ok(value)
}

/// Reads the member of an object that has this name, the last if there are several; `None` if there is none,
/// or the text is no object. Of the others it builds nothing.
///
/// # Errors
///
/// As [`value`].
pub(crate) fn member<'a>(text: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
    let mut parser = JsonParser::new(text)?;
    parser.space();
    let mut found = None;
    if parser.peek() == Some(b'{') {
        parser.members(|parser, key| {
            let value = parser.value(if key == name { JsonBuild::All } else { JsonBuild::Nothing })?;
            if key == name {
                found = Some(value);
            }
            Ok(())
        })?;
    } else {
        parser.value(JsonBuild::Nothing)?;
    }
    parser.end()?;
    Ok(found)
}

/// Whether a text is an object, if it is JSON.
pub(crate) fn is_object(text: &[u8]) -> bool {
    text.trim_ascii_start().first() == Some(&b'{')
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum JsonBuild {
    All,
    /// The value is checked, and becomes null.
    Nothing,
}

struct JsonParser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> JsonParser<'a> {
    fn new(text: &'a [u8]) -> Result<Self, Fault> {
        let text = std::str::from_utf8(text).map_err(|error| {
            Fault::new(format!("it is not UTF-8, at byte {} of the line; convert it", error.valid_up_to()))
        })?;
        Ok(JsonParser { text, at: 0, depth: 0 })
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn pass(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    /// Passes over a byte if it comes next.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.pass(usize::from(is_next));
        is_next
    }

    fn space(&mut self) {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let bytes = self.rest().iter().take_while(|byte| is_space(byte)).count();
        self.pass(bytes);
    }

    fn wrong(&self, what: impl Into<String>) -> Fault {
        let before = self.text.get(..self.at).unwrap_or(self.text).chars().count();
        Fault::new(format!("column {}: {}", before.saturating_add(1), what.into()))
    }

    /// What comes next is not what is expected.
    fn unexpected(&self, expected: &str) -> Fault {
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            None => self.wrong(format!("the line ends where {expected} is expected; it is cut")),
            Some(found) => self.wrong(format!("{found:?} is found where {expected} is expected")),
        }
    }

    fn end(&mut self) -> Result<(), Fault> {
        self.space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("the end of the line")),
        }
    }

    fn value(&mut self, build: JsonBuild) -> Result<Value<'a>, Fault> {
        self.space();
        match self.peek() {
            Some(b'{') => self.object(build),
            Some(b'[') => self.list(build),
            Some(b'"') => self.string(build).map(Value::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<Value<'a>, Fault> {
        let words = [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))];
        for (word, value) in words {
            if self.rest().starts_with(word.as_bytes()) {
                self.pass(word.len());
                return Ok(value);
            }
        }
        Err(self.no_number().unwrap_or_else(|| self.unexpected("a value")))
    }

    /// What Python writes for numbers that JSON does not have.
    fn no_number(&self) -> Option<Fault> {
        let word =
            ["NaN", "Infinity", "-Infinity"].into_iter().find(|w| self.rest().starts_with(w.as_bytes()))?;
        Some(
            self.wrong(format!(
                "{word} is no JSON, though Python writes it; write null, or the text {word:?}"
            )),
        )
    }

    /// Runs `inside` in brackets.
    fn nested<T>(&mut self, inside: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.depth >= DEPTH_MAX {
            return Err(self.wrong(format!("values are nested more than {DEPTH_MAX} deep")));
        }
        self.depth = self.depth.saturating_add(1);
        self.pass(1);
        let result = inside(self)?;
        self.depth = self.depth.saturating_sub(1);
        Ok(result)
    }

    fn list(&mut self, build: JsonBuild) -> Result<Value<'a>, Fault> {
        self.nested(|parser| {
            let mut values = Vec::new();
            parser.space();
            if parser.take(b']') {
                return Ok(Value::List(values));
            }
            loop {
                let value = parser.value(build)?;
                if build == JsonBuild::All {
                    values.push(value);
                }
                parser.space();
                if parser.take(b']') {
                    return Ok(Value::List(values));
                }
                if !parser.take(b',') {
                    return Err(parser.unexpected("',' or ']'"));
                }
            }
        })
    }

    fn object(&mut self, build: JsonBuild) -> Result<Value<'a>, Fault> {
        let mut members = Vec::new();
        self.members(|parser, name| {
            let value = parser.value(build)?;
            if build == JsonBuild::All {
                members.push((name, value));
            }
            Ok(())
        })?;
        Ok(Value::Struct(last_of_each(members)))
    }

    /// Reads an object; `member` reads the value that follows a name.
    fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.nested(|parser| {
            parser.space();
            if parser.take(b'}') {
                return Ok(());
            }
            loop {
                parser.space();
                if parser.peek() != Some(b'"') {
                    return Err(parser.unexpected("a member's name in quotes"));
                }
                let name = parser.string(JsonBuild::All)?;
                parser.space();
                if !parser.take(b':') {
                    return Err(parser.unexpected("':'"));
                }
                member(parser, name)?;
                parser.space();
                if parser.take(b'}') {
                    return Ok(());
                }
                if !parser.take(b',') {
                    return Err(parser.unexpected("',' or '}'"));
                }
            }
        })
    }

    fn number(&mut self) -> Result<Value<'a>, Fault> {
        let begin = self.at;
        if let Some(fault) = self.no_number() {
            return Err(fault);
        }
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        let mut is_integer = true;
        if self.take(b'.') {
            is_integer = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            is_integer = false;
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let text = self.text.get(begin..self.at).unwrap_or_default();
        let as_written = || Value::Number(Cow::Borrowed(text));
        Ok(if is_integer {
            let unsigned = || text.parse().map(Value::UInt);
            text.parse().map(Value::Int).or_else(|_| unsigned()).unwrap_or_else(|_| as_written())
        } else {
            text.parse().ok().filter(|number: &f64| number.is_finite()).map_or_else(as_written, Value::Float)
        })
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.pass(digits);
        if digits == 0 { Err(self.unexpected("a digit")) } else { Ok(()) }
    }

    fn string(&mut self, build: JsonBuild) -> Result<Cow<'a, str>, Fault> {
        let opened = self.at;
        self.pass(1);
        let mut decoded: Option<String> = None;
        loop {
            let begin = self.at;
            let stops = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
            let Some(plain) = self.rest().iter().position(stops) else {
                self.at = opened;
                return Err(self.wrong("a text begins here that does not end in its line; it is cut"));
            };
            self.pass(plain);
            // Both ends are beside ASCII characters, so this is a part of the text.
            let plain = self.text.get(begin..self.at).unwrap_or_default();
            if self.take(b'"') {
                return Ok(match decoded {
                    None => Cow::Borrowed(plain),
                    Some(text) => Cow::Owned(text + plain),
                });
            }
            if self.peek() != Some(b'\\') {
                return Err(self.unexpected("a text without control characters"));
            }
            let character = self.escape()?;
            if build == JsonBuild::All {
                let decoded = decoded.get_or_insert_default();
                decoded.push_str(plain);
                decoded.push(character);
            }
        }
    }

    fn escape(&mut self) -> Result<char, Fault> {
        let begin = self.at;
        self.pass(1);
        let letter = self.peek();
        self.pass(usize::from(letter.is_some_and(|letter| letter.is_ascii())));
        Ok(match letter {
            Some(plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let lone = |parser: &mut Self| {
                    parser.at = begin;
                    parser.wrong("half of a surrogate pair is no character, though Python writes it")
                };
                let unit = self.unit()?;
                match unit {
                    0xd800..=0xdbff if self.rest().starts_with(b"\\u") => {
                        self.pass(2);
                        let units = [unit, self.unit()?];
                        let character = char::decode_utf16(units).next().and_then(Result::ok);
                        character.ok_or_else(|| lone(self))?
                    }
                    unit => char::from_u32(u32::from(unit)).ok_or_else(|| lone(self))?,
                }
            }
            _ => {
                self.at = begin;
                return Err(self.wrong("JSON has no such escape"));
            }
        })
    }

    /// Four digits of an escape.
    fn unit(&mut self) -> Result<u16, Fault> {
        let digits = self.text.get(self.at..self.at.saturating_add(4)).unwrap_or_default();
        if digits.len() != 4 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(self.unexpected("four hexadecimal digits"));
        }
        self.pass(4);
        u16::from_str_radix(digits, 16).map_err(|error| self.wrong(error.to_string()))
    }
}

/// Of members with one name, the first place and the last value stay, as in Python.
fn last_of_each<'a>(members: Vec<Part<'a>>) -> Vec<Part<'a>> {
    let mut kept: Vec<Part<'a>> = Vec::with_capacity(members.len());
    let mut table = (members.len() > TABLE_FROM).then(HashMap::<Cow<'a, str>, usize>::new);
    for (name, value) in members {
        let before = match &mut table {
            Some(table) => {
                let index = *table.entry(name.clone()).or_insert(kept.len());
                Some(index).filter(|index| *index < kept.len())
            }
            None => kept.iter().position(|(known, _)| *known == name),
        };
        match before.and_then(|index| kept.get_mut(index)) {
            Some((_, known)) => *known = value,
            None => kept.push((name, value)),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Value<'_> {
        value(text.as_bytes()).unwrap()
    }

    fn fault(text: &str) -> String {
        let fault = value(text.as_bytes()).unwrap_err();
        assert_eq!(member(text.as_bytes(), "a").unwrap_err(), fault, "{text}");
        fault.to_string()
    }

    #[test]
    fn a_number_is_what_holds_it() {
        assert_eq!(read("-9223372036854775808"), Value::Int(i64::MIN));
        assert_eq!(read("-0"), Value::Int(0));
        assert_eq!(read("18446744073709551615"), Value::UInt(u64::MAX));
        assert_eq!(read("18446744073709551616"), Value::Number("18446744073709551616".into()));
        assert_eq!(read("-9223372036854775809"), Value::Number("-9223372036854775809".into()));
        assert_eq!(read("1e400"), Value::Number("1e400".into()));
        assert_eq!(read("1.5E-2"), Value::Float(0.015));
        assert_eq!(read("0.1"), Value::Float(0.1));
        let Value::Float(zero) = read("-0.0") else { panic!() };
        assert!(zero == 0.0 && zero.is_sign_negative());
        for text in ["01", "1.", ".5", "+1", "1e", "-", "0x1", "1_0"] {
            assert!(fault(text).starts_with("column"), "{text}");
        }
    }

    #[test]
    fn texts_are_lent_unless_escaped() {
        assert!(matches!(read("\"plain ü\""), Value::Text(Cow::Borrowed("plain ü"))));
        assert_eq!(
            read(r#""\ud83d\ude00 \u0000\/\"\\\b\f\n\r\t""#),
            Value::Text("😀 \0/\"\\\u{8}\u{c}\n\r\t".into())
        );
        for text in [r#""\ud83d""#, r#""\ude00""#, r#""\ud83d\u0041""#, r#""\ud83dx""#] {
            assert!(fault(text).starts_with("column 2: half of a surrogate pair"), "{}", fault(text));
        }
        assert_eq!(fault("\"ü\\x\""), "column 3: JSON has no such escape");
        assert!(fault("\"\\u12ü4\"").contains("four hexadecimal digits"));
        assert!(fault("\"a\tb\"").starts_with("column 3: '\\t' is found"));
        assert!(fault("{\"a\": \"cut").starts_with("column 7: a text begins here that does not end"));
    }

    #[test]
    fn of_repeated_names_the_last_value_stays() {
        assert_eq!(
            read(r#"{"a": 1, "b": [], "\u0061": 2}"#),
            Value::Struct(vec![("a".into(), Value::Int(2)), ("b".into(), Value::List(vec![]))])
        );
        assert_eq!(member(br#"{"a": 1, "b": 2, "a": 3}"#, "a").unwrap(), Some(Value::Int(3)));
        assert_eq!(member(br#"{"a": 1}"#, "b").unwrap(), None);
        assert_eq!(member(b"[1]", "a").unwrap(), None);
        let many: Vec<_> = (0..40).map(|n| format!("\"k{}\": {n}", n % 20)).collect();
        let many = format!("{{{}}}", many.join(","));
        let Value::Struct(members) = read(&many) else { panic!() };
        assert_eq!(members.len(), 20);
        assert!(members.iter().zip(20..).all(|((_, value), due)| *value == Value::Int(due)));
    }

    #[test]
    fn what_is_no_json_is_said_with_its_column() {
        assert_eq!(fault("{\"x\": NaN}").split(',').next(), Some("column 7: NaN is no JSON"));
        assert!(fault("[1, -Infinity]").starts_with("column 5: -Infinity is no JSON"));
        assert!(fault("{} {}").starts_with("column 4: '{' is found where the end of the line"));
        assert!(fault("[1 2]").starts_with("column 4:"));
        assert!(fault("{a: 1}").contains("a member's name in quotes"));
        assert!(fault("[1,").contains("the line ends where a value is expected"));
        assert!(fault("[1,]").starts_with("column 4: ']'"));
        assert!(value(b"\"\xff\"").unwrap_err().to_string().contains("not UTF-8, at byte 1"));
        let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(value(deep(DEPTH_MAX).as_bytes()).is_ok());
        assert!(fault(&deep(DEPTH_MAX + 1)).contains("nested more than 128 deep"));
        assert!(fault(&"[".repeat(1_000_000)).contains("nested"));
    }

    #[test]
    fn serde_json_reads_the_same() {
        for text in [
            r#" {"a" : [1, -2.5e3, true, false, null, "x"], "b": {"c": {}}} "#,
            r#"{"": "", "é": [[[]]], "n": 123456789012}"#,
            "[0.5, 1e10, -1024.125]",
        ] {
            let theirs: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(crate::notation::value(&read(text)), theirs, "{text}");
        }
    }
}
