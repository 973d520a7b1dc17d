//! What text is prepared with: SentencePiece's models, and the JSON beside XLNet's records.

use percolator_text::sentencepiece::{Scratch, SentencePiece};
use percolator_text::xlnet::RecordInfo;

use crate::accepted::accepted;
use crate::memory::{Budget, within};

/// A piece is kept three times, in a table and in two tries; the normaliser's map is copied.
const MODEL: Budget = Budget::mebibytes(4, 1024);

/// A SentencePiece model, with which texts are cut.
pub(crate) fn sentencepiece(bytes: &[u8]) {
    const TEXTS: [&str; 5] =
        ["", "hello, world 1,000", "  \u{2581}a\u{301}\u{fb01} ", "\u{0}\u{1f600}aaaaaaaa", "▁<unk>"];

    within(bytes, MODEL, || {
        let Ok(model) = SentencePiece::from_bytes(bytes) else { return };
        accepted();
        let mut scratch = Scratch::default();
        for text in TEXTS {
            let mut pieces = 0;
            let cut = model.encode(text, &mut scratch, |id, _| {
                pieces += 1;
                assert!((id as usize) < model.piece_count(), "there is no piece {id}");
            });
            assert!(cut.is_ok() || pieces == 0, "a text that is too long is not cut in part");
        }
        for id in 0..u32::try_from(model.piece_count()).unwrap_or(u32::MAX).min(1000) {
            let piece = model.piece(id).expect("each number below the count is a piece's");
            assert!((model.id_of(piece) as usize) < model.piece_count());
        }
    });
}

/// A `record_info`. What is read is written, and read again.
pub(crate) fn record_info(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(info) = within(bytes, Budget::per_byte(256), || RecordInfo::from_json(text)) else { return };
    accepted();
    assert_eq!(RecordInfo::from_json(&info.to_json()), Ok(info));
}
