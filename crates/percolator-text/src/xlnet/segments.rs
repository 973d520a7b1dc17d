//! A row's two segments: A follows its reused part, and B follows A, or comes from elsewhere.

use std::ops::Range;

use super::stream::Row;
use crate::random::PythonRandom;

/// A and B, as positions in their row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segments {
    pub(super) a: Range<usize>,
    pub(super) b: Range<usize>,
    /// Whether B follows A.
    pub(super) is_next: bool,
}

/// Splits the tokens from `begin` on into two segments of `total` tokens together, as the script's
/// `_split_a_and_b` does. `None` if the row is too short for them, or for the token after each, which is the
/// target of its last token.
///
/// Each segment starts with a sentence. A ends at the end of a sentence within `total`, which is drawn. Half
/// of the time, B is what follows A; otherwise it starts at a sentence drawn from the whole row.
pub(super) fn split(
    row: &Row<'_>,
    begin: usize,
    total: usize,
    random: &mut PythonRandom,
    cuts: &mut Vec<usize>,
) -> Option<Segments> {
    if begin + total >= row.len {
        return None;
    }
    cuts.clear();
    let mut end = row.next_change(begin + 1);
    while end < begin + total {
        cuts.push(end);
        end = row.next_change(end + 1);
    }
    let mut segments = if cuts.is_empty() || random.random() < 0.5 {
        let a_end = if cuts.is_empty() { end } else { cuts[random.choice(cuts.len())] };
        let b_len = total.saturating_sub(a_end - begin).max(1);
        let drawn = random.randint(0, row.len - 1 - b_len);
        let b_end = row.next_change(drawn + b_len).min(row.len - 1);
        Segments { a: begin..a_end, b: row.previous_change(drawn)..b_end, is_next: false }
    } else {
        let a_end = cuts[random.choice(cuts.len())];
        Segments { a: begin..a_end, b: a_end..end, is_next: true }
    };
    shorten(&mut segments, total);
    // The token after each segment is the target of the segment's last token.
    (segments.a.end < row.len && segments.b.end < row.len).then_some(segments)
}

/// Removes tokens from the end of the longer segment (of B, if they are equally long) until `total` are left.
fn shorten(Segments { a, b, .. }: &mut Segments, total: usize) {
    let over = (a.len() + b.len()).saturating_sub(total);
    let mut left = over;
    // First the longer segment is cut to the length of the other; then they take turns, B first.
    let difference = a.len().abs_diff(b.len()).min(left);
    if a.len() > b.len() {
        a.end -= difference;
    } else {
        b.end -= difference;
    }
    left -= difference;
    b.end -= left.div_ceil(2);
    a.end -= left / 2;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::xlnet::stream::{Part, Stream};

    /// The script's function, on arrays.
    fn naive(ids: &[bool], begin: usize, total: usize, random: &mut PythonRandom) -> Option<Segments> {
        let len = ids.len();
        if begin + total >= len {
            return None;
        }
        let mut end = begin + 1;
        let mut cuts = Vec::new();
        while end < len {
            if ids[end] != ids[end - 1] {
                if end - begin >= total {
                    break;
                }
                cuts.push(end);
            }
            end += 1;
        }
        let (mut a_end, b_begin, mut b_end, is_next);
        if cuts.is_empty() || random.random() < 0.5 {
            is_next = false;
            a_end = if cuts.is_empty() { end } else { cuts[random.choice(cuts.len())] };
            let b_len = if total > a_end - begin { total - (a_end - begin) } else { 1 };
            let mut at = random.randint(0, len - 1 - b_len);
            b_end = at + b_len;
            while at > 0 && ids[at - 1] == ids[at] {
                at -= 1;
            }
            b_begin = at;
            while b_end < len - 1 && ids[b_end - 1] == ids[b_end] {
                b_end += 1;
            }
        } else {
            is_next = true;
            a_end = cuts[random.choice(cuts.len())];
            b_begin = a_end;
            b_end = end;
        }
        while a_end - begin + b_end - b_begin > total {
            if a_end - begin > b_end - b_begin {
                a_end -= 1;
            } else {
                b_end -= 1;
            }
        }
        (a_end < len && b_end < len).then_some(Segments { a: begin..a_end, b: b_begin..b_end, is_next })
    }

    proptest! {
        #[test]
        fn matches_naive(
            sentences in prop::collection::vec(1_usize..40, 1..30),
            total in 1_usize..60,
            seed in any::<i64>(),
            is_backward in any::<bool>(),
        ) {
            let (mut zeros, mut changes) = (Vec::new(), Vec::new());
            for tokens in &sentences {
                changes.push(u32::try_from(zeros.len()).unwrap());
                zeros.extend(std::iter::repeat_n(0, *tokens));
            }
            let tokens = zeros.len();
            let mut ids: Vec<bool> = sentences.iter().enumerate().flat_map(|(sentence, tokens)| {
                std::iter::repeat_n(sentence % 2 == 0, *tokens)
            }).collect();
            if is_backward {
                ids.reverse();
            }
            let stream = Stream::new([Part { tokens: &zeros, changes: &changes }].into_iter());
            let row = Row { stream: &stream, begin: 0, len: tokens, is_backward };
            let (mut random, mut twins) = (PythonRandom::new(seed), PythonRandom::new(seed));
            for begin in 0..tokens {
                let found = split(&row, begin, total, &mut random, &mut Vec::new());
                prop_assert_eq!(&found, &naive(&ids, begin, total, &mut twins), "from {}", begin);
                if let Some(Segments { a, b, .. }) = found {
                    prop_assert_eq!(a.len() + b.len(), total);
                }
            }
        }
    }
}
