//! Values in MessagePack, in an LMDB.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator::source::{Cursor as Entries, Lmdb, Source as _, SourceError};
use rmpv::ValueRef;
use rmpv::decode::read_value_ref_with_max_depth;

use crate::{
    Cursor, Fault, FormatError, Grammar, Key, Lent, Options, Part, Place, Record, Seeks, Shard, Value,
};

/// Deeper values are refused: nobody writes them, and reading recurses.
const DEPTH_MAX: usize = 64;

/// Whether an LMDB's first value is a map with names, in MessagePack. A Datum and an Example begin otherwise.
pub(crate) fn is(path: &Path, _head: &[u8]) -> bool {
    let Some(database) = super::lmdb_of(path) else { return false };
    let Ok(mut cursor) = database.cursor() else { return false };
    matches!(cursor.advance(), Ok(Some(entry)) if is_map(entry.value()))
}

/// Whether bytes begin as a map of some members, whose first name is a text.
fn is_map(value: &[u8]) -> bool {
    let names = match *value {
        [0x81..=0x8f, ref names @ ..] => names,
        [0xde, _, _, ref names @ ..] => names,
        [0xdf, _, _, _, _, ref names @ ..] => names,
        _ => return false,
    };
    let name = match *names {
        [length @ 0xa1..=0xbf, ref name @ ..] => name.get(..usize::from(length & 0x1f)),
        [0xd9, length, ref name @ ..] => name.get(..usize::from(length)),
        _ => return false,
    };
    name.is_some_and(|name| std::str::from_utf8(name).is_ok())
}

/// Opens an LMDB whose values are MessagePack.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let database = Lmdb::options().access(options.access).open(path);
    let database = database.map_err(|error| super::format_error(path, &error))?;
    Ok(vec![Arc::new(MsgpackShard { path: path.to_owned(), database })])
}

/// An LMDB whose values are MessagePack.
#[derive(Debug)]
struct MsgpackShard {
    path: PathBuf,
    database: Lmdb,
}

impl Shard for MsgpackShard {
    fn path(&self) -> &Path {
        &self.path
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![super::data_file_of(&self.path)]
    }

    fn records(&self) -> Option<u64> {
        self.database.records()
    }

    fn seeks(&self) -> Seeks {
        Seeks::ByPlace
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::new(MsgpackGrammar)
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        let entries = self.database.cursor().map_err(|error| super::format_error(&self.path, &error))?;
        Ok(Box::new(MsgpackCursor { shard: self, entries, position: 0, value: Vec::new(), key: Vec::new() }))
    }
}

struct MsgpackCursor {
    shard: Arc<MsgpackShard>,
    entries: Box<dyn Entries>,
    position: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl MsgpackCursor {
    fn failed(&self, error: &SourceError) -> FormatError {
        super::format_error(&self.shard.path, error)
    }
}

impl Cursor for MsgpackCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        match self.entries.advance() {
            Ok(None) => return Ok(None),
            Ok(Some(entry)) => {
                self.key.clear();
                self.key.extend_from_slice(entry.key());
                self.value.clear();
                self.value.extend_from_slice(entry.value());
            }
            Err(error) => return Err(self.failed(&error)),
        }
        let place = [self.position, 0];
        self.position += 1;
        Ok(Some(Record { key: Key::Bytes(&self.key), value: Lent::Buffer(&self.value), place }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        let is_there = self.entries.skip().map_err(|error| super::format_error(&self.shard.path, &error))?;
        let place = [self.position, 0];
        self.position += u64::from(is_there);
        Ok(is_there.then_some(place))
    }

    fn seek(&mut self, [position, _]: Place, _: u64) -> Result<(), FormatError> {
        self.entries.seek(position).map_err(|error| self.failed(&error))?;
        self.position = position;
        Ok(())
    }
}

/// The members of a map are the parts; any other value is one part, `value`.
#[derive(Debug)]
struct MsgpackGrammar;

impl Grammar for MsgpackGrammar {
    fn description(&self) -> String {
        "the members of maps in MessagePack".to_owned()
    }

    fn names(&self) -> Option<Vec<String>> {
        None
    }

    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        let mut rest = value;
        let read = read_value_ref_with_max_depth(&mut rest, DEPTH_MAX).map_err(|error| {
            let byte = value.len() - rest.len();
            Fault::new(format!("not a whole MessagePack value at its byte {byte}: {error}"))
        })?;
        if !rest.is_empty() {
            let byte = value.len() - rest.len();
            return Err(Fault::new(format!(
                "{} bytes follow the MessagePack value, at its byte {byte}",
                rest.len()
            )));
        }
        match converted(read)? {
            Value::Struct(members) => Ok(members),
            other => Ok(vec![("value".into(), other)]),
        }
    }
}

fn converted(value: ValueRef<'_>) -> Result<Value<'_>, Fault> {
    Ok(match value {
        ValueRef::Nil => Value::Null,
        ValueRef::Boolean(truth) => Value::Bool(truth),
        ValueRef::Integer(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(number)) => Value::UInt(number),
            (None, None) => return Err(Fault::new("an integer of more than 64 bits")),
        },
        ValueRef::F32(number) => Value::Float(number.into()),
        ValueRef::F64(number) => Value::Float(number),
        ValueRef::String(text) => match text.into_str() {
            Some(text) => Value::Text(Cow::Borrowed(text)),
            None => return Err(Fault::new("a MessagePack text is not UTF-8")),
        },
        ValueRef::Binary(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
        ValueRef::Array(values) => Value::List(values.into_iter().map(converted).collect::<Result<_, _>>()?),
        ValueRef::Map(members) => {
            let members = members.into_iter().map(|(name, value)| match name {
                ValueRef::String(name) => match name.into_str() {
                    Some(name) => Ok((Cow::Borrowed(name), converted(value)?)),
                    None => Err(Fault::new("a MessagePack name is not UTF-8")),
                },
                other => Ok((Cow::Owned(other.to_string()), converted(value)?)),
            });
            Value::Struct(members.collect::<Result<_, _>>()?)
        }
        ValueRef::Ext(kind, _) => {
            return Err(Fault::new(format!(
                "a MessagePack value of the extension {kind}, which nobody has defined"
            )));
        }
    })
}
