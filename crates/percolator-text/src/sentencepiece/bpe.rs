//! Cuts a text by merging: of all neighbouring symbols that together are a piece, those of the best piece
//! become one, until no two are.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::double_array::DoubleArray;
use super::model::{Kind, Model};
use super::normalizer::char_bytes;

/// No symbol: before the first one, or after the last.
const NONE: u32 = u32::MAX;

/// A part of the text: at first a character or a user-defined symbol.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    start: u32,
    /// 0 once it is merged into the one before it.
    bytes: u32,
    prev: u32,
    next: u32,
    /// Whether the trainer's user defined it. It is not merged.
    is_fixed: bool,
}

/// Two neighbours that are a piece together.
#[derive(Clone, Copy, Debug)]
struct Pair {
    score: f32,
    left: u32,
    right: u32,
    /// The length of both. If it has changed, the pair is no more.
    bytes: u32,
}

/// The best comes last: the highest score and, of equal ones, the first in the text.
impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pair {}

/// Memory that is reused from one text to the next.
#[derive(Debug, Default)]
pub(super) struct Merging {
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Pair>,
}

/// Of each piece that the trainer left unused and that was merged: the length of its left part.
type Unused<'a> = HashMap<&'a [u8], usize>;

#[derive(Debug)]
pub(super) struct Bpe {
    user_defined: DoubleArray,
    /// The score of each piece, and whether it is left unused; `None` for those that text is not merged to.
    pieces: Vec<Option<(f32, bool)>>,
    unknown: u32,
}

impl Bpe {
    pub(super) fn new(model: &Model) -> Self {
        let pieces = model.pieces.iter().map(|piece| match piece.kind {
            // Zeros of both signs are equal to the library.
            Kind::Normal | Kind::UserDefined => Some((piece.score + 0.0, false)),
            Kind::Unused => Some((piece.score + 0.0, true)),
            Kind::Unknown | Kind::Control | Kind::Byte => None,
        });
        Bpe {
            user_defined: DoubleArray::new(model.of_kind(Kind::UserDefined)),
            pieces: pieces.collect(),
            unknown: model.unknown,
        }
    }

    /// Cuts a text; `path` gets the pieces and where each starts, from the first to the last.
    pub(super) fn cut(
        &self,
        text: &[u8],
        ids: &HashMap<Box<[u8]>, u32>,
        merging: &mut Merging,
        path: &mut Vec<(u32, u32)>,
    ) {
        let mut unused = Unused::new();
        self.start(text, merging);
        for right in 1..merging.symbols.len() {
            self.add(text, ids, merging, at(right) - 1, at(right), &mut unused);
        }
        while let Some(Pair { left, right, bytes, .. }) = merging.pairs.pop() {
            let [one, other] = [left, right].map(|symbol| merging.symbols[symbol as usize]);
            if one.bytes == 0 || other.bytes == 0 || one.bytes + other.bytes != bytes {
                continue;
            }
            merging.symbols[left as usize] = Symbol { bytes, next: other.next, ..one };
            merging.symbols[right as usize].bytes = 0;
            if other.next != NONE {
                merging.symbols[other.next as usize].prev = left;
            }
            self.add(text, ids, merging, one.prev, left, &mut unused);
            self.add(text, ids, merging, left, other.next, &mut unused);
        }
        path.clear();
        let mut next = if merging.symbols.is_empty() { NONE } else { 0 };
        while next != NONE {
            let symbol = merging.symbols[next as usize];
            self.take(text, ids, symbol.start as usize, symbol.bytes as usize, &unused, path);
            next = symbol.next;
        }
    }

    /// Cuts a text into characters and user-defined symbols.
    fn start(&self, text: &[u8], merging: &mut Merging) {
        merging.symbols.clear();
        merging.pairs.clear();
        let mut start = 0;
        while start < text.len() {
            let (bytes, is_fixed) = first(&self.user_defined, &text[start..]);
            let number = merging.symbols.len();
            let prev = number.checked_sub(1).map_or(NONE, at);
            let next = if start + bytes < text.len() { at(number + 1) } else { NONE };
            merging.symbols.push(Symbol { start: at(start), bytes: at(bytes), prev, next, is_fixed });
            start += bytes;
        }
    }

    /// Adds two neighbours to the pairs if they are a piece together.
    fn add<'a>(
        &self,
        text: &'a [u8],
        ids: &HashMap<Box<[u8]>, u32>,
        merging: &mut Merging,
        left: u32,
        right: u32,
        unused: &mut Unused<'a>,
    ) {
        if left == NONE || right == NONE {
            return;
        }
        let [one, other] = [left, right].map(|symbol| merging.symbols[symbol as usize]);
        if one.is_fixed || other.is_fixed {
            return;
        }
        let (start, bytes) = (one.start as usize, one.bytes + other.bytes);
        let piece = &text[start..start + bytes as usize];
        let Some((score, is_unused)) = ids.get(piece).and_then(|id| self.pieces[*id as usize]) else {
            return;
        };
        merging.pairs.push(Pair { score, left, right, bytes });
        if is_unused {
            unused.insert(piece, one.bytes as usize);
        }
    }

    /// Takes a symbol. A piece that is left unused is cut again as it was merged.
    fn take(
        &self,
        text: &[u8],
        ids: &HashMap<Box<[u8]>, u32>,
        start: usize,
        bytes: usize,
        unused: &Unused<'_>,
        path: &mut Vec<(u32, u32)>,
    ) {
        let id_of = |piece: &[u8]| ids.get(piece).copied().unwrap_or(self.unknown);
        if unused.is_empty() {
            path.push((id_of(&text[start..start + bytes]), at(start)));
            return;
        }
        let mut due = vec![(start, bytes)];
        while let Some((start, bytes)) = due.pop() {
            let piece = &text[start..start + bytes];
            let id = id_of(piece);
            let is_unused = matches!(self.pieces[id as usize], Some((_, true)));
            match unused.get(piece).filter(|_| is_unused) {
                Some(&left) => due.extend([(start + left, bytes - left), (start, left)]),
                None => path.push((id, at(start))),
            }
        }
    }
}

/// The length of the first user-defined symbol or character of a text, and whether it is such a symbol.
pub(super) fn first(user_defined: &DoubleArray, text: &[u8]) -> (usize, bool) {
    let mut symbol = 0;
    user_defined.prefixes(text, |bytes, _| symbol = bytes);
    match symbol {
        0 => (char_bytes(text[0]).min(text.len()), false),
        bytes => (bytes, true),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the normaliser makes no text of 4 GiB")]
fn at(place: usize) -> u32 {
    place as u32
}
