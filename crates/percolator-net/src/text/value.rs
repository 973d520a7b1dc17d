//! Values: how one of each type is read, and how many a field holds.

use super::lexer::Token;
use super::literal;
use super::reader::{Message, Reader};
use crate::error::{NetError, clip};
use crate::kinds;

/// A value that a field may hold.
pub(super) trait Value: Sized {
    /// Whether the colon before the value may be omitted.
    const IS_MESSAGE: bool = false;

    /// Reads one value.
    fn read(field: &'static str, text: &mut Reader<'_>) -> Result<Self, NetError>;
}

impl<M: Message> Value for M {
    const IS_MESSAGE: bool = true;

    fn read(_: &'static str, text: &mut Reader<'_>) -> Result<Self, NetError> {
        text.message()
    }
}

/// The string fields that name files. Other strings are names, which are only compared and shown, so they may
/// have any bytes. A name that is not UTF-8 is read as Latin-1: each byte is a character. (Two names of a net
/// would be mistaken for one only if they were the same name in two encodings.)
const PATHS: &[&str] = &["source", "mean_file", "meanfile", "root_folder"];

impl Value for String {
    fn read(field: &'static str, text: &mut Reader<'_>) -> Result<Self, NetError> {
        let at = text.at;
        if !matches!(text.next, Token::Quoted(_)) {
            return Err(text.expected(&format!("a string in quotes for {field}")));
        }
        let mut bytes = Vec::new();
        while let Token::Quoted(raw) = text.next {
            bytes.reserve(raw.len());
            // The lexer has already checked the escapes.
            let _ = literal::unescape(raw, &mut |piece| bytes.extend_from_slice(piece));
            text.advance()?;
        }
        match String::from_utf8(bytes) {
            Ok(string) => Ok(string),
            // Caffe reads any bytes. A path converted from Latin-1 would name another file.
            Err(error) => {
                if PATHS.contains(&field) {
                    text.refuse(at, || {
                        let remedy = "rename the file, or give its path in UTF-8";
                        format!("the string of {field} is not UTF-8; {remedy}")
                    })?;
                }
                Ok(error.as_bytes().iter().copied().map(char::from).collect())
            }
        }
    }
}

impl Value for u32 {
    fn read(field: &'static str, text: &mut Reader<'_>) -> Result<Self, NetError> {
        text.integer(field, u32::MIN, u32::MAX)
    }
}

impl Value for i32 {
    fn read(field: &'static str, text: &mut Reader<'_>) -> Result<Self, NetError> {
        text.integer(field, i32::MIN, i32::MAX)
    }
}

impl Value for i64 {
    fn read(field: &'static str, text: &mut Reader<'_>) -> Result<Self, NetError> {
        text.integer(field, i64::MIN, i64::MAX)
    }
}

impl Value for bool {
    fn read(field: &'static str, text: &mut Reader<'_>) -> Result<Self, NetError> {
        let value = match text.next {
            Token::Word("true" | "True" | "t") => true,
            Token::Word("false" | "False" | "f") => false,
            Token::Integer(digits) if literal::integer(digits) == Some(1) => true,
            Token::Integer(digits) if literal::integer(digits) == Some(0) => false,
            _ => return Err(text.expected(&format!("true or false for {field}"))),
        };
        text.advance()?;
        Ok(value)
    }
}

/// Rounded to f64 first and then to f32, as in protobuf.
impl Value for f32 {
    fn read(field: &'static str, text: &mut Reader<'_>) -> Result<Self, NetError> {
        let negative = text.take(b'-')?;
        let value = match text.next {
            Token::Integer(digits) if literal::is_decimal(digits) => literal::float(digits),
            Token::Float(digits) => literal::float(digits),
            Token::Word(word) => literal::constant(word),
            _ => None,
        };
        let Some(value) = value else {
            return Err(text.expected(&format!("a decimal number for {field}")));
        };
        text.advance()?;
        #[expect(clippy::cast_possible_truncation, reason = "what is too large is infinite, as in protobuf")]
        Ok(if negative { -value } else { value } as f32)
    }
}

impl Reader<'_> {
    /// Reads a whole number. Unsigned types take no minus sign, not even before a 0.
    fn integer<T>(&mut self, field: &'static str, min: T, max: T) -> Result<T, NetError>
    where
        T: TryFrom<i128> + Into<i128>,
    {
        let at = self.at;
        let negative = self.take(b'-')?;
        let Token::Integer(digits) = self.next else {
            return Err(self.expected(&format!("a whole number for {field}")));
        };
        let (min, max) = (min.into(), max.into());
        let size = literal::integer(digits).filter(|_| !negative || min < 0).map(i128::from);
        let value = size.and_then(|size| T::try_from(if negative { -size } else { size }).ok());
        let Some(value) = value else {
            let found = format!("{}{}", if negative { "-" } else { "" }, clip(digits));
            let fault = format!("{field} is {found}: allowed are whole numbers from {min} to {max}");
            return Err(NetError::text(at, fault));
        };
        self.advance()?;
        Ok(value)
    }

    /// Reads an enum value, by name or by number.
    fn enumeration(&mut self, field: &'static str, of: &Enumeration) -> Result<Option<i32>, NetError> {
        let at = self.at;
        let refused = |values: &[(&str, i32)], found: String| {
            let allowed: Vec<_> = values.iter().map(|(name, number)| format!("{name} ({number})")).collect();
            let allowed = allowed.join(", ");
            let fault = format!(
                "unknown enumeration value of \"{found}\" for field \"{field}\": allowed are {allowed}"
            );
            NetError::text(at, fault)
        };
        if let Token::Word(word) = self.next {
            let known = match of {
                Enumeration::Closed(values) => {
                    let known = values.iter().find(|(name, _)| *name == word).map(|&(_, number)| number);
                    Some(known.ok_or_else(|| refused(values, clip(word)))?)
                }
                Enumeration::LayerType => kinds::v1_named(word),
            };
            if known.is_none()
                && let Some(layer) = self.layer()
            {
                layer.kind = Some(clip(word));
            }
            self.advance()?;
            return Ok(known);
        }
        if !matches!(self.next, Token::Integer(_) | Token::Symbol(b'-')) {
            return Err(self.expected(&format!("a name for {field}, without quotes")));
        }
        let found = i32::read(field, self)?;
        match of {
            Enumeration::Closed(values) if !values.iter().any(|&(_, number)| number == found) => {
                Err(refused(values, found.to_string()))
            }
            _ => Ok(Some(found)),
        }
    }
}

/// An enum of the schema.
pub(super) enum Enumeration {
    /// Names and numbers, and no other.
    Closed(&'static [(&'static str, i32)]),
    /// The types of V1 layers. One of a fork is no error: the layer is ignored like others that load no data,
    /// and an unknown name is noted as its type.
    LayerType,
}

/// The place of a field's values: one or many.
pub(super) trait Slot {
    /// Reads what follows the field's name.
    fn fill(&mut self, field: &'static str, text: &mut Reader<'_>) -> Result<(), NetError>;
}

impl<T: Value> Slot for Option<T> {
    fn fill(&mut self, field: &'static str, text: &mut Reader<'_>) -> Result<(), NetError> {
        once(self, field, text)?;
        colon::<T>(text)?;
        *self = Some(T::read(field, text)?);
        Ok(())
    }
}

impl<T: Value> Slot for Vec<T> {
    fn fill(&mut self, field: &'static str, text: &mut Reader<'_>) -> Result<(), NetError> {
        colon::<T>(text)?;
        each(text, |text| {
            text.note_top(field);
            self.push(T::read(field, text)?);
            Ok(())
        })
    }
}

/// As [`Slot`], for numbers that represent enum values.
pub(super) trait EnumerationSlot {
    /// Reads what follows the field's name.
    fn fill_enumeration(
        &mut self,
        field: &'static str,
        of: &Enumeration,
        text: &mut Reader<'_>,
    ) -> Result<(), NetError>;
}

impl EnumerationSlot for Option<i32> {
    fn fill_enumeration(
        &mut self,
        field: &'static str,
        of: &Enumeration,
        text: &mut Reader<'_>,
    ) -> Result<(), NetError> {
        once(self, field, text)?;
        let has_unknown_type = text.layer().is_some_and(|layer| layer.kind.is_some());
        if matches!(of, Enumeration::LayerType) && has_unknown_type {
            return Err(twice(field, text));
        }
        colon::<i32>(text)?;
        *self = text.enumeration(field, of)?;
        Ok(())
    }
}

impl EnumerationSlot for Vec<i32> {
    fn fill_enumeration(
        &mut self,
        field: &'static str,
        of: &Enumeration,
        text: &mut Reader<'_>,
    ) -> Result<(), NetError> {
        colon::<i32>(text)?;
        each(text, |text| {
            self.extend(text.enumeration(field, of)?);
            Ok(())
        })
    }
}

/// Reads a value, or a bracketed list of values.
fn each<'a>(
    text: &mut Reader<'a>,
    mut read: impl FnMut(&mut Reader<'a>) -> Result<(), NetError>,
) -> Result<(), NetError> {
    if !text.take(b'[')? {
        return read(text);
    }
    if text.take(b']')? {
        return Ok(());
    }
    loop {
        text.field_at = text.at;
        read(text)?;
        if text.take(b']')? {
            return Ok(());
        }
        if !text.take(b',')? {
            return Err(text.expected("\",\" or \"]\""));
        }
    }
}

/// Refuses a second value.
fn once<T>(slot: &Option<T>, field: &'static str, text: &Reader<'_>) -> Result<(), NetError> {
    match slot {
        Some(_) => Err(twice(field, text)),
        None => Ok(()),
    }
}

fn twice(field: &str, text: &Reader<'_>) -> NetError {
    NetError::text(text.field_at, format!("non-repeated field \"{field}\" is specified multiple times"))
}

/// Takes the colon between name and value. Messages may omit it.
fn colon<T: Value>(text: &mut Reader<'_>) -> Result<(), NetError> {
    if text.take(b':')? || T::IS_MESSAGE { Ok(()) } else { Err(text.expected("\":\"")) }
}
