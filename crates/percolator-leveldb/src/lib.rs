//! LevelDB's files: databases, which are read without changing them, and their tables; TensorFlow's
//! checkpoint index is such a table, too.
//!
//! ```text
//! CURRENT -> MANIFEST: edits, which add up to the list of tables; it is a log, as the live logs are
//!            logs -> memtable      \
//!            tables of level 0      > a walk over all of them: the newest write of each key counts
//!            tables of levels 1-6  /
//! ```
//!
//! - [`Database`]: an open database, walked through in key order ([`MergeCursor`]), or accessed by the places
//!   that such a walk found ([`RecordCursor`]).
//! - [`table`]: one sorted table, read and written, without a database.
//! - [`manifest`]: the list of tables, for a program that writes a database of only tables.
//! - [`coding`]: how all of these store numbers and strings.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use percolator_leveldb::{Database, Options};
//!
//! let database = Database::open(Path::new("mnist_train_leveldb"), &Options::default())?;
//! for cut in database.cuts() {
//!     eprintln!("{cut}");
//! }
//! let mut walk = database.range(b"00010000", Some(b"00020000"));
//! while let Some(entry) = walk.advance()? {
//!     println!("{}: {} bytes", entry.key.escape_ascii(), entry.value.len());
//! }
//! # Ok::<(), percolator_leveldb::LevelDbError>(())
//! ```
//!
//! # What is promised
//!
//! C++ LevelDB cannot open a database without changing it: it takes LOCK, renames LOG, writes the records of
//! the write-ahead log to tables and deletes the files those replace. Here the tables are mapped, and the
//! logs are mapped and indexed in memory (or both are read, see [`Options::access`]). No lock is taken and
//! nothing is written, regardless of which program wrote the database.
//!
//! - Every checksum is verified: a log's when the database is opened, a table block's whenever a cursor
//!   enters the block, unless that is deferred to the user of the values ([`table::Verify`]) or done by the
//!   thread that unpacks the block ahead of the cursor ([`Ahead`]). Damage is an error that names the file
//!   and the place; nothing is skipped.
//! - A log that ends inside a record, as after a crash, is read up to there, with a warning; see
//!   [`Database::cuts`].
//! - A log that lacks writes which the sequence numbers show to have existed is an error, and so is a log
//!   that is missing, unless [`LogGaps`] allows it.
//! - Data in a log, or uncompressed in a table that stays mapped, stay where they are as long as the
//!   [`Store`]. A value in a compressed block is in the buffer that the block was unpacked to, until the
//!   cursor moves. [`Home`] tells which.
//! - A key of more than 8 KiB is refused. Tables store a key as its difference from the key before it, so an
//!   entry of twenty bytes could have a key of any length.
//!
//! # Memory
//!
//! 40 bytes per key in the logs, plus those keys and values that the logs' blocks of 32 KiB cut to pieces;
//! some hundred bytes per table. A walk has its last key, and for each level and each table of level 0 an
//! index block and a data block, uncompressed, and a key of each; a cursor that goes to places has a block
//! and a key. A damaged or forged database, and a walk of it, can need at most
//!
//! - 60 bytes per byte of log, while a buffer grows, if its writes delete the empty key;
//! - 22 bytes per byte of table, if snappy yields the most it can;
//! - the keys: at most 16 KiB each, because their buffers double; except for the walk's own key, none is
//!   longer than its block.
//!
//! These limits are the reader's own. A caller that keeps entries copies a table's keys: up to 8 KiB for
//! each, whatever the database's length. The same holds for time: for each entry that a walk passes, up to 8
//! KiB are copied and compared, and an entry may have twenty bytes.

mod ahead;
mod batch;
mod by_place;
pub mod coding;
mod cut;
mod database;
mod edit;
mod entry;
mod error;
mod folder;
mod key;
mod level;
mod log;
pub mod manifest;
mod map;
mod memtable;
mod merge;
mod numbers;
mod opened;
mod options;
mod record_place;
mod recovery;
mod replay;
pub mod table;
// Miri maps no files.
#[cfg(test)]
#[cfg(not(miri))]
mod tests;

pub use self::ahead::Ahead;
pub use self::by_place::RecordCursor;
pub use self::cut::LogCut;
pub use self::database::{Database, Fact};
pub use self::edit::TableFile;
pub use self::entry::{Entry, Home};
pub use self::error::LevelDbError;
pub use self::log::{LogFault, LogTail};
pub use self::map::{KeptTable, Store};
pub use self::merge::MergeCursor;
pub use self::options::{LogGaps, Options};
pub use self::record_place::RecordPlace;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
