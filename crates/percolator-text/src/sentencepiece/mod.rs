//! SentencePiece's models (unigram, BPE, word and char), from only their `.model` file: text into pieces, as
//! the C++ library encodes it.
//!
//! The normaliser uses the model's own table of rules, not a similar rule of Unicode's. The best segmentation
//! of a unigram model is found with the library's own arithmetic, because the order of two nearly equal
//! segmentations depends on how sums are rounded.
//!
//! The crates that read these models differ from the library on odd texts: the model's own table, NUL, joined
//! characters (kitoken on 1 of 100 of them), and bring dozens of crates. This module equals sentencepiece
//! 0.2.3 on all of them.

mod bpe;
mod double_array;
mod error;
mod model;
mod normalizer;
mod viterbi;

use std::collections::HashMap;
use std::path::Path;

use percolator_files::input_file;

pub use error::{ModelError, TooLong};

use bpe::{Bpe, Merging};
use double_array::DoubleArray;
use model::{Algorithm, Kind};
use normalizer::Normalizer;
use viterbi::{Node, Viterbi};

/// The most bytes of a model's file, more than ten times as many as any known model has. Pieces of a few
/// bytes take dozens of times their length in memory.
const MODEL_BYTES_MAX: u64 = 64 << 20;

/// A model: its pieces, its normaliser, and how it cuts a text.
#[derive(Debug)]
pub struct SentencePiece {
    pieces: Vec<Box<[u8]>>,
    /// The number of every piece, whatever its kind.
    ids: HashMap<Box<[u8]>, u32>,
    unknown: u32,
    /// The number of each byte's piece, if the model writes unknown text in bytes.
    byte_ids: Option<Box<[u32; 256]>>,
    normalizer: Normalizer,
    cut: Cut,
}

/// How a model cuts a text.
#[derive(Debug)]
enum Cut {
    /// Where the pieces' scores have the largest sum.
    Unigram(Viterbi),
    /// By merging neighbours.
    Bpe(Bpe),
    /// Before each blank.
    Word,
    /// Into characters and these symbols, which the trainer's user defined.
    Char(DoubleArray),
}

/// Memory that [`SentencePiece::encode`] reuses from one text to the next. Each thread has its own.
#[derive(Debug, Default)]
pub struct Scratch {
    normalized: Vec<u8>,
    nodes: Vec<Node>,
    merging: Merging,
    /// The segmentation: each piece's number, and where it starts.
    path: Vec<(u32, u32)>,
}

impl SentencePiece {
    /// Reads a `.model` file.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if it cannot be read, is not a SentencePiece model or is damaged, or if it is of a kind
    /// that is not known.
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
        let normalizer = Normalizer::new(&model.table, model.rules, DoubleArray::new(user_defined))?;
        let cut = match model.algorithm {
            Algorithm::Unigram => Cut::Unigram(Viterbi::new(&model)),
            Algorithm::Bpe => Cut::Bpe(Bpe::new(&model)),
            Algorithm::Word => Cut::Word,
            Algorithm::Char => Cut::Char(DoubleArray::new(model.of_kind(Kind::UserDefined))),
        };
        let unknown = model.unknown;
        let pieces = model.pieces.into_iter().map(|piece| piece.text).collect();
        Ok(SentencePiece { pieces, ids, unknown, byte_ids, normalizer, cut })
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
        let Scratch { normalized, nodes, merging, path } = scratch;
        self.normalizer.normalize(text.as_bytes(), normalized)?;
        match &self.cut {
            Cut::Unigram(viterbi) => {
                viterbi.best_path(normalized, nodes, path);
                path.reverse();
            }
            Cut::Bpe(bpe) => bpe.cut(normalized, &self.ids, merging, path),
            Cut::Word => self.cut_by(normalized, path, word_bytes),
            Cut::Char(symbols) => self.cut_by(normalized, path, |text| bpe::first(symbols, text).0),
        }
        let mut unknown_from = None;
        let mut end = normalized.len();
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

    /// Cuts a text into parts of the lengths that `bytes` gives for what is left of it.
    fn cut_by(&self, text: &[u8], path: &mut Vec<(u32, u32)>, bytes: impl Fn(&[u8]) -> usize) {
        path.clear();
        let mut start = 0;
        while start < text.len() {
            let end = start + bytes(&text[start..]);
            let place = u32::try_from(start).expect("the normaliser makes no text of 4 GiB");
            path.push((self.id_of(&text[start..end]), place));
            start = end;
        }
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

/// The length of a text's first word: up to the next blank, which belongs to the word after it.
fn word_bytes(text: &[u8]) -> usize {
    let (space, first) = (normalizer::SPACE, normalizer::char_bytes(text[0]));
    (first..text.len()).find(|&at| text[at..].starts_with(space)).unwrap_or(text.len())
}
