//! Records of all members of a tar that have one key, wherever they lie.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::path::Path;
use std::sync::Arc;

use super::names::TarNames;
use super::walk::{TarKept, TarWalk};
use super::{TarGrammar, TarPieces, TarShard};
use crate::{Cursor, FormatError, Grammar, Key, Options, Place, Record, Seeks, Shard};

/// A tar whose members were sorted into records, in the order of the records' first members.
#[derive(Debug)]
pub(super) struct GroupedTarShard {
    tar: TarShard,
    records: Vec<(Box<[u8]>, TarPieces)>,
}

impl GroupedTarShard {
    /// Goes over the headers, and keeps the members that are wanted.
    pub(super) fn new(tar: TarShard, options: &Options) -> Result<Self, FormatError> {
        let path = tar.file.path();
        if tar.packing.is_some() {
            let what = "group=shard needs members in any order, and it is compressed as a whole; unpack it";
            return Err(FormatError::refused(path, what));
        }
        let mut walk = TarWalk::new(&tar.file, None)?;
        let (mut keys, mut names) = (TarNames::default(), TarNames::default());
        let mut records: Vec<(Box<[u8]>, TarPieces)> = Vec::new();
        let mut name = Vec::new();
        while let Some(member) = walk.first()? {
            let next = records.len() as u64;
            let record = keys.add(walk.key(), next).unwrap_or(next);
            name.clear();
            name.extend_from_slice(&record.to_le_bytes());
            name.extend_from_slice(walk.field().as_bytes());
            if let Some(before) = names.add(&name, member.start) {
                let what = format!(
                    "the member {} is the second one of its record with the field {:?}, after that at byte \
                    {before}",
                    walk.shown_name(),
                    walk.field()
                );
                return Err(FormatError::damaged(path, what).record(record).byte(member.start));
            }
            if record == next {
                records.push((walk.key().into(), TarPieces::Several(Vec::new())));
            }
            if let (true, Some((_, pieces))) = (
                options.wants(walk.field()),
                usize::try_from(record).ok().and_then(|record| records.get_mut(record)),
            ) {
                pieces.add(member, tar.file.bytes());
            }
        }
        tar.warn(&walk);
        Ok(GroupedTarShard { tar, records })
    }

    fn no_record(&self, position: u64) -> FormatError {
        let what = format!("record {position} is wanted, and there are {}", self.records.len());
        FormatError::damaged(self.tar.file.path(), what)
    }
}

impl TarPieces {
    /// Adds a member with its padding, as far as the file has it.
    fn add(&mut self, member: TarKept, file_bytes: u64) {
        let (start, end) = (member.start, member.next.min(file_bytes));
        match self {
            TarPieces::One(_, last) if *last == start => *last = end,
            TarPieces::One(first, last) => *self = TarPieces::Several(vec![(*first, *last), (start, end)]),
            TarPieces::Several(pieces) if pieces.is_empty() => *self = TarPieces::One(start, end),
            TarPieces::Several(pieces) => match pieces.last_mut() {
                Some((_, last)) if *last == start => *last = end,
                _ => pieces.push((start, end)),
            },
        }
    }
}

impl Shard for GroupedTarShard {
    fn path(&self) -> &Path {
        self.tar.file.path()
    }

    fn records(&self) -> Option<u64> {
        Some(self.records.len() as u64)
    }

    fn seeks(&self) -> Seeks {
        Seeks::ByPosition
    }

    fn place(&self, position: u64) -> Result<Place, FormatError> {
        if position < self.records.len() as u64 { Ok([position, 0]) } else { Err(self.no_record(position)) }
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::new(TarGrammar)
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        Ok(Box::new(GroupedTarCursor { shard: self, position: 0, packed: Vec::new(), piece: Vec::new() }))
    }
}

/// Reads records of members that lie anywhere.
struct GroupedTarCursor {
    shard: Arc<GroupedTarShard>,
    position: u64,
    packed: Vec<u8>,
    piece: Vec<u8>,
}

impl Cursor for GroupedTarCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let GroupedTarCursor { shard, position, packed, piece } = self;
        let place = [*position, 0];
        let index = usize::try_from(*position).unwrap_or(usize::MAX);
        let Some((key, pieces)) = shard.records.get(index) else { return Ok(None) };
        let value = pieces.lend(&shard.tar.file, [packed, piece])?;
        *position = position.saturating_add(1);
        Ok(Some(Record { key: Key::Bytes(key), value, place }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        if self.position >= self.shard.records.len() as u64 {
            return Ok(None);
        }
        let place = [self.position, 0];
        self.position = self.position.saturating_add(1);
        Ok(Some(place))
    }

    fn seek(&mut self, place: Place, _position: u64) -> Result<(), FormatError> {
        self.shard.place(place[0])?;
        self.position = place[0];
        Ok(())
    }
}
