//! From protobuf's text form to its binary form: fields in the order of their numbers, unknown ones last,
//! lists of numbers packed, as protobuf writes them.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use percolator_files::shown;
use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};

use super::lex::{Lexer, TextFault, Token};
use super::style::{Style, rounded};
use super::tokens::{Tokens, is_address};
use crate::wire::{DEPTH_MAX, is_packable, put_bytes, put_tag, put_varint};

/// A message that was in text.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) bytes: Vec<u8>,
    /// How its text is written.
    pub(crate) style: Style,
}

/// Returns the bytes of the message of this type that the text describes.
pub(crate) fn parse(message: &MessageDescriptor, text: &str) -> Result<Parsed, TextFault> {
    let mut parser = Parser { tokens: Tokens::new(text)?, style: Style::default() };
    let bytes = parser.message(message, &Token::End, DEPTH_MAX)?;
    Ok(Parsed { bytes, style: parser.style })
}

/// Returns the name of a text's first field.
pub(crate) fn first_name(text: &str) -> Option<&str> {
    match Lexer::new(text).next() {
        Ok((Token::Word(name), _)) => Some(name),
        _ => None,
    }
}

struct Parser<'a> {
    tokens: Tokens<'a>,
    style: Style,
}

/// The fields of a message so far.
#[derive(Default)]
struct Written {
    /// Those that the schema has, by number.
    fields: BTreeMap<u32, Occurrence>,
    /// The others, as they came: protobuf writes them last.
    unknown: Vec<u8>,
}

/// What was written of one field: whole fields, or numbers that are still to be packed.
#[derive(Default)]
struct Occurrence {
    bytes: Vec<u8>,
    is_packed: bool,
}

impl Written {
    fn at(&mut self, number: u32) -> &mut Vec<u8> {
        &mut self.fields.entry(number).or_default().bytes
    }

    fn into_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, written) in self.fields {
            if written.is_packed {
                put_bytes(&mut bytes, number, &written.bytes);
            } else {
                bytes.extend_from_slice(&written.bytes);
            }
        }
        bytes.extend_from_slice(&self.unknown);
        bytes
    }
}

impl<'a> Parser<'a> {
    /// Reads fields up to the end of their message, which is not taken.
    fn message(
        &mut self,
        message: &MessageDescriptor,
        end: &Token<'_>,
        depth: usize,
    ) -> Result<Vec<u8>, TextFault> {
        let mut written = Written::default();
        while self.tokens.token != *end {
            match self.tokens.token {
                Token::Word(name) => self.known(message, name, &mut written, depth)?,
                Token::Number(_) => self.unknown(message, &mut written, depth)?,
                Token::Symbol('[') if message.full_name() == "google.protobuf.Any" => {
                    self.any(message, &mut written, depth)?;
                }
                _ => return self.tokens.expected("the name of a field"),
            }
            if !self.tokens.take(',')? {
                self.tokens.take(';')?;
            }
        }
        if message.is_map_entry() {
            let mut fields = message.fields().filter(|field| !matches!(field.kind(), Kind::Message(_)));
            // Only Python leaves out what is 0 or empty.
            if fields.any(|field| !written.fields.contains_key(&field.number())) {
                self.style = Style::Python;
            }
        }
        Ok(written.into_bytes())
    }

    fn known(
        &mut self,
        message: &MessageDescriptor,
        name: &str,
        written: &mut Written,
        depth: usize,
    ) -> Result<(), TextFault> {
        let Some(field) = message.get_field_by_name(name) else {
            if message.reserved_names().any(|reserved| reserved == name) {
                // The field was removed from the schema, and protobuf skips what old files have of it.
                self.tokens.advance()?;
                return self.tokens.skip_value(depth);
            }
            return Err(self.tokens.fault(format!(
                "{} has no field {}",
                message.name(),
                shown::message(name)
            )));
        };
        if !field.is_list() && !field.is_map() {
            self.check_single(&field, written)?;
        }
        self.tokens.advance()?;
        let has_colon = self.tokens.take(':')?;
        if !has_colon && !matches!(field.kind(), Kind::Message(_)) {
            return self.tokens.expected("`:`");
        }
        if (field.is_list() || field.is_map()) && self.tokens.take('[')? {
            while !self.tokens.take(']')? {
                self.value(&field, written, depth)?;
                if !self.tokens.take(',')? && self.tokens.token != Token::Symbol(']') {
                    return self.tokens.expected("`,` or `]`");
                }
            }
            return Ok(());
        }
        self.value(&field, written, depth)
    }

    /// A field that a message has once may be written once, and only one of a `oneof`.
    fn check_single(&self, field: &FieldDescriptor, written: &Written) -> Result<(), TextFault> {
        if written.fields.contains_key(&field.number()) {
            return Err(self.tokens.fault(format!("a second {}, where there may be one", field.name())));
        }
        let others = field.containing_oneof();
        let mut others = others.iter().flat_map(prost_reflect::OneofDescriptor::fields);
        match others.find(|other| written.fields.contains_key(&other.number())) {
            Some(other) => {
                let message = format!("{} beside {}, where there may be one", field.name(), other.name());
                Err(self.tokens.fault(message))
            }
            None => Ok(()),
        }
    }

    fn value(
        &mut self,
        field: &FieldDescriptor,
        written: &mut Written,
        depth: usize,
    ) -> Result<(), TextFault> {
        let (number, kind) = (field.number(), field.kind());
        if let Kind::Message(inner) = &kind {
            let bytes = self.braced(inner, depth)?;
            put_bytes(written.at(number), number, &bytes);
            return Ok(());
        }
        let mut value = Vec::new();
        let wire_type = self.scalar(&kind, &mut value)?;
        if is_packable(&kind) && field.is_list() {
            written.at(number).extend_from_slice(&value);
            written.fields.entry(number).and_modify(|occurrence| occurrence.is_packed = true);
            return Ok(());
        }
        // An entry that is there, even if it is not written, is there once.
        let out = written.at(number);
        let is_default = value.iter().all(|byte| *byte == 0) && (wire_type != 2 || value.is_empty());
        if field.is_list() || field.supports_presence() || !is_default {
            put_tag(out, number, wire_type);
            if wire_type == 2 {
                put_varint(out, value.len() as u64);
            }
            out.extend_from_slice(&value);
        }
        Ok(())
    }

    /// Reads a message in braces.
    fn braced(&mut self, message: &MessageDescriptor, depth: usize) -> Result<Vec<u8>, TextFault> {
        let end = match self.tokens.token {
            Token::Symbol('{') => Token::Symbol('}'),
            Token::Symbol('<') => Token::Symbol('>'),
            _ => return self.tokens.expected("`{`"),
        };
        let Some(depth) = depth.checked_sub(1) else { return Err(self.tokens.too_deep()) };
        self.tokens.advance()?;
        let bytes = self.message(message, &end, depth)?;
        self.tokens.advance()?;
        Ok(bytes)
    }

    /// Reads one value that is not a message; returns its wire type.
    fn scalar(&mut self, kind: &Kind, out: &mut Vec<u8>) -> Result<u32, TextFault> {
        match kind {
            Kind::String | Kind::Bytes => {
                let Token::String(bytes) = &mut self.tokens.token else {
                    return self.tokens.expected("a string");
                };
                let bytes = std::mem::take(bytes);
                if matches!(kind, Kind::String) && std::str::from_utf8(&bytes).is_err() {
                    return Err(self.tokens.fault("a string that is not UTF-8"));
                }
                out.extend_from_slice(&bytes);
                self.tokens.advance()?;
                return Ok(2);
            }
            Kind::Enum(numbers) => {
                let number = self.enumerated(numbers)?;
                // Negative numbers have ten bytes, as in an int32.
                put_varint(out, i64::from(number).cast_unsigned());
                return Ok(0);
            }
            Kind::Bool => {
                put_varint(out, self.boolean()?.into());
                return Ok(0);
            }
            _ => {}
        }
        let is_negative = self.tokens.take('-')?;
        match kind {
            Kind::Float => {
                let text = if let Token::Number(text) = self.tokens.token { text } else { "" };
                let value = rounded(self.float(is_negative)?);
                if Style::is_cpps(text, value.abs()) && self.style == Style::Str {
                    self.style = Style::Cpp;
                }
                out.extend_from_slice(&value.to_le_bytes());
                return Ok(5);
            }
            Kind::Double => {
                out.extend_from_slice(&self.float(is_negative)?.to_le_bytes());
                return Ok(1);
            }
            _ => {}
        }
        self.integer(kind, is_negative, out)
    }

    fn integer(&mut self, kind: &Kind, is_negative: bool, out: &mut Vec<u8>) -> Result<u32, TextFault> {
        let Token::Number(text) = self.tokens.token else { return self.tokens.expected("an integer") };
        let Some(value) = integer(text) else { return self.tokens.expected("an integer") };
        let value = if is_negative { value.checked_neg().unwrap_or(i128::MIN) } else { value };
        let fit = |fits: bool| match fits {
            true => Ok(()),
            false => {
                Err(self.tokens.fault(format!("{value} is out of the range of {kind:?}").to_lowercase()))
            }
        };
        // As a varint has it: negative numbers in 64 bits.
        let (long, unsigned) = (i64::try_from(value), u64::try_from(value));
        let (short, short_unsigned) = (i32::try_from(value), u32::try_from(value));
        let wire_type = match kind {
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
                fit(short.is_ok())?;
                let value = short.unwrap_or_default();
                match kind {
                    Kind::Int32 => put_varint(out, i64::from(value).cast_unsigned()),
                    Kind::Sint32 => {
                        put_varint(out, u64::from(((value << 1) ^ (value >> 31)).cast_unsigned()))
                    }
                    _ => out.extend_from_slice(&value.to_le_bytes()),
                }
                if matches!(kind, Kind::Sfixed32) { 5 } else { 0 }
            }
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
                fit(long.is_ok())?;
                let value = long.unwrap_or_default();
                match kind {
                    Kind::Int64 => put_varint(out, value.cast_unsigned()),
                    Kind::Sint64 => put_varint(out, ((value << 1) ^ (value >> 63)).cast_unsigned()),
                    _ => out.extend_from_slice(&value.to_le_bytes()),
                }
                if matches!(kind, Kind::Sfixed64) { 1 } else { 0 }
            }
            Kind::Uint32 | Kind::Fixed32 => {
                fit(short_unsigned.is_ok())?;
                let value = short_unsigned.unwrap_or_default();
                match kind {
                    Kind::Uint32 => put_varint(out, value.into()),
                    _ => out.extend_from_slice(&value.to_le_bytes()),
                }
                if matches!(kind, Kind::Fixed32) { 5 } else { 0 }
            }
            _ => {
                fit(unsigned.is_ok())?;
                let value = unsigned.unwrap_or_default();
                match kind {
                    Kind::Fixed64 => out.extend_from_slice(&value.to_le_bytes()),
                    _ => put_varint(out, value),
                }
                if matches!(kind, Kind::Fixed64) { 1 } else { 0 }
            }
        };
        self.tokens.advance()?;
        Ok(wire_type)
    }

    /// Reads a number. One of 4 bytes is rounded twice, as by protobuf: TensorFlow reads the same bits.
    fn float(&mut self, is_negative: bool) -> Result<f64, TextFault> {
        if let Token::Number(text) = self.tokens.token
            && text.ends_with(".0")
        {
            self.style = Style::Python;
        }
        let value = self.tokens.number()?;
        Ok(if is_negative { -value } else { value })
    }

    fn boolean(&mut self) -> Result<bool, TextFault> {
        let value = match self.tokens.token {
            Token::Word("true" | "True" | "t") => true,
            Token::Word("false" | "False" | "f") => false,
            Token::Number(text) if integer(text) == Some(1) => true,
            Token::Number(text) if integer(text) == Some(0) => false,
            _ => return self.tokens.expected("`true` or `false`"),
        };
        self.tokens.advance()?;
        Ok(value)
    }

    fn enumerated(&mut self, numbers: &EnumDescriptor) -> Result<i32, TextFault> {
        if let Token::Word(name) = self.tokens.token {
            let Some(value) = numbers.get_value_by_name(name) else {
                return Err(self.tokens.fault(format!(
                    "{} has no value {}",
                    numbers.name(),
                    shown::message(name)
                )));
            };
            self.tokens.advance()?;
            return Ok(value.number());
        }
        let is_negative = self.tokens.take('-')?;
        let Token::Number(text) = self.tokens.token else {
            return self.tokens.expected("the name of a value");
        };
        let value =
            integer(text).and_then(|value| if is_negative { value.checked_neg() } else { Some(value) });
        let Some(value) = value.and_then(|value| i32::try_from(value).ok()) else {
            return self.tokens.expected("a number of 32 bits");
        };
        self.tokens.advance()?;
        Ok(value)
    }

    /// Reads a message of any type, written as what it holds.
    fn any(
        &mut self,
        message: &MessageDescriptor,
        written: &mut Written,
        depth: usize,
    ) -> Result<(), TextFault> {
        let start = self.tokens.at;
        self.tokens.advance()?;
        let mut url = String::new();
        loop {
            match self.tokens.advance()? {
                Token::Symbol(']') => break,
                Token::Word(part) | Token::Number(part) => url.push_str(part),
                Token::Symbol(part) if is_address(part) => url.push(part),
                _ => return Err(self.tokens.fault_at(start, "a type's address should be here, up to `]`")),
            }
        }
        let held = url.rsplit_once('/').and_then(|(_, name)| message.parent_pool().get_message_by_name(name));
        let Some(held) = held else {
            let message = format!("the schema has no message {}", shown::message(&url));
            return Err(self.tokens.fault_at(start, message));
        };
        if !written.fields.is_empty() {
            return Err(self.tokens.fault_at(start, "a message of any type holds one message"));
        }
        // Only Python prints it so.
        self.style = Style::Python;
        self.tokens.take(':')?;
        let value = self.braced(&held, depth)?;
        put_bytes(written.at(1), 1, url.as_bytes());
        let out = written.at(2);
        if !value.is_empty() {
            put_bytes(out, 2, &value);
        }
        Ok(())
    }

    /// Reads a field that is written under its number, because the schema does not have it.
    fn unknown(
        &mut self,
        message: &MessageDescriptor,
        written: &mut Written,
        depth: usize,
    ) -> Result<(), TextFault> {
        const NUMBER_MAX: u32 = (1 << 29) - 1;
        let Token::Number(text) = self.tokens.token else {
            return self.tokens.expected("the name of a field");
        };
        let number = text.parse().ok().filter(|number| (1..=NUMBER_MAX).contains(number));
        let Some(number) = number else { return self.tokens.expected("the name or the number of a field") };
        if let Some(field) = message.get_field(number) {
            let message = format!("field {number} is named {}, and is written so", field.name());
            return Err(self.tokens.fault(message));
        }
        self.tokens.advance()?;
        let bytes = self.unknown_value(number, depth)?;
        written.unknown.extend_from_slice(&bytes);
        Ok(())
    }

    fn unknown_value(&mut self, number: u32, depth: usize) -> Result<Vec<u8>, TextFault> {
        let mut bytes = Vec::new();
        if self.tokens.token == Token::Symbol('{') {
            let Some(depth) = depth.checked_sub(1) else { return Err(self.tokens.too_deep()) };
            self.tokens.advance()?;
            put_tag(&mut bytes, number, 3);
            while !self.tokens.take('}')? {
                let inner = match self.tokens.token {
                    Token::Number(text) => {
                        text.parse().ok().filter(|number| *number > 0 && *number < 1 << 29)
                    }
                    _ => None,
                };
                let Some(inner) = inner else { return self.tokens.expected("the number of a field, or `}`") };
                self.tokens.advance()?;
                bytes.extend_from_slice(&self.unknown_value(inner, depth)?);
            }
            put_tag(&mut bytes, number, 4);
            return Ok(bytes);
        }
        if !self.tokens.take(':')? {
            return self.tokens.expected("`:`");
        }
        match &self.tokens.token {
            Token::String(value) => put_bytes(&mut bytes, number, value),
            Token::Number(text) => match (integer(text), text.len()) {
                (Some(value), 10) if text.starts_with("0x") => {
                    put_tag(&mut bytes, number, 5);
                    bytes.extend_from_slice(&u32::try_from(value).unwrap_or_default().to_le_bytes());
                }
                (Some(value), 18) if text.starts_with("0x") => {
                    put_tag(&mut bytes, number, 1);
                    bytes.extend_from_slice(&u64::try_from(value).unwrap_or_default().to_le_bytes());
                }
                (Some(value), _) if u64::try_from(value).is_ok() => {
                    put_tag(&mut bytes, number, 0);
                    put_varint(&mut bytes, u64::try_from(value).unwrap_or_default());
                }
                _ => return self.tokens.expected("an integer of 64 bits, or a string"),
            },
            _ => return self.tokens.expected("an integer, a string, or `{`"),
        }
        self.tokens.advance()?;
        Ok(bytes)
    }
}

/// The value of a decimal, octal or hexadecimal integer.
fn integer(text: &str) -> Option<i128> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => match text.strip_prefix('0') {
            Some(digits) if !digits.is_empty() => (digits, 8),
            _ => (text, 10),
        },
    };
    u64::from_str_radix(digits, radix).ok().map(i128::from)
}
