//! The lines of a list of image files, each with a name and a label.

use std::path::Path;

use crate::base::shown;
use crate::source::SourceError;

/// One line of the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// The byte range of the name in the text.
    pub(super) name: (usize, usize),
    pub(super) label: i32,
}

/// Splits the list into lines, and each line at its last space.
pub(super) fn parse(text: &[u8], path: &Path) -> Result<Vec<Line>, SourceError> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut odd_labels = OddLabels::default();
    while start < text.len() {
        let line = text[start..].split(|&byte| byte == b'\n').next().unwrap_or_default();
        let number = lines.len() + 1;
        if line.trim_ascii().is_empty() {
            return Err(SourceError::EmptyLine { path: path.to_owned(), line: number });
        }
        let (name, label) = match line.iter().rposition(|&byte| byte == b' ') {
            Some(space) => (space, &line[space + 1..]),
            // As in Caffe, the whole line is both the name and the label.
            None => (line.trim_ascii_end().len(), line),
        };
        let label = odd_labels.read(label, number).ok_or_else(|| SourceError::LabelRange {
            path: path.to_owned(),
            line: number,
            found: shown::bytes(label).to_string(),
        })?;
        lines.push(Line { name: (start, start + name), label });
        start += line.len() + 1;
    }
    odd_labels.warn(path);
    Ok(lines)
}

/// Labels that are not whole numbers.
#[derive(Debug, Default)]
struct OddLabels {
    count: usize,
    /// The line number and the text of the first one.
    first: Option<(usize, String)>,
}

impl OddLabels {
    /// Reads a label as `atoi` does; `None` if it is out of range, where C leaves the result undefined.
    fn read(&mut self, text: &[u8], line: usize) -> Option<i32> {
        let text = text.trim_ascii();
        let (sign, digits) = match text {
            [b'-', digits @ ..] => (-1, digits),
            [b'+', digits @ ..] => (1, digits),
            digits => (1, digits),
        };
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 || count < digits.len() {
            self.count += 1;
            self.first.get_or_insert_with(|| (line, shown::bytes(text).to_string()));
        }
        digits[..count].iter().try_fold(0_i32, |value, digit| {
            value.checked_mul(10)?.checked_add(sign * i32::from(digit - b'0'))
        })
    }

    fn warn(&self, path: &Path) {
        if let Some((line, found)) = &self.first {
            tracing::warn!(
                list = %shown::path(path),
                labels = self.count,
                first_line = line,
                found = %found,
                "labels that are not whole numbers are read as Caffe reads them: up to the first character \
                 that is no digit"
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
        let odd = "a.jpg 1.9\nb.jpg x\nc.jpg\nd.jpg 2147483647\ne.jpg -2147483648\nf.jpg ";
        let labels: Vec<i32> = lines(odd).unwrap().iter().map(|line| line.1).collect();
        assert_eq!(labels, [1, 0, 0, i32::MAX, i32::MIN, 0]);
        let error = lines("a.jpg 1\nb.jpg 2147483648").unwrap_err();
        assert_eq!(
            error.to_string(),
            "list.txt: line 2: the label 2147483648 does not fit 32 bits; labels are whole numbers from \
             -2147483648 to 2147483647"
        );
    }

    #[test]
    fn an_empty_line_is_no_file() {
        let error = lines("a.jpg 1\n\nb.jpg 2").unwrap_err();
        assert_eq!(error, SourceError::EmptyLine { path: "list.txt".into(), line: 2 });
    }
}
