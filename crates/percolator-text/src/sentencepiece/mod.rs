//! SentencePiece's unigram models, from their `.model` file alone: text into pieces, as the C++ library
//! encodes it.
//!
//! The normaliser uses the model's own table of rules, not a similar rule of Unicode's. The best segmentation
//! is found with the library's own arithmetic, because the order of two nearly equal segmentations depends on
//! how sums are rounded.
//!
//! The crates that read these models differ from the library on odd texts: the model's own table, NUL, joined
//! characters (kitoken on 1 of 100 of them), and bring dozens of crates. This module equals sentencepiece
//! 0.2.3 on all of them.

mod double_array;
mod error;
mod model;
mod normalizer;
mod viterbi;

use std::collections::HashMap;
use std::path::Path;

use percolator::input_file;

pub use error::{ModelError, TooLong};

use double_array::DoubleArray;
use model::Kind;
use normalizer::Normalizer;
use viterbi::{Node, Viterbi};

/// The most bytes of a model's file, more than ten times as many as any known model has. Pieces of a few
/// bytes take dozens of times their length in memory.
const MODEL_BYTES_MAX: u64 = 64 << 20;

/// A unigram model: its pieces, its normaliser, and the search for the best segmentation.
#[derive(Debug)]
pub struct SentencePiece {
    pieces: Vec<Box<[u8]>>,
    /// The number of every piece, whatever its kind.
    ids: HashMap<Box<[u8]>, u32>,
    unknown: u32,
    /// The number of each byte's piece, if the model writes unknown text in bytes.
    byte_ids: Option<Box<[u32; 256]>>,
    normalizer: Normalizer,
    viterbi: Viterbi,
}

/// Memory that [`SentencePiece::encode`] reuses from one text to the next. Each thread has its own.
#[derive(Debug, Default)]
pub struct Scratch {
    normalized: Vec<u8>,
    nodes: Vec<Node>,
    /// The best segmentation, from its end: each piece's number, and where it starts.
    path: Vec<(u32, u32)>,
}

impl SentencePiece {
    /// Reads a `.model` file.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if it cannot be read, is not a SentencePiece model or is damaged, or if it is not a
    /// unigram model.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        Self::from_bytes(&Self::read(path)?)
    }

    /// The bytes of a `.model` file.
    pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
        input_file::read(path, MODEL_BYTES_MAX).map_err(ModelError::Read)
    }

    /// Reads the content of a `.model` file.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ModelError> {
        let model = model::parse(bytes)?;
        let ids = model.ids()?;
        let byte_ids = model.byte_ids(&ids)?;
        let user_defined = model.of_kind(Kind::UserDefined);
        let normalizer = Normalizer::new(&model.normalizer, DoubleArray::new(user_defined))?;
        let viterbi = Viterbi::new(&model);
        let unknown = model.unknown;
        let pieces = model.pieces.into_iter().map(|piece| piece.text).collect();
        Ok(SentencePiece { pieces, ids, unknown, byte_ids, normalizer, viterbi })
    }

    /// The number of pieces.
    #[must_use]
    pub fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// The text of a piece. Normal pieces start with U+2581 where a word starts.
    #[must_use]
    pub fn piece(&self, id: u32) -> Option<&[u8]> {
        self.pieces.get(id as usize).map(|piece| &**piece)
    }

    /// The number of the piece with this text, or that of the unknown piece.
    #[must_use]
    pub fn id_of(&self, piece: &[u8]) -> u32 {
        self.ids.get(piece).copied().unwrap_or(self.unknown)
    }

    /// Cuts a text into pieces, as `EncodeAsPieces` does, and calls `take` with the number and the text of
    /// each. Neighbouring characters that are in no piece become one piece together. Its number is looked up
    /// by its text, so it is nearly always the unknown piece's.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if the model's replacements make the text many times longer. Nothing is taken then.
    pub fn encode(
        &self,
        text: &str,
        scratch: &mut Scratch,
        mut take: impl FnMut(u32, &[u8]),
    ) -> Result<(), TooLong> {
        let Scratch { normalized, nodes, path } = scratch;
        self.normalizer.normalize(text.as_bytes(), normalized)?;
        self.viterbi.best_path(normalized, nodes, path);
        let mut unknown_from = None;
        let mut end = normalized.len();
        path.reverse();
        for at in 0..path.len() {
            let (id, start) = path[at];
            let start = start as usize;
            end = path.get(at + 1).map_or(normalized.len(), |(_, next)| *next as usize);
            if id == self.unknown {
                unknown_from.get_or_insert(start);
                continue;
            }
            if let Some(from) = unknown_from.take() {
                self.take_unknown(&normalized[from..start], &mut take);
            }
            take(id, &normalized[start..end]);
        }
        if let Some(from) = unknown_from {
            self.take_unknown(&normalized[from..end], &mut take);
        }
        Ok(())
    }

    fn take_unknown(&self, text: &[u8], take: &mut impl FnMut(u32, &[u8])) {
        match &self.byte_ids {
            Some(ids) => text.iter().for_each(|byte| {
                let id = ids[usize::from(*byte)];
                take(id, &self.pieces[id as usize]);
            }),
            None => take(self.id_of(text), text),
        }
    }
}
