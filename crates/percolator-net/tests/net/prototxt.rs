//! Prints messages in all the ways that protobuf's text format allows.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "shared by tests only")]

use std::fmt::Write as _;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage as _, Value};

/// Prints a message; the seed selects among the ways.
pub struct Printer {
    random: u64,
    /// Whether to print only what every parser reads.
    common: bool,
    text: String,
}

impl Printer {
    pub fn new(seed: u64) -> Self {
        Printer { random: seed | 1, common: false, text: String::new() }
    }

    /// A printer that leaves out what prost-reflect does not read.
    pub fn common(seed: u64) -> Self {
        Printer { common: true, ..Self::new(seed) }
    }

    pub fn print(mut self, message: &DynamicMessage) -> String {
        self.message(message);
        self.text
    }

    /// A number below `end`.
    fn draw(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random >> 33).unwrap() % end
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.draw(choices.len())]
    }

    fn blank(&mut self) {
        let blank = self.one_of(&[" ", " ", " ", "\n", "\t", "\r\n  ", " # a 'comment' {\n"]);
        self.text.push_str(blank);
    }

    /// The fields in random order, but the values of each in theirs.
    fn message(&mut self, message: &DynamicMessage) {
        let descriptor = message.descriptor();
        let fields = descriptor.fields().filter(|field| message.has_field(field) || field.is_list());
        let mut rest: Vec<(FieldDescriptor, Vec<Value>)> = fields
            .map(|field| {
                let values = match message.get_field(&field).into_owned() {
                    Value::List(values) => values,
                    value => vec![value],
                };
                (field, values)
            })
            .collect();
        while !rest.is_empty() {
            let at = self.draw(rest.len());
            let (field, values) = &mut rest[at];
            let (field, count) = (field.clone(), values.len());
            if field.is_list() && self.draw(3) == 0 {
                let taken: Vec<_> = values.drain(..self.draw(count + 1)).collect();
                self.list(&field, &taken);
            } else if count > 0 {
                let value = values.remove(0);
                self.name(&field, false);
                self.value(&field, &value);
                self.end();
            }
            rest.retain(|(_, values)| !values.is_empty());
        }
    }

    fn name(&mut self, field: &FieldDescriptor, list: bool) {
        self.blank();
        self.text.push_str(field.name());
        let is_message = matches!(field.kind(), Kind::Message(_));
        if self.draw(8) == 0 {
            self.blank();
        }
        if !is_message || (list && self.common) || self.draw(2) == 0 {
            self.text.push(':');
        }
        if self.draw(2) == 0 {
            self.blank();
        }
    }

    fn end(&mut self) {
        let end = self.one_of(&["", "", ",", ";", " ,"]);
        self.text.push_str(end);
        self.blank();
    }

    fn list(&mut self, field: &FieldDescriptor, values: &[Value]) {
        self.name(field, true);
        self.text.push('[');
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                self.text.push(',');
                self.blank();
            }
            self.value(field, value);
        }
        self.text.push(']');
        self.end();
    }

    fn value(&mut self, field: &FieldDescriptor, value: &Value) {
        match value {
            Value::Bool(value) => {
                let spelled: &[&str] = match (value, self.common) {
                    (true, false) => &["true", "True", "t", "1", "0x1", "01"],
                    (false, false) => &["false", "False", "f", "0", "0x0", "00"],
                    (true, true) => &["true", "True", "t", "1"],
                    (false, true) => &["false", "False", "f", "0"],
                };
                let spelled = self.one_of(spelled);
                self.text.push_str(spelled);
            }
            Value::I32(value) => self.integer(i128::from(*value)),
            Value::I64(value) => self.integer(i128::from(*value)),
            Value::U32(value) => self.integer(i128::from(*value)),
            Value::F32(value) => self.float(*value),
            Value::String(value) => self.string(value),
            Value::EnumNumber(number) => {
                let Kind::Enum(descriptor) = field.kind() else { unreachable!() };
                let name = descriptor.get_value(*number).unwrap();
                if self.draw(3) == 0 {
                    self.integer(i128::from(*number))
                } else {
                    self.text.push_str(name.name())
                }
            }
            Value::Message(message) => {
                let (open, close) = self.one_of(&[('{', '}'), ('{', '}'), ('<', '>')]);
                self.text.push(open);
                self.message(message);
                self.text.push(close);
            }
            other => unreachable!("the schema has no {other:?}"),
        }
    }

    fn integer(&mut self, value: i128) {
        if value < 0 {
            self.text.push('-');
            if self.draw(4) == 0 {
                self.blank();
            }
        }
        let size = value.unsigned_abs();
        match self.draw(4) {
            0 => write!(self.text, "{size:#x}").unwrap(),
            1 => write!(self.text, "0{size:o}").unwrap(),
            _ => write!(self.text, "{size}").unwrap(),
        }
    }

    fn float(&mut self, value: f32) {
        if value.is_infinite() {
            let word = self.one_of(&["inf", "infinity"]);
            self.text.push_str(if value < 0.0 { "-" } else { "" });
            self.text.push_str(word);
            return;
        }
        match self.draw(3) {
            0 => write!(self.text, "{value:e}").unwrap(),
            1 => write!(self.text, "{value:?}").unwrap(),
            // Without a point or an exponent if it is whole.
            _ => write!(self.text, "{value}").unwrap(),
        }
        if self.draw(4) == 0 {
            let suffix = if self.common { "f" } else { self.one_of(&["f", "F"]) };
            self.text.push_str(suffix);
        }
    }

    fn string(&mut self, value: &str) {
        let characters: Vec<char> = value.chars().collect();
        let mut rest = &characters[..];
        loop {
            let (part, after) =
                rest.split_at(if self.draw(3) == 0 { self.draw(rest.len() + 1) } else { rest.len() });
            let quote = self.one_of(&['"', '\'']);
            self.text.push(quote);
            for &character in part {
                self.character(character, quote);
            }
            self.text.push(quote);
            if after.is_empty() {
                return;
            }
            rest = after;
            if self.draw(2) == 0 {
                self.blank();
            }
        }
    }

    fn character(&mut self, character: char, quote: char) {
        let code = u32::from(character);
        match self.draw(8) {
            0 => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    write!(self.text, "\\{byte:03o}").unwrap();
                }
            }
            1 => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    write!(self.text, "\\x{byte:02x}").unwrap();
                }
            }
            2 if code < 0x1_0000 => write!(self.text, "\\u{code:04x}").unwrap(),
            2 if !self.common => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(self.text, "\\u{unit:04X}").unwrap();
                }
            }
            2 | 3 => write!(self.text, "\\U{code:08x}").unwrap(),
            _ if character == '\n' => self.text.push_str("\\n"),
            _ if character == '\\' || character == quote => write!(self.text, "\\{character}").unwrap(),
            _ if self.common && character.is_control() => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    write!(self.text, "\\{byte:03o}").unwrap();
                }
            }
            _ => self.text.push(character),
        }
    }
}
