//! Splits bytes into tokens of protobuf's text format, each with its place.

use super::literal;
use crate::error::{NetError, TextPlace, clip, clip_written};

/// A token, which borrows from the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// An identifier: the name of a field, an enum value, or a constant.
    Word(&'a str),
    /// Decimal, hexadecimal or octal digits, without a sign.
    Integer(&'a str),
    /// Digits with a point, an exponent or a trailing `f`, without a sign.
    Float(&'a str),
    /// The content between two quotes, with its escapes as written and already checked.
    Quoted(&'a [u8]),
    /// One of [`SYMBOLS`].
    Symbol(u8),
    /// The end of the text.
    End,
}

/// The characters that are tokens by themselves.
const SYMBOLS: &[u8] = b":{}<>[],;-./";

impl Token<'_> {
    /// The token as a message shows it.
    pub(super) fn shown(self) -> String {
        match self {
            Token::Word(text) | Token::Integer(text) | Token::Float(text) => format!("\"{}\"", clip(text)),
            Token::Quoted(raw) => format!("the string \"{}\"", clip_written(raw)),
            Token::Symbol(symbol) => format!("\"{}\"", char::from(symbol)),
            Token::End => "the end of the text".to_owned(),
        }
    }
}

/// Splits a text into tokens. Skips comments and whitespace.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    /// The offset of the next byte that is not part of a token yet.
    at: usize,
    /// That byte's place.
    place: TextPlace,
}

impl<'a> Lexer<'a> {
    /// Starts before the first token, after a byte order mark if there is one.
    pub(super) fn new(text: &'a [u8]) -> Self {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        Self { text, at: 0, place: TextPlace { line: 1, column: 1 } }
    }

    /// Returns the next token and its place.
    pub(super) fn token(&mut self) -> Result<(Token<'a>, TextPlace), NetError> {
        self.skip_whitespace();
        let place = self.place;
        let token = match self.peek() {
            None => Token::End,
            Some(b'"' | b'\'') => self.quoted(place)?,
            Some(b'0'..=b'9') => self.number(place)?,
            Some(b'.') if self.text.get(self.at + 1).is_some_and(u8::is_ascii_digit) => self.number(place)?,
            Some(byte) if byte == b'_' || byte.is_ascii_alphabetic() => {
                Token::Word(self.take_while(|byte| byte == b'_' || byte.is_ascii_alphanumeric()))
            }
            Some(symbol) if SYMBOLS.contains(&symbol) => {
                self.step();
                Token::Symbol(symbol)
            }
            Some(_) => return Err(self.no_token(place)),
        };
        Ok((token, place))
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Takes one byte. UTF-8 continuation bytes do not count as columns.
    fn step(&mut self) {
        match self.peek() {
            None => return,
            Some(b'\n') => {
                self.place.line = self.place.line.saturating_add(1);
                self.place.column = 1;
            }
            Some(0x80..=0xbf) => {}
            Some(_) => self.place.column = self.place.column.saturating_add(1),
        }
        self.at += 1;
    }

    fn skip_whitespace(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r' => self.step(),
                b'#' => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.step();
                    }
                }
                _ => return,
            }
        }
    }

    /// Takes bytes while they are `wanted`. All of these must be ASCII.
    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(&wanted) {
            self.step();
        }
        self.since(start)
    }

    /// The ASCII text from `start` to the current offset.
    fn since(&self, start: usize) -> &'a str {
        std::str::from_utf8(&self.text[start..self.at]).unwrap_or_default()
    }

    fn quoted(&mut self, place: TextPlace) -> Result<Token<'a>, NetError> {
        let quote = self.peek();
        self.step();
        let start = self.at;
        while self.peek() != quote {
            if self.peek() == Some(b'\\') {
                self.step();
            }
            match self.peek() {
                None | Some(b'\n') => {
                    let fault = "the string is not closed on its line; did you miss a quote?";
                    return Err(NetError::text(place, fault));
                }
                Some(0) => return Err(self.no_token(self.place)),
                Some(_) => self.step(),
            }
        }
        let raw = &self.text[start..self.at];
        self.step();
        literal::unescape(raw, &mut |_| ()).map_err(|(offset, fault)| {
            let columns = raw[..offset].iter().filter(|&&byte| !(0x80..=0xbf).contains(&byte)).count();
            let columns = u32::try_from(columns).unwrap_or(u32::MAX);
            let column = place.column.saturating_add(1).saturating_add(columns);
            NetError::text(TextPlace { column, ..place }, fault)
        })?;
        Ok(Token::Quoted(raw))
    }

    fn number(&mut self, place: TextPlace) -> Result<Token<'a>, NetError> {
        let start = self.at;
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        // Hexadecimal or octal, and therefore an integer: its digits are taken below.
        let hexadecimal = digits == "0" && matches!(self.peek(), Some(b'x' | b'X'));
        let prefixed = hexadecimal || (digits.len() > 1 && digits.starts_with('0'));
        let mut float = false;
        if !prefixed {
            float = self.peek() == Some(b'.');
            self.take_while(|byte| byte == b'.');
            self.take_while(|byte| byte.is_ascii_digit());
            if matches!(self.peek(), Some(b'e' | b'E')) {
                float = true;
                self.step();
                if matches!(self.peek(), Some(b'+' | b'-')) {
                    self.step();
                }
                self.take_while(|byte| byte.is_ascii_digit());
            }
            if matches!(self.peek(), Some(b'f' | b'F')) {
                float = true;
                self.step();
            }
        }
        // Whatever touches the number is part of it, and may make it invalid.
        self.take_while(|byte| byte == b'.' || byte == b'_' || byte.is_ascii_alphanumeric());
        let text = self.since(start);
        let good = if float { literal::float(text).is_some() } else { literal::is_integer(text) };
        if !good {
            let fault = format!("\"{}\" is not a number of protobuf's text format", clip(text));
            return Err(NetError::text(place, fault));
        }
        Ok(if float { Token::Float(text) } else { Token::Integer(text) })
    }

    /// The error for the current character.
    fn no_token(&self, place: TextPlace) -> NetError {
        let found = self.character();
        NetError::text(place, format!("found {found}, which starts no token of protobuf's text format"))
    }

    /// The current character as a message shows it.
    fn character(&self) -> String {
        let rest = &self.text[self.at..];
        let rest = &rest[..rest.len().min(4)];
        let valid = match std::str::from_utf8(rest) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default(),
        };
        match (valid.chars().next(), rest.first()) {
            (Some(character), _) if !character.is_control() => format!("\"{character}\""),
            (_, Some(byte)) => format!("the byte 0x{byte:02x}"),
            (_, None) => "nothing".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Vec<Token<'_>>, String> {
        let mut lexer = Lexer::new(text.as_bytes());
        let mut found = Vec::new();
        loop {
            match lexer.token().map_err(|error| error.to_string())? {
                (Token::End, _) => return Ok(found),
                (token, _) => found.push(token),
            }
        }
    }

    #[test]
    fn a_text_is_split_into_tokens() {
        use Token::{Float, Integer, Quoted, Symbol, Word};
        assert_eq!(
            tokens("layer{top:'a\\'b' # \"c\n crop_size:0x1F,_x-.5}"),
            Ok(vec![
                Word("layer"),
                Symbol(b'{'),
                Word("top"),
                Symbol(b':'),
                Quoted(b"a\\'b"),
                Word("crop_size"),
                Symbol(b':'),
                Integer("0x1F"),
                Symbol(b','),
                Word("_x"),
                Symbol(b'-'),
                Float(".5"),
                Symbol(b'}'),
            ])
        );
        assert_eq!(tokens("\u{feff} # a comment at the end"), Ok(vec![]));
    }

    #[test]
    fn numbers_are_what_protobuf_takes_for_numbers() {
        for good in ["0", "7", "017", "0x0", "0XfF", "18446744073709551616"] {
            assert_eq!(tokens(good), Ok(vec![Token::Integer(good)]));
        }
        for good in ["1.", "1.5", ".5", "0.5", "1e5", "1E+5", "1.e-5", "1f", "0F", "1.5e3f"] {
            assert_eq!(tokens(good), Ok(vec![Token::Float(good)]));
        }
        for bad in
            ["08", "0x", "0xg", "1x", "1.5.5", "1e", "1e+", "01.5", "0x1.5", "1ff", "12_3", "1..2", "019f"]
        {
            let error = format!("1:1: \"{bad}\" is not a number of protobuf's text format");
            assert_eq!(
                tokens(bad).map_err(|found| found[..error.len().min(found.len())].to_owned()),
                Err(error)
            );
        }
    }

    #[test]
    fn places_count_characters() {
        let mut lexer = Lexer::new("# größe\n  'ß' x\r\n\ty".as_bytes());
        let mut places = Vec::new();
        loop {
            let (token, place) = lexer.token().unwrap();
            places.push((place.line, place.column));
            if token == Token::End {
                break;
            }
        }
        assert_eq!(places, [(2, 3), (2, 7), (3, 2), (3, 3)]);
    }

    #[test]
    fn a_comment_may_have_any_bytes() {
        let mut lexer = Lexer::new(b"# \xff\xfe\x00\n\xff");
        let error = lexer.token().unwrap_err().to_string();
        assert_eq!(error, "2:1: found the byte 0xff, which starts no token of protobuf's text format");
    }

    #[test]
    fn a_string_ends_on_its_line() {
        for open in ["x: 'abc\n'", "x: \"abc", "x: 'abc\\", "x: 'abc\\\n'", "x: 'abc\"\n"] {
            let error = tokens(open).unwrap_err();
            assert!(error.starts_with("1:4: the string is not closed on its line"), "{open}: {error}");
        }
        for (text, at) in [("'ß\\q'", "1:3: invalid escape"), ("'ß\0'", "1:3: found the byte 0x00")] {
            let error = tokens(text).unwrap_err();
            assert!(error.starts_with(at), "{error}");
        }
    }
}
