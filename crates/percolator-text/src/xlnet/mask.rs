//! Draws which tokens of a row are predicted: n-grams of one to five tokens, each in a context of its own.

use super::flags::Shape;
use super::vocabulary::Vocabulary;
use crate::random::{NumpyRandom, running_sums};

/// Draws masks, as the script's `_sample_mask` does.
#[derive(Debug)]
pub(super) struct Masks<'v> {
    vocabulary: &'v Vocabulary,
    /// The running sums of the probabilities of the lengths, one to five tokens.
    lengths: [f64; 5],
    alpha: usize,
    beta: usize,
    /// Whether an n-gram ends where a word starts. The script tests the n-gram's first token each time
    /// instead of the one after its end. That token always starts a word, so the script counts tokens instead
    /// of words.
    mends_quirks: bool,
}

impl<'v> Masks<'v> {
    pub(super) fn new(vocabulary: &'v Vocabulary, shape: &Shape, mends_quirks: bool) -> Self {
        Masks {
            vocabulary,
            lengths: running_sums([1.0, 1.0 / 2.0, 1.0 / 3.0, 1.0 / 4.0, 1.0 / 5.0]),
            alpha: shape.mask_alpha,
            beta: shape.mask_beta,
            mends_quirks,
        }
    }

    /// Masks `goal` of the tokens; if there is no goal, as many as the n-grams have. Sets `mask`, which has
    /// the same length and is false so far. `goal` is at most the number of tokens.
    pub(super) fn draw(
        &self,
        tokens: &[u32],
        goal: Option<usize>,
        random: &mut NumpyRandom,
        mask: &mut [bool],
    ) {
        let goal_or_all = goal.unwrap_or(usize::MAX);
        let mut masked = 0;
        let mut at = 0;
        while at < tokens.len() && masked < goal_or_all {
            let length = (random.choice_by(&self.lengths) + 1).min(goal_or_all - masked);
            let context = length * self.alpha / self.beta;
            let before = random.below(context);
            let starts = (at + before..tokens.len()).find(|at| self.vocabulary.is_start(tokens[*at]));
            let Some((begin, end)) = starts.and_then(|begin| Some((begin, self.end(tokens, begin, length)?)))
            else {
                break;
            };
            // A whole word may have more tokens than are still to be masked.
            let end = end.min(begin.saturating_add(goal_or_all - masked));
            mask[begin..end].fill(true);
            masked += end - begin;
            at = end + (context - before);
        }
        // Tokens that are still missing are drawn one by one.
        while goal.is_some_and(|goal| masked < goal) {
            let token = &mut mask[random.below(tokens.len())];
            masked += usize::from(!*token);
            *token = true;
        }
    }

    /// The end of the n-gram that starts at `begin`. `None` if it is not before the last token.
    fn end(&self, tokens: &[u32], begin: usize, length: usize) -> Option<usize> {
        if !self.mends_quirks {
            return Some(begin + length).filter(|end| *end < tokens.len());
        }
        let mut words = (begin + 1..tokens.len()).filter(|at| self.vocabulary.is_start(tokens[*at]));
        words.nth(length - 1)
    }
}
