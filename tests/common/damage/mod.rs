//! One harness for damaged files. A format states its files, their parts, what protects each part, and how it
//! is read. The harness damages the files in every way it knows, and the verdict is the same for all formats:
//! an error that names the file, or exactly the whole; never fewer, more or other records, no panic, no end
//! of the process, no hang, and no more memory than the format states.
//!
//! ```text
//! stated     what a format says of its files
//!   v
//! change     one damage: a bit, a byte, a cut, a part missing, doubled or another's, a number that lies,
//!            another file of this format or of a foreign one
//!   v
//! case       what is on the disk then, and what protects what was changed
//!   v
//! run        in a process of its own: writes the files, reads them in every way (allocator, watch)
//!   v
//! verdict    is it an error, the whole, or what the format says nothing can show?
//! ```
//!
//! Two records cut off at the end of a TFRecord file, or a byte of a key in an LMDB: some damage nothing can
//! show. Then the format states what is read instead ([`Format::allows`]), mostly by a naive twin of the
//! reader, and nothing else passes.
//!
//! `PERCOLATOR_DAMAGED_FILES` is the number of changes of each format; with `all`, each of them is made.

#![allow(dead_code, unreachable_pub, reason = "every binary uses its own part of this")]
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "for tests")]

#[path = "../allocator.rs"]
mod allocator;
mod case;
mod change;
pub mod foreign;
#[allow(clippy::duplicate_mod, reason = "packages take the harness without the rest of the folder")]
#[path = "../process.rs"]
pub mod process;
mod run;
mod stated;
mod verdict;
mod watch;

use std::fmt::{Debug, Display};
use std::path::Path;

#[allow(unused_imports, reason = "as above")]
pub use self::case::{CHANGED_AFTER, Case};
pub use self::run::check;
pub use self::stated::{Guard, Number, Stated};

/// A format, and one data set in it.
pub trait Format {
    /// What reading gives in order: records, tensors, a text.
    type Item: PartialEq + Debug;

    /// The most memory that one reading may take, in bytes, whatever the files state.
    const MEMORY_MAX: usize = 32 << 20;

    /// Of a longer file, so many bytes are damaged, evenly spread, if all changes are made.
    const BYTES_MAX: usize = 20_000;
    /// How much the format forges itself then, at the most.
    const FORGED_MAX: usize = 10_000;

    /// As the report names it.
    fn name(&self) -> String;

    /// The files of the data set, undamaged.
    fn files(&self) -> Vec<Stated>;

    /// The files of another data set, with the same names and the same kinds of parts: the donor of parts.
    fn donor(&self) -> Vec<Stated> {
        Vec::new()
    }

    /// Other data sets of this format, an older one or somebody else's. Their files come under these names,
    /// one by one and all together.
    fn others(&self) -> Vec<Vec<Stated>> {
        Some(self.donor()).filter(|donor| !donor.is_empty()).into_iter().collect()
    }

    /// What one of [`others`](Format::others) gives in this way: by default, what its files give in a folder
    /// that had no others before.
    fn whole_of(&self, other: &[Stated], way: &'static str) -> Vec<Self::Item> {
        let folder = tempfile::tempdir().unwrap();
        Case::whole(other).put(folder.path());
        let found = self.read(folder.path(), way);
        assert_eq!(found.error, None, "another data set, {way}");
        found.items
    }

    /// Whole files of other formats.
    fn foreign(&self) -> Vec<(&'static str, Vec<u8>)> {
        foreign::files()
    }

    /// In which ways it is read.
    fn ways(&self) -> Vec<Way>;

    /// Reads what is in the folder.
    fn read(&self, folder: &Path, way: &'static str) -> Reading<Self::Item>;

    /// Whether a message says which file it is about.
    fn names(&self, error: &str, folder: &Path) -> bool {
        error.contains(folder.to_str().unwrap())
    }

    /// Corrects all checksums of a file, as a forger would who has changed a number in it.
    fn seal(&self, _file: &str, _bytes: &mut Vec<u8>) {}

    /// Damage that this format alone knows, if there is any: the number chooses it. The text says what it is.
    fn forged(&self, _number: usize) -> Option<(Vec<Stated>, String)> {
        None
    }

    /// Whether nothing can show this damage, and this is what is read then. Asked only if no guard covers
    /// what was changed.
    fn allows(&self, _case: &Case, _way: &'static str, _found: &Reading<Self::Item>) -> bool {
        false
    }
}

/// One way of reading.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub name: &'static str,
    /// Only every so many changes are read this way, unless all are made: for ways that take long.
    pub every: usize,
}

impl Way {
    pub const fn of(name: &'static str) -> Self {
        Way { name, every: 1 }
    }

    pub const fn seldom(name: &'static str, every: usize) -> Self {
        Way { name, every }
    }
}

/// What was read, and the error that ended it.
#[derive(Debug, PartialEq)]
pub struct Reading<T> {
    pub items: Vec<T>,
    pub error: Option<String>,
}

impl<T> Reading<T> {
    /// Reads until the end or an error. What came before the error counts.
    pub fn of<E: Display>(read: impl FnOnce(&mut Vec<T>) -> Result<(), E>) -> Self {
        let mut items = Vec::new();
        let error = read(&mut items).err().map(|error| error.to_string());
        Reading { items, error }
    }

    /// Reads something that comes whole or not at all.
    pub fn whole<E: Display>(read: Result<T, E>) -> Self {
        Reading::of(|items| read.map(|item| items.push(item)))
    }
}
