//! The lines of a list of image files, each with a name and a label.

use std::path::Path;

use crate::source::{ImageListError, SourceError};
use percolator_files::shown;

/// One line of the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// The byte range of the name in the text.
    pub(super) name: (usize, usize),
    pub(super) label: i32,
}

/// A byte order mark, which Windows puts before a text. It is not part of a name.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Splits the list into lines, and each line at its last space. Spaces after the label are ignored.
pub(super) fn parse(text: &[u8], path: &Path) -> Result<Vec<Line>, SourceError> {
    let mut lines = Vec::new();
    let mut start = if text.starts_with(MARK) { MARK.len() } else { 0 };
    let mut odd_labels = OddLabels::default();
    while start < text.len() {
        let line = text[start..].split(|&byte| byte == b'\n').next().unwrap_or_default();
        let number = lines.len() + 1;
        if line.trim_ascii().is_empty() {
            return Err(SourceError::ImageList(ImageListError::EmptyLine {
                path: path.to_owned(),
                line: number,
            }));
        }
        let full = line.trim_ascii_end();
        let (name, label) = match full.iter().rposition(|&byte| byte == b' ') {
            Some(space) => (space, &full[space + 1..]),
            None => (full.len(), &[][..]),
        };
        let label = match odd_labels.read(label, number) {
            Ok(label) => label,
            Err(wrong) => {
                let (path, found) = (path.to_owned(), shown::bytes(label).to_string());
                return Err(match wrong {
                    Wrong::TooLarge => {
                        SourceError::ImageList(ImageListError::LabelRange { path, line: number, found })
                    }
                    Wrong::NoNumber => SourceError::ImageList(ImageListError::Label {
                        path,
                        line: number,
                        found,
                        hint: hint(full),
                    }),
                });
            }
        };
        lines.push(Line { name: (start, start + name), label });
        start += line.len() + 1;
    }
    odd_labels.warn(path);
    Ok(lines)
}

/// What a line without a numeric label may have been meant to be.
fn hint(line: &[u8]) -> &'static str {
    let sign = line.iter().rposition(|byte| !byte.is_ascii_digit()).filter(|at| at + 1 < line.len());
    match sign.and_then(|at| line.get(at)) {
        Some(b'\t') => ": put a space in the place of the tab",
        Some(b',' | b';') => ": put a space in the place of the comma",
        _ => ": number the classes from 0, and give each image the number of its class",
    }
}

/// Why a label is not valid.
enum Wrong {
    /// It does not fit 32 bits.
    TooLarge,
    NoNumber,
}

/// Labels with fractions.
#[derive(Debug, Default)]
struct OddLabels {
    count: usize,
    /// The line number and the text of the first one.
    first: Option<(usize, String)>,
}

impl OddLabels {
    /// Reads a label as `atoi` does. A text that is not a number, which `atoi` reads as 0, is not a label,
    /// and neither is a number out of range, for which C leaves the result undefined.
    fn read(&mut self, text: &[u8], line: usize) -> Result<i32, Wrong> {
        let text = text.trim_ascii();
        let (sign, digits) = match text {
            [b'-', digits @ ..] => (-1, digits),
            [b'+', digits @ ..] => (1, digits),
            digits => (1, digits),
        };
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (whole, rest) = digits.split_at(count);
        match rest {
            _ if whole.is_empty() => return Err(Wrong::NoNumber),
            [] => {}
            [b'.', fraction @ ..] if fraction.iter().all(u8::is_ascii_digit) => {
                self.count += 1;
                self.first.get_or_insert_with(|| (line, shown::bytes(text).to_string()));
            }
            _ => return Err(Wrong::NoNumber),
        }
        let value = whole.iter().try_fold(0_i32, |value, digit| {
            value.checked_mul(10)?.checked_add(sign * i32::from(digit - b'0'))
        });
        value.ok_or(Wrong::TooLarge)
    }

    fn warn(&self, path: &Path) {
        if let Some((line, found)) = &self.first {
            tracing::warn!(
                list = %shown::path(path),
                labels = self.count,
                first_line = line,
                found = %found,
                "labels with fractions are read as Caffe reads them: up to the point"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Result<Vec<(&str, i32)>, SourceError> {
        let lines = parse(text.as_bytes(), Path::new("list.txt"))?;
        Ok(lines.iter().map(|line| (&text[line.name.0..line.name.1], line.label)).collect())
    }

    #[test]
    fn a_line_is_split_at_its_last_space() {
        assert_eq!(lines("a.jpg 3\nmy cat.png -12\n").unwrap(), [("a.jpg", 3), ("my cat.png", -12)]);
        assert_eq!(lines("a.jpg 3\r\nb.jpg +4").unwrap(), [("a.jpg", 3), ("b.jpg", 4)]);
    }

    #[test]
    fn labels_are_read_as_atoi_reads_them() {
        let odd = "a.jpg 1.9\nd.jpg 2147483647\ne.jpg -2147483648\nf.jpg 3.";
        let labels: Vec<i32> = lines(odd).unwrap().iter().map(|line| line.1).collect();
        assert_eq!(labels, [1, i32::MAX, i32::MIN, 3]);
        let error = lines("a.jpg 1\nb.jpg 2147483648").unwrap_err();
        assert_eq!(
            error.to_string(),
            "list.txt: line 2: the label 2147483648 does not fit 32 bits; labels are whole numbers from \
             -2147483648 to 2147483647"
        );
    }

    /// Caffe reads each of these labels as 0, or as the number before the word.
    #[test]
    fn a_label_that_is_no_number_is_refused() {
        let numbers = "number the classes from 0";
        for (line, said) in [
            ("a.jpg cat", format!("a space and a label, a whole number: {numbers}")),
            ("a.jpg", "line 2: there is no label; ".to_owned()),
            ("my cat.jpg", "line 2: the label cat.jpg is no number".to_owned()),
            ("a b 2cats.jpg", "the label 2cats.jpg is no number".to_owned()),
            ("a.jpg 1e3", "the label 1e3 is no number".to_owned()),
            ("a.jpg -", "the label - is no number".to_owned()),
            ("a.jpg\t3", "put a space in the place of the tab".to_owned()),
            ("a.jpg,3", "put a space in the place of the comma".to_owned()),
            ("my a.jpg,3", "put a space in the place of the comma".to_owned()),
        ] {
            let error = lines(&format!("first.jpg 1\n{line}\nlast.jpg 2")).unwrap_err();
            assert!(
                matches!(error, SourceError::ImageList(ImageListError::Label { line: 2, .. })),
                "{line}: {error:?}"
            );
            assert!(error.to_string().contains(&said), "{line}: {error}");
        }
    }

    #[test]
    fn marks_and_spaces_of_editors_mean_nothing() {
        let listed = lines("\u{feff}a.jpg 3 \r\nb c.jpg 4  \nd.jpg 5\t").unwrap();
        assert_eq!(listed, [("a.jpg", 3), ("b c.jpg", 4), ("d.jpg", 5)]);
    }

    #[test]
    fn an_empty_line_is_no_file() {
        let error = lines("a.jpg 1\n\nb.jpg 2").unwrap_err();
        assert_eq!(
            error,
            SourceError::ImageList(ImageListError::EmptyLine { path: "list.txt".into(), line: 2 })
        );
    }
}
