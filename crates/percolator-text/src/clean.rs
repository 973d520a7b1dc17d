//! XLNet's cleaning of a line, before it is cut into pieces.

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::canonical_combining_class;

use crate::python_text::words;

/// Cleans a line of text as XLNet's `preprocess_text` does. The result replaces the content of `cleaned`.
///
/// White space becomes single blanks, and none is left at the ends. Two backquotes or two apostrophes become
/// a double quote. The text is decomposed (NFKD), and combining marks are removed. If `is_lowered`, it is
/// then put into lower case.
pub fn clean(text: &str, is_lowered: bool, cleaned: &mut String) {
    cleaned.clear();
    for word in words(text) {
        if !cleaned.is_empty() {
            cleaned.push(' ');
        }
        push_quoted(word, cleaned);
    }
    if !cleaned.is_ascii() {
        let decomposed: String =
            cleaned.nfkd().filter(|letter| canonical_combining_class(*letter) == 0).collect();
        *cleaned = if is_lowered { decomposed.to_lowercase() } else { decomposed };
    } else if is_lowered {
        cleaned.make_ascii_lowercase();
    }
}

/// Appends a word with its doubled quotes replaced.
fn push_quoted(word: &str, cleaned: &mut String) {
    let mut rest = word;
    while let Some(at) = rest.as_bytes().windows(2).position(|pair| pair == b"``" || pair == b"''") {
        cleaned.push_str(&rest[..at]);
        cleaned.push('"');
        rest = &rest[at + 2..];
    }
    cleaned.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(text: &str, is_lowered: bool) -> String {
        let mut out = "what was there before".to_owned();
        clean(text, is_lowered, &mut out);
        out
    }

    #[test]
    fn white_space_quotes_marks_and_case() {
        assert_eq!(cleaned("  a \t b\u{3000}c\u{1f} ", false), "a b c");
        assert_eq!(cleaned("``x'' '' ``` '''", false), "\"x\" \" \"` \"'");
        assert_eq!(cleaned("Café ﬁnd ＡＢＣ Å", false), "Cafe find ABC A");
        assert_eq!(cleaned("Café ΟΔΟΣ İ ẞ", true), "cafe οδος i ß");
        assert_eq!(cleaned("NAÏVE", true), "naive");
        // A diaeresis by itself decomposes into a blank and a mark.
        assert_eq!(cleaned("a¨b", false), "a b");
        assert_eq!(cleaned("\u{301}", true), "");
        assert_eq!(cleaned("", true), "");
    }
}
