//! Each kind of value is told by one of it.

#![allow(clippy::cast_possible_truncation, reason = "what is cut off is meant to be")]

use super::*;
use crate::base::splitmix::SplitMix;

#[test]
fn values_are_told() {
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
        assert_eq!(value(bytes).map(|value| value.to_string()).as_deref(), Some(wanted), "{bytes:?}");
    }
    for unknown in [&b"\x92\x01"[..], b"", b"\x01\x02\x03", b"\x92\x01\xa2abc", &[0x80, 0x04, 1, 1]] {
        assert_eq!(value(unknown), None, "{unknown:?}");
    }
}

/// Whatever the bytes, nothing panics.
#[test]
fn no_bytes_panic() {
    let mut random = SplitMix(7);
    for length in 0..300_usize {
        let magic: &[u8] =
            [&b"PK\x03\x04"[..], b"\x93", b"{", b"\x0a", b"\xdf\xff\xff\xff\xff"][random.next() as usize % 5];
        let bytes: Vec<u8> = magic.iter().copied().chain((0..length).map(|_| random.next() as u8)).collect();
        let _ = value(&bytes);
    }
}
