//! Finds the best segmentation of a text: the one whose pieces' scores have the largest sum.

use super::double_array::DoubleArray;
use super::model::{Kind, Model, Piece};
use super::normalizer::char_bytes;

/// A character that is in no piece scores this much less than the worst piece.
const UNKNOWN_PENALTY: f32 = 10.0;

/// A path whose score is farther from 0 than this starts again from 0, so that f32 still tells scores apart.
const SCORE_MAX: f32 = 100_000.0;

/// No path ends here yet.
const NONE: u32 = u32::MAX;

/// The best path that ends at a byte of the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    score: f32,
    /// Where its last piece starts.
    start: u32,
    /// Its last piece.
    id: u32,
}

#[derive(Debug)]
pub(super) struct Viterbi {
    pieces: DoubleArray,
    /// The score of each piece. Sums are made and kept in f32, as in the C++ library: which of two equally
    /// good segmentations wins depends on how sums are rounded.
    scores: Vec<f32>,
    unknown: u32,
    unknown_score: f32,
}

impl Viterbi {
    pub(super) fn new(model: &Model) -> Self {
        let normal = model.pieces.iter().filter(|piece| piece.kind == Kind::Normal);
        let worst = normal.map(|piece| piece.score).fold(f32::MAX, f32::min);
        let score = |piece: &Piece| match piece.kind {
            Kind::UserDefined => user_defined_score(piece.text.len()),
            _ => piece.score,
        };
        let mut strings = model.of_kind(Kind::Normal);
        strings.extend(model.of_kind(Kind::UserDefined));
        Viterbi {
            pieces: DoubleArray::new(strings),
            scores: model.pieces.iter().map(score).collect(),
            unknown: model.unknown,
            unknown_score: worst - UNKNOWN_PENALTY,
        }
    }

    /// Finds the best segmentation: its pieces and where each starts, from the last piece to the first.
    pub(super) fn best_path(&self, text: &[u8], nodes: &mut Vec<Node>, path: &mut Vec<(u32, u32)>) {
        let bytes = u32::try_from(text.len()).ok().filter(|bytes| *bytes < NONE);
        let bytes = bytes.expect("the text is shorter than 4 GiB");
        nodes.clear();
        nodes.resize(text.len() + 1, Node { score: 0.0, start: NONE, id: NONE });
        let mut start = 0;
        // No path ends after this byte yet.
        let mut frontier = 0;
        while start < text.len() {
            let so_far = nodes[start].score;
            if so_far.abs() > SCORE_MAX {
                nodes[start..=frontier.max(start)].iter_mut().for_each(|node| node.score -= so_far);
            }
            let step = char_bytes(text[start]).min(text.len() - start);
            frontier = frontier.max(self.extend_paths(text, start, step, nodes));
            start += step;
        }
        path.clear();
        let mut end = bytes;
        while end > 0 {
            let Node { start, id, .. } = nodes[end as usize];
            path.push((id, start));
            end = start;
        }
    }

    /// Extends the best path that ends at `start` by each piece that starts there. The character there has
    /// `step` bytes. Returns the last byte at which one of these paths ends.
    #[expect(clippy::cast_possible_truncation, reason = "the text has less than 4 GiB")]
    fn extend_paths(&self, text: &[u8], start: usize, step: usize, nodes: &mut [Node]) -> usize {
        let so_far = nodes[start].score;
        let mut has_character = false;
        let mut last = start;
        let mut extend = |end: usize, score: f32, id| {
            let score = score + so_far;
            let node = &mut nodes[end];
            if node.start == NONE || score > node.score {
                *node = Node { score, start: start as u32, id };
            }
            last = last.max(end);
        };
        self.pieces.prefixes(&text[start..], |bytes, id| {
            extend(start + bytes, self.scores[id as usize], id);
            has_character |= bytes == step;
        });
        if !has_character {
            extend(start + step, self.unknown_score, self.unknown);
        }
        last
    }
}

/// The score of a user-defined symbol. It is better than any usual score, and increases with the symbol's
/// length.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "as the library does")]
fn user_defined_score(bytes: usize) -> f32 {
    (0.1 * (bytes - 1) as f64) as f32
}
