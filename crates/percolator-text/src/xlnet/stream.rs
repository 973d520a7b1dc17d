//! The tokens of a task, one file after the other, and the rows that are cut from them.

use std::ops::Range;

/// Consecutive tokens of a file, and the borders of their sentences.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'t> {
    pub(super) tokens: &'t [u32],
    /// The tokens whose sentence id differs from that of the token before, in order.
    pub(super) changes: &'t [u32],
}

/// Tokens in the order of a pass. They are not copied; a pass only orders the files.
#[derive(Debug)]
pub(super) struct Stream<'t> {
    parts: Vec<Part<'t>>,
    /// Where each part starts.
    starts: Vec<usize>,
    /// How many changes there are before each part.
    changes_before: Vec<usize>,
    len: usize,
    changes: usize,
}

impl<'t> Stream<'t> {
    pub(super) fn new(parts: impl Iterator<Item = Part<'t>>) -> Self {
        let parts: Vec<_> = parts.filter(|part| !part.tokens.is_empty()).collect();
        let (mut starts, mut changes_before) = (Vec::new(), Vec::new());
        let (mut len, mut changes) = (0, 0);
        for part in &parts {
            starts.push(len);
            changes_before.push(changes);
            len += part.tokens.len();
            changes += part.changes.len();
        }
        Stream { parts, starts, changes_before, len, changes }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The part that a token is in; the last one if there is no such token.
    fn part_of(&self, token: usize) -> usize {
        self.starts.partition_point(|start| *start <= token).saturating_sub(1)
    }

    /// The slices that make up a range.
    fn slices(&self, range: Range<usize>) -> impl DoubleEndedIterator<Item = &'t [u32]> {
        let first = self.part_of(range.start);
        let last = self.starts.partition_point(|start| *start < range.end).max(first);
        (first..last).map(move |part| {
            let (start, tokens) = (self.starts[part], self.parts[part].tokens);
            let from = range.start.saturating_sub(start);
            let to = (range.end - start).min(tokens.len());
            &tokens[from..to]
        })
    }

    /// How many changes there are before a token.
    fn changes_before(&self, token: usize) -> usize {
        let part = self.part_of(token);
        let Some(found) = self.parts.get(part) else { return 0 };
        let start = self.starts[part];
        self.changes_before[part] + found.changes.partition_point(|change| start + (*change as usize) < token)
    }

    /// The token of a change, by the change's number.
    fn change(&self, number: usize) -> Option<usize> {
        if number >= self.changes {
            return None;
        }
        let part = self.changes_before.partition_point(|before| *before <= number) - 1;
        let change = self.parts[part].changes[number - self.changes_before[part]];
        Some(self.starts[part] + change as usize)
    }

    /// The first token of a range whose sentence id changes. Searched by halves: a sentence may have millions
    /// of tokens.
    fn first_change(&self, range: Range<usize>) -> Option<usize> {
        self.change(self.changes_before(range.start)).filter(|at| *at < range.end)
    }

    /// The last token of a range whose sentence id changes.
    fn last_change(&self, range: Range<usize>) -> Option<usize> {
        let number = self.changes_before(range.end).checked_sub(1)?;
        self.change(number).filter(|at| *at >= range.start)
    }
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
            for slice in self.stream.slices(end - range.end..end - range.start).rev() {
                tokens.extend(slice.iter().rev());
            }
        } else {
            for slice in self.stream.slices(self.begin + range.start..self.begin + range.end) {
                tokens.extend(slice);
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
            let parts: Vec<(Vec<u32>, Vec<u32>)> = files.iter().map(|file| {
                let mut part = (Vec::new(), Vec::new());
                for ((token, changes), at) in file.iter().zip(0..) {
                    id ^= changes;
                    ids.push(id);
                    part.0.push(*token);
                    part.1.extend(changes.then_some(at));
                }
                part
            }).collect();
            let all: Vec<u32> = files.iter().flatten().map(|(token, _)| *token).collect();
            prop_assume!(!all.is_empty());
            let stream = Stream::new(parts.iter().map(|(tokens, changes)| Part { tokens, changes }));
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
