//! The fields of a feed elsewhere, as the schema of its streams describes them.

use std::fmt;
use std::sync::Arc;

use arrow_ipc::convert::{try_schema_from_flatbuffer_bytes, try_schema_from_ipc_buffer};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use percolator::batch::{AXES_MAX, Pad};
use percolator::{Dtype, Field as FeedField, Layout};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::error::ClientError;
use super::receive::Malformed;
use crate::columns::{FIELD_NOTE, FieldNote, NotedKind, VERSION};

/// A field of a feed's batches.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteField {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// What each row has of it.
    pub kind: RemoteFieldKind,
    /// The order of an image's axes.
    pub layout: Option<Layout>,
}

/// What each row of a batch has of a field.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteFieldKind {
    /// An array of this shape; without extents, one element.
    Fixed {
        /// The extents, outermost first.
        shape: Vec<usize>,
    },
    /// Up to `max` elements, followed by padding up to that length. The column `NAME.lengths` has how many,
    /// as `i64`.
    Padded {
        /// The most elements of a row.
        max: usize,
    },
    /// Up to `max` elements, one row's directly after those of the row before.
    Ragged {
        /// The most elements of a row.
        max: usize,
    },
}

impl RemoteField {
    /// The same as a feed here has it, if there can be one; `pad` is what follows a padded row's elements.
    fn of_feed(&self, pad: Option<&str>) -> Option<FeedField> {
        let name = self.name.clone();
        let field = match &self.kind {
            RemoteFieldKind::Fixed { shape } if shape.len() < AXES_MAX => {
                FeedField::new(name, self.dtype, shape)
            }
            RemoteFieldKind::Fixed { .. } => return None,
            RemoteFieldKind::Ragged { max } => FeedField::ragged(name, self.dtype, *max),
            RemoteFieldKind::Padded { max } => {
                let is_float = matches!(self.dtype, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64);
                let pad = match is_float {
                    true => Pad::Float(pad?.parse().ok()?),
                    false => Pad::Integer(pad?.parse().ok()?),
                };
                FeedField::padded(name, self.dtype, *max, pad)
            }
        };
        Some(self.layout.iter().fold(field, |field, layout| field.of_image(*layout)))
    }

    /// The elements of a row, if all rows have as many.
    pub(crate) fn row_elements(&self) -> Option<usize> {
        match &self.kind {
            RemoteFieldKind::Fixed { shape } => {
                shape.iter().try_fold(1_usize, |elements, &extent| elements.checked_mul(extent))
            }
            RemoteFieldKind::Padded { max } => Some(*max),
            RemoteFieldKind::Ragged { .. } => None,
        }
    }
}

/// The columns that a stream's schema promises.
#[derive(Clone, Debug)]
pub(crate) struct RemoteColumns {
    pub(crate) schema: SchemaRef,
    /// A field for each column, and whether it is one of the feed's.
    each: Vec<(RemoteField, bool)>,
}

impl RemoteColumns {
    /// From the header of a stream's first message.
    pub(crate) fn of_message(header: &[u8]) -> Result<Self, Malformed> {
        Self::of(try_schema_from_flatbuffer_bytes(header).map_err(no_schema)?)
    }

    /// From a message that stands alone.
    pub(crate) fn of_encapsulated(message: &[u8]) -> Result<Self, Malformed> {
        Self::of(try_schema_from_ipc_buffer(message).map_err(no_schema)?)
    }

    pub(crate) fn of(schema: Schema) -> Result<Self, Malformed> {
        let (key, known) = VERSION;
        match schema.metadata.get(key) {
            Some(version) if version == known => {}
            found => {
                let found = found.map_or("none", String::as_str);
                return Err(Malformed(format!(
                    "a schema of the version {found:?}, and this client knows {known}: use one that fits"
                )));
            }
        }
        let each = schema.fields.iter().map(|field| of_column(field)).collect::<Result<_, _>>()?;
        Ok(RemoteColumns { schema: Arc::new(schema), each })
    }

    /// The feed's own fields, without the columns that say something about rows.
    pub(crate) fn fields(&self) -> Vec<RemoteField> {
        self.each.iter().filter(|(_, is_field)| *is_field).map(|(field, _)| field.clone()).collect()
    }

    /// The feed's own fields, as a feed here has them.
    pub(crate) fn of_feed(&self) -> Result<Vec<FeedField>, Malformed> {
        let columns = self.schema.fields().iter().zip(&self.each).filter(|(_, (_, is_field))| *is_field);
        let field = |(column, (field, _)): (&Arc<Field>, &(RemoteField, bool))| {
            let note = column.metadata().get(FIELD_NOTE);
            let pad = note.and_then(|note| serde_json::from_str::<FieldNote>(note).ok()?.pad);
            field.of_feed(pad.as_deref()).ok_or_else(|| {
                Malformed(format!("a schema whose column {:?} is no field of a feed", field.name))
            })
        };
        columns.map(field).collect()
    }

    /// Of which kind the field is that begins with a column, if one of the feed's does.
    pub(crate) fn kind(&self, column: usize) -> Option<NotedKind> {
        let (field, is_field) = self.each.get(column)?;
        is_field.then_some(match field.kind {
            RemoteFieldKind::Fixed { .. } => NotedKind::Fixed,
            RemoteFieldKind::Padded { .. } => NotedKind::Padded,
            RemoteFieldKind::Ragged { .. } => NotedKind::Ragged,
        })
    }

    /// Whether a column's rows are arrays, whose elements are another one.
    pub(crate) fn is_nested(&self, column: usize) -> bool {
        matches!(self.schema.field(column).data_type(), DataType::FixedSizeList(..) | DataType::LargeList(_))
    }

    /// A field for each column, in their order.
    pub(crate) fn each(&self) -> impl Iterator<Item = &RemoteField> {
        self.each.iter().map(|(field, _)| field)
    }

    /// The number of a column, and what it is.
    pub(crate) fn find(&self, name: &str) -> Result<(usize, &RemoteField), ClientError> {
        let at = self.each.iter().position(|(field, _)| field.name == name);
        at.map(|at| (at, &self.each[at].0)).ok_or_else(|| ClientError::NoColumn {
            name: name.to_owned(),
            found: self.each.iter().map(|(field, _)| &*field.name).collect::<Vec<_>>().join(", "),
        })
    }
}

fn no_schema(error: ArrowError) -> Malformed {
    Malformed(format!("no schema where there should be one: {error}"))
}

/// What a column is, and whether it is a field of the feed's.
fn of_column(column: &Field) -> Result<(RemoteField, bool), Malformed> {
    let name = column.name();
    let unusable = |what: String| Malformed(format!("a schema whose column {name:?} has {what}"));
    let (of_elements, row_elements) = match column.data_type() {
        DataType::FixedSizeList(item, elements) => {
            let elements = usize::try_from(*elements);
            (item.data_type(), Some(elements.map_err(|_| unusable("rows of a negative length".to_owned()))?))
        }
        DataType::LargeList(item) => (item.data_type(), None),
        one => (one, Some(1)),
    };
    let stored =
        dtype_of(of_elements).ok_or_else(|| unusable(format!("elements of the type {of_elements}")))?;
    let Some(note) = column.metadata().get(FIELD_NOTE) else {
        let shape = match column.data_type() {
            DataType::LargeList(_) => return Err(unusable("ragged rows, and no description".to_owned())),
            DataType::FixedSizeList(..) => row_elements.into_iter().collect(),
            _ => Vec::new(),
        };
        let kind = RemoteFieldKind::Fixed { shape };
        return Ok((RemoteField { name: name.clone(), dtype: stored, kind, layout: None }, false));
    };
    let described = |error: &dyn fmt::Display| unusable(format!("a description that is none: {error}"));
    let note: FieldNote = serde_json::from_str(note).map_err(|error| described(&error))?;
    let dtype: Dtype = named(&note.dtype).map_err(|error| described(&error))?;
    let layout: Option<Layout> =
        note.layout.as_deref().map(named).transpose().map_err(|error| described(&error))?;
    let kind = match (note.kind, note.max) {
        (NotedKind::Fixed, _) => RemoteFieldKind::Fixed { shape: note.shape },
        (NotedKind::Padded, Some(max)) => RemoteFieldKind::Padded { max },
        (NotedKind::Ragged, Some(max)) => RemoteFieldKind::Ragged { max },
        (_, None) => return Err(described(&"it has no `max`")),
    };
    let field = RemoteField { name: name.clone(), dtype, kind, layout };
    let is_ragged = matches!(field.kind, RemoteFieldKind::Ragged { .. });
    if stored != stored_as(dtype)
        || field.row_elements() != row_elements
        || is_ragged != row_elements.is_none()
    {
        let RemoteField { dtype, kind, .. } = field;
        return Err(unusable(format!(
            "the type {}, which does not hold {kind:?} of {dtype}",
            column.data_type()
        )));
    }
    Ok((field, true))
}

/// A type or a layout by its name.
fn named<'n, T: Deserialize<'n>>(name: &'n str) -> Result<T, ValueError> {
    let name: StrDeserializer<'n, ValueError> = name.into_deserializer();
    T::deserialize(name)
}

fn dtype_of(elements: &DataType) -> Option<Dtype> {
    Some(match elements {
        DataType::Float16 => Dtype::F16,
        DataType::Float32 => Dtype::F32,
        DataType::Float64 => Dtype::F64,
        DataType::Int8 => Dtype::I8,
        DataType::Int16 => Dtype::I16,
        DataType::Int32 => Dtype::I32,
        DataType::Int64 => Dtype::I64,
        DataType::UInt8 => Dtype::U8,
        DataType::UInt16 => Dtype::U16,
        DataType::UInt32 => Dtype::U32,
        DataType::UInt64 => Dtype::U64,
        _ => return None,
    })
}

/// As what a type travels.
fn stored_as(dtype: Dtype) -> Dtype {
    match dtype {
        Dtype::Bool => Dtype::U8,
        Dtype::Bf16 => Dtype::U16,
        other => other,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use arrow_schema::Metadata;
    use serde_json::{Value, json};

    pub(crate) fn noted(name: &str, kind: DataType, note: &Value) -> Field {
        Field::new(name, kind, false).with_metadata(Metadata::new().with(FIELD_NOTE, note.to_string()))
    }

    pub(crate) fn item(kind: DataType) -> Arc<Field> {
        Arc::new(Field::new("item", kind, false))
    }

    pub(crate) fn schema(fields: Vec<Field>) -> Schema {
        Schema::new(fields).with_metadata(Metadata::new().with(VERSION.0, VERSION.1))
    }

    #[test]
    fn fields_are_those_of_the_feed() {
        let image = DataType::FixedSizeList(item(DataType::UInt8), 6);
        let tokens = DataType::LargeList(item(DataType::UInt16));
        let columns = RemoteColumns::of(schema(vec![
            noted(
                "image",
                image,
                &json!({"dtype": "u8", "kind": "fixed", "shape": [2, 3], "layout": "nchw"}),
            ),
            Field::new("words.lengths", DataType::Int64, false),
            noted("tokens", tokens, &json!({"dtype": "bf16", "kind": "ragged", "shape": [], "max": 9})),
        ]));
        let fields = columns.unwrap().fields();
        let kind = RemoteFieldKind::Fixed { shape: vec![2, 3] };
        let image = RemoteField { name: "image".into(), dtype: Dtype::U8, kind, layout: Some(Layout::Nchw) };
        let kind = RemoteFieldKind::Ragged { max: 9 };
        let tokens = RemoteField { name: "tokens".into(), dtype: Dtype::Bf16, kind, layout: None };
        assert_eq!(fields, [image, tokens]);
    }

    #[test]
    fn a_schema_that_cannot_be_is_refused() {
        let refused = |fields: Vec<Field>| RemoteColumns::of(schema(fields)).unwrap_err().0;
        let array = |elements| DataType::FixedSizeList(item(DataType::Int8), elements);
        let i8s = |shape: &[usize]| json!({"dtype": "i8", "kind": "fixed", "shape": shape});
        assert!(
            RemoteColumns::of(Schema::new(vec![item(DataType::Int8)])).unwrap_err().0.contains("version")
        );
        assert!(refused(vec![Field::new("a", DataType::Utf8, false)]).contains("the type Utf8"));
        assert!(refused(vec![Field::new("a", array(-1), false)]).contains("negative"));
        assert!(refused(vec![noted("a", array(5), &i8s(&[2, 3]))]).contains("does not hold"));
        assert!(refused(vec![noted("a", array(6), &i8s(&[usize::MAX, 3]))]).contains("does not hold"));
        assert!(refused(vec![noted("a", DataType::Int16, &i8s(&[]))]).contains("does not hold"));
        assert!(refused(vec![noted("a", array(6), &json!({"dtype": "i9"}))]).contains("description"));
        let unknown = json!({"dtype": "i9", "kind": "fixed", "shape": [6]});
        assert!(refused(vec![noted("a", array(6), &unknown)]).contains("i9"));
        let endless = json!({"dtype": "i8", "kind": "padded", "shape": [6]});
        assert!(refused(vec![noted("a", array(6), &endless)]).contains("`max`"));
        assert!(RemoteColumns::of_message(b"no schema").is_err());
        assert!(RemoteColumns::of_encapsulated(&[0xff, 0xff, 0xff, 0xff, 9, 0, 0, 0, 1]).is_err());
    }
}
