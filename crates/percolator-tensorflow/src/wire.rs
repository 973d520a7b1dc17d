//! Protobuf's binary form, field by field: to check bytes before they are decoded, with the place of a fault,
//! and to print them.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use percolator_leveldb::coding;
pub(crate) use percolator_leveldb::coding::put_varint;
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

/// How deep messages may lie in one another. It is protobuf's own limit.
pub(crate) const DEPTH_MAX: usize = 100;

/// A field as it is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WireField<'a> {
    pub(crate) number: u32,
    pub(crate) value: WireValue<'a>,
    /// Where it starts, and where the bytes of its value do, in the bytes that are read.
    pub(crate) at: usize,
    pub(crate) value_at: usize,
}

/// The value of a field as it is stored. A group has the bytes between its two tags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum WireValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Group(&'a [u8]),
    Fixed32(u32),
}

/// Why bytes are not the message that they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WireFault {
    /// Where, in the bytes that were checked.
    pub(crate) at: usize,
    /// The fields that lead there: `graph_def.node`.
    pub(crate) path: String,
    pub(crate) message: String,
}

impl WireFault {
    fn new(at: usize, message: impl Into<String>) -> Self {
        WireFault { at, path: String::new(), message: message.into() }
    }

    /// Moves the fault into the message that has the bytes as one of its fields.
    fn within(mut self, field: &str, at: usize) -> Self {
        self.at = self.at.saturating_add(at);
        self.path = if self.path.is_empty() { field.to_owned() } else { format!("{field}.{}", self.path) };
        self
    }
}

/// Reads the fields of a message, in their order.
#[derive(Clone, Debug)]
pub(crate) struct WireReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> WireReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        WireReader { bytes, at: 0 }
    }

    fn fault(&self, message: impl Into<String>) -> WireFault {
        WireFault::new(self.at, message)
    }

    fn varint(&mut self) -> Result<u64, WireFault> {
        /// A byte has seven bits of the number.
        const BYTES_MAX: usize = 10;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        match coding::varint(rest) {
            Some((value, after)) => {
                self.at = self.bytes.len().saturating_sub(after.len());
                Ok(value)
            }
            None if rest.len() < BYTES_MAX => Err(self.fault("a number is cut short")),
            None => Err(self.fault("a number of more than 64 bits")),
        }
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], WireFault> {
        let left = self.bytes.len().saturating_sub(self.at);
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let Some(taken) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            return Err(self.fault(format!("a value of {length} bytes, where {left} are left")));
        };
        self.at = self.at.saturating_add(taken.len());
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireFault> {
        let taken = self.take(N as u64)?;
        taken.try_into().map_err(|_| self.fault("a number is cut short"))
    }

    /// Reads a tag: a number, and how its value is stored.
    fn tag(&mut self) -> Result<(u32, u64), WireFault> {
        let at = self.at;
        let tag = self.varint()?;
        match u32::try_from(tag) {
            Ok(tag) if tag >> 3 > 0 => Ok((tag >> 3, u64::from(tag & 7))),
            _ => Err(WireFault::new(at, format!("{tag:#x} is not a field's tag"))),
        }
    }

    /// Returns the next field, or `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<WireField<'a>>, WireFault> {
        let at = self.at;
        if at >= self.bytes.len() {
            return Ok(None);
        }
        let (number, wire_type) = self.tag()?;
        let mut value_at = self.at;
        let value = match wire_type {
            0 => WireValue::Varint(self.varint()?),
            1 => WireValue::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let length = self.varint()?;
                value_at = self.at;
                WireValue::Bytes(self.take(length)?)
            }
            3 => WireValue::Group(self.group(number)?),
            5 => WireValue::Fixed32(u32::from_le_bytes(self.fixed()?)),
            4 => return Err(WireFault::new(at, format!("the end of group {number}, which did not begin"))),
            other => return Err(WireFault::new(at, format!("field {number} has wire type {other}"))),
        };
        Ok(Some(WireField { number, value, at, value_at }))
    }

    /// Skips to the end of a group; returns what is inside.
    fn group(&mut self, number: u32) -> Result<&'a [u8], WireFault> {
        let start = self.at;
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            let at = self.at;
            if at >= self.bytes.len() {
                return Err(WireFault::new(start, format!("group {innermost} does not end")));
            }
            let (number, wire_type) = self.tag()?;
            match wire_type {
                3 if open.len() >= DEPTH_MAX => return Err(WireFault::new(at, too_deep())),
                3 => open.push(number),
                4 if number == innermost => {
                    open.pop();
                    if open.is_empty() {
                        return Ok(self.bytes.get(start..at).unwrap_or_default());
                    }
                }
                4 => return Err(WireFault::new(at, format!("group {innermost} ends as group {number}"))),
                0 => drop(self.varint()?),
                1 => drop(self.fixed::<8>()?),
                5 => drop(self.fixed::<4>()?),
                2 => {
                    let length = self.varint()?;
                    self.take(length)?;
                }
                other => return Err(WireFault::new(at, format!("field {number} has wire type {other}"))),
            }
        }
        Ok(&[])
    }
}

fn too_deep() -> String {
    format!("messages lie more than {DEPTH_MAX} deep in one another")
}

/// Checks that bytes are a message of this type: all fields that it knows have values of their type. Fields
/// that it does not know may be anything that is a field.
pub(crate) fn check(message: &MessageDescriptor, bytes: &[u8]) -> Result<(), WireFault> {
    check_within(message, bytes, DEPTH_MAX)
}

/// The same, where messages may lie only so deep in this one.
pub(crate) fn check_within(message: &MessageDescriptor, bytes: &[u8], depth: usize) -> Result<(), WireFault> {
    let mut reader = WireReader::new(bytes);
    while let Some(field) = reader.next()? {
        let Some(known) = message.get_field(field.number) else { continue };
        let name = known.name();
        check_value(&known, &field, depth).map_err(|fault| fault.within(name, field.value_at))?;
    }
    Ok(())
}

fn check_value(known: &FieldDescriptor, field: &WireField<'_>, depth: usize) -> Result<(), WireFault> {
    let kind = known.kind();
    match (&kind, field.value) {
        (Kind::Message(inner), WireValue::Bytes(bytes)) => match depth.checked_sub(1) {
            Some(depth) => check_within(inner, bytes, depth),
            None => Err(WireFault::new(0, too_deep())),
        },
        (Kind::String, WireValue::Bytes(bytes)) => match std::str::from_utf8(bytes) {
            Ok(_) => Ok(()),
            Err(error) => Err(WireFault::new(error.valid_up_to(), "a string that is not UTF-8")),
        },
        (Kind::Bytes, WireValue::Bytes(_)) => Ok(()),
        (_, WireValue::Bytes(packed)) if is_packable(&kind) && known.is_list() => {
            let mut reader = WireReader::new(packed);
            while reader.at < packed.len() {
                number(&kind, &mut reader)?;
            }
            Ok(())
        }
        (_, value) if is_stored_as(&kind, value) => Ok(()),
        (_, value) => {
            let (kind, found) = (kind_name(&kind), wire_name(value));
            Err(WireFault::new(0, format!("a field of type {kind} is stored as {found}")))
        }
    }
}

/// Whether values are numbers, which lists may pack.
pub(crate) fn is_packable(kind: &Kind) -> bool {
    !matches!(kind, Kind::Message(_) | Kind::String | Kind::Bytes)
}

fn is_stored_as(kind: &Kind, value: WireValue<'_>) -> bool {
    match value {
        WireValue::Varint(_) => matches!(
            kind,
            Kind::Int32
                | Kind::Int64
                | Kind::Uint32
                | Kind::Uint64
                | Kind::Sint32
                | Kind::Sint64
                | Kind::Bool
                | Kind::Enum(_)
        ),
        WireValue::Fixed64(_) => matches!(kind, Kind::Double | Kind::Fixed64 | Kind::Sfixed64),
        WireValue::Fixed32(_) => matches!(kind, Kind::Float | Kind::Fixed32 | Kind::Sfixed32),
        WireValue::Bytes(_) | WireValue::Group(_) => false,
    }
}

/// Reads one number of a packed list, stored as numbers of this kind are.
fn number<'a>(kind: &Kind, reader: &mut WireReader<'a>) -> Result<WireValue<'a>, WireFault> {
    Ok(match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => {
            WireValue::Fixed64(u64::from_le_bytes(reader.fixed()?))
        }
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => {
            WireValue::Fixed32(u32::from_le_bytes(reader.fixed()?))
        }
        _ => WireValue::Varint(reader.varint()?),
    })
}

/// Calls `each` with the numbers of a packed list.
pub(crate) fn unpack<'a>(kind: &Kind, packed: &'a [u8], mut each: impl FnMut(WireValue<'a>)) {
    let mut reader = WireReader::new(packed);
    while reader.at < packed.len() {
        let Ok(value) = number(kind, &mut reader) else { return };
        each(value);
    }
}

fn kind_name(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.name().to_owned(),
        Kind::Enum(numbers) => numbers.name().to_owned(),
        kind => format!("{kind:?}").to_lowercase(),
    }
}

fn wire_name(value: WireValue<'_>) -> &'static str {
    match value {
        WireValue::Varint(_) => "a varint",
        WireValue::Fixed64(_) => "8 bytes",
        WireValue::Bytes(_) => "bytes with their length",
        WireValue::Group(_) => "a group",
        WireValue::Fixed32(_) => "4 bytes",
    }
}

/// Writes the tag of a field. Wire types are 0 (varint), 1 (8 bytes), 2 (bytes with their length), 3 and 4
/// (the ends of a group), 5 (4 bytes).
pub(crate) fn put_tag(out: &mut Vec<u8>, number: u32, wire_type: u32) {
    put_varint(out, u64::from(number) << 3 | u64::from(wire_type));
}

/// Writes a field of bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
