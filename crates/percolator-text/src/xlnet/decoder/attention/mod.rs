//! Which tokens of a row may see which, and which are predicted: XLNet's permutation language model.
//!
//! A row has two halves: the reused tokens, and the rest. Each is predicted in an order of its own, a
//! permutation, and each token has three properties:
//!
//! - *Functional*: `<sep>` or `<cls>`. It is never predicted.
//! - *Predicted*: masked, and not functional. The model sees a query in its place.
//! - *Open*: neither masked nor functional. Every token of its half sees it.
//!
//! In pseudocode, for a token `i` that looks at `j`:
//!
//! ```text
//! sees(i, j) = if i is in the reused half and j is not:  no
//!              if j is in the reused half and i is not:  yes
//!              if j is open:                             yes
//!              if i is open:                             no
//!              if i is predicted:                        order(i) > order(j)
//!              otherwise, i is functional:               order(i) >= order(j)
//! ```
//!
//! Two numbers per token are enough: its `rank`, which is its place in the order, or -1 if it is open; and
//! its `horizon`, which is its rank if it is predicted, and its rank + 1 otherwise. Within a half, `i` does
//! not see `j` if `horizon(i) <= rank(j)`.

use super::real::{Real, real};
use crate::xlnet::vocabulary::{CLS, SEP};

/// The rank of an open token.
const OPEN: i32 = -1;

/// The tokens of a row. Kept from record to record, as scratch memory.
#[derive(Clone, Debug)]
pub(super) struct Attention {
    ranks: Vec<i32>,
    horizons: Vec<i32>,
    is_predicted: Vec<bool>,
    reuse_len: usize,
}

impl Attention {
    pub(super) fn new(seq_len: usize, reuse_len: usize) -> Self {
        let numbers = vec![0; seq_len];
        let (ranks, horizons) = (numbers.clone(), numbers);
        Attention { ranks, horizons, is_predicted: vec![false; seq_len], reuse_len }
    }

    /// The size in bytes of a value for rows of this many tokens.
    pub(super) fn bytes(seq_len: usize) -> usize {
        (2 * size_of::<i32>() + 1).saturating_mul(seq_len)
    }

    /// Sets the tokens of one half of the row, from position `start` on. A half consists of whole blocks of
    /// `order.len()` tokens. Each block has this order, shifted by the block's start.
    pub(super) fn set(&mut self, start: usize, tokens: &[i32], is_masked: &[bool], order: &[i32]) {
        let half = start..start + tokens.len();
        let of_order = (0..).step_by(order.len()).flat_map(|block| order.iter().map(move |at| block + at));
        let known = self.ranks[half.clone()]
            .iter_mut()
            .zip(&mut self.horizons[half.clone()])
            .zip(&mut self.is_predicted[half]);
        for (((rank, horizon), is_predicted), ((&token, &is_masked), at)) in
            known.zip(tokens.iter().zip(is_masked).zip(of_order))
        {
            let is_functional = token == SEP.cast_signed() || token == CLS.cast_signed();
            *is_predicted = is_masked && !is_functional;
            *rank = if is_masked || is_functional { at } else { OPEN };
            *horizon = *rank + i32::from(!*is_predicted);
        }
    }

    /// The number of tokens that are predicted.
    pub(super) fn predictions(&self) -> usize {
        self.is_predicted.iter().filter(|is| **is).count()
    }

    /// The positions of the tokens that are predicted.
    fn predicted(&self) -> impl Iterator<Item = usize> {
        self.is_predicted.iter().enumerate().filter(|(_, is)| **is).map(|(at, _)| at)
    }

    /// For each token, 1 if it is predicted.
    pub(super) fn write_predicted<T: Real>(&self, out: &mut [T]) {
        out.iter_mut().zip(&self.is_predicted).for_each(|(to, is)| *to = real(*is));
    }

    /// Writes one row for each token, with 1 where it must not look.
    pub(super) fn write_perm_mask<T: Real>(&self, out: &mut [T]) {
        let (reused, rest) = self.ranks.split_at(self.reuse_len);
        let compare = |horizon: i32, ranks: &[i32], out: &mut [T]| {
            out.iter_mut().zip(ranks).for_each(|(to, rank)| *to = real(horizon <= *rank));
        };
        for ((at, horizon), row) in
            self.horizons.iter().enumerate().zip(out.chunks_exact_mut(self.ranks.len()))
        {
            let (to_reused, to_rest) = row.split_at_mut(self.reuse_len);
            if at < self.reuse_len {
                compare(*horizon, reused, to_reused);
                to_rest.fill(T::ONE);
            } else {
                to_reused.fill(T::ZERO);
                compare(*horizon, rest, to_rest);
            }
        }
    }

    /// What a token has to predict: itself. `next` has what follows each token, and so lacks the first token
    /// of each half.
    fn target(&self, at: usize, tokens: &[i32], next: &[i32]) -> i32 {
        if at == 0 || at == self.reuse_len { tokens[at] } else { next[at - 1] }
    }

    /// The targets of all tokens.
    pub(super) fn write_targets(&self, tokens: &[i32], next: &[i32], out: &mut [i32]) {
        out.iter_mut().enumerate().for_each(|(at, to)| *to = self.target(at, tokens, next));
    }

    /// The targets of the predicted tokens, then zeros. `out` has room for all.
    pub(super) fn write_predicted_targets(&self, tokens: &[i32], next: &[i32], out: &mut [i32]) {
        out.fill(0);
        out.iter_mut().zip(self.predicted()).for_each(|(to, at)| *to = self.target(at, tokens, next));
    }

    /// For each prediction a row with 1 at its token, then rows of zeros. `out` has room for all.
    pub(super) fn write_mapping<T: Real>(&self, out: &mut [T]) {
        out.fill(T::ZERO);
        let rows = out.chunks_exact_mut(self.ranks.len());
        rows.zip(self.predicted()).for_each(|(row, at)| row[at] = T::ONE);
    }
}

#[cfg(test)]
mod tests;
