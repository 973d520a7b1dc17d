//! Shards of WebDataset.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use ::tar::{Builder, EntryType, Header};
use percolator_files::whole_file::{Existing, WholeFile};

use super::member::Members;
use super::{RecordWriter, name_of, started};
use crate::{FormatError, Key, Part};

/// Bytes that are gathered before the system is asked to write them.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes a tar, in which the members of a record follow one another under one name.
///
/// A name's dots would end it, as WebDataset splits names: they are written as `%2E`. Members have no time
/// and no owner, so the same records are the same bytes.
pub struct TarWriter {
    path: PathBuf,
    file: WholeFile,
    tar: Builder<BufWriter<std::fs::File>>,
    records: u64,
    /// The name of the last record.
    last: String,
}

impl std::fmt::Debug for TarWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TarWriter")
            .field("path", &self.path)
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

impl TarWriter {
    /// Starts a shard.
    ///
    /// # Errors
    ///
    /// [`FormatError::Io`] if it cannot be created.
    pub fn create(path: &Path) -> Result<Self, FormatError> {
        let file = started(path)?;
        let failed = |error| FormatError::io(path, "create the file", error);
        let tar =
            Builder::new(BufWriter::with_capacity(BUFFER_BYTES, file.file().try_clone().map_err(failed)?));
        Ok(TarWriter { path: path.to_owned(), file, tar, records: 0, last: String::new() })
    }
}

/// A record's name, as WebDataset can read it: without dots, and within the shard's folder.
fn sample_name(key: &[u8]) -> String {
    let text = String::from_utf8_lossy(key);
    let mut name = String::with_capacity(text.len());
    // WebDataset passes over what begins like `__this__` without a word.
    let is_hidden = text.starts_with("__");
    for (at, letter) in text.char_indices() {
        let is_taken = matches!(letter, '.' | '%' | '\\' | '\u{fffd}') || (is_hidden && at == 0);
        let is_kept = !is_taken && !letter.is_control();
        if is_kept && !(letter == '/' && (at == 0 || name.ends_with('/') || at + 1 == text.len())) {
            name.push(letter);
        } else {
            let mut utf8 = [0; 4];
            letter.encode_utf8(&mut utf8).bytes().for_each(|byte| name.push_str(&format!("%{byte:02X}")));
        }
    }
    name
}

impl RecordWriter for TarWriter {
    fn put(&mut self, key: &Key<'_>, parts: &[Part<'_>]) -> Result<(), FormatError> {
        let number = self.records;
        let refused = |what: String| FormatError::refused(&self.path, what).record(number);
        let name = sample_name(&name_of(key, number));
        if name == self.last {
            let what =
                format!("the record before it has the key {name:?}, too, and WebDataset would join the two");
            return Err(refused(what));
        }
        let members = Members::of(parts).map_err(refused)?.found;
        if members.is_empty() {
            return Err(refused(
                "the record has no part, and a tar has no sample without members".to_owned(),
            ));
        }
        for (extension, bytes) in members {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::Regular);
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            self.tar
                .append_data(&mut header, format!("{name}.{extension}"), &*bytes)
                .map_err(|error| FormatError::io(&self.path, "write the file", error))?;
        }
        (self.records, self.last) = (number + 1, name);
        Ok(())
    }

    fn finish(self: Box<Self>, existing: Existing) -> Result<(), FormatError> {
        let TarWriter { path, file, tar, .. } = *self;
        let written = tar.into_inner().and_then(|mut out| out.flush());
        let written = written.and_then(|()| file.finish_over(existing));
        written.map_err(|error| FormatError::io(&path, "write the file", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_dots_and_stay_within() {
        for (key, name) in [
            ("00000003", "00000003"),
            ("a/b", "a/b"),
            ("cat.v2.jpg", "cat%2Ev2%2Ejpg"),
            ("/etc/x", "%2Fetc/x"),
            ("../x", "%2E%2E/x"),
            ("a//b/", "a/%2Fb%2F"),
            ("50%", "50%25"),
            ("__background__/x", "%5F_background__/x"),
        ] {
            assert_eq!(sample_name(key.as_bytes()), name);
        }
        assert_eq!(sample_name(b"\xff\n"), "%EF%BF%BD%0A");
    }
}
