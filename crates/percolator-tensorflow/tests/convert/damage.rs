//! Files that lie: each is an error that says where, what was found and what is allowed. (`files` damages
//! every part of them.)

use std::fs;
use std::path::Path;

use percolator_tensorflow::convert::{ConvertError, CopyOptions, Format, Model, Progress, copy_checkpoint};
use percolator_tensorflow::{DataType, Tensor};
use tempfile::tempdir;

use crate::forge::Bundle;
use crate::tensors::{self, Named};

/// All tensors, or the first error.
fn read(path: &Path, format: Format) -> Result<Vec<Named>, ConvertError> {
    let model = Model::open_as(path, format)?;
    let tensor = |place: usize| Ok((model.tensors()[place].name.clone(), model.read(place)?.into_owned()));
    (0..model.tensors().len()).map(tensor).collect()
}

/// Files with a few small tensors in them: their format, and their bytes.
fn files() -> Vec<(Format, Vec<u8>, Vec<Named>)> {
    let folder = tempdir().unwrap();
    let written = vec![
        ("a/W".to_owned(), Tensor::new(DataType::Float32, [2], vec![1; 8]).unwrap()),
        ("b".to_owned(), Tensor::new(DataType::Int64, [], vec![2; 8]).unwrap()),
    ];
    let model = tensors::checkpoint(folder.path(), &written);
    let mut files = Vec::new();
    for format in [Format::Safetensors, Format::Npz] {
        let path = tensors::convert(&model, folder.path(), format).unwrap();
        let mut expected = read(&path, format).unwrap();
        expected.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(expected, written);
        files.push((
            format,
            fs::read(path).unwrap(),
            read(&tensors::target(folder.path(), format), format).unwrap(),
        ));
    }
    let one = tensors::checkpoint(folder.path(), &written[..1]);
    let path = tensors::convert(&one, folder.path(), Format::Npy).unwrap();
    files.push((Format::Npy, fs::read(&path).unwrap(), read(&path, Format::Npy).unwrap()));
    files
}

/// A safetensors file with this header, and this many bytes of data.
fn safetensors(path: &Path, header: &str, data: usize) -> String {
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; data]].concat();
    fs::write(path, bytes).unwrap();
    read(path, Format::Safetensors).unwrap_err().to_string()
}

#[test]
fn headers_of_safetensors_that_lie_are_errors() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let entry = |name: &str, dtype: &str, shape: &str, from: u64, to: u64| {
        format!("\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":[{shape}],\"data_offsets\":[{from},{to}]}}")
    };
    let [a, b] = [entry("a", "U8", "4", 0, 4), entry("b", "U8", "4", 4, 8)];
    for (entries, data, found) in [
        (vec![a.clone(), entry("b", "U8", "4", 2, 6)], 6, "invalid offset for tensor `b`"),
        (vec![a.clone(), entry("b", "U8", "4", 5, 9)], 9, "invalid offset for tensor `b`"),
        (vec![a.clone(), entry("a", "U8", "4", 4, 8)], 8, "invalid offset for tensor `a`"),
        (vec![a.clone(), b.clone()], 7, "7 bytes of tensors; the tensors have 8"),
        (vec![a.clone(), b.clone()], 9, "9 bytes of tensors"),
        (vec![a.clone(), entry("b", "U8", "3", 4, 8)], 8, "invalid shape, data type, or offset"),
        (vec![entry("b", "U8", "4", 4, 0)], 4, "invalid offset for tensor `b`"),
        (vec![entry("b", "F64", "4294967296,4294967296", 0, 8)], 8, "overflow computing buffer size"),
        (vec![entry("b", "U8", "18446744073709551615", 0, u64::MAX)], 8, "overflow computing buffer size"),
        (vec![entry("b", "F4", "2", 0, 1)], 1, "of type F4; TensorFlow has no such type"),
        (vec![entry("b", "F8_E8M0", "1", 0, 1)], 1, "of type F8_E8M0"),
        (vec![entry("b", "X", "1", 0, 1)], 1, "a header is JSON"),
        (vec!["\"b\":1".to_owned()], 0, "a header is JSON"),
        (vec![entry("b", "U8", &vec!["1"; 255].join(","), 0, 1)], 1, "it has 255 axes; TensorFlow's"),
    ] {
        let error = safetensors(&path, &format!("{{{}}}", entries.join(",")), data);
        assert!(error.contains(found), "{found}: {error}");
    }
    for (texts, found) in [
        (r#""__metadata__":{"a":"b"},"__metadata__":{"a":"b"}"#, "duplicate field `__metadata__`"),
        (r#""__metadata__":{"a":1}"#, "a header is JSON"),
        (r#""__metadata__":"a""#, "a header is JSON"),
    ] {
        let error = safetensors(&path, &format!("{{{texts},{a}}}"), 4);
        assert!(error.contains(found), "{texts}: {error}");
    }
    assert!(safetensors(&path, "[1]", 0).contains("a header is JSON"));
    assert!(safetensors(&path, &"[".repeat(10_000), 0).contains("a header is JSON"));
    fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
    let error = read(&path, Format::Safetensors).unwrap_err().to_string();
    assert!(error.contains("a header of 18446744073709551615 bytes"), "{error}");
}

/// Where these bytes are.
fn find(bytes: &[u8], wanted: &[u8]) -> usize {
    bytes.windows(wanted.len()).position(|window| window == wanted).unwrap()
}

#[test]
fn archives_that_lie_are_errors() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.npz");
    let (_, archive, tensors) = files().into_iter().find(|(format, ..)| *format == Format::Npz).unwrap();
    let central = find(&archive, b"PK\x01\x02");
    let second = central + 4 + find(&archive[central + 4..], b"PK\x01\x02");
    let end = find(&archive, b"PK\x05\x06");
    let changed = |at: usize, to: &[u8]| {
        let mut bytes = archive.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        fs::write(&path, bytes).unwrap();
        read(&path, Format::Npz)
    };
    for (at, to) in [
        // Two members at one place.
        (second + 42, &[0; 4][..]),
        (central + 42, &[0xf0, 0xff, 0xff, 0x7f]),
        (central + 20, &[0xf0, 0xff, 0xff, 0x7f]),
        (central + 24, &[0xf0, 0xff, 0xff, 0x7f]),
        // Encrypted, and compressed in another way.
        (central + 8, &[1]),
        (central + 10, &[12]),
        (central + 46, b"\xff"),
        // Too many members, and too few.
        (end + 8, &[3, 0, 3, 0]),
        (end + 8, &[1, 0, 1, 0]),
        (end + 8, &[0, 0, 0, 0]),
        (end + 10, &[3, 0]),
    ] {
        let error = changed(at, to).unwrap_err().to_string();
        assert!(error.contains("x.npz"), "{error}");
    }
    // Where the directory is may be said wrongly, if it is found.
    for (at, to) in [(end + 12, &[0xff, 0xff, 0xff, 0x7f][..]), (end + 16, &[0])] {
        assert!(changed(at, to).is_ok_and(|found| found == tensors) || changed(at, to).is_err());
    }
    // The same member twice.
    let mut twice = archive[..second].to_vec();
    twice.extend(&archive[central..second]);
    let bytes = u32::try_from(2 * (second - central)).unwrap();
    let mut last = archive[end..].to_vec();
    last[12..16].copy_from_slice(&bytes.to_le_bytes());
    twice.extend(last);
    fs::write(&path, twice).unwrap();
    assert!(read(&path, Format::Npz).is_err());
}

#[test]
fn a_member_that_claims_to_inflate_to_anything_is_refused() {
    use std::io::Write as _;

    let folder = tempdir().unwrap();
    let path = folder.path().join("x.npz");
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (100000,)}";
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    let array = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &[0; 100_000]].concat();
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&array).unwrap();
    let deflated = encoder.finish().unwrap();
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &array);
    let crc = u32::try_from(crc).unwrap();
    let archive = |length: u32, deflated: &[u8], crc: u32| {
        let stored = u32::try_from(deflated.len()).unwrap().to_le_bytes();
        let said =
            [&[8, 0, 0, 0, 0, 0][..], &crc.to_le_bytes(), &stored, &length.to_le_bytes(), &[5, 0, 0, 0]];
        let said = said.concat();
        let local = [b"PK\x03\x04\x14\0\0\0", &said[..], b"x.npy"].concat();
        let central = [b"PK\x01\x02\x14\x03\x14\0\0\0", &said[..], &[0; 14], b"x.npy"].concat();
        let offset = u32::try_from(local.len() + deflated.len()).unwrap().to_le_bytes();
        let bytes = u32::try_from(central.len()).unwrap().to_le_bytes();
        let end = [b"PK\x05\x06\0\0\0\0\x01\0\x01\0", &bytes[..], &offset, &[0, 0]].concat();
        fs::write(&path, [&local, deflated, &central, &end].concat()).unwrap();
        read(&path, Format::Npz)
    };
    let length = u32::try_from(array.len()).unwrap();
    assert_eq!(archive(length, &deflated, crc).unwrap()[0].1.shape(), [100_000]);
    let refused = |found: Result<Vec<Named>, ConvertError>, wanted: &str| {
        let error = found.unwrap_err().to_string();
        assert!(error.contains("x.npz, tensor \"x\"") || error.contains("tensor \"x.npy\""), "{error}");
        assert!(error.contains(wanted), "{wanted}: {error}");
    };
    refused(archive(u32::MAX - 1, &deflated, crc), "hold at most");
    refused(archive(length - 1, &deflated, crc), "type and shape need 100000");
    refused(archive(length, &deflated, crc ^ 1), "checksum");
    refused(archive(length, &deflated[..deflated.len() - 1], crc), "cut or changed");
    let mut damaged = deflated.clone();
    damaged[deflated.len() / 2] ^= 0xff;
    assert!(archive(length, &damaged, crc).is_err());
}

/// Of tensors whose bytes no number counts, one is not there, which is the error.
#[test]
fn sizes_that_an_index_only_states_are_not_added_up_without_end() {
    let folder = tempdir().unwrap();
    let mut bundle = Bundle::new();
    for name in ["a", "b", "c", "d"] {
        bundle.add(name, DataType::Uint8, &[1 << 62], b"");
        bundle.entry(name).size = 1 << 62;
    }
    let model = Model::open(bundle.write(folder.path())).unwrap();
    let error = tensors::convert(&model, folder.path(), Format::Npz).unwrap_err();
    assert!(matches!(error, ConvertError::Checkpoint(_)), "{error}");
    let copied = copy_checkpoint(
        model.checkpoint().unwrap(),
        folder.path().join("copy"),
        &CopyOptions::default(),
        &Progress::new(),
    );
    assert!(matches!(copied, Err(ConvertError::Checkpoint(_))), "{copied:?}");
}
