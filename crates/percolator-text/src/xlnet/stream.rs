//! The tokens of a task, one file after the other, and the rows that are cut from them.

use std::ops::Range;

/// Marks a token whose sentence id differs from that of the token before it. Stored in the token's own word.
pub(super) const CHANGE: u32 = 1 << 31;

/// Tokens in the order of a pass. They are not copied; a pass only orders the files.
#[derive(Debug)]
pub(super) struct Stream<'t> {
    parts: Vec<&'t [u32]>,
    /// Where each part starts.
    starts: Vec<usize>,
    len: usize,
}

impl<'t> Stream<'t> {
    pub(super) fn new(parts: impl Iterator<Item = &'t [u32]>) -> Self {
        let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
        let mut starts = Vec::with_capacity(parts.len());
        let mut len = 0;
        for part in &parts {
            starts.push(len);
            len += part.len();
        }
        Stream { parts, starts, len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The slices that make up a range, each with its place.
    fn slices(&self, range: Range<usize>) -> impl DoubleEndedIterator<Item = (usize, &'t [u32])> {
        let first = self.starts.partition_point(|start| *start <= range.start).saturating_sub(1);
        let last = self.starts.partition_point(|start| *start < range.end).max(first);
        (first..last).map(move |part| {
            let (start, tokens) = (self.starts[part], self.parts[part]);
            let from = range.start.saturating_sub(start);
            let to = (range.end - start).min(tokens.len());
            (start + from, &tokens[from..to])
        })
    }

    /// The first token of a range whose sentence id changes.
    fn first_change(&self, range: Range<usize>) -> Option<usize> {
        self.slices(range).find_map(|(at, tokens)| first_change(tokens).map(|offset| at + offset))
    }

    /// The last token of a range whose sentence id changes.
    fn last_change(&self, range: Range<usize>) -> Option<usize> {
        self.slices(range).rev().find_map(|(at, tokens)| last_change(tokens).map(|offset| at + offset))
    }
}

/// How many tokens are tested together, so that a sentence of millions does not take long.
const STEP: usize = 64;

fn has_change(tokens: &[u32]) -> bool {
    tokens.iter().fold(0, |all, token| all | token) & CHANGE != 0
}

fn first_change(tokens: &[u32]) -> Option<usize> {
    let step = tokens.chunks(STEP).position(has_change)? * STEP;
    tokens[step..].iter().position(|token| token & CHANGE != 0).map(|offset| step + offset)
}

fn last_change(tokens: &[u32]) -> Option<usize> {
    let step = tokens.rchunks(STEP).position(has_change)? * STEP;
    let tokens = &tokens[..tokens.len() - step];
    tokens.iter().rposition(|token| token & CHANGE != 0)
}

/// A row that is cut from the stream, forwards or backwards. Positions count in the row's direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'t> {
    pub(super) stream: &'t Stream<'t>,
    /// Where the row starts in the stream; if it runs backwards, where it ends.
    pub(super) begin: usize,
    pub(super) len: usize,
    pub(super) is_backward: bool,
}

impl Row<'_> {
    /// Appends the tokens of a range.
    pub(super) fn copy(&self, range: Range<usize>, tokens: &mut Vec<u32>) {
        if self.is_backward {
            let end = self.begin + self.len;
            for (_, slice) in self.stream.slices(end - range.end..end - range.start).rev() {
                tokens.extend(slice.iter().rev().map(|token| token & !CHANGE));
            }
        } else {
            for (_, slice) in self.stream.slices(self.begin + range.start..self.begin + range.end) {
                tokens.extend(slice.iter().map(|token| token & !CHANGE));
            }
        }
    }

    /// The first position from this one on where another sentence starts; the row's length if there is none.
    pub(super) fn next_change(&self, from: usize) -> usize {
        if from >= self.len {
            return self.len;
        }
        if self.is_backward {
            // Between two neighbouring positions there is one border, in either direction.
            let borders = self.begin + 1..self.begin + (self.len - from.max(1)) + 1;
            self.stream.last_change(borders).map_or(self.len, |at| self.len - (at - self.begin))
        } else {
            let borders = self.begin + from.max(1)..self.begin + self.len;
            self.stream.first_change(borders).map_or(self.len, |at| at - self.begin)
        }
    }

    /// The last position up to this one where another sentence starts; 0 if there is none.
    pub(super) fn previous_change(&self, at: usize) -> usize {
        let at = at.min(self.len - 1);
        if at == 0 {
            return 0;
        }
        if self.is_backward {
            let borders = self.begin + (self.len - at)..self.begin + self.len;
            self.stream.first_change(borders).map_or(0, |at| self.len - (at - self.begin))
        } else {
            let borders = self.begin + 1..self.begin + at + 1;
            self.stream.last_change(borders).map_or(0, |at| at - self.begin)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_are_those_of_plain_arrays(
            files in prop::collection::vec(prop::collection::vec((0_u32..50, any::<bool>()), 0..90), 1..6),
            cut in any::<(prop::sample::Index, prop::sample::Index)>(),
            is_backward in any::<bool>(),
        ) {
            // The naive twin: tokens and sentence ids in arrays, reversed if the row is.
            let mut ids = Vec::new();
            let mut id = false;
            let marked: Vec<Vec<u32>> = files.iter().map(|file| file.iter().map(|(token, changes)| {
                id ^= changes;
                ids.push(id);
                token | if *changes { CHANGE } else { 0 }
            }).collect()).collect();
            let all: Vec<u32> = files.iter().flatten().map(|(token, _)| *token).collect();
            prop_assume!(!all.is_empty());
            let stream = Stream::new(marked.iter().map(|part| &part[..]));
            prop_assert_eq!(stream.len(), all.len());
            let begin = cut.0.index(all.len());
            let len = 1 + cut.1.index(all.len() - begin);
            let row = Row { stream: &stream, begin, len, is_backward };
            let mut tokens = all[begin..begin + len].to_vec();
            let mut ids = ids[begin..begin + len].to_vec();
            if is_backward {
                tokens.reverse();
                ids.reverse();
            }
            let is_change = |at: usize| at > 0 && at < len && ids[at] != ids[at - 1];
            for at in 0..=len {
                let next = (at..len).find(|at| is_change(*at)).unwrap_or(len);
                prop_assert_eq!(row.next_change(at), next, "next from {}", at);
                let previous = (0..=at.min(len - 1)).rev().find(|at| is_change(*at)).unwrap_or(0);
                prop_assert_eq!(row.previous_change(at), previous, "previous from {}", at);
                let mut copied = Vec::new();
                row.copy(at / 2..at, &mut copied);
                prop_assert_eq!(&copied[..], &tokens[at / 2..at]);
            }
        }
    }
}
