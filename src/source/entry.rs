//! A record as a cursor returns it, and why a record cannot be used.

#![expect(unsafe_code, reason = "whoever lends bytes promises that they stay")]

use super::SourceError;
use super::checksum::UnverifiedTable;
use super::lenders::Lender;

/// A record as a cursor returns it.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    key: &'a [u8],
    value: &'a [u8],
    lender: Option<&'a Lender>,
    /// Whether the lender's promise covers the key as well as the value.
    is_key_lent: bool,
    companion: Option<Companion<'a>>,
    /// The deferred checksum of the block that the value is in, if its user has to verify it. `lender` lends
    /// it.
    unverified: Option<UnverifiedTable<'a>>,
    /// Whether the value is most of a cursor's buffer, which the cursor can give away.
    is_whole: bool,
    /// Why its bytes cannot be used, if its cursor could go on after it.
    damage: Option<&'a SourceError>,
    /// Its number in its source, if passes differ: its place in this pass may then be another.
    number: Option<u64>,
}

/// The value of a record's companion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Companion<'a> {
    pub(super) value: &'a [u8],
    pub(super) lender: Option<&'a Lender>,
}

impl<'a> Entry<'a> {
    /// A record whose bytes belong to the cursor and are valid until its next step. A run copies them.
    #[must_use]
    pub fn borrowed(key: &'a [u8], value: &'a [u8]) -> Self {
        Entry {
            key,
            value,
            lender: None,
            is_key_lent: false,
            companion: None,
            unverified: None,
            is_whole: false,
            damage: None,
            number: None,
        }
    }

    /// A record whose bytes outlast the cursor's next step. A run keeps only their location.
    ///
    /// # Safety
    ///
    /// For as long as any clone of `lender` is alive, on any thread:
    ///
    /// - `key` and `value` stay readable at their addresses, and
    /// - nobody in this process writes to them.
    #[must_use]
    pub unsafe fn lent(key: &'a [u8], value: &'a [u8], lender: &'a Lender) -> Self {
        Entry { lender: Some(lender), is_key_lent: true, ..Entry::borrowed(key, value) }
    }

    /// A record whose value outlasts the cursor's next step but whose key does not: prefix-compressed keys
    /// are assembled by the cursor. A run copies the key and keeps the location of the value.
    ///
    /// # Safety
    ///
    /// The same as for [`Entry::lent`], for `value` alone.
    #[must_use]
    pub unsafe fn lent_value(key: &'a [u8], value: &'a [u8], lender: &'a Lender) -> Self {
        Entry { lender: Some(lender), ..Entry::borrowed(key, value) }
    }

    /// Attaches the value of another source's record, such as an image's mask or labels. It stays with this
    /// record from now on.
    ///
    /// # Panics
    ///
    /// If the block of the other record has not been verified yet: only a cursor that was
    /// [promised](super::VerifiesLater) more than [values](super::VerifiesLater::of_values) leaves that.
    #[must_use]
    pub fn with_companion(self, other: Entry<'a>) -> Self {
        assert!(other.unverified.is_none(), "nobody verifies the block of a companion");
        let companion = Some(Companion { value: other.value, lender: other.lender });
        Entry { companion, damage: self.damage.or(other.damage), ..self }
    }

    /// A record whose bytes cannot be used. The known part of its value is for messages only. Only a cursor
    /// whose caller [verifies later](super::VerifiesLater) may return it.
    pub(crate) fn damaged(key: &'a [u8], value: &'a [u8], damage: &'a SourceError) -> Self {
        Entry { damage: Some(damage), ..Entry::borrowed(key, value) }
    }

    /// The same record with another value, which is the cursor's. What is wrong with the record stays. A
    /// checksum that was deferred goes with the former value: a cursor that changes values does not pass on
    /// entries of a [deferring cursor](super::Source::deferring_cursor), unless it means to damage them.
    #[must_use]
    pub fn with_value(self, value: &'a [u8]) -> Self {
        let Entry { companion, damage, number, .. } = self;
        Entry { companion, damage, number, ..Entry::borrowed(self.key, value) }
    }

    /// The same record, with the block that its value is in marked as unverified. The record's lender keeps
    /// the table.
    pub(crate) fn unverified(self, unverified: UnverifiedTable<'a>) -> Self {
        Entry { unverified: Some(unverified), ..self }
    }

    /// The same record, whose value is most of a buffer that its cursor can [give](super::Cursor::give) to a
    /// run. Only a cursor whose caller [verifies later](super::VerifiesLater) may return it.
    pub(crate) fn whole(self) -> Self {
        Entry { is_whole: true, ..self }
    }

    /// The same record, with its number in a source whose passes differ.
    pub(super) fn numbered(self, number: Option<u64>) -> Self {
        Entry { number, ..self }
    }

    /// Its number in its source, if passes differ: its place in this pass may then be another.
    pub(super) fn number(&self) -> Option<u64> {
        self.number
    }

    /// Whether the cursor can [give](super::Cursor::give) the value to a run together with its buffer.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole && self.companion.is_none()
    }

    /// Checks that what was read of the record, and of its companion, is as it was when it was lent.
    pub(crate) fn check_used(&self) -> Result<(), SourceError> {
        let companions = self.companion.and_then(|companion| companion.lender);
        self.lender.into_iter().chain(companions).try_for_each(Lender::check_used)
    }

    /// The lender of the value, if it is lent. Only [`lent`](Self::lent) and [`lent_value`](Self::lent_value)
    /// name a lender: their callers made the promise.
    pub(super) fn lender(&self) -> Option<&'a Lender> {
        self.lender
    }

    /// Whether the lender's promise covers the key as well as the value.
    pub(super) fn is_key_lent(&self) -> bool {
        self.is_key_lent
    }

    /// The companion's value and its lender, if there is a companion.
    pub(super) fn lent_companion(&self) -> Option<Companion<'a>> {
        self.companion
    }

    /// The table of the value's block, if that has not been verified yet.
    pub(super) fn unverified_table(&self) -> Option<UnverifiedTable<'a>> {
        self.unverified
    }

    /// Why the record cannot be used, if its cursor could go on behind it.
    pub(super) fn damage(&self) -> Option<&'a SourceError> {
        self.damage
    }

    /// Whether the block of the value has yet to be verified.
    pub(crate) fn is_unverified(&self) -> bool {
        self.unverified.is_some()
    }

    /// Verifies the value, and the companion's, if that was not done yet.
    pub(crate) fn check(&self) -> Result<(), Damage> {
        if let Some(lender) = self.lender {
            if let Some(unverified) = self.unverified {
                lender.check(unverified.checksum()).map_err(Damage::of_block)?;
            }
            lender.check_value(self.value).map_err(Damage::of_record)?;
        }
        // A lent record has no damage of its own, so this is its companion's.
        if let Some(damage) = self.damage {
            return Err(Damage::of_record(damage.clone()));
        }
        match self.companion {
            Some(Companion { value, lender: Some(lender) }) => {
                lender.check_value(value).map_err(Damage::of_record)
            }
            _ => Ok(()),
        }
    }

    /// Whether the value, and the companion's if there is one, outlast the cursor's next step.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.lender.is_some() && self.companion.is_none_or(|companion| companion.lender.is_some())
    }

    /// The record's key.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The record's value: for Caffe, the wire bytes of a Datum.
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    /// The companion's value, if there is a companion.
    #[must_use]
    pub fn companion(&self) -> Option<&'a [u8]> {
        self.companion.map(|companion| companion.value)
    }

    /// The length of the value plus that of the companion's value.
    pub(crate) fn value_bytes(&self) -> usize {
        self.value.len() + self.companion.map_or(0, |companion| companion.value.len())
    }

    /// The number of bytes that a run copies of this record, because they are not lent.
    pub(crate) fn copied_bytes(&self) -> usize {
        let unless = |is_lent: bool, bytes: &[u8]| if is_lent { 0 } else { bytes.len() };
        let of_companion =
            self.companion.map_or(0, |companion| unless(companion.lender.is_some(), companion.value));
        let is_lent = self.lender.is_some();
        unless(is_lent && self.is_key_lent, self.key) + unless(is_lent, self.value) + of_companion
    }
}

/// Why a record cannot be used, although its cursor could go on after it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Damage {
    pub(crate) error: Box<SourceError>,
    /// Whether it affects only this record, so that nothing else is in doubt.
    pub(crate) is_of_record: bool,
}

impl Damage {
    pub(super) fn of_record(error: SourceError) -> Self {
        Damage { error: Box::new(error), is_of_record: true }
    }

    pub(super) fn of_block(error: SourceError) -> Self {
        Damage { error: Box::new(error), is_of_record: false }
    }
}

impl From<Damage> for SourceError {
    fn from(damage: Damage) -> Self {
        *damage.error
    }
}
