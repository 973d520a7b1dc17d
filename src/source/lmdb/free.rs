//! Which pages a commit lists as free. The lists are in the first of the two trees on its meta page.
//!
//! ```text
//! list: (the key is the number of the transaction that freed the pages: 8 bytes) how many pages: 8 |
//!       their numbers, the highest first: 8 each | room that is not used
//! ```
//!
//! A free page keeps the contents that it had before it was freed: an older copy of a leaf, for example, with
//! nothing wrong in it. If a damaged branch leads to it, only these lists reveal that. So no tree may lead to
//! a listed page.
//!
//! LMDB's own readers never use the lists. If they cannot be read, the records still can, but without this
//! check. A warning is then logged.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::fault::{Fault, fault};
use super::meta::Commit;
use super::page::{Holds, Leaf, METAS, Value};
use super::pages::Pages;
use super::tree::Walk;
use super::values::Values;

/// The free pages of a commit. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct FreePages {
    /// A bit for each page of the file; `None` if no page is free, or none is known.
    bits: Option<Arc<Box<[u64]>>>,
}

impl FreePages {
    /// Reads the lists of a commit.
    ///
    /// The file bounds the time and the memory, whatever it says: all lists together are no longer than the
    /// file, and each of its pages takes a bit.
    pub(super) fn read(commit: &Commit, pages: &Pages) -> Result<Self, Fault> {
        let Some(root) = commit.free.root else { return Ok(Self::default()) };
        let mut walk = Walk::new(commit.free, Holds::Records, Self::default());
        let mut lists = Lists::of(commit, pages)?;
        lists.read(&mut walk, pages).map_err(|wrong| match wrong {
            Fault::Databases | Fault::SeveralValues => {
                fault(walk.page(), "has more than lists of free pages")
            }
            Fault::TooFew { records, entries } => {
                fault(root, format!("leads to {records} lists of free pages, of {entries}"))
            }
            wrong => wrong,
        })?;
        Ok(FreePages { bits: Some(Arc::new(lists.bits)) })
    }

    #[inline]
    pub(super) fn has(&self, page: u64) -> bool {
        self.bits.as_ref().is_some_and(|bits| {
            let word = usize::try_from(page / 64).ok().and_then(|word| bits.get(word));
            word.is_some_and(|word| word & bit(page) != 0)
        })
    }

    /// Checks that a page that a tree leads to is not free.
    #[inline]
    pub(super) fn check(&self, page: u64) -> Result<(), Fault> {
        if self.has(page) { Err(fault(page, "is listed as free, and the tree leads to it")) } else { Ok(()) }
    }

    /// The first free page in this range.
    #[inline]
    pub(super) fn first_of(&self, pages: RangeInclusive<u64>) -> Option<u64> {
        let bits = self.bits.as_ref()?;
        let (first, last) = (*pages.start(), *pages.end());
        (first / 64..=last / 64).find_map(|number| {
            let mut word = *bits.get(usize::try_from(number).ok()?)?;
            if number == first / 64 {
                word &= bit(first).wrapping_neg();
            }
            if number == last / 64 {
                word &= bit(last) | bit(last).wrapping_sub(1);
            }
            (word != 0).then(|| number.saturating_mul(64).saturating_add(u64::from(word.trailing_zeros())))
        })
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bits.as_ref().map_or(0, |bits| size_of_val(&***bits))
    }
}

fn bit(page: u64) -> u64 {
    1 << (page % 64)
}

/// The lists, as far as they have been read.
struct Lists {
    bits: Box<[u64]>,
    transaction: u64,
    last_page: u64,
    /// How many more bytes the lists may have.
    bytes_left: u64,
}

impl Lists {
    fn of(commit: &Commit, pages: &Pages) -> io::Result<Self> {
        let last_page = commit.free.last_page;
        // The file may be shorter than its last page says, and no tree can lead to pages beyond its end.
        let there = pages.file_bytes().checked_div(pages.page_bytes() as u64).unwrap_or_default();
        let words = there.min(last_page.saturating_add(1)).div_ceil(64);
        let words = usize::try_from(words).unwrap_or(usize::MAX);
        let mut bits = Vec::new();
        // Most of a long file may be a hole.
        bits.try_reserve_exact(words)?;
        bits.resize(words, 0);
        let (transaction, bytes_left) = (commit.transaction, pages.file_bytes());
        Ok(Lists { bits: bits.into_boxed_slice(), transaction, last_page, bytes_left })
    }

    fn read(&mut self, walk: &mut Walk, pages: &Pages) -> Result<(), Fault> {
        let mut values = Values::default();
        while let Some(place) = walk.step(pages)? {
            let bytes = walk.held().map(|held| pages.bytes(held)).unwrap_or_default();
            let (key, value) = Leaf::parse(bytes, place.page)?.record(usize::from(place.node))?;
            let value_bytes = match value {
                Value::Inline(value) => value.len(),
                Value::Overflow { bytes, .. } => bytes,
            };
            let left = self.bytes_left.checked_sub(value_bytes as u64);
            self.bytes_left = left.ok_or_else(|| {
                fault(
                    place.page,
                    format!("has a list of free pages, of {value_bytes} bytes, more than the file has left"),
                )
            })?;
            let list = match value {
                Value::Inline(value) => value,
                Value::Overflow { page, bytes } => {
                    let (read, _) = values.read(pages, page, bytes)?;
                    values.bytes(read.range)
                }
            };
            self.add(key, list).map_err(|message| fault(place.page, message))?;
        }
        Ok(())
    }

    fn add(&mut self, key: &[u8], list: &[u8]) -> Result<(), String> {
        let last = self.transaction;
        match <[u8; 8]>::try_from(key).map(u64::from_le_bytes) {
            Ok(transaction) if transaction <= last => {}
            Ok(transaction) => {
                return Err(format!(
                    "lists what transaction {transaction} freed, but the last one is {last}"
                ));
            }
            Err(_) => {
                return Err(format!("lists free pages under a key of {} bytes, and not of 8", key.len()));
            }
        }
        let (words, rest) = list.as_chunks();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let (Some(count), []) = (words.next(), rest) else {
            return Err(format!(
                "has a list of free pages of {} bytes, which are not whole numbers",
                list.len()
            ));
        };
        let room = words.len();
        let Some(count) = usize::try_from(count).ok().filter(|count| *count <= room) else {
            return Err(format!("lists {count} free pages, but has room for {room}"));
        };
        let mut before = self.last_page.saturating_add(1);
        for page in words.take(count) {
            if !(METAS..before).contains(&page) {
                return Err(format!(
                    "lists page {page} as free, but the next one must be at least {METAS} and below {before}"
                ));
            }
            before = page;
            let word = usize::try_from(page / 64).ok().and_then(|word| self.bits.get_mut(word));
            let Some(word) = word else { continue };
            if *word & bit(page) != 0 {
                return Err(format!("lists page {page} as free, as another list does, too"));
            }
            *word |= bit(page);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(numbers: &[u64]) -> FreePages {
        let of_word = |word: u64| numbers.iter().filter(move |number| **number / 64 == word);
        let bits = (0..5).map(|word| of_word(word).fold(0, |bits, number| bits | bit(*number)));
        FreePages { bits: Some(Arc::new(bits.collect())) }
    }

    #[test]
    fn the_first_free_page_of_a_range_is_found() {
        let numbers = [2, 63, 64, 130, 191, 319];
        let some = free(&numbers);
        for first in 0..400 {
            assert_eq!(some.has(first), numbers.contains(&first), "{first}");
            for last in first..400 {
                let expected = numbers.into_iter().find(|number| (first..=last).contains(number));
                assert_eq!(some.first_of(first..=last), expected, "{first} to {last}");
            }
        }
        assert_eq!(FreePages::default().first_of(0..=u64::MAX), None);
        assert!(!some.has(u64::MAX) && !FreePages::default().has(2));
    }
}
