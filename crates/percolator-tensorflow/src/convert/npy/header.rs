//! The header of a `.npy` file: a magic number, a version, a length, and a Python dictionary as text.

use std::sync::LazyLock;

use percolator_files::shown;
use regex_lite::Regex;

use super::super::file::Part;
use super::stored::Stored;
use crate::convert::ConvertError;
use crate::tensor::elements;

/// What a file starts with.
pub(super) const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The bytes with which the length of any header is known.
pub(crate) const PREFIX_BYTES: usize = 12;
/// The longest header that is read. NumPy reads up to 10,000 bytes unless configured.
pub(crate) const HEADER_BYTES_MAX: usize = 1 << 20;
/// The most axes that NumPy's arrays have.
const AXES_MAX: usize = 64;
/// Elements start at a multiple of this many bytes.
const ALIGNMENT: usize = 64;
/// NumPy leaves room for the first extent to grow to this many digits.
const GROWTH_DIGITS: usize = 21;

/// What an array is, without its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(super) stored: Stored,
    pub(super) is_fortran: bool,
    pub(super) shape: Vec<usize>,
    /// The bytes of the elements.
    pub(super) data_bytes: usize,
}

/// Returns the bytes of a header, all in all, from the front of the file: [`PREFIX_BYTES`], or as many as
/// the file has.
pub(crate) fn length(front: &[u8], part: Part<'_>) -> Result<usize, ConvertError> {
    if !front.starts_with(MAGIC) {
        let found = match front.get(..MAGIC.len()).unwrap_or(front) {
            [] => "found nothing".to_owned(),
            front => format!("found {}", front.escape_ascii()),
        };
        return Err(part.damaged(0, found, "an array of NumPy's starts with \\x93NUMPY"));
    }
    let little = |bytes: &[u8]| bytes.iter().rev().fold(0_usize, |sum, &byte| (sum << 8) | usize::from(byte));
    let (prefix, stated) = match (front.get(6..8), front.get(8..10), front.get(8..12)) {
        (Some([1, 0]), Some(bytes), _) => (10_usize, little(bytes)),
        (Some([2 | 3, 0]), _, Some(bytes)) => (12, little(bytes)),
        (Some(&[major, minor]), ..) if !matches!((major, minor), (1..=3, 0)) => {
            let found = format!("found version {major}.{minor}");
            return Err(part.damaged(6, found, "versions 1.0, 2.0 and 3.0 are read"));
        }
        _ => return Err(part.damaged(front.len() as u64, "the end", "the header's length should be here")),
    };
    match stated.checked_add(prefix) {
        Some(whole) if whole <= HEADER_BYTES_MAX => Ok(whole),
        _ => {
            let allowed = format!("at most {HEADER_BYTES_MAX} bytes of header are read");
            Err(part.damaged(8, format!("a header of {stated} bytes"), allowed))
        }
    }
}

impl Header {
    /// Reads a header: as many bytes as [`length`] says.
    pub(crate) fn parse(bytes: &[u8], part: Part<'_>) -> Result<Self, ConvertError> {
        let version = bytes.get(6).copied().unwrap_or(0);
        let start = if version == 1 { 10 } else { PREFIX_BYTES };
        let text = bytes.get(start..).unwrap_or_default();
        let text = match version {
            // Latin-1, whose bytes are the first characters of Unicode.
            1 | 2 => text.iter().map(|&byte| char::from(byte)).collect(),
            _ => String::from_utf8(text.to_vec()).map_err(|_| {
                part.damaged(start as u64, "a header that is not UTF-8", "version 3.0 has UTF-8")
            })?,
        };
        let wrong = |found: String| {
            let allowed = "a header is {'descr': .., 'fortran_order': True or False, 'shape': (..)}";
            part.damaged(start as u64, found, allowed)
        };
        let [descr, order, shape] =
            values(&text).map_err(|key| wrong(format!("found no {key} of this form")))?;
        let is_fortran = order == "True";
        // Python 2 marks its long integers.
        let extents = shape.split(',').map(|extent| extent.trim().trim_end_matches('L'));
        let extents = extents.filter(|extent| !extent.is_empty()).map(str::parse::<usize>);
        let shape: Vec<usize> = extents
            .collect::<Result<_, _>>()
            .map_err(|_| wrong(format!("the shape ({}) has no numbers of 64 bits", shown::line(&shape))))?;
        if shape.len() > AXES_MAX {
            let found = format!("an array of {} axes", shape.len());
            return Err(part.damaged(start as u64, found, format!("NumPy's have {AXES_MAX} at most")));
        }
        let stored = Stored::parse(&descr, part)?;
        let count = elements(&shape);
        let data_bytes = count.zip(stored.size()).and_then(|(count, size)| count.checked_mul(size));
        let data_bytes = data_bytes.ok_or_else(|| {
            let found = format!("an array of shape {shape:?}");
            part.damaged(start as u64, found, "no memory holds that many elements")
        })?;
        // Elements without bytes could be any number of them.
        if stored.size() == Some(0) && count != Some(0) {
            return Err(part.damaged(start as u64, "found strings of 0 bytes", "NumPy's have 1 at least"));
        }
        Ok(Header { stored, is_fortran, shape, data_bytes })
    }
}

/// Returns the header of an array in a `.npy` file, byte for byte as `numpy.save` writes it: version 1.0,
/// rows in C's order. `descr` is the type of the elements as Python writes it, with its quotes: `'<f4'`.
///
/// Arrays of one type whose shapes differ only in the first extent have headers of one length: the header of
/// an array that grows can be written again. `None` if the array has more than 64 axes, or if the type is not
/// ASCII or is longer than the header of version 1.0 can hold.
#[must_use]
pub fn npy_header(descr: &str, shape: &[usize]) -> Option<Vec<u8>> {
    const PREFIX: usize = 10;
    if shape.len() > AXES_MAX || !descr.is_ascii() {
        return None;
    }
    let extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
    // As Python writes a tuple: one of a single element has a comma.
    let comma = if shape.len() == 1 { "," } else { "" };
    let growth = extents.first().map_or(0, |first| GROWTH_DIGITS.saturating_sub(first.len()));
    let extents = extents.join(", ");
    let mut text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ({extents}{comma}), }}");
    text.extend(std::iter::repeat_n(' ', growth));
    let unpadded = text.len().saturating_add(PREFIX).saturating_add(1);
    // NumPy pads by a whole alignment where none is needed.
    let padding = ALIGNMENT.saturating_sub(unpadded.checked_rem(ALIGNMENT).unwrap_or(0));
    text.extend(std::iter::repeat_n(' ', padding));
    text.push('\n');
    let length = u16::try_from(text.len()).ok()?;
    Some([MAGIC, &[1, 0][..], &length.to_le_bytes(), text.as_bytes()].concat())
}

/// Takes a header's three values, as Python writes them; or says which one is missing, or what else is there.
fn values(text: &str) -> Result<[String; 3], &'static str> {
    const KEYS: [(&str, &str); 3] = [
        ("'descr'", r#"['"]descr['"]\s*:\s*('[^']*'|"[^"]*"|\[[^\]]*\]|[^,]*)"#),
        ("'fortran_order'", r#"['"]fortran_order['"]\s*:\s*(True|False)"#),
        ("'shape'", r#"['"]shape['"]\s*:\s*\(([\dL,\s]*)\)"#),
    ];
    static REGEXES: LazyLock<[Regex; 3]> =
        LazyLock::new(|| KEYS.map(|(_, regex)| Regex::new(regex).expect("it is an expression")));
    let mut rest = text.to_owned();
    let mut values = <[String; 3]>::default();
    for ((value, regex), (key, _)) in values.iter_mut().zip(&*REGEXES).zip(KEYS) {
        let found =
            regex.captures(&rest).and_then(|found| Some((found.get(0)?.range(), found.get(1)?.range())));
        let Some((whole, part)) = found else { return Err(key) };
        *value = rest.get(part).unwrap_or_default().to_owned();
        rest.replace_range(whole, " ");
    }
    // So each key is there once, and no other.
    let rest = rest.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match rest.is_some_and(|rest| rest.chars().all(|rest| rest == ',' || rest.is_whitespace())) {
        true => Ok(values),
        false => Err("dictionary"),
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::DataType;

    fn part() -> Part<'static> {
        Part { path: Path::new("x.npy"), tensor: None, offset: 0 }
    }

    fn parsed(bytes: &[u8]) -> Result<Header, ConvertError> {
        let whole = length(bytes.get(..PREFIX_BYTES).unwrap_or(bytes), part())?;
        Header::parse(&bytes[..whole.min(bytes.len())], part())
    }

    fn of(version: u8, text: &str) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        let length = if version == 1 { &length[..2] } else { &length };
        [MAGIC, &[version, 0][..], length, text.as_bytes()].concat()
    }

    #[test]
    fn the_header_is_numpys() {
        // numpy.save(f, numpy.zeros((2, 3), 'f4'))
        let header = npy_header("'<f4'", &[2, 3]).unwrap();
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        assert_eq!(header, [b"\x93NUMPY\x01\x00v\x00", format!("{text:117}\n").as_bytes()].concat());
        // One that needs no padding is padded all the same: numpy.zeros((1,) * 9, '<f4') has 128 bytes.
        for axes in 0..64 {
            assert_eq!(npy_header("'<f4'", &vec![1; axes]).unwrap().len() % 64, 0);
        }
        let read = parsed(&header).unwrap();
        assert_eq!((read.shape, read.data_bytes, read.is_fortran), (vec![2, 3], 24, false));
    }

    #[test]
    fn the_header_of_an_array_that_grows_keeps_its_length() {
        for descr in ["'<f4'", "'|S18446744073709551615'", "[('bfloat16', '<V2')]"] {
            let length = |first| npy_header(descr, &[first, 3]).unwrap().len();
            assert_eq!(length(0), length(usize::MAX));
        }
    }

    #[test]
    fn what_no_header_can_say_has_none() {
        assert!(npy_header("'<f4'", &[usize::MAX; AXES_MAX]).is_some());
        assert_eq!(npy_header("'<f4'", &[1; AXES_MAX + 1]), None);
        assert_eq!(npy_header("'\u{e9}'", &[1]), None);
        assert_eq!(npy_header(&"x".repeat(1 << 16), &[1]), None);
    }

    #[test]
    fn three_versions_are_read() {
        for version in 1..=3 {
            let header = of(version, "{\"shape\":(),'fortran_order':True,'descr':'|u1'}");
            let read = parsed(&header).unwrap();
            assert_eq!((read.stored.data_type(), read.data_bytes), (DataType::Uint8, 1));
            assert!(read.is_fortran);
        }
    }

    #[test]
    fn damage_is_an_error() {
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        let deep = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({}), }}", "1,".repeat(65));
        let mut wrong: Vec<(Vec<u8>, &str)> = vec![
            (of(3, &deep), "an array of 65 axes; NumPy's have 64 at most"),
            (vec![], "found nothing; an array of NumPy's starts with"),
            (b"\x93NUMPZ\x01\x00v\x00".to_vec(), "starts with"),
            (b"\x93NUMPY\x01".to_vec(), "length should be here"),
            (b"\x93NUMPY\x02\x00v\x00".to_vec(), "length should be here"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), "at most"),
            (b"\x93NUMPY\x04\x00v\x00".to_vec(), "version 4.0"),
            (of(3, "{'descr': '<f4'\u{0}"), "a header is"),
        ];
        wrong.push(([MAGIC, &[3, 0, 1, 0, 0, 0, 0xff][..]].concat(), "UTF-8"));
        for (text, found) in [
            ("(1,)", "no 'descr'"),
            ("{'descr': '<f4', 'shape': (2, 3), }", "fortran_order"),
            ("{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3), }", "no 'fortran_order'"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': 2, }", "no 'shape'"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", "no 'shape'"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", "no dictionary"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'shape': (2,)}", "no dictionary"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "64 bits"),
            ("{'descr': '|S0', 'fortran_order': False, 'shape': (2,), }", "strings of 0 bytes"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 9999999999), }", "no memory"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 999999999), }", "no memory"),
        ] {
            wrong.push((of(1, text), found));
        }
        for (bytes, found) in wrong {
            let error = parsed(&bytes).unwrap_err().to_string();
            assert!(error.contains(found), "{found}: {error}");
        }
        // Wherever a header is cut, it is an error and nothing worse.
        let good = of(1, good);
        assert!((0..good.len()).all(|end| parsed(&good[..end]).is_err()));
    }
}
