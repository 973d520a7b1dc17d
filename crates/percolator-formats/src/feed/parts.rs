//! A record's parts, as a feed's decoder takes them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use percolator::Dtype;
use percolator::source::{Part, PartFault, RecordParts, SourceError};

use super::source_error;
use crate::{Array, ElementType, Fault, Grammar, Shard, Value, json, npy};

/// The names that pictures usually have: in tables, and as members of samples, which have one of several.
const IMAGES: [&str; 5] =
    ["image", "image.bytes", "img", "img.bytes", "jpg;jpeg;png;webp;bmp;ppm;pgm;tif;tiff;gif"];

/// The names that their classes usually have.
const LABELS: [&str; 6] = ["label", "cls", "class", "labels", "fine_label", "target"];

/// Finds parts by a grammar.
pub(super) struct GrammarParts {
    grammar: Arc<dyn Grammar>,
    image: Option<(String, Option<String>)>,
}

impl fmt::Debug for GrammarParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GrammarParts").field(&self.grammar).finish()
    }
}

impl GrammarParts {
    /// The image and its label are told by the first record of the shards.
    pub(super) fn new(grammar: Arc<dyn Grammar>, shards: &[Arc<dyn Shard>]) -> Result<Self, SourceError> {
        let mut parts = GrammarParts { grammar, image: None };
        for shard in shards {
            let mut cursor = Arc::clone(shard).cursor().map_err(source_error)?;
            if let Some(record) = cursor.advance().map_err(source_error)? {
                parts.image = parts.image_of(record.value.bytes());
                break;
            }
        }
        Ok(parts)
    }

    fn image_of(&self, record: &[u8]) -> Option<(String, Option<String>)> {
        let is_image = |name: &&&str| {
            let part = self.part(record, name).ok().flatten();
            matches!(&part, Some(Part::Bytes(bytes)) if percolator_image::is_image(bytes))
        };
        let image = IMAGES.iter().find(is_image)?;
        let is_there = |name: &&&str| matches!(self.part(record, name), Ok(Some(_)));
        Some(((*image).to_owned(), LABELS.iter().find(is_there).map(|label| (*label).to_owned())))
    }

    /// The value of the first of several names, between semicolons, that a record has.
    fn value<'a>(&'a self, record: &'a [u8], names: &str) -> Result<Option<Value<'a>>, PartFault> {
        for name in names.split(';') {
            if let Some(value) = self.one_value(record, name)? {
                return Ok(Some(value));
            }
        }
        // A part's name may have a semicolon itself.
        if names.contains(';') { self.one_value(record, names) } else { Ok(None) }
    }

    /// The value of a name: a part, or what a path leads to in it.
    fn one_value<'a>(&'a self, record: &'a [u8], name: &str) -> Result<Option<Value<'a>>, PartFault> {
        if let Some(value) = self.grammar.part(record, name).map_err(fault)? {
            return Ok(Some(value));
        }
        if let Some((part, path)) = name.split_once(':') {
            let Some(value) = self.grammar.part(record, part).map_err(fault)? else { return Ok(None) };
            return follow(json_of(value, part)?, path).map_err(fault);
        }
        // A part's name may have dots itself.
        for (dot, _) in name.match_indices('.') {
            let (part, path) = (&name[..dot], &name[dot + 1..]);
            if let Some(value) = self.grammar.part(record, part).map_err(fault)? {
                return follow(value, path).map_err(fault);
            }
        }
        Ok(None)
    }
}

/// Adds the name of a value, or those of its members.
fn name_all(name: &str, value: &Value<'_>, names: &mut Vec<String>) {
    match value {
        Value::Struct(members) => {
            members.iter().for_each(|(member, value)| name_all(&format!("{name}.{member}"), value, names))
        }
        _ => names.push(name.to_owned()),
    }
}

fn fault(fault: Fault) -> PartFault {
    PartFault::new(fault.to_string())
}

/// The JSON that a part's text is.
fn json_of<'a>(value: Value<'a>, part: &str) -> Result<Value<'a>, PartFault> {
    let text: Cow<'a, [u8]> = match value {
        Value::Text(Cow::Borrowed(text)) => text.as_bytes().into(),
        Value::Text(Cow::Owned(text)) => text.into_bytes().into(),
        Value::Bytes(bytes) => bytes,
        other => return Ok(other),
    };
    let parsed = match text {
        Cow::Borrowed(text) => json::value(text),
        Cow::Owned(text) => json::value(&text).map(Value::into_owned),
    };
    parsed.map_err(|fault| PartFault::new(format!("the part {part:?} is no JSON: {fault}")))
}

/// The member that a path of names and numbers leads to.
fn follow<'a>(value: Value<'a>, path: &str) -> Result<Option<Value<'a>>, Fault> {
    path.split('.').try_fold(Some(value), |value, name| match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Struct(members)) => {
            Ok(members.into_iter().find(|(member, _)| member == name).map(|(_, value)| value))
        }
        Some(Value::List(values)) => match name.parse::<usize>() {
            Ok(number) => Ok(values.into_iter().nth(number)),
            Err(_) => Err(Fault::new(format!("{name:?} is wanted of a list, whose members have numbers"))),
        },
        Some(_) => Err(Fault::new(format!("{name:?} is wanted of a value that has no members"))),
    })
}

impl RecordParts for GrammarParts {
    fn description(&self) -> String {
        self.grammar.description()
    }

    fn names(&self, record: &[u8]) -> Vec<String> {
        match self.grammar.parts(record) {
            Err(_) => self.grammar.names().unwrap_or_default(),
            Ok(parts) => {
                let mut names = Vec::with_capacity(parts.len());
                parts.iter().for_each(|(name, value)| name_all(name, value, &mut names));
                names
            }
        }
    }

    fn check(&self, record: &[u8]) -> Result<(), PartFault> {
        self.grammar.parts(record).map(drop).map_err(fault)
    }

    fn image(&self) -> Option<(String, Option<String>)> {
        self.image.clone()
    }

    fn part<'a>(&'a self, record: &'a [u8], name: &str) -> Result<Option<Part<'a>>, PartFault> {
        match self.value(record, name)? {
            None => Ok(None),
            Some(value) => part_of(value, name),
        }
    }
}

/// A value as a decoder takes it.
fn part_of<'a>(value: Value<'a>, name: &str) -> Result<Option<Part<'a>>, PartFault> {
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Bool(truth) => Part::Int(truth.into()),
        Value::Int(number) => Part::Int(number),
        Value::UInt(number) => match i64::try_from(number) {
            Ok(number) => Part::Int(number),
            Err(_) => Part::Numbers { dtype: Dtype::U64, values: number.to_le_bytes().to_vec().into() },
        },
        Value::Float(number) => Part::Float(number),
        Value::Number(text) | Value::Text(text) => Part::Bytes(match text {
            Cow::Borrowed(text) => text.as_bytes().into(),
            Cow::Owned(text) => text.into_bytes().into(),
        }),
        Value::Bytes(bytes) if npy::is("".as_ref(), &bytes) => {
            let array = match bytes {
                Cow::Borrowed(bytes) => npy::value(bytes),
                Cow::Owned(bytes) => npy::value(&bytes).map(Value::into_owned),
            };
            let array = array.map_err(|fault| PartFault::new(format!("the part {name:?}: {fault}")))?;
            return part_of(array, name);
        }
        Value::Bytes(bytes) => Part::Bytes(bytes),
        Value::Array(array) | Value::Listed(array) => numbers(array, name)?,
        Value::List(values) => listed(&values, name)?,
        Value::Struct(members) => {
            let names: Vec<_> = members.iter().map(|(member, _)| format!("{name}.{member}")).collect();
            let message = format!("the part {name:?} has members: name one of them ({})", names.join(", "));
            return Err(PartFault::new(message));
        }
    }))
}

fn numbers<'a>(array: Array<'a>, name: &str) -> Result<Part<'a>, PartFault> {
    let dtype = match array.dtype {
        ElementType::Bool => Dtype::Bool,
        ElementType::I8 => Dtype::I8,
        ElementType::I16 => Dtype::I16,
        ElementType::I32 => Dtype::I32,
        ElementType::I64 => Dtype::I64,
        ElementType::U8 => Dtype::U8,
        ElementType::U16 => Dtype::U16,
        ElementType::U32 => Dtype::U32,
        ElementType::U64 => Dtype::U64,
        ElementType::F16 => Dtype::F16,
        ElementType::Bf16 => Dtype::Bf16,
        ElementType::F32 => Dtype::F32,
        ElementType::F64 => Dtype::F64,
        ElementType::C64 | ElementType::C128 => {
            return Err(PartFault::new(format!("the part {name:?} has complex numbers, which no field has")));
        }
    };
    Ok(Part::Numbers { dtype, values: array.bytes })
}

/// A list of numbers or of strings.
fn listed<'a>(values: &[Value<'a>], name: &str) -> Result<Part<'a>, PartFault> {
    let integers: Option<Vec<i64>> = values
        .iter()
        .map(|value| match value {
            Value::Int(number) => Some(*number),
            Value::UInt(number) => i64::try_from(*number).ok(),
            Value::Bool(truth) => Some((*truth).into()),
            _ => None,
        })
        .collect();
    if let Some(integers) = integers {
        let values = integers.into_iter().flat_map(i64::to_le_bytes).collect::<Vec<_>>().into();
        return Ok(Part::Numbers { dtype: Dtype::I64, values });
    }
    let floats: Option<Vec<f64>> = values.iter().map(float).collect();
    if let Some(floats) = floats {
        let values = floats.into_iter().flat_map(f64::to_le_bytes).collect::<Vec<_>>().into();
        return Ok(Part::Numbers { dtype: Dtype::F64, values });
    }
    let strings: Option<Vec<Cow<'a, [u8]>>> = values
        .iter()
        .map(|value| match value {
            Value::Text(text) => Some(Cow::Owned(text.as_bytes().to_vec())),
            Value::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        })
        .collect();
    strings.map(Part::Strings).ok_or_else(|| {
        PartFault::new(format!("the part {name:?} is a list, but neither of numbers nor of strings alone"))
    })
}

/// A number as a float.
#[expect(clippy::cast_precision_loss, reason = "rounded to the nearest")]
fn float(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        Value::Int(number) => Some(*number as f64),
        Value::UInt(number) => Some(*number as f64),
        Value::Array(array) if array.shape.is_empty() => match (array.dtype, &*array.bytes) {
            (ElementType::F64, bytes) => Some(f64::from_le_bytes(*bytes.first_chunk()?)),
            (ElementType::F32, bytes) => Some(f32::from_le_bytes(*bytes.first_chunk()?).into()),
            (ElementType::F16, bytes) => Some(half::f16::from_le_bytes(*bytes.first_chunk()?).into()),
            _ => None,
        },
        _ => None,
    }
}
