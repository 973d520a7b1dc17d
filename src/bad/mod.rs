//! Bad records: what a feed does with them, how many there may be, and the file that names them.
//!
//! A record is bad if it can be found but cannot be used. A worker finds that out, names the record in the
//! quarantine file, and marks its row. When the batch is complete, the rows of its bad records are removed or
//! overwritten with copies of good ones (`batch/bad_rows.rs`), and the prefetcher counts them. So what
//! becomes of a record depends only on its batch, not on threads.

mod count;
mod policy;
mod quarantine;
mod record;

pub(crate) use self::count::{BadCount, good};
pub use self::policy::{BadAction, BadRecords};
pub(crate) use self::quarantine::Quarantine;
pub use self::quarantine::{QuarantineError, Quarantined};
pub use self::record::{BadRecord, TooManyBad};
