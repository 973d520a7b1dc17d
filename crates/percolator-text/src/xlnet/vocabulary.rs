//! A model as XLNet uses it: its special symbols, the pieces that start a word, and the rule for numbers
//! before a comma.

use std::path::Path;

use percolator_files::shown;

use super::PrepareError;
use super::preparation::Hash;
use crate::python_text::is_digit;
use crate::sentencepiece::{Scratch, SentencePiece, TooLong};

/// The class symbol, which ends a row.
pub(super) const CLS: u32 = 3;
/// Ends each of a row's two segments.
pub(super) const SEP: u32 = 4;
/// Ends a document.
pub(super) const EOD: u32 = 7;

/// The symbols whose numbers are fixed in the data.
const SPECIAL: [(u32, &str); 3] = [(CLS, "<cls>"), (SEP, "<sep>"), (EOD, "<eod>")];

/// The character with which word-starting pieces begin.
const WORD_START: char = '\u{2581}';
const SPACE: &[u8] = "\u{2581}".as_bytes();

/// The tokens of a model.
#[derive(Debug)]
pub struct Vocabulary {
    model: SentencePiece,
    /// Whether each token may start a masked n-gram.
    is_start: Vec<bool>,
    /// A hash of the model's bytes.
    hash: u64,
}

impl Vocabulary {
    /// Reads a SentencePiece model.
    ///
    /// # Errors
    ///
    /// [`PrepareError`] if it is not a SentencePiece model, or if its tokens 3, 4 and 7 are not `<cls>`,
    /// `<sep>` and `<eod>`.
    pub fn open(path: &Path) -> Result<Self, PrepareError> {
        let named = || shown::path(path).to_string();
        let read = SentencePiece::read(path)
            .and_then(|bytes| Ok((SentencePiece::from_bytes(&bytes)?, Hash::of(&bytes))));
        let (model, hash) = read.map_err(|source| PrepareError::Model { path: named(), source })?;
        for (token, expected) in SPECIAL {
            let found = model.piece(token);
            if found != Some(expected.as_bytes()) {
                let found = found.map_or("missing".into(), String::from_utf8_lossy);
                return Err(PrepareError::Refused(format!(
                    "the model {} is not one for XLNet: its piece {token} is {found}, and must be \
                     {expected}: train it with <unk> <s> </s> <cls> <sep> <pad> <mask> <eod> <eop> as its \
                     pieces 0 to 8",
                    named()
                )));
            }
        }
        let pieces = (0..).map_while(|token| model.piece(token));
        let is_start = pieces.map(is_start_piece).collect();
        Ok(Vocabulary { model, is_start, hash })
    }

    /// A hash of the model.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// The number of tokens.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.is_start.len()
    }

    /// Whether a masked n-gram may start at this token: at the start of a word, a symbol or a punctuation
    /// mark.
    #[must_use]
    pub fn is_start(&self, token: u32) -> bool {
        self.is_start.get(token as usize).copied().unwrap_or(false)
    }

    /// Appends the tokens of a [cleaned](crate::clean()) line.
    ///
    /// A piece that ends in a digit and a comma is cut again without the comma, which becomes a token of its
    /// own.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if the model makes the line many times longer.
    pub fn encode(&self, text: &str, scratch: &mut Scratch, tokens: &mut Vec<u32>) -> Result<(), TooLong> {
        let mut failed = None;
        self.model.encode(text, scratch, |token, piece| match number_with_comma(piece) {
            Some(number) => failed = self.encode_number(number, tokens).err().or(failed),
            None => tokens.push(token),
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Appends the tokens of a piece without its comma, and then the comma. Encoding the piece by itself adds
    /// white space at its front; if the piece did not start with white space, that is removed again.
    fn encode_number(&self, number: &str, tokens: &mut Vec<u32>) -> Result<(), TooLong> {
        let has_space = number.starts_with(WORD_START);
        let text = number.replace(WORD_START, "");
        let mut is_first = true;
        self.model.encode(&text, &mut Scratch::default(), |token, piece| {
            let put_in_front = is_first && !has_space;
            is_first = false;
            match piece.strip_prefix(SPACE) {
                Some(b"") if put_in_front => {}
                Some(rest) if put_in_front => tokens.push(self.model.id_of(rest)),
                _ => tokens.push(token),
            }
        })?;
        tokens.push(self.model.id_of(b","));
        Ok(())
    }
}

/// The piece without its comma, if it ends in a digit and a comma.
fn number_with_comma(piece: &[u8]) -> Option<&str> {
    let number = std::str::from_utf8(piece.strip_suffix(b",")?).ok()?;
    number.chars().next_back().is_some_and(is_digit).then_some(number)
}

fn is_start_piece(piece: &[u8]) -> bool {
    match piece {
        [b'<', ..] => true,
        // As in the script's list, no apostrophe, no equals sign and no greater-than sign.
        [mark] => mark.is_ascii_punctuation() && !b"'=>".contains(mark),
        _ => piece.starts_with(SPACE),
    }
}
