//! A run: a few records handed over together, lent by their database if it can lend them.
//!
//! At 3 KB a record, handing records over one by one would cost more than reading them, so the reader deals
//! them in runs. A run of lent records owns no pixels: it holds where each record is, and the [`Lender`] that
//! keeps it there.

#![expect(unsafe_code, reason = "a run keeps lent bytes past the borrow of the cursor that lent them")]

use std::collections::TryReserveError;
use std::ops::Range;

use super::SourceError;
use super::checksum::{ChecksumAt, UnverifiedTable};
use super::entry::{Companion, Damage, Entry};
use super::lenders::{Lender, Lenders};
use crate::record::{RecordId, StepEnd};

/// A record of a run.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The record's epoch and position. In round-robin order the epoch is the pass over the source.
    pub id: RecordId,
    /// The record's key in the database.
    pub key: &'a [u8],
    /// The record's value: for Caffe, the wire bytes of a Datum.
    pub value: &'a [u8],
    /// The companion's value, if there is a companion.
    pub companion: Option<&'a [u8]>,
}

/// Where a key or a value is stored.
#[derive(Debug)]
enum Span {
    /// In the memory of the lender with this number. The lifetime is false, and confined to this file; see
    /// the invariants of [`Run`].
    Lent { bytes: &'static [u8], lender: u32 },
    /// In the run's own `copied`.
    Copied(Range<usize>),
}

impl Span {
    /// Verifies a value of one of these lenders by what is stored beside it.
    #[inline]
    fn check(&self, lenders: &Lenders) -> Result<(), Damage> {
        match self {
            Span::Lent { bytes, lender } => {
                lenders.numbered(*lender as usize).check_value(bytes).map_err(Damage::of_record)
            }
            Span::Copied(_) => Ok(()),
        }
    }
}

/// Bytes that a run keeps for each record.
pub(crate) const PLACE_BYTES: usize = size_of::<Place>();
/// Bytes that it keeps in addition for each number of a source whose passes differ.
pub(crate) const NUMBER_BYTES: usize = size_of::<(usize, u64)>();
/// Bytes that it keeps in addition for each companion.
pub(crate) const COMPANION_BYTES: usize = size_of::<Span>();

#[derive(Debug)]
struct Place {
    id: RecordId,
    key: Span,
    value: Span,
}

/// A few records handed over together.
///
/// # Invariants
///
/// 1. Every `Span::Lent` in `places` was lent under the one of `lenders` with its number, and every one in
///    `companions` under that of `companion_lenders`.
/// 2. Lenders are released only while `places` and `companions` are empty, and are dropped after them.
/// 3. A lent span leaves the run only with the lifetime of a borrow of the run.
/// 4. `companions` is empty, or has one entry for each of `places`.
/// 5. For each record whose block is still to be verified, `checksums` has the deferred checksum, at that
///    record or an earlier one. The block's lender is one of `lenders`, and it has that lender's number.
#[derive(Debug)]
pub struct Run {
    places: Vec<Place>,
    companions: Vec<Span>,
    /// In the order of their positions; neighbours are of different blocks.
    checksums: Vec<ChecksumAt>,
    /// By position in the run, the [numbers](Entry::number) of the records that have one.
    numbers: Vec<(usize, u64)>,
    /// The records whose bytes cannot be used, by position.
    damages: Vec<(usize, SourceError)>,
    /// The copied bytes are at the front. The rest is left over from earlier records, to avoid clearing
    /// memory.
    copied: Vec<u8>,
    copied_bytes: usize,
    value_bytes: usize,
    step_end: Option<StepEnd>,
    lenders: Lenders,
    companion_lenders: Lenders,
}

impl Run {
    /// Creates an empty run with room for `records` records. It grows if it must.
    #[must_use]
    pub fn with_capacity(records: usize) -> Self {
        Run {
            places: Vec::with_capacity(records),
            companions: Vec::new(),
            checksums: Vec::new(),
            numbers: Vec::new(),
            damages: Vec::new(),
            copied: Vec::new(),
            copied_bytes: 0,
            value_bytes: 0,
            step_end: None,
            lenders: Lenders::default(),
            companion_lenders: Lenders::default(),
        }
    }

    /// Creates an empty run for records that may each have a different lender.
    pub(crate) fn with_lenders(records: usize) -> Self {
        let lenders = || Lenders::with_capacity(records);
        Run { lenders: lenders(), companion_lenders: lenders(), ..Run::with_capacity(records) }
    }

    /// Makes room for the bytes that are copied of a record, so that [`push`](Self::push) cannot fail. A
    /// single record may be as large as the whole memory.
    ///
    /// # Errors
    ///
    /// If there is no memory for them. The run stays as it is.
    pub(crate) fn make_room(&mut self, entry: &Entry<'_>) -> Result<(), TryReserveError> {
        let needed = self.copied_bytes.saturating_add(entry.copied_bytes());
        let more = needed.saturating_sub(self.copied.len());
        // Also for the records after it, if there is memory for that.
        self.copied.try_reserve(more).or_else(|_| self.copied.try_reserve_exact(more))
    }

    /// Adds a record: its location if it is lent, its bytes otherwise.
    ///
    /// # Panics
    ///
    /// If some of the run's records have a companion and others do not, which is a bug of the source. If a
    /// record has a deferred checksum but is not lent, which caller-implemented sources cannot cause.
    pub fn push(&mut self, id: RecordId, entry: Entry<'_>) {
        let (key, value, companion) = (entry.key(), entry.value(), entry.lent_companion());
        let lender = entry.lender();
        if self.places.is_empty() {
            self.lenders.begin(lender);
            self.companion_lenders.begin(companion.and_then(|companion| companion.lender));
        }
        let lender = lender.map(|lender| self.lenders.adopt(lender));
        if let Some(unverified) = entry.unverified_table() {
            self.take_over(unverified, lender.expect("the owner of its table lends the record"));
        }
        if let Some(number) = entry.number() {
            if self.numbers.capacity() == 0 {
                self.numbers.reserve_exact(self.places.capacity());
            }
            self.numbers.push((self.places.len(), number));
        }
        self.damages.extend(entry.damage().map(|damage| (self.places.len(), damage.clone())));
        let of_key = lender.filter(|_| entry.is_key_lent());
        let place = Place { id, key: self.keep(key, of_key), value: self.keep(value, lender) };
        self.places.push(place);
        self.value_bytes += value.len();
        if let Some(Companion { value, lender }) = companion {
            let lender = lender.map(|lender| self.companion_lenders.adopt(lender));
            let span = self.keep(value, lender);
            self.companions.push(span);
            self.value_bytes += value.len();
        }
        let companions = self.companions.len();
        assert!(companions == 0 || companions == self.places.len(), "a record lacks its companion");
    }

    /// Adds a record together with the buffer that holds its value, and gives the run's own buffer in
    /// exchange. A cursor that can [give](super::Cursor::give) its buffers calls this.
    ///
    /// # Panics
    ///
    /// If the run has a record, if the value is not in the buffer, or if the key is longer than what the
    /// buffer has before the value: it goes there.
    pub(crate) fn exchange(&mut self, id: RecordId, key: &[u8], buffer: &mut Vec<u8>, value: Range<usize>) {
        assert!(self.places.is_empty(), "a run takes a buffer for its first record");
        assert!(
            key.len() <= value.start && value.start <= value.end && value.end <= buffer.len(),
            "a buffer has room for the key, and then the value"
        );
        self.lenders.begin(None);
        self.companion_lenders.begin(None);
        std::mem::swap(&mut self.copied, buffer);
        self.copied[..key.len()].copy_from_slice(key);
        self.copied_bytes = value.end;
        self.value_bytes = value.len();
        self.places.push(Place { id, key: Span::Copied(0..key.len()), value: Span::Copied(value) });
    }

    /// Takes over the deferred checksum of the next record's block, with the number of its lender.
    fn take_over(&mut self, unverified: UnverifiedTable<'_>, lender: usize) {
        let checksum = unverified.take();
        if self.checksums.last().is_some_and(|last| last.checksum == checksum && last.lender == lender) {
            return;
        }
        if self.checksums.capacity() == 0 {
            // Reserved once: a block has at least one record.
            self.checksums.reserve_exact(self.places.capacity());
        }
        self.checksums.push(ChecksumAt { position: self.places.len(), checksum, lender });
    }

    /// Keeps bytes. `lender` asserts that they were lent under the lender with this number, which was taken
    /// in.
    fn keep(&mut self, bytes: &[u8], lender: Option<usize>) -> Span {
        if let Some(lender) = lender {
            let lender = u32::try_from(lender).expect("a run has fewer than 2^32 lenders");
            // SAFETY: only the lifetime changes. `Entry::lent` promised that the bytes stay readable and
            // unwritten while a clone of their lender lives. The run holds such a clone, which outlives the
            // span by invariant 2. By invariant 3 nobody sees the false lifetime.
            let bytes = unsafe { std::mem::transmute::<&[u8], &'static [u8]>(bytes) };
            Span::Lent { bytes, lender }
        } else {
            let start = self.copied_bytes;
            self.copied_bytes += bytes.len();
            match self.copied.get_mut(start..self.copied_bytes) {
                Some(room) => room.copy_from_slice(bytes),
                None => {
                    self.copied.truncate(start);
                    self.copied.extend_from_slice(bytes);
                }
            }
            Span::Copied(start..self.copied_bytes)
        }
    }

    /// Removes the records and keeps the memory.
    pub fn clear(&mut self) {
        self.places.clear();
        self.companions.clear();
        self.lenders.begin(None);
        self.companion_lenders.begin(None);
        self.checksums.clear();
        self.numbers.clear();
        self.damages.clear();
        self.copied_bytes = 0;
        self.value_bytes = 0;
        self.step_end = None;
    }

    /// Marks its records as the last of a step.
    pub(crate) fn end_step(&mut self, end: StepEnd) {
        self.step_end = Some(end);
    }

    /// The end of the step that the run's last record ends, if it ends one. For an empty run: the end of a
    /// step in which the consumer gets no records.
    #[must_use]
    pub fn step_end(&self) -> Option<StepEnd> {
        self.step_end
    }

    /// Whether it says that everything has been dealt.
    pub(crate) fn is_end(&self) -> bool {
        self.is_empty() && self.step_end.is_none()
    }

    /// The number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether the run has no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The total length of all values.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// The record at a position, in the order of insertion.
    #[must_use]
    pub fn get(&self, position: usize) -> Option<Record<'_>> {
        self.places.get(position).map(|place| self.record(position, place))
    }

    /// The number in its data set of the record at a position, which the run has: its position there, unless
    /// passes differ.
    pub(crate) fn number(&self, position: usize) -> u64 {
        let found = self.numbers.iter().find(|(of, _)| *of == position);
        found.map_or_else(|| self.places[position].id.index, |(_, number)| *number)
    }

    /// The records, in the order of insertion.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        self.places.iter().enumerate().map(|(position, place)| self.record(position, place))
    }

    /// Checks that everything read of the records until now was as it was when it was lent.
    ///
    /// # Errors
    ///
    /// The source's error if it was written to in the meantime, so that other bytes may have been read.
    pub fn check_used(&self) -> Result<(), SourceError> {
        self.lenders.iter().chain(self.companion_lenders.iter()).try_for_each(Lender::check_used)
    }

    /// Verifies the deferred checksums while the records are used from the first one on.
    pub(crate) fn deferred_checksums(&self) -> Verifying<'_> {
        Verifying { run: self, next: 0, verified: 0 }
    }

    fn record<'a>(&'a self, position: usize, place: &'a Place) -> Record<'a> {
        let companion = self.companions.get(position).map(|span| self.bytes(span));
        Record { id: place.id, key: self.bytes(&place.key), value: self.bytes(&place.value), companion }
    }

    fn bytes<'a>(&'a self, span: &'a Span) -> &'a [u8] {
        match span {
            Span::Lent { bytes, .. } => bytes,
            Span::Copied(range) => &self.copied[range.clone()],
        }
    }
}

/// Verifies a run's deferred checksums as its records are used one after the other.
#[derive(Debug)]
pub(crate) struct Verifying<'a> {
    run: &'a Run,
    /// The first deferred checksum that has not been verified.
    next: usize,
    /// How many of the first records have been verified elsewhere.
    verified: usize,
}

impl Verifying<'_> {
    /// Goes on after the first records, which have been verified elsewhere with their blocks.
    pub(crate) fn after(self, verified: usize) -> Self {
        let next = self.run.checksums.partition_point(|at| at.position < verified);
        Verifying { next, verified, ..self }
    }

    /// Verifies the block of the record at `position`, unless that is done or not deferred, the record, and
    /// its companion. Records before it are not used any more.
    pub(crate) fn before(&mut self, position: usize) -> Result<(), Damage> {
        if position < self.verified {
            return Ok(());
        }
        let Run { lenders, companion_lenders, places, companions, damages, .. } = self.run;
        while let Some(ChecksumAt { checksum, lender, .. }) = self.due(position) {
            lenders.numbered(*lender).check(*checksum).map_err(Damage::of_block)?;
            self.next += 1;
        }
        if let Some(place) = places.get(position) {
            place.value.check(lenders)?;
        }
        // In the order of `Entry::check`.
        if let Some((_, damage)) = damages.iter().find(|(at, _)| *at == position) {
            return Err(Damage::of_record(damage.clone()));
        }
        companions.get(position).map_or(Ok(()), |companion| companion.check(companion_lenders))
    }

    fn due(&self, position: usize) -> Option<&ChecksumAt> {
        self.run.checksums.get(self.next).filter(|at| at.position <= position)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::source::Verifier;

    fn id(index: u64) -> RecordId {
        RecordId { epoch: 0, index }
    }

    fn texts(run: &Run) -> Vec<(&[u8], &[u8])> {
        run.iter().map(|record| (record.key, record.value)).collect()
    }

    /// The lender of a test: bytes on the heap.
    fn lend(bytes: &'static [u8]) -> (Lender, Arc<Vec<u8>>) {
        let owner = Arc::new(bytes.to_vec());
        (Lender::new(owner.clone()), owner)
    }

    #[test]
    fn copies_what_is_only_borrowed() {
        let mut run = Run::with_capacity(2);
        for (index, text) in [*b"one", *b"two"].iter().enumerate() {
            let gone = text.to_vec();
            run.push(id(index as u64), Entry::borrowed(b"k", &gone));
        }
        assert_eq!(texts(&run), [(&b"k"[..], &b"one"[..]), (b"k", b"two")]);
        assert_eq!(run.value_bytes(), 6);
    }

    #[test]
    fn keeps_where_lent_bytes_lie_and_holds_their_lender() {
        let (lender, owner) = lend(b"keyvalue");
        let mut run = Run::with_capacity(1);
        // SAFETY: the vector behind the lender is neither written nor freed while a clone lives.
        run.push(id(0), unsafe { Entry::lent(&owner[..3], &owner[3..], &lender) });
        let address = owner.as_ptr();
        drop((lender, owner));
        let record = run.get(0).unwrap();
        assert_eq!((record.key, record.value), (&b"key"[..], &b"value"[..]));
        assert_eq!(record.key.as_ptr(), address, "a lent record is not copied");
    }

    #[test]
    fn a_lent_value_stays_where_it_lies_while_its_key_is_copied() {
        let (lender, owner) = lend(b"value");
        let mut run = Run::with_capacity(2);
        for key in [*b"one", *b"two"] {
            let gone = key.to_vec();
            // SAFETY: as above, for the value.
            run.push(id(0), unsafe { Entry::lent_value(&gone, &owner, &lender) });
        }
        let address = owner.as_ptr();
        drop((lender, owner));
        assert_eq!(texts(&run), [(&b"one"[..], &b"value"[..]), (b"two", b"value")]);
        assert!(run.iter().all(|record| record.value.as_ptr() == address), "a lent value is not copied");
    }

    #[test]
    fn records_of_several_lenders_stay_where_they_lie_for_as_long_as_the_run_holds_them() {
        let (first, first_owner) = lend(b"first");
        let (second, second_owner) = lend(b"second");
        let mut run = Run::with_capacity(3);
        for (lender, owner) in [(&first, &first_owner), (&second, &second_owner), (&first, &first_owner)] {
            // SAFETY: as above.
            run.push(id(0), unsafe { Entry::lent(b"", owner, lender) });
        }
        drop((first, second));
        assert_eq!(texts(&run), [(&b""[..], &b"first"[..]), (b"", b"second"), (b"", b"first")]);
        assert_eq!(run.get(1).unwrap().value.as_ptr(), second_owner.as_ptr(), "a lent value is not copied");
        assert_eq!([&first_owner, &second_owner].map(Arc::strong_count), [2, 2], "each is held once");
        run.clear();
        run.push(id(0), Entry::borrowed(b"", b"alone"));
        assert_eq!(Arc::strong_count(&second_owner), 1, "nothing of it is in the run");
    }

    /// A lender that counts how often its value is verified.
    struct Counting(Vec<u8>, AtomicUsize);

    impl Verifier for Counting {
        fn check_value(&self, value: &[u8]) -> Result<(), SourceError> {
            assert_eq!(value.as_ptr(), self.0.as_ptr(), "a value of another lender");
            self.1.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn check_used(&self) -> Result<(), SourceError> {
            let error = SourceError::Empty { path: "changed".into() };
            if self.0 == b"changed" { Err(error) } else { Ok(()) }
        }
    }

    #[test]
    fn who_lent_an_earlier_run_is_not_asked_about_this_one() {
        let owner = Arc::new(Counting(b"changed".to_vec(), AtomicUsize::new(0)));
        let lender = Lender::verifying(owner.clone());
        // SAFETY: as above.
        let lent = || unsafe { Entry::lent_value(b"key", &owner.0, &lender) };
        let mut run = Run::with_capacity(2);
        run.push(id(0), lent());
        assert!(run.check_used().is_err(), "it was written to in the meantime");
        run.clear();
        run.check_used().unwrap();
        run.push(id(1), Entry::borrowed(b"key", b"copied"));
        run.check_used().unwrap();
        run.push(id(2), lent());
        assert!(run.check_used().is_err(), "it lends again");
    }

    #[test]
    fn each_value_is_verified_once_by_its_own_lender() {
        let owners: Vec<_> =
            (0..20).map(|byte| Arc::new(Counting(vec![byte; 3], AtomicUsize::new(0)))).collect();
        let lenders: Vec<_> = owners.iter().map(|owner| Lender::verifying(owner.clone())).collect();
        let mut run = Run::with_lenders(100);
        // More lenders than are searched for one that occurs again.
        for number in 0..100 {
            let at = number * 7 % 20;
            // SAFETY: as above.
            run.push(id(number as u64), unsafe { Entry::lent_value(b"key", &owners[at].0, &lenders[at]) });
        }
        let mut verifying = run.deferred_checksums();
        (0..100).for_each(|position| verifying.before(position).unwrap());
        assert!(owners.iter().all(|owner| owner.1.load(Ordering::Relaxed) == 5));
        // Somebody has verified the first 40: two values of each owner.
        let mut rest = run.deferred_checksums().after(40);
        (0..100).for_each(|position| rest.before(position).unwrap());
        assert!(owners.iter().all(|owner| owner.1.load(Ordering::Relaxed) == 5 + 3));
        assert_eq!(size_of::<Span>(), 3 * size_of::<usize>(), "the number takes no room");
    }

    #[test]
    fn a_value_that_is_left_to_its_owner_is_verified_although_the_owner_lent_others_that_are() {
        let owner = Arc::new(Counting(vec![1; 3], AtomicUsize::new(0)));
        let mut run = Run::with_capacity(2);
        for lender in [Lender::new(owner.clone()), Lender::verifying(owner.clone())] {
            // SAFETY: as above.
            run.push(id(0), unsafe { Entry::lent_value(b"key", &owner.0, &lender) });
        }
        let mut verifying = run.deferred_checksums();
        (0..2).for_each(|position| verifying.before(position).unwrap());
        assert_eq!(owner.1.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_companion_stays_with_its_record_whoever_lent_it() {
        let (image, image_owner) = lend(b"image");
        let (mask, mask_owner) = lend(b"mask");
        let mut run = Run::with_capacity(2);
        // SAFETY: as above.
        let first = unsafe { Entry::lent(b"", &image_owner, &image) };
        // SAFETY: as above.
        let second = unsafe { Entry::lent(b"", &mask_owner, &mask) };
        run.push(id(0), first.with_companion(second));
        let gone = b"gone".to_vec();
        run.push(id(1), first.with_companion(Entry::borrowed(b"", &gone)));
        drop((image, mask, gone));
        let companions: Vec<_> = run.iter().map(|record| record.companion.unwrap()).collect();
        assert_eq!(companions, [&b"mask"[..], b"gone"]);
        assert_eq!(companions[0].as_ptr(), mask_owner.as_ptr(), "a lent companion is not copied");
        run.clear();
        run.push(id(2), Entry::borrowed(b"k", b"alone"));
        assert_eq!(run.get(0).unwrap().companion, None);
    }

    #[test]
    fn a_run_that_began_with_a_copy_takes_in_the_lender_that_comes() {
        let (lender, owner) = lend(b"lent");
        let mut run = Run::with_capacity(2);
        run.push(id(0), Entry::borrowed(b"", b"copied"));
        // SAFETY: as above.
        run.push(id(1), unsafe { Entry::lent(b"", &owner, &lender) });
        let address = owner.as_ptr();
        drop((lender, owner));
        assert_eq!(texts(&run), [(&b""[..], &b"copied"[..]), (b"", b"lent")]);
        assert_eq!(run.get(1).unwrap().value.as_ptr(), address);
    }

    #[test]
    fn a_cleared_run_takes_a_new_lender_and_releases_the_old() {
        let (first, first_owner) = lend(b"first");
        let (second, second_owner) = lend(b"second");
        let mut run = Run::with_capacity(1);
        // SAFETY: as above.
        run.push(id(0), unsafe { Entry::lent(b"", &first_owner, &first) });
        run.clear();
        // SAFETY: as above.
        run.push(id(1), unsafe { Entry::lent(b"", &second_owner, &second) });
        drop(first);
        assert_eq!(Arc::strong_count(&first_owner), 1);
        assert_eq!(run.get(0).unwrap().value, b"second");
    }
}
