//! Two keys a record: an LMDB of pictures and labels, as readers of text (OCR) have it.
//!
//! `image-000000001`, `label-000000001` and so on, counted from 1, and `num-samples` with their number. Other
//! names than `image` and `label` are read as well: whatever comes before the dash of the keys that end in
//! nine digits.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator::source::{Cursor as Entries, Lmdb, Source as _};

use crate::packed::{self, PackedGrammar};
use crate::{Cursor, FormatError, Grammar, Key, Lent, Options, Place, Record, Seeks, Shard, Value};

/// The key of the number of records.
const COUNT: &[u8] = b"num-samples";

/// The digits of a key.
const DIGITS: usize = 9;

/// The most names: each is a part of every record.
const NAMES_MAX: usize = 16;

/// Whether an LMDB's last key is that of the number of records.
pub(crate) fn is(path: &Path, _head: &[u8]) -> bool {
    let mut is_count = false;
    if let Some(database) = super::lmdb_of(path) {
        database.look_at_last(&mut |key, _| is_count = key == COUNT);
    }
    is_count
}

/// Opens an LMDB of pairs, and reads all keys.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let database = Lmdb::options().access(options.access).open(path);
    let database = database.map_err(|error| super::format_error(path, &error))?;
    let keys = Keys::read(path, &database)?;
    let names = keys.groups.iter().map(|group| (group.name.clone(), "bytes or text".to_owned()));
    let grammar = Arc::new(PackedGrammar::new(names));
    Ok(vec![Arc::new(PairShard { path: path.to_owned(), database, keys, grammar })])
}

/// The keys of one name, which lie side by side.
#[derive(Debug)]
struct Group {
    name: String,
    /// The position in the LMDB of the first one.
    first: u64,
    keys: u64,
}

#[derive(Debug)]
struct Keys {
    groups: Vec<Group>,
    /// The number of records that the LMDB states.
    records: u64,
}

impl Keys {
    fn read(path: &Path, database: &Lmdb) -> Result<Self, FormatError> {
        let failed = |error| super::format_error(path, &error);
        let mut cursor = database.cursor().map_err(failed)?;
        let (mut groups, mut records): (Vec<Group>, _) = (Vec::new(), None);
        let mut position = 0;
        while let Some(entry) = cursor.advance().map_err(failed)? {
            match number_of(entry.key()) {
                Some((name, number)) => {
                    if groups.last().is_none_or(|group| group.name.as_bytes() != name) {
                        let name = String::from_utf8_lossy(name).into_owned();
                        groups.push(Group { name, first: position, keys: 0 });
                    }
                    if let Some(group) = groups.last_mut() {
                        group.keys += 1;
                        if number != group.keys {
                            return Err(missing(path, &group.name, group.keys));
                        }
                    }
                }
                None if entry.key() == COUNT => records = Some(count_of(path, entry.value())?),
                None => {
                    let key = entry.key().escape_ascii();
                    tracing::warn!(%key, "a key that is not of a pair is passed over");
                }
            }
            position += 1;
        }
        let records = records.ok_or_else(|| {
            FormatError::damaged(path, "there is no key num-samples, with the number of records")
        })?;
        if groups.is_empty() || groups.len() > NAMES_MAX {
            let what =
                format!("its keys have {} names before their numbers, and not one or some", groups.len());
            return Err(FormatError::damaged(path, what));
        }
        let more = groups.iter().map(|group| group.keys).min().unwrap_or_default();
        if more > records {
            tracing::warn!(
                records,
                keys = more,
                "num-samples says less than there are: the others are not read"
            );
        }
        Ok(Keys { groups, records })
    }
}

/// The name and the number of a key: `image-000000001`.
fn number_of(key: &[u8]) -> Option<(&[u8], u64)> {
    let (front, digits) = key.split_at_checked(key.len().checked_sub(DIGITS)?)?;
    let name = front.strip_suffix(b"-")?;
    let number =
        std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|it| it.is_ascii_digit()))?;
    Some((name, number.parse().ok()?))
}

fn count_of(path: &Path, value: &[u8]) -> Result<u64, FormatError> {
    let text = std::str::from_utf8(value).map(str::trim).unwrap_or_default();
    text.parse().map_err(|_| {
        let found = value.escape_ascii().to_string();
        FormatError::damaged(path, format!("num-samples is no number, but {found:?}"))
    })
}

fn missing(path: &Path, name: &str, number: u64) -> FormatError {
    let what = format!("the key {name}-{number:09} is missing");
    FormatError::damaged(path, what).record(number.saturating_sub(1))
}

/// An LMDB with several keys a record.
#[derive(Debug)]
struct PairShard {
    path: PathBuf,
    database: Lmdb,
    keys: Keys,
    grammar: Arc<PackedGrammar>,
}

impl Shard for PairShard {
    fn path(&self) -> &Path {
        &self.path
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![super::data_file_of(&self.path)]
    }

    fn records(&self) -> Option<u64> {
        Some(self.keys.records)
    }

    fn seeks(&self) -> Seeks {
        Seeks::ByPosition
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::clone(&self.grammar) as Arc<dyn Grammar>
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        // One a name, so that each reads its keys in order.
        let entries = self.keys.groups.iter().map(|group| {
            let failed = |error| super::format_error(&self.path, &error);
            let mut entries = self.database.cursor().map_err(failed)?;
            entries.seek(group.first).map_err(failed)?;
            Ok(entries)
        });
        let entries = entries.collect::<Result<Vec<_>, FormatError>>()?;
        Ok(Box::new(PairCursor { entries, position: 0, value: Vec::new(), shard: self }))
    }
}

struct PairCursor {
    shard: Arc<PairShard>,
    entries: Vec<Box<dyn Entries>>,
    position: u64,
    value: Vec<u8>,
}

impl Cursor for PairCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let PairCursor { shard, entries, position, value } = self;
        if *position >= shard.keys.records {
            return Ok(None);
        }
        let number = *position + 1;
        if let Some(short) = shard.keys.groups.iter().find(|group| group.keys < number) {
            return Err(missing(&shard.path, &short.name, number));
        }
        value.clear();
        for (entries, group) in entries.iter_mut().zip(&shard.keys.groups) {
            let entry = entries.advance().map_err(|error| super::format_error(&shard.path, &error))?;
            let entry = entry.ok_or_else(|| missing(&shard.path, &group.name, number))?;
            if number_of(entry.key()) != Some((group.name.as_bytes(), number)) {
                return Err(missing(&shard.path, &group.name, number));
            }
            let part = match std::str::from_utf8(entry.value()) {
                Ok(text) => Value::Text(text.into()),
                Err(_) => Value::Bytes(entry.value().into()),
            };
            packed::pack(&part, value);
        }
        *position = number;
        let place = [number - 1, 0];
        Ok(Some(Record { key: Key::Number(number), value: Lent::Buffer(value), place }))
    }

    fn seek(&mut self, [position, _]: Place, _: u64) -> Result<(), FormatError> {
        for (entries, group) in self.entries.iter_mut().zip(&self.shard.keys.groups) {
            let place = group.first + position;
            entries.seek(place).map_err(|error| super::format_error(&self.shard.path, &error))?;
        }
        self.position = position;
        Ok(())
    }
}
