//! What a cursor over a database returns.

use crate::table::Unverified;

/// A key and its value.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The key, without its write's number.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Who owns the bytes.
    pub home: Home<'a>,
}

impl<'a> Entry<'a> {
    #[inline]
    pub(crate) fn of_cursor(key: &'a [u8], value: &'a [u8]) -> Self {
        Entry { key, value, home: Home::Cursor { is_whole: false } }
    }
}

/// Who owns the bytes of an [`Entry`], and so how long they stay.
#[derive(Clone, Copy, Debug)]
pub enum Home<'a> {
    /// Key and value are in a log: they stay as long as the database's [`Store`](crate::Store).
    Log,
    /// The value is in a table that stays mapped, as long as the store; the key is the cursor's.
    Table {
        /// The table's number in the store.
        table: usize,
        /// The deferred checksum of the value's block, if its user [has to verify](crate::Store::check_block)
        /// it.
        unverified: Option<&'a Unverified>,
    },
    /// Key and value are the cursor's, until it moves.
    Cursor {
        /// Whether the value fills most of a buffer, which [`MergeCursor::whole`](crate::MergeCursor::whole)
        /// returns.
        is_whole: bool,
    },
}
