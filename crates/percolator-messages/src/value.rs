//! What a record's value is, by its first bytes.

use std::fmt;

use percolator_files::caller::words;
use percolator_files::what::{ImageFormat, picture};

use crate::Datum;
use crate::example::{Example, SequenceExample};

/// What the value of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// Caffe's Datum.
    Datum,
    /// TensorFlow's Example.
    Example,
    /// TensorFlow's SequenceExample.
    SequenceExample,
    /// Something else, with its article.
    Other(&'static str),
}

/// A file of a format that is decoded.
const fn bare(format: ImageFormat) -> &'static str {
    match format {
        ImageFormat::Jpeg => "a bare JPEG file",
        ImageFormat::Png => "a bare PNG file",
    }
}

impl Value {
    /// What a value is; `None` if that is not certain. A Datum and an Example begin with fields of other
    /// types, so none is both.
    #[must_use]
    pub fn of(value: &[u8]) -> Option<Self> {
        let has_image = |datum: &Datum<'_>| {
            if datum.encoded { !datum.data.is_empty() } else { datum.image().is_ok() }
        };
        if Datum::parse(value).as_ref().is_ok_and(has_image) {
            return Some(Value::Datum);
        }
        let has_lists = |example: &SequenceExample<'_>| example.feature_lists().entries().next().is_some();
        if SequenceExample::parse(value).as_ref().is_ok_and(has_lists) {
            return Some(Value::SequenceExample);
        }
        // A SequenceExample's context looks like an Example, so this comes second.
        if Example::parse(value).is_ok_and(|example| example.features().entries().next().is_some()) {
            return Some(Value::Example);
        }
        other(value).map(Value::Other)
    }

    /// Whether it is an image's file that is decoded.
    #[must_use]
    pub fn is_image(self) -> bool {
        matches!(self, Value::Other(what) if [ImageFormat::Jpeg, ImageFormat::Png].map(bare).contains(&what))
    }

    /// How it is read, in the caller's terms.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Value::Datum => words(
                "leave the example's fields and image out",
                "leave --fields and --image out",
                "leave fields= and image= out",
            ),
            Value::Example => words(
                "name its features, its image, or both (FeedBuilder::example)",
                "name its features with --fields, or its image with --image, as `percolator inspect` prints \
                 them",
                "name its features with fields=, or its image with image=",
            ),
            Value::SequenceExample | Value::Other(_) => words(
                "a feed reads it with a decoder of your own (docs/guide/own-records.md)",
                "no option reads it: write Datums or Examples, or use a decoder of your own in a program \
                 (docs/guide/own-records.md)",
                "read it with a decoder of your own: decode=",
            ),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Value::Datum => "a Datum",
            Value::Example => "a tf.train.Example",
            Value::SequenceExample => "a tf.train.SequenceExample",
            Value::Other(what) => what,
        })
    }
}

fn other(value: &[u8]) -> Option<&'static str> {
    let begins = |magic: &[u8]| value.starts_with(magic);
    if let Some(format) = ImageFormat::of(value) {
        return Some(bare(format));
    }
    if let Some(picture) = picture(value, value.len() as u64) {
        return Some(picture);
    }
    Some(match value {
        [0x80, 2..=5, .., b'.'] => "a Python pickle",
        _ if begins(b"\x93NUMPY") => "a NumPy array (.npy)",
        _ if begins(b"PK\x03\x04") => "a ZIP archive, as .npz and PyTorch's files are",
        _ if begins(b"\x1f\x8b\x08") => "packed with gzip",
        _ if begins(b"\x28\xb5\x2f\xfd") => "packed with zstd",
        _ if begins(b"\x78\x9c") || begins(b"\x78\xda") || begins(b"\x78\x01") => "packed with zlib",
        _ if begins(b"\xff\xff\xff\xff") && value.get(5..8) == Some(&[0; 3]) => "an Arrow message",
        _ if is_tensor_protos(value) => "Caffe2's TensorProtos",
        [0x80..=0x9f | 0xdc..=0xdf, ..] if is_msgpack(value) => "a message of MessagePack",
        _ => return text(value),
    })
}

fn text(value: &[u8]) -> Option<&'static str> {
    let text = std::str::from_utf8(value).ok()?;
    let is_of_text = |letter: char| !letter.is_control() || "\n\r\t".contains(letter);
    if text.is_empty() || !text.chars().all(is_of_text) {
        return None;
    }
    let is_json = |open: char, close: char| text.trim().starts_with(open) && text.trim().ends_with(close);
    Some(if is_json('{', '}') || is_json('[', ']') {
        "a JSON text"
    } else if text.trim().bytes().all(|byte| byte.is_ascii_digit()) {
        "a number as text"
    } else {
        "a text"
    })
}

/// TensorProtos of Caffe2: messages of field 1, each with dims (1), a data_type (2) and data (3, 4, 5 or 6).
fn is_tensor_protos(mut value: &[u8]) -> bool {
    let mut tensors = 0;
    while let Some((&0x0a, rest)) = value.split_first() {
        let Some((length, rest)) = varint(rest) else { return false };
        let Some((tensor, rest)) = rest.split_at_checked(length) else { return false };
        let is_tensor = matches!(tensor, [0x08, ..] | [0x0a, ..]) && has_data_type(tensor);
        if !is_tensor {
            return false;
        }
        tensors += 1;
        value = rest;
    }
    tensors > 0 && value.is_empty()
}

/// Whether a tensor's dims are followed by its type, from 1 (float) to 14.
fn has_data_type(tensor: &[u8]) -> bool {
    let mut rest = tensor;
    loop {
        match rest.split_first() {
            Some((&0x08, after)) => match varint(after) {
                Some((_, after)) => rest = after,
                None => return false,
            },
            Some((&0x10, after)) => return after.first().is_some_and(|kind| (1..=14).contains(kind)),
            _ => return false,
        }
    }
}

/// Whether the bytes are one map or array of MessagePack, to their end.
fn is_msgpack(bytes: &[u8]) -> bool {
    /// The most elements that are checked: the rest is assumed to be alike.
    const ELEMENTS_MAX: usize = 1 << 12;

    let (mut rest, mut due) = (bytes, 1_usize);
    for _ in 0..ELEMENTS_MAX {
        let Some(left) = due.checked_sub(1) else { return rest.is_empty() };
        let Some((&kind, behind)) = rest.split_first() else { return false };
        let length = |bytes: usize| {
            let (length, _) = behind.split_at_checked(bytes)?;
            Some(length.iter().fold(0_usize, |length, &byte| length << 8 | usize::from(byte)))
        };
        // The bytes after the kind, and the elements that follow them.
        let sized =
            |bytes: usize, more: usize| Some((bytes.checked_add(length(bytes)?)?.checked_add(more)?, 0));
        let several = |bytes: usize, each: usize| Some((bytes, length(bytes)?.checked_mul(each)?));
        let taken = match kind {
            0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => Some((0, 0)),
            0x80..=0x8f => Some((0, 2 * usize::from(kind & 0xf))),
            0x90..=0x9f => Some((0, usize::from(kind & 0xf))),
            0xa0..=0xbf => Some((usize::from(kind & 0x1f), 0)),
            0xc4 | 0xd9 => sized(1, 0),
            0xc5 | 0xda => sized(2, 0),
            0xc6 | 0xdb => sized(4, 0),
            0xc7 => sized(1, 1),
            0xc8 => sized(2, 1),
            0xc9 => sized(4, 1),
            0xcc | 0xd0 => Some((1, 0)),
            0xcd | 0xd1 => Some((2, 0)),
            0xca | 0xce | 0xd2 => Some((4, 0)),
            0xcb | 0xcf | 0xd3 => Some((8, 0)),
            0xd4..=0xd8 => Some((1 + (1 << (kind - 0xd4)), 0)),
            0xdc => several(2, 1),
            0xdd => several(4, 1),
            0xde => several(2, 2),
            0xdf => several(4, 2),
            _ => None,
        };
        let Some((bytes, elements)) = taken else { return false };
        let Some((_, after)) = behind.split_at_checked(bytes) else { return false };
        rest = after;
        due = left.saturating_add(elements);
    }
    true
}

fn varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0_usize;
    for (at, &byte) in bytes.iter().enumerate().take(5) {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Some((value, bytes.get(at + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    #[test]
    fn each_kind_of_value_is_told_by_one_of_it() {
        let example = [0x0a, 9, 0x0a, 7, 0x0a, 1, b'x', 0x12, 2, 0x1a, 0];
        let caffe2 = [0x0a, 8, 0x08, 2, 0x10, 3, 0x1a, 2, 7, 7, 0x0a, 5, 0x08, 1, 0x10, 2, 0x22];
        for (bytes, wanted) in [
            (&[0x08, 1, 0x10, 1, 0x18, 2, 0x22, 2, 7, 9, 0x28, 3][..], "a Datum"),
            (&example, "a tf.train.Example"),
            (&caffe2[..10], "Caffe2's TensorProtos"),
            (b"\x92\x01\xa2ab", "a message of MessagePack"),
            (b"\x1f\x8b\x08\0", "packed with gzip"),
            (b"42", "a number as text"),
            (b"[1, 2]", "a JSON text"),
        ] {
            assert_eq!(Value::of(bytes).map(|value| value.to_string()).as_deref(), Some(wanted), "{bytes:?}");
        }
        for unknown in [&b"\x92\x01"[..], b"", b"\x01\x02\x03", b"\x92\x01\xa2abc", &[0x80, 0x04, 1, 1]] {
            assert_eq!(Value::of(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn the_decoder_takes_a_format_for_the_same() {
        for (format, name) in [(ImageFormat::Jpeg, "JPEG"), (ImageFormat::Png, "PNG")] {
            let file = [format.signature(), &[0; 64]].concat();
            let error = percolator_image::shape(&file, &percolator_image::Decode::default()).unwrap_err();
            assert!(error.to_string().contains(&format!("the {name} file")), "{error}");
            assert_eq!(Value::of(&file), Some(Value::Other(bare(format))));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            magic in select(vec![&b"PK\x03\x04"[..], b"\x93", b"{", b"\x0a", b"\xdf\xff\xff\xff\xff", b""]),
            rest in vec(any::<u8>(), 0..300),
        ) {
            let _ = Value::of(&[magic, &rest].concat());
        }
    }
}
