//! The file `checkpoint` as text: protobuf's text format, printed as protobuf's Python does.

use std::fmt::Write as _;

use crate::proto::CheckpointState;

/// What is wrong with a text, and in which of its lines, counted from 1.
pub(super) type Fault = (usize, String);

/// Returns the text that Python's `text_format.MessageToString` returns.
pub(super) fn print(state: &CheckpointState) -> String {
    let mut text = String::new();
    if !state.model_checkpoint_path.is_empty() {
        print_string(&mut text, "model_checkpoint_path", &state.model_checkpoint_path);
    }
    for path in &state.all_model_checkpoint_paths {
        print_string(&mut text, "all_model_checkpoint_paths", path);
    }
    // Writing to a string cannot fail.
    for timestamp in &state.all_model_checkpoint_timestamps {
        let _ = writeln!(text, "all_model_checkpoint_timestamps: {}", python_float(*timestamp));
    }
    // Only +0.0 is the default, which is not stored.
    if state.last_preserved_timestamp.to_bits() != 0 {
        let _ = writeln!(text, "last_preserved_timestamp: {}", python_float(state.last_preserved_timestamp));
    }
    text
}

fn print_string(text: &mut String, field: &str, value: &str) {
    let _ = write!(text, "{field}: \"");
    for character in value.chars() {
        match character {
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '"' | '\'' | '\\' => text.extend(['\\', character]),
            '\0'..' ' | '\x7f' => drop(write!(text, "\\{:03o}", u32::from(character))),
            _ => text.push(character),
        }
    }
    text.push_str("\"\n");
}

/// A number as Python's `str` has it: the shortest digits that are read as the same number, with an exponent
/// below 1e-4 and from 1e16.
fn python_float(number: f64) -> String {
    if !number.is_finite() {
        // Python's not-a-number has no sign.
        return if number.is_nan() { "nan".to_owned() } else { number.to_string() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse() {
        Ok(-4_i32..16) => format!("{number:?}"),
        Ok(exponent @ ..0) => format!("{digits}e-{:02}", exponent.unsigned_abs()),
        _ => format!("{digits}e+{exponent}"),
    }
}

/// Reads a text. Fields that the message does not have are passed over; of a field that is there twice, the
/// last one counts.
pub(super) fn parse(text: &str) -> Result<CheckpointState, Fault> {
    let mut tokens = Tokens { rest: text, line: 1 };
    let mut state = CheckpointState::default();
    while let Some(field) = tokens.field_name()? {
        match &field[..] {
            "model_checkpoint_path" => state.model_checkpoint_path = tokens.string_value()?,
            "all_model_checkpoint_paths" => {
                tokens.values(|tokens| {
                    state.all_model_checkpoint_paths.push(tokens.string()?);
                    Ok(())
                })?;
            }
            "all_model_checkpoint_timestamps" => {
                tokens.values(|tokens| {
                    state.all_model_checkpoint_timestamps.push(tokens.number()?);
                    Ok(())
                })?;
            }
            "last_preserved_timestamp" => {
                tokens.colon()?;
                state.last_preserved_timestamp = tokens.number()?;
            }
            _ => tokens.pass_over_value()?,
        }
        let _ = tokens.take(';') || tokens.take(',');
    }
    Ok(state)
}

/// The rest of a text.
struct Tokens<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Tokens<'a> {
    fn fault<T>(&self, message: impl Into<String>) -> Result<T, Fault> {
        Err((self.line, message.into()))
    }

    fn advance(&mut self, bytes: usize) -> &'a str {
        let (front, rest) = self.rest.split_at(bytes);
        self.line += front.bytes().filter(|&byte| byte == b'\n').count();
        self.rest = rest;
        front
    }

    /// Passes over white space and comments.
    fn pass_space(&mut self) {
        loop {
            let space = self.rest.len() - self.rest.trim_ascii_start().len();
            self.advance(space);
            if !self.rest.starts_with('#') {
                return;
            }
            self.advance(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
    }

    /// Takes a character, if it is the next one.
    fn take(&mut self, character: char) -> bool {
        self.pass_space();
        let is_next = self.rest.starts_with(character);
        if is_next {
            self.advance(character.len_utf8());
        }
        is_next
    }

    fn colon(&mut self) -> Result<(), Fault> {
        if self.take(':') { Ok(()) } else { self.fault(format!("`:` is due before {}", self.shown())) }
    }

    /// What comes next, for a message.
    fn shown(&self) -> String {
        match self.rest.split_whitespace().next() {
            Some(word) => format!("`{}`", word.chars().take(40).collect::<String>()),
            None => "the end of the file".to_owned(),
        }
    }

    /// A name, a number: as far as its characters go.
    fn word(&mut self) -> Option<&'a str> {
        self.pass_space();
        let is_other = |character: char| !character.is_ascii_alphanumeric() && !"_+-.".contains(character);
        let end = self.rest.find(is_other).unwrap_or(self.rest.len());
        (end > 0).then(|| self.advance(end))
    }

    /// The name of the next field, or `None` at the end.
    fn field_name(&mut self) -> Result<Option<String>, Fault> {
        self.pass_space();
        if self.rest.is_empty() {
            return Ok(None);
        }
        if self.take('[') {
            // An extension, which this message has not.
            let Some(end) = self.rest.find(']') else { return self.fault("a `[` has no `]`") };
            return Ok(Some(format!("[{}", self.advance(end + 1))));
        }
        match self.word() {
            Some(word) => Ok(Some(word.to_owned())),
            None => self.fault(format!("a field's name is due, not {}", self.shown())),
        }
    }

    /// The values of a field that may have many: one, or a list.
    fn values(&mut self, mut value: impl FnMut(&mut Self) -> Result<(), Fault>) -> Result<(), Fault> {
        self.colon()?;
        if !self.take('[') {
            return value(self);
        }
        if self.take(']') {
            return Ok(());
        }
        loop {
            value(self)?;
            if self.take(']') {
                return Ok(());
            }
            if !self.take(',') {
                return self.fault(format!("`,` or `]` is due, not {}", self.shown()));
            }
        }
    }

    fn string_value(&mut self) -> Result<String, Fault> {
        self.colon()?;
        self.string()
    }

    /// A string, or several that are joined.
    fn string(&mut self) -> Result<String, Fault> {
        let mut bytes = Vec::new();
        let line = self.line;
        if !self.quoted(&mut bytes)? {
            return self.fault(format!("a string in quotes is due, not {}", self.shown()));
        }
        while self.quoted(&mut bytes)? {}
        String::from_utf8(bytes).map_err(|_| (line, "a path is not UTF-8, which TensorFlow needs".to_owned()))
    }

    /// Appends what a string in quotes stands for; `false` if none is next.
    fn quoted(&mut self, bytes: &mut Vec<u8>) -> Result<bool, Fault> {
        self.pass_space();
        let Some(quote @ ('"' | '\'')) = self.rest.chars().next() else { return Ok(false) };
        self.advance(1);
        loop {
            let Some(end) = self.rest.find(['\\', '\n', quote]) else {
                return self.fault("a string has no end");
            };
            bytes.extend_from_slice(self.advance(end).as_bytes());
            match self.rest.as_bytes().first() {
                Some(b'\\') => self.escape(bytes)?,
                Some(b'\n') => return self.fault("a string ends with its line: a quote is missing"),
                _ => {
                    self.advance(1);
                    return Ok(true);
                }
            }
        }
    }

    /// Appends what an escape stands for.
    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), Fault> {
        let Some(kind) = self.rest.chars().nth(1) else { return self.fault("a string has no end") };
        let plain = match kind {
            'n' => b'\n',
            't' => b'\t',
            'r' => b'\r',
            'a' => 0x07,
            'b' => 0x08,
            'f' => 0x0c,
            'v' => 0x0b,
            '\\' | '\'' | '"' | '?' => kind as u8,
            '0'..='7' => return self.code(1, 3, 8, bytes),
            'x' | 'X' => return self.code(2, 2, 16, bytes),
            'u' | 'U' => return self.unicode(if kind == 'u' { 4 } else { 8 }, bytes),
            _ => return self.fault(format!("\\{} is no escape", kind.escape_default())),
        };
        self.advance(2);
        bytes.push(plain);
        Ok(())
    }

    /// The digits of an escape that start at `from`.
    fn digits(&self, from: usize, digits_max: usize, radix: u32) -> (usize, u32) {
        let digits = self.rest[from..].chars().take(digits_max).map_while(|digit| digit.to_digit(radix));
        digits.fold((0, 0), |(count, number), digit| (count + 1, number * radix + digit))
    }

    fn code(&mut self, from: usize, digits: usize, radix: u32, bytes: &mut Vec<u8>) -> Result<(), Fault> {
        let (count, number) = self.digits(from, digits, radix);
        match u8::try_from(number) {
            Ok(byte) if count > 0 => bytes.push(byte),
            _ => return self.fault("an escape is no byte"),
        }
        self.advance(from + count);
        Ok(())
    }

    fn unicode(&mut self, digits: usize, bytes: &mut Vec<u8>) -> Result<(), Fault> {
        let (count, number) = self.digits(2, digits, 16);
        let Some(character) = char::from_u32(number).filter(|_| count == digits) else {
            return self.fault("an escape is no character");
        };
        bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        self.advance(2 + count);
        Ok(())
    }

    fn number(&mut self) -> Result<f64, Fault> {
        let line = self.line;
        let word = self.word().unwrap_or_default();
        // Protobuf allows C's suffix.
        let plain =
            word.strip_suffix(['f', 'F']).filter(|front| front.ends_with(|end: char| end.is_ascii_digit()));
        let number = plain.unwrap_or(word).parse();
        number.map_err(|_| {
            (
                line,
                format!(
                    "a number is due, not {}",
                    if word.is_empty() { self.shown() } else { format!("`{word}`") }
                ),
            )
        })
    }

    /// Passes over the value of a field that is not known.
    fn pass_over_value(&mut self) -> Result<(), Fault> {
        let mut due = Vec::new();
        let is_message = !self.take(':');
        loop {
            self.pass_space();
            match self.rest.chars().next() {
                Some('{') => due.push('}'),
                Some('<') => due.push('>'),
                Some('[') => due.push(']'),
                Some(end @ ('}' | '>' | ']')) if due.last() == Some(&end) => {
                    due.pop();
                }
                Some('"' | '\'') => {
                    while self.quoted(&mut Vec::new())? {}
                    if due.is_empty() {
                        return Ok(());
                    }
                    continue;
                }
                Some(':' | ',' | ';') if !due.is_empty() => {}
                _ if (!is_message || !due.is_empty()) && self.word().is_some() => {
                    if due.is_empty() {
                        return Ok(());
                    }
                    continue;
                }
                _ => return self.fault(format!("a value is due, not {}", self.shown())),
            }
            self.advance(1);
            if due.is_empty() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_printed_as_python_prints_them() {
        for (number, due) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (1_795_331_791.503_457_3, "1795331791.5034573"),
            (1_795_331_791.0, "1795331791.0"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.000_123, "0.000123"),
            (0.000_01, "1e-05"),
            (1.5e-5, "1.5e-05"),
            (1e15, "1000000000000000.0"),
            (1.234_567_890_123_456_7e15, "1234567890123456.8"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (-1.5e300, "-1.5e+300"),
            (5e-324, "5e-324"),
            (1e22, "1e+22"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (-f64::NAN, "nan"),
        ] {
            assert_eq!(python_float(number), due);
        }
    }

    #[test]
    fn odd_paths_are_escaped_as_python_escapes_them() {
        let path = "a'b\"c\\d\n\t\r\x01\x7f\u{e9}\u{1f600} ";
        let state = CheckpointState { model_checkpoint_path: path.to_owned(), ..Default::default() };
        let due = "model_checkpoint_path: \"a\\'b\\\"c\\\\d\\n\\t\\r\\001\\177\u{e9}\u{1f600} \"\n";
        assert_eq!(print(&state), due);
        assert_eq!(parse(due), Ok(state));
    }

    #[test]
    fn whatever_text_format_allows_is_read() {
        let text = r#"
            # A comment.
            model_checkpoint_path: 'old', model_checkpoint_path:"mo" # joined
              'del\x2d\1012\u00e9' ;
            all_model_checkpoint_paths: ["a", 'b'] all_model_checkpoint_paths: [];
            later_field: 17 another { deep: < x: "}" y: [1, -inf] > z: "a" "b" }, [an.extension]: { a: 1 }
            all_model_checkpoint_timestamps: [1, 2.5e0] all_model_checkpoint_timestamps: 3f
            last_preserved_timestamp: inf
        "#;
        let state = parse(text).unwrap();
        assert_eq!(state.model_checkpoint_path, "model-A2\u{e9}");
        assert_eq!(state.all_model_checkpoint_paths, ["a", "b"]);
        assert_eq!(state.all_model_checkpoint_timestamps, [1.0, 2.5, 3.0]);
        assert_eq!(state.last_preserved_timestamp, f64::INFINITY);
    }

    #[test]
    fn what_is_no_text_of_a_state_names_the_line() {
        for (text, line, due) in [
            ("model_checkpoint_path: \"a", 1, "a string has no end"),
            ("\nmodel_checkpoint_path: \"a\nb\"", 2, "a quote is missing"),
            ("model_checkpoint_path: model", 1, "a string in quotes is due, not `model`"),
            ("model_checkpoint_path \"a\"", 1, "`:` is due before `\"a\"`"),
            ("model_checkpoint_path: \"\\xff\"", 1, "not UTF-8"),
            ("model_checkpoint_path: \"\\q\"", 1, "\\q is no escape"),
            ("model_checkpoint_path: \"\\", 1, "a string has no end"),
            ("model_checkpoint_path: \"\\777\"", 1, "no byte"),
            ("model_checkpoint_path: \"\\ud800\"", 1, "no character"),
            ("# x\n\nlast_preserved_timestamp: soon", 3, "a number is due, not `soon`"),
            ("last_preserved_timestamp: ", 1, "a number is due, not the end of the file"),
            ("all_model_checkpoint_paths: [\"a\" 1]", 1, "`,` or `]` is due, not `1]`"),
            ("unknown", 1, "a value is due, not the end of the file"),
            ("unknown { a: 1 ", 1, "a value is due, not the end of the file"),
            ("unknown { a: 1 >", 1, "a value is due, not `>`"),
            ("\0", 1, "a field's name is due, not `\0`"),
            ("[ext", 1, "a `[` has no `]`"),
        ] {
            let (found_line, message) = parse(text).unwrap_err();
            assert!(found_line == line && message.contains(due), "{text:?}: {found_line}: {message}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(
            model_checkpoint_path: String, all_model_checkpoint_paths: Vec<String>,
            all_model_checkpoint_timestamps in prop::collection::vec(prop::num::f64::ANY, 0..4),
            last_preserved_timestamp in prop::num::f64::ANY,
        ) {
            let state = CheckpointState {
                model_checkpoint_path, all_model_checkpoint_paths, all_model_checkpoint_timestamps,
                last_preserved_timestamp,
            };
            let text = print(&state);
            let read = parse(&text).unwrap();
            // Equal bits, but for not-a-number's.
            prop_assert_eq!(print(&read), text);
        }

        #[test]
        fn any_text_is_a_state_or_an_error(text in r#"[a-c_:;,"'\\{}<>\[\]0-9x# \n\PC]{0,60}"#) {
            let _ = parse(&text);
            let _ = parse(&format!("model_checkpoint_path: {text}"));
            let _ = parse(&format!("unknown {text}"));
        }
    }
}
