//! Goes from header to header of a tar, plain or unpacked.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt::{self, Write as _};
use std::sync::Arc;

use percolator_files::shown;

use super::header::{BLOCK, TarFault, TarKind, TarStep, padded, step, write_lower};
use crate::unpack::Packing;
use crate::window::Window;
use crate::{DataFile, FormatError};

/// How much is looked at at a time behind the end mark.
const PIECE: u64 = 1 << 16;

/// The blocks of zeros that end a tar.
const MARK: u64 = 2 * BLOCK as u64;

/// A member that is part of a record. Its names are in the [`Walk`].
#[derive(Clone, Copy, Debug)]
pub(super) struct TarKept {
    /// Where its first header is.
    pub(super) start: u64,
    /// Where its data are.
    pub(super) data: u64,
    /// Where they end.
    pub(super) end: u64,
    /// Where the next header is.
    pub(super) next: u64,
}

/// Goes from header to header. It touches data only where a stream must be unpacked to pass over them.
#[derive(Debug)]
pub(super) struct TarWalk {
    file: Arc<DataFile>,
    source: TarSource,
    /// Where the next header is.
    at: u64,
    name: Vec<u8>,
    key_bytes: usize,
    field: String,
    pub(super) passed: TarPassed,
}

#[derive(Debug)]
enum TarSource {
    Plain(Vec<u8>),
    Packed(Box<Window>),
}

/// A member as it stands in the tar, without its name.
struct TarFound {
    headers: u64,
    size: u64,
    kind: TarKind,
    is_kept: bool,
}

/// What comes next.
enum TarNext {
    Zeros,
    Global(u64),
    Member(TarFound),
}

impl TarWalk {
    pub(super) fn new(file: &Arc<DataFile>, packing: Option<Packing>) -> Result<Self, FormatError> {
        let source = match packing {
            None => TarSource::Plain(Vec::new()),
            Some(packing) => TarSource::Packed(Box::new(Window::new(file, Some(packing))?)),
        };
        Ok(TarWalk {
            file: Arc::clone(file),
            source,
            at: 0,
            name: Vec::new(),
            key_bytes: 0,
            field: String::new(),
            passed: TarPassed::default(),
        })
    }

    /// The last member's record.
    pub(super) fn key(&self) -> &[u8] {
        self.name.get(..self.key_bytes).unwrap_or_default()
    }

    /// The last member's field, in lower case.
    pub(super) fn field(&self) -> &str {
        &self.field
    }

    /// The last member's whole name.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(super) fn shown_name(&self) -> impl fmt::Display {
        shown::bytes(&self.name).to_string()
    }

    /// Goes to where a header is expected. A stream must have it at hand.
    pub(super) fn go_to(&mut self, at: u64) {
        self.at = at;
    }

    /// Goes back to the first header.
    pub(super) fn restart(&mut self) -> Result<(), FormatError> {
        self.at = 0;
        self.passed = TarPassed::default();
        match &mut self.source {
            TarSource::Plain(_) => Ok(()),
            TarSource::Packed(window) => window.seek(0, BLOCK),
        }
    }

    /// The unpacked bytes, if this is a stream.
    pub(super) fn window(&self) -> Option<&Window> {
        match &self.source {
            TarSource::Plain(_) => None,
            TarSource::Packed(window) => Some(window),
        }
    }

    /// Forgets the unpacked bytes before a position.
    pub(super) fn forget(&mut self, before: u64) {
        if let TarSource::Packed(window) = &mut self.source {
            let bytes = before.saturating_sub(window.at()).min(window.bytes().len() as u64);
            window.consume(usize::try_from(bytes).unwrap_or_default());
        }
    }

    /// Goes to the next member that is part of a record; `None` at the end, whose mark it has verified.
    pub(super) fn first(&mut self) -> Result<Option<TarKept>, FormatError> {
        self.kept(None)
    }

    /// Goes to the next member of the record with this key; `None` before the next record's, and at the end.
    /// Of a stream, the bytes since the last [`forget`](Self::forget) stay at hand.
    pub(super) fn next_of(&mut self, key: &[u8]) -> Result<Option<TarKept>, FormatError> {
        self.kept(Some(key))
    }

    fn kept(&mut self, run: Option<&[u8]>) -> Result<Option<TarKept>, FormatError> {
        let hold = run.is_some();
        loop {
            if !hold {
                self.forget(self.at);
            }
            let at = self.at;
            let found = match self.next()? {
                TarNext::Zeros if hold => return Ok(None),
                TarNext::Zeros => {
                    self.verify_end()?;
                    return Ok(None);
                }
                TarNext::Global(bytes) => {
                    self.at = at.saturating_add(bytes);
                    continue;
                }
                // What is wrong with its data is the next record's.
                TarNext::Member(found) if found.is_kept && run.is_some_and(|key| key != self.key()) => {
                    return Ok(None);
                }
                TarNext::Member(found) => found,
            };
            let data = at.saturating_add(found.headers);
            let end = data.checked_add(found.size);
            let next = padded(found.size).and_then(|bytes| data.checked_add(bytes));
            let (Some(end), Some(next)) = (end, next) else { return Err(self.short(at, found.size, data)) };
            self.reach(at, found.size, data, end, hold || found.is_kept)?;
            if found.is_kept {
                self.at = next;
                return Ok(Some(TarKept { start: at, data, end, next }));
            }
            self.passed.note(at, found.kind, &self.name);
            self.pass_to(next, hold)?;
        }
    }

    /// Verifies that a member's data are there, and unpacks them if they are to be held.
    fn reach(&mut self, at: u64, size: u64, data: u64, end: u64, hold: bool) -> Result<(), FormatError> {
        let there = match &mut self.source {
            TarSource::Plain(_) => end <= self.file.bytes(),
            TarSource::Packed(_) if !hold => true,
            TarSource::Packed(window) => {
                let wanted = end.saturating_sub(window.at());
                while (window.bytes().len() as u64) < wanted && window.more()? {}
                window.bytes().len() as u64 >= wanted
            }
        };
        if there { Ok(()) } else { Err(self.short(at, size, data)) }
    }

    /// Passes over a member.
    fn pass_to(&mut self, next: u64, hold: bool) -> Result<(), FormatError> {
        if let (TarSource::Packed(window), false) = (&mut self.source, hold) {
            let bytes = next.saturating_sub(window.at());
            if window.pass_over(bytes)? < bytes {
                let what = format!("the tar ends inside the data of the member {}", shown::bytes(&self.name));
                return Err(FormatError::damaged(self.file.path(), what).byte(window.at()));
            }
        }
        self.at = next;
        Ok(())
    }

    fn short(&self, at: u64, size: u64, data: u64) -> FormatError {
        let there = match &self.source {
            TarSource::Plain(_) => self.file.bytes(),
            TarSource::Packed(window) => window.at().saturating_add(window.bytes().len() as u64),
        };
        let what = format!(
            "the member {} states {size} bytes, and {} are there: the tar is cut, or this header is damaged",
            shown::bytes(&self.name),
            there.saturating_sub(data)
        );
        FormatError::damaged(self.file.path(), what).byte(at)
    }

    /// Reads what stands at the next header's place, and the name if it is a member.
    fn next(&mut self) -> Result<TarNext, FormatError> {
        let mut wanted = BLOCK;
        loop {
            let (bytes, is_all) = self.source.bytes(&self.file, self.at, wanted)?;
            let error = |fault: TarFault| {
                let at = self.at.saturating_add(fault.at as u64);
                let path = self.file.path();
                match fault.refused {
                    true => FormatError::refused(path, fault.what).byte(at),
                    false => FormatError::damaged(path, fault.what).byte(at),
                }
            };
            let member = match step(bytes).map_err(error)? {
                TarStep::Zeros => return Ok(TarNext::Zeros),
                TarStep::Global(bytes) => return Ok(TarNext::Global(bytes as u64)),
                TarStep::More(bytes) if !is_all => {
                    wanted = bytes;
                    continue;
                }
                TarStep::More(_) => {
                    let what = if bytes.is_empty() {
                        "the tar has no end mark (two blocks of zeros): it may be incomplete; copy it again, \
                         or pack it again"
                    } else {
                        "the file ends inside a header: it is cut; copy it again from where it came"
                    };
                    return Err(FormatError::damaged(self.file.path(), what).byte(self.at));
                }
                TarStep::Member(member) => member,
            };
            member.name.write(&mut self.name);
            let split = if member.kind == TarKind::File { member.name.split() } else { None };
            if let Some((key_bytes, field)) = split {
                self.key_bytes = key_bytes;
                if !write_lower(field, &mut self.field) {
                    let name = shown::bytes(&self.name);
                    let what = format!("the part of the name {name} behind its first dot is not UTF-8");
                    return Err(FormatError::refused(self.file.path(), what).byte(self.at));
                }
            }
            return Ok(TarNext::Member(TarFound {
                headers: member.headers as u64,
                size: member.size,
                kind: member.kind,
                is_kept: split.is_some(),
            }));
        }
    }

    /// Verifies that two blocks of zeros end the tar, and that only zeros follow.
    fn verify_end(&mut self) -> Result<(), FormatError> {
        let (mut at, path) = (self.at, self.file.path());
        loop {
            let piece = usize::try_from(PIECE).unwrap_or(BLOCK);
            let (bytes, is_all) = self.source.bytes(&self.file, at, piece)?;
            if let Some(data) = bytes.iter().position(|byte| *byte != 0) {
                let data = at.saturating_add(data as u64);
                let what = if data < self.at.saturating_add(MARK) {
                    format!(
                        "a lone block of zeros stands at byte {} before more data: the tar is damaged there, \
                         or was written wrongly; GNU tar reads on with: tar -i",
                        self.at
                    )
                } else {
                    format!(
                        "data follow the end mark at byte {}, as if archives had been joined; most readers \
                         stop there. GNU tar reads on: unpack it with tar -xif, and pack it again",
                        self.at
                    )
                };
                return Err(FormatError::damaged(path, what).byte(data));
            }
            at = at.saturating_add(bytes.len() as u64);
            if is_all {
                break;
            }
            // A stream's bytes before the mark are the last record's, which is done.
            if let TarSource::Packed(window) = &mut self.source {
                let held = window.bytes().len();
                window.consume(held);
            }
        }
        if at.saturating_sub(self.at) < MARK {
            let what =
                "the end mark is cut: it has two blocks of zeros, and one is there; copy the tar again";
            return Err(FormatError::damaged(path, what).byte(self.at));
        }
        Ok(())
    }
}

impl TarSource {
    /// At least as many bytes from a position on as are wanted, and whether these are all that there are.
    fn bytes<'a>(
        &'a mut self,
        file: &'a DataFile,
        at: u64,
        wanted: usize,
    ) -> Result<(&'a [u8], bool), FormatError> {
        match self {
            TarSource::Plain(buffer) => {
                let start = at.min(file.bytes());
                let end = start.saturating_add(wanted as u64).min(file.bytes());
                Ok((file.read(start..end, buffer)?, end == file.bytes()))
            }
            TarSource::Packed(window) => {
                let begin = usize::try_from(at.saturating_sub(window.at())).unwrap_or(usize::MAX);
                let end = begin.saturating_add(wanted);
                let mut is_all = false;
                while window.bytes().len() < end && !is_all {
                    is_all = !window.more()?;
                }
                let bytes = window.bytes().get(begin..).unwrap_or_default();
                Ok((bytes, is_all))
            }
        }
    }
}

/// What was passed over: of each kind the number, and the first name.
#[derive(Debug, Default)]
pub(super) struct TarPassed {
    kinds: Vec<(TarKind, u64, String)>,
    /// Up to where they are counted. What follows a record is met twice.
    counted: u64,
}

impl TarPassed {
    fn note(&mut self, at: u64, kind: TarKind, name: &[u8]) {
        if at < self.counted {
            return;
        }
        self.counted = at.saturating_add(1);
        match self.kinds.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, count, _)) => *count = count.saturating_add(1),
            None => self.kinds.push((kind, 1, shown::bytes(name).to_string())),
        }
    }

    /// What to say of it; `None` if nothing but folders was passed over, which have no data.
    pub(super) fn said(&self) -> Option<String> {
        let mut said = String::new();
        for (kind, count, name) in self.kinds.iter().filter(|(kind, ..)| *kind != TarKind::Directory) {
            let what = match kind {
                TarKind::File => "files without a key and a field in their names",
                TarKind::HardLink => "hard links, whose data lie at other names",
                TarKind::SymbolicLink => "symbolic links",
                TarKind::Directory => "folders",
                TarKind::Device => "devices",
                TarKind::Other => "members of other types",
            };
            let separator = if said.is_empty() { "" } else { "; " };
            let _ = write!(said, "{separator}{what}: {count}, the first of them {name}");
        }
        (!said.is_empty()).then_some(said)
    }
}
