//! DALI's index beside a tar (`wds2idx`): where the members of each record are.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::path::Path;
use std::sync::Arc;

use percolator_files::{input_file, shown};

use super::walk::{TarKept, TarWalk};
use crate::unpack::Packing;
use crate::{DataFile, FormatError, Options, Place};

/// The most bytes of an index that are read.
const INDEX_MAX: u64 = 1 << 32;

/// A record of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaliSample {
    /// The key that its members have in the tar.
    pub key: Vec<u8>,
    /// The place of the record in the tar, to which a cursor goes.
    pub place: Place,
    /// Its members.
    pub members: Vec<DaliMember>,
}

/// A member of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaliMember {
    /// The part's name, in lower case.
    pub field: String,
    /// Where its data are in the tar.
    pub offset: u64,
    /// The bytes of its data.
    pub bytes: u64,
    /// The member's name in the tar.
    pub name: Vec<u8>,
}

/// Reads an index, and compares every number and name in it with the tar's headers.
///
/// # Errors
///
/// [`FormatError`] if either cannot be read, the index is no `v1.1` or `v1.2`, or it does not fit the tar.
pub fn dali_index(index: &Path, tar: &Path, options: &Options) -> Result<Vec<DaliSample>, FormatError> {
    let text = input_file::read(index, INDEX_MAX).map_err(|e| FormatError::io(index, "read the index", e))?;
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    let mut lines = text.split(|byte| *byte == b'\n');
    let head = lines.next().unwrap_or_default();
    let (has_names, count) = head_of(head).ok_or_else(|| {
        let what =
            format!("it begins with {}, not with \"v1.2\" and the number of samples", shown::quoted(head));
        FormatError::damaged(index, what).line(1)
    })?;

    let file = Arc::new(DataFile::open(tar, options.access)?);
    if Packing::of_file(&file)?.is_some() {
        return Err(FormatError::refused(tar, "an index is about a plain tar, and this one is compressed"));
    }
    let samples = samples_of(&file)?;
    if count != samples.len() as u64 {
        let what = format!("it states {count} samples, and {} has {}", shown::path(tar), samples.len());
        return Err(FormatError::damaged(index, what).line(1));
    }
    for (number, sample) in (2..).zip(&samples) {
        let line = lines.next();
        let wrong = match line {
            None => Some("it ends before all samples: it is cut".to_owned()),
            Some(line) => compare(line, sample, has_names).err(),
        };
        if let Some(what) = wrong {
            return Err(FormatError::damaged(index, what).line(number));
        }
    }
    match lines.next() {
        None => Ok(samples),
        Some(_) => {
            Err(FormatError::damaged(index, format!("lines follow the {count} samples that it states")))
        }
    }
}

/// Whether members have names, and the number of samples.
fn head_of(line: &[u8]) -> Option<(bool, u64)> {
    let (version, count) = std::str::from_utf8(line).ok()?.trim_end().split_once(' ')?;
    let has_names = match version {
        "v1.1" => false,
        "v1.2" => true,
        _ => return None,
    };
    Some((has_names, count.parse().ok()?))
}

/// The runs of one key in a tar.
fn samples_of(file: &Arc<DataFile>) -> Result<Vec<DaliSample>, FormatError> {
    let mut walk = TarWalk::new(file, None)?;
    let mut samples: Vec<DaliSample> = Vec::new();
    while let Some(TarKept { start, data, end, .. }) = walk.first()? {
        let bytes = end.saturating_sub(data);
        let member =
            DaliMember { field: walk.field().to_owned(), offset: data, bytes, name: walk.name().to_owned() };
        match samples.last_mut().filter(|sample| sample.key == walk.key()) {
            Some(sample) => {
                sample.place = [sample.place[0], end.saturating_sub(sample.place[0])];
                sample.members.push(member);
            }
            None => samples.push(DaliSample {
                key: walk.key().to_owned(),
                place: [start, end.saturating_sub(start)],
                members: vec![member],
            }),
        }
    }
    Ok(samples)
}

/// Compares a line, `EXTENSION OFFSET SIZE NAME ...`, with a sample. Names may have spaces, and are known.
fn compare(line: &[u8], sample: &DaliSample, has_names: bool) -> Result<(), String> {
    let mut rest = line.strip_suffix(b"\r").unwrap_or(line);
    for (number, member) in sample.members.iter().enumerate() {
        let name = shown::quoted(&member.name);
        if number > 0 {
            rest = rest.strip_prefix(b" ").ok_or_else(|| format!("the member {name} is missing"))?;
        }
        let extension = member.name.get(sample.key.len().saturating_add(1)..);
        let stated = extension.and_then(|extension| {
            let begin = rest.get(..extension.len())?;
            rest.get(extension.len()..).filter(|_| begin.eq_ignore_ascii_case(extension))
        });
        let due = format!("{:?} is expected for the member {name}", member.field);
        let found = || shown::quoted(rest.get(..rest.len().min(40)).unwrap_or_default()).to_string();
        rest = stated
            .and_then(|stated| stated.strip_prefix(b" "))
            .ok_or_else(|| format!("{due}, not {}", found()))?;
        for (what, due) in [("offset", member.offset), ("size", member.bytes)] {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (number, after) = rest.split_at_checked(digits).unwrap_or_default();
            let stated: Option<u64> = std::str::from_utf8(number).ok().and_then(|digits| digits.parse().ok());
            if stated != Some(due) {
                let stated = shown::quoted(number);
                return Err(format!("the {what} of the member {name} is {due} in the tar, not {stated}"));
            }
            let is_last = !has_names && what == "size";
            rest = if is_last { after } else { after.strip_prefix(b" ").unwrap_or(after) };
        }
        if has_names {
            let after = rest.strip_prefix(&*member.name);
            rest = after.ok_or_else(|| format!("the member {name} is expected, not {}", found()))?;
        }
    }
    if rest.is_empty() {
        return Ok(());
    }
    Err(format!("{} follows the members that the tar has", shown::quoted(rest)))
}
