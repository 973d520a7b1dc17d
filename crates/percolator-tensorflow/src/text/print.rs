//! From protobuf's binary form to text, as protobuf prints it: fields in the order of their numbers, strings
//! as they are, bytes with everything but ASCII escaped. Unknown fields are kept, including those of a map's
//! entries.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use super::style::Style;
use super::tokens::is_address;
use crate::wire::{self, DEPTH_MAX, WireField, WireReader, WireValue};

/// Prints a message of this type. The bytes have been [checked](wire::check).
pub(crate) fn print(message: &MessageDescriptor, bytes: &[u8], style: Style) -> String {
    let mut printer = Printer { out: String::new(), indent: 0, style };
    printer.message(message, bytes, DEPTH_MAX);
    printer.out
}

struct Printer {
    out: String,
    indent: usize,
    style: Style,
}

/// What a message has of one field.
struct Occurrences<'a> {
    field: FieldDescriptor,
    values: Vec<WireValue<'a>>,
}

impl Printer {
    /// Begins a line.
    fn line(&mut self, name: &str) {
        self.out.extend(std::iter::repeat_n(' ', self.indent));
        self.out.push_str(name);
    }

    fn block(&mut self, name: &str, inside: impl FnOnce(&mut Self)) {
        self.line(name);
        self.out.push_str(" {\n");
        self.indent = self.indent.saturating_add(2);
        inside(self);
        self.indent = self.indent.saturating_sub(2);
        self.line("}\n");
    }

    fn message(&mut self, message: &MessageDescriptor, bytes: &[u8], depth: usize) {
        let (known, unknown) = sorted(message, bytes);
        let is_any = message.full_name() == "google.protobuf.Any" && self.style == Style::Python;
        if !(is_any && self.any(message, &known, depth)) {
            for Occurrences { field, values } in known.into_values() {
                self.field(&field, &values, depth);
            }
        }
        self.unknown(&unknown);
    }

    fn field(&mut self, field: &FieldDescriptor, values: &[WireValue<'_>], depth: usize) {
        let (name, kind) = (field.name(), field.kind());
        if field.is_map() {
            return self.map(field, values, depth);
        }
        if let Kind::Message(inner) = &kind {
            let depth = depth.saturating_sub(1);
            let mut each = |bytes: &[u8]| self.block(name, |printer| printer.message(inner, bytes, depth));
            if field.is_list() {
                values.iter().for_each(|value| each(bytes_of(*value)));
            } else if let [value] = values {
                each(bytes_of(*value));
            } else {
                // Messages that follow one another are one message.
                each(&values.iter().flat_map(|value| bytes_of(*value)).copied().collect::<Vec<u8>>());
            }
        } else if field.is_list() {
            for value in values {
                match value {
                    WireValue::Bytes(packed) if wire::is_packable(&kind) => {
                        wire::unpack(&kind, packed, |value| self.scalar(name, &kind, value));
                    }
                    value => self.scalar(name, &kind, *value),
                }
            }
        } else if let Some(value) = values.last()
            && (field.supports_presence() || !is_default(*value))
        {
            self.scalar(name, &kind, *value);
        }
    }

    fn scalar(&mut self, name: &str, kind: &Kind, value: WireValue<'_>) {
        let shown = scalar(kind, value, self.style);
        self.line(name);
        let _ = writeln!(self.out, ": {shown}");
    }

    fn map(&mut self, field: &FieldDescriptor, values: &[WireValue<'_>], depth: usize) {
        let Kind::Message(entry) = field.kind() else { return };
        let (key_field, value_field) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        let key_kind = key_field.kind();
        let is_shown = |style: Style, field: &FieldDescriptor, value| {
            style != Style::Python || field.supports_presence() || !is_default(value)
        };
        let (mut entries, mut numbers) = (Vec::new(), BTreeMap::new());
        for bytes in values.iter().map(|value| bytes_of(*value)) {
            let (known, unknown) = sorted(&entry, bytes);
            let key = known.get(&1).and_then(|key| key.values.last().copied());
            let key = key.unwrap_or(default_of(&key_kind));
            let number = *numbers.entry(MapKey::of(&key_kind, key)).or_insert(entries.len());
            // The last value of a key is the value.
            match entries.get_mut(number) {
                Some(entry) => *entry = (key, known, unknown),
                None => entries.push((key, known, unknown)),
            }
        }
        if self.style == Style::Python {
            entries.sort_by(|(one, ..), (other, ..)| {
                MapKey::of(&key_kind, *one).cmp(&MapKey::of(&key_kind, *other))
            });
        }
        for (key, mut known, unknown) in entries {
            self.block(field.name(), |printer| {
                if is_shown(printer.style, &key_field, key) {
                    printer.scalar("key", &key_kind, key);
                }
                let values = known.remove(&2).map_or(Vec::new(), |value| value.values);
                match value_field.kind() {
                    Kind::Message(_) => {
                        let depth = depth.saturating_sub(1);
                        // Without a value, that is an empty message.
                        printer.field(&value_field, &values, depth);
                    }
                    kind => {
                        let value = values.last().copied().unwrap_or(default_of(&kind));
                        if is_shown(printer.style, &value_field, value) {
                            printer.scalar("value", &kind, value);
                        }
                    }
                }
                printer.unknown(&unknown);
            });
        }
    }

    /// Prints what a message of any type holds, if the schema has its type and text can have its address.
    fn any(
        &mut self,
        message: &MessageDescriptor,
        known: &BTreeMap<u32, Occurrences<'_>>,
        depth: usize,
    ) -> bool {
        let bytes = |number| match known.get(&number).and_then(|found| found.values.last()) {
            Some(WireValue::Bytes(bytes)) => *bytes,
            _ => &[][..],
        };
        let (url, value) = (String::from_utf8_lossy(bytes(1)), bytes(2));
        let held = url.rsplit_once('/').and_then(|(_, name)| message.parent_pool().get_message_by_name(name));
        let Some((held, depth)) = held.zip(depth.checked_sub(1)) else { return false };
        if !url.chars().all(is_address) || wire::check_within(&held, value, depth).is_err() {
            return false;
        }
        self.block(&format!("[{url}]"), |printer| printer.message(&held, value, depth));
        true
    }

    fn unknown(&mut self, fields: &[WireField<'_>]) {
        for field in fields {
            let name = field.number.to_string();
            let shown = match field.value {
                WireValue::Varint(value) => value.to_string(),
                WireValue::Fixed32(value) => format!("{value:#010x}"),
                WireValue::Fixed64(value) => format!("{value:#018x}"),
                WireValue::Bytes(bytes) => quoted_bytes(bytes),
                WireValue::Group(inside) => {
                    let mut fields = Vec::new();
                    let mut reader = WireReader::new(inside);
                    while let Ok(Some(field)) = reader.next() {
                        fields.push(field);
                    }
                    self.block(&name, |printer| printer.unknown(&fields));
                    continue;
                }
            };
            self.line(&name);
            let _ = writeln!(self.out, ": {shown}");
        }
    }
}

/// The fields of a message that its type has, by number, and the others, as they come. Of the fields of which
/// a message has only one, the last stays.
fn sorted<'a>(
    message: &MessageDescriptor,
    bytes: &'a [u8],
) -> (BTreeMap<u32, Occurrences<'a>>, Vec<WireField<'a>>) {
    let (mut known, mut unknown) = (BTreeMap::<u32, Occurrences<'a>>::new(), Vec::new());
    let mut reader = WireReader::new(bytes);
    while let Ok(Some(read)) = reader.next() {
        let Some(field) = message.get_field(read.number) else {
            unknown.push(read);
            continue;
        };
        for other in field.containing_oneof().iter().flat_map(prost_reflect::OneofDescriptor::fields) {
            if other.number() != read.number {
                known.remove(&other.number());
            }
        }
        let found = known.entry(read.number).or_insert_with(|| Occurrences { field, values: Vec::new() });
        found.values.push(read.value);
    }
    (known, unknown)
}

fn bytes_of(value: WireValue<'_>) -> &[u8] {
    match value {
        WireValue::Bytes(bytes) | WireValue::Group(bytes) => bytes,
        _ => &[],
    }
}

/// Whether a message without presence would not have the field.
fn is_default(value: WireValue<'_>) -> bool {
    match value {
        WireValue::Varint(value) | WireValue::Fixed64(value) => value == 0,
        WireValue::Fixed32(value) => value == 0,
        WireValue::Bytes(bytes) | WireValue::Group(bytes) => bytes.is_empty(),
    }
}

fn default_of(kind: &Kind) -> WireValue<'static> {
    match kind {
        Kind::String | Kind::Bytes | Kind::Message(_) => WireValue::Bytes(&[]),
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => WireValue::Fixed64(0),
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => WireValue::Fixed32(0),
        _ => WireValue::Varint(0),
    }
}

/// A key of a map, as it is compared.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum MapKey<'a> {
    Signed(i64),
    Unsigned(u64),
    Text(&'a [u8]),
}

impl<'a> MapKey<'a> {
    fn of(kind: &Kind, key: WireValue<'a>) -> Self {
        match key {
            WireValue::Bytes(text) | WireValue::Group(text) => MapKey::Text(text),
            WireValue::Fixed32(value) if matches!(kind, Kind::Sfixed32) => {
                MapKey::Signed(value.cast_signed().into())
            }
            WireValue::Fixed32(value) => MapKey::Unsigned(value.into()),
            WireValue::Varint(value) if matches!(kind, Kind::Sint32 | Kind::Sint64) => {
                MapKey::Signed(zigzag(value))
            }
            WireValue::Varint(value) | WireValue::Fixed64(value) => match kind {
                Kind::Int32 | Kind::Int64 | Kind::Sfixed64 => MapKey::Signed(value.cast_signed()),
                Kind::Uint32 => MapKey::Unsigned(value & u64::from(u32::MAX)),
                Kind::Bool => MapKey::Unsigned(u64::from(value != 0)),
                _ => MapKey::Unsigned(value),
            },
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "what protobuf does with numbers that are too large")]
fn scalar(kind: &Kind, value: WireValue<'_>, style: Style) -> String {
    match (kind, value) {
        (Kind::String, WireValue::Bytes(text)) => quoted_text(&String::from_utf8_lossy(text)),
        (_, WireValue::Bytes(bytes) | WireValue::Group(bytes)) => quoted_bytes(bytes),
        (Kind::Float, WireValue::Fixed32(bits)) => style.float(f32::from_bits(bits)),
        (Kind::Sfixed32, WireValue::Fixed32(bits)) => bits.cast_signed().to_string(),
        (_, WireValue::Fixed32(bits)) => bits.to_string(),
        (Kind::Double, WireValue::Fixed64(bits)) => style.double(f64::from_bits(bits)),
        (Kind::Sfixed64, WireValue::Fixed64(bits)) => bits.cast_signed().to_string(),
        (_, WireValue::Fixed64(bits)) => bits.to_string(),
        (Kind::Bool, WireValue::Varint(value)) => (value != 0).to_string(),
        (Kind::Int32, WireValue::Varint(value)) => (value as i32).to_string(),
        (Kind::Uint32, WireValue::Varint(value)) => (value as u32).to_string(),
        (Kind::Int64, WireValue::Varint(value)) => value.cast_signed().to_string(),
        (Kind::Sint32, WireValue::Varint(value)) => (zigzag(u64::from(value as u32)) as i32).to_string(),
        (Kind::Sint64, WireValue::Varint(value)) => zigzag(value).to_string(),
        (Kind::Enum(numbers), WireValue::Varint(value)) => {
            let number = value as i32;
            numbers.get_value(number).map_or_else(|| number.to_string(), |value| value.name().to_owned())
        }
        (_, WireValue::Varint(value)) => value.to_string(),
    }
}

/// The number that a `sint` stores as this one.
fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ 0_i64.wrapping_sub((value & 1).cast_signed())
}

fn quoted_text(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len().saturating_add(2));
    quoted.push('"');
    for character in text.chars() {
        match u8::try_from(character) {
            Ok(byte) if byte < 0x80 => escape(byte, &mut quoted),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

fn quoted_bytes(bytes: &[u8]) -> String {
    let mut quoted = String::with_capacity(bytes.len().saturating_mul(2).saturating_add(2));
    quoted.push('"');
    bytes.iter().for_each(|&byte| escape(byte, &mut quoted));
    quoted.push('"');
    quoted
}

fn escape(byte: u8, out: &mut String) {
    match byte {
        b'\n' => out.push_str("\\n"),
        b'\r' => out.push_str("\\r"),
        b'\t' => out.push_str("\\t"),
        b'"' => out.push_str("\\\""),
        b'\'' => out.push_str("\\'"),
        b'\\' => out.push_str("\\\\"),
        b' '..=b'~' => out.push(byte.into()),
        byte => {
            let _ = write!(out, "\\{byte:03o}");
        }
    }
}
