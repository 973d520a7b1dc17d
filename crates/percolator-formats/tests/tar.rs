//! Tars as WebDataset, GNU tar and Python wrote them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;
mod mutations;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use common::{case, cases, check, damaged, files_of, golden, name, rows_of};
use mutations::{made, options, records, survives};
use percolator_files::Access;
use percolator_formats::{FormatError, Key, Options, Seeks, Shard, tar};
use serde_json::{Value as Json, json};

/// Opens all files of a case.
fn open_all(case: &Json, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let mut shards = Vec::new();
    for file in files_of(case) {
        shards.extend(tar::open(&file, options)?);
    }
    Ok(shards)
}

fn with(options: &Options, settings: &[(&str, &str)]) -> Options {
    mutations::options(options.access, settings)
}

/// Cases that are refused, with what is said.
const REFUSED: [(&str, &[&str]); 6] = [
    ("wds_sparse_gnu", &["sparse.bin", "is sparse (GNU, type S)"]),
    ("wds_sparse_pax1", &["sparse.bin", "is sparse (PAX, GNU.sparse."]),
    ("wds_sparse_pax01", &["sparse.bin", "is sparse (PAX, GNU.sparse."]),
    ("wds_sparse_pax00", &["is sparse (PAX, GNU.sparse."]),
    ("wds_duplicate", &["000000.txt", "second one of its record", "\"txt\""]),
    ("wds_cat_two", &["data follow the end mark at byte 10240", "tar -xif"]),
];

/// Cases whose keys come back.
const RUNS: [(&str, &[&str]); 2] = [
    ("wds_keys", &["the key dir.x/a comes back", "byte 0"]),
    ("wds_by_ext", &["record 4", "the key 000000 comes back", "byte 0", "group=shard"]),
];

#[test]
fn tars_of_every_writer_are_read() {
    let mut read = 0;
    for case in cases("webdataset") {
        if REFUSED.iter().any(|(refused, _)| *refused == name(case)) {
            continue;
        }
        for file in files_of(case) {
            let mut head = fs::read(&file).unwrap();
            head.truncate(512);
            assert!(tar::is(&file, &head), "{}", name(case));
        }
        check(case, &|options| open_all(case, options));
        read += 1;
    }
    assert_eq!(read, 25);
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    for (refused, words) in REFUSED {
        let case = case(refused);
        for access in [Access::Mapped, Access::Read] {
            let error = records(&files_of(case)[0], &options(access, &[]), &tar::open).unwrap_err();
            for word in words {
                assert!(error.contains(word), "{refused}: no {word:?} in {error}");
            }
        }
    }
}

/// Each run is a record, as in WebDataset, unless it is asked for more.
#[test]
fn a_key_that_comes_back_is_an_error_if_that_is_asked_for() {
    for (name, words) in RUNS {
        let once = options(Access::Mapped, &[("group", "once")]);
        let error = records(&files_of(case(name))[0], &once, &tar::open).unwrap_err();
        for word in words {
            assert!(error.contains(word), "{name}: no {word:?} in {error}");
        }
    }
    // All cases whose keys do not come back read the same.
    let other = case("wds_reordered");
    check(other, &|options| open_all(other, &with(options, &[("group", "once")])));
}

#[test]
fn members_of_a_key_are_one_record_if_that_is_asked_for() {
    let mut case = case("wds_by_ext").clone();
    case["rows"] = case["grouped"].take();
    let case: &'static Json = Box::leak(Box::new(case));
    check(case, &|options| open_all(case, &with(options, &[("group", "shard")])));
    for same in ["wds_gnutar_ustar", "wds_reordered", "wds_shards", "wds_empty"] {
        let case = common::case(same);
        check(case, &|options| open_all(case, &with(options, &[("group", "shard")])));
    }
}

#[test]
fn of_grouped_records_only_the_parts_that_are_used_are_read() {
    let mut options = options(Access::Mapped, &[("group", "shard")]);
    options.parts = Some(vec!["cls".to_owned()]);
    let read = records(&files_of(case("wds_by_ext"))[0], &options, &tar::open).unwrap();
    assert_eq!(read, [json!({"cls": "9"}), json!({"cls": "5"}), json!({"cls": "7"}), json!({"cls": "6"})]);
    // As a feed names one of several parts, and a path into one.
    options.parts = Some(vec!["no;cls".to_owned()]);
    assert_eq!(records(&files_of(case("wds_by_ext"))[0], &options, &tar::open).unwrap(), read);
    options.parts = Some(vec!["cls.0".to_owned()]);
    assert_eq!(records(&files_of(case("wds_by_ext"))[0], &options, &tar::open).unwrap(), read);
}

#[test]
fn damage_is_said() {
    for variant in damaged("webdataset") {
        let words: &[&str] = match variant.name {
            "wds_cut_in_data" => &["record 1", "000001.jpg states 552 bytes, and 100 are there"],
            "wds_cut_in_header" => &["byte 5120", "ends inside a header"],
            "wds_cut_between" => &["byte 5120", "no end mark", "two blocks of zeros", "incomplete"],
            "wds_bad_checksum" => &["byte 5120", "checksum does not match"],
            "wds_size_too_big" => &["000001.cls states 8589934591 bytes, and 5632 are there"],
            "wds_size_not_octal" => &["the size of the member 000001.cls is no number", "zzzz"],
            "wds_one_zero_block" => &["a lone block of zeros stands at byte 5120 before more data"],
            "wds_pax_bad_length" => &["byte 512", "PAX record is malformed"],
            "wds_gz_cut" | "wds_zst_cut" => &["stream ends early"],
            "wds_gz_crc" => &["checksum"],
            other => panic!("{other} is not expected"),
        };
        let file = &variant.files()[0];
        variant.fails(&|options| tar::open(file, options), words);
        let options = mutations::options(Access::Read, &[]);
        let error = records(file, &options, &tar::open).unwrap_err();
        assert!(words.iter().all(|word| error.contains(word)), "{}, read: {error}", variant.name);
    }
}

#[test]
fn any_bytes_are_read_or_refused() {
    for name in [
        "wds_gnutar_gnu",
        "wds_gnutar_long_gnu",
        "wds_gnutar_long_pax",
        "wds_gnutar_utf8_pax",
        "wds_dirs_links",
        "wds_keys",
        "wds_pax_size",
        "wds_sparse_pax1",
        "wds_gnutar_v7",
        "wds_tar_zst_frames",
        "wds_tar_gz_members",
    ] {
        survives(&files_of(case(name))[0], &[], &tar::open);
    }
    survives(&golden("webdataset/gnutar_by_ext.tar"), &[("group", "shard")], &tar::open);
    survives(&golden("webdataset/pytar_keys.tar"), &[("group", "run")], &tar::open);
}

/// A header as GNU tar writes it, with a right checksum.
fn header(name: &[u8], size: &[u8], kind: u8, magic: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name);
    block[124..124 + size.len()].copy_from_slice(size);
    block[148..156].fill(b' ');
    block[156] = kind;
    block[257..257 + magic.len()].copy_from_slice(magic);
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}

fn member(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
    let size = format!("{:011o}\0", data.len());
    let mut bytes = header(name.as_bytes(), size.as_bytes(), kind, b"ustar\x0000");
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn tar_of(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 1024]].concat()
}

fn read(bytes: &[u8]) -> Result<Vec<Json>, String> {
    let made = made("made.tar", bytes);
    let read = records(&made.path, &options(Access::Mapped, &[]), &tar::open);
    assert_eq!(records(&made.path, &options(Access::Read, &[]), &tar::open).is_ok(), read.is_ok());
    let packed = zstd::encode_all(bytes, 1).unwrap();
    let packed = mutations::made("made.tar.zst", packed);
    let streamed = records(&packed.path, &options(Access::Read, &[]), &tar::open);
    match (&streamed, &read) {
        (Ok(streamed), Ok(read)) => assert_eq!(streamed, read),
        (streamed, read) => assert!(streamed.is_err() && read.is_err(), "{streamed:?}, {read:?}"),
    }
    read
}

#[test]
fn a_size_in_base_256_is_read() {
    let size = [&[0x80][..], &[0; 10], &[3]].concat();
    let mut bytes = header(b"a.txt", &size, b'0', b"ustar  \0");
    bytes.extend(b"abc");
    bytes.resize(1024, 0);
    bytes.extend([0; 1024]);
    assert_eq!(read(&bytes).unwrap(), [json!({"txt": "abc"})]);
    let huge = [&[0x80, 0, 0, 0][..], &[0xff; 8]].concat();
    let bytes = [header(b"a.txt", &huge, b'0', b"ustar  \0"), vec![0; 1024]].concat();
    assert!(
        read(&bytes).unwrap_err().contains("a.txt states 18446744073709551615 bytes, and 1024 are there")
    );
}

#[test]
fn what_a_gnu_header_has_at_the_prefix_is_no_prefix() {
    let mut block = header(b"a.txt", b"0", b'0', b"ustar  \0");
    block[345..357].copy_from_slice(b"14567012345\0");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum::<u32>()
        - block[148..156].iter().map(|byte| u32::from(*byte)).sum::<u32>()
        + 8 * 32;
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let made = made("a.tar", tar_of(&[block]));
    let shard = tar::open(&made.path, &options(Access::Read, &[])).unwrap().remove(0);
    let mut cursor = shard.cursor().unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().key, Key::Bytes(b"a"));
}

#[test]
fn members_between_are_passed_over_and_do_not_end_a_record() {
    let members = [
        member("a.txt", b'0', b"1"),
        member("folder/", b'5', b""),
        member("noname", b'0', &[7; 3000]),
        member("a.copy", b'1', b""),
        member("unknown.kind", b'Z', b"data of an unknown kind"),
        member("a.cls", 0, b"2"),
        member("__meta__/x.txt", b'0', b"3"),
        member("b.TXT", b'7', b"4"),
        member(".hidden", b'0', b"5"),
    ];
    assert_eq!(read(&tar_of(&members)).unwrap(), [json!({"txt": "1", "cls": "2"}), json!({"txt": "4"})]);
}

/// Keeps what is said in warnings.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Said {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            if field.name() == "message" {
                self.0.lock().unwrap().push(format!("{value:?}"));
            }
        });
    }

    fn enter(&self, _span: &tracing::span::Id) {}

    fn exit(&self, _span: &tracing::span::Id) {}
}

#[test]
fn what_is_passed_over_is_said_once() {
    let said = Said::default();
    tracing::subscriber::with_default(said.clone(), || {
        for settings in [&[][..], &[("group", "shard")]] {
            let file = golden("webdataset/gnutar_dirs_links.tar");
            let shard = tar::open(&file, &options(Access::Mapped, settings)).unwrap().remove(0);
            for _ in 0..2 {
                let mut cursor = shard.clone().cursor().unwrap();
                while cursor.skip().unwrap().is_some() {}
            }
        }
        let plain = golden("webdataset/gnutar_only_dir.tar");
        assert!(records(&plain, &options(Access::Mapped, &[]), &tar::open).unwrap().is_empty());
    });
    let said = said.0.lock().unwrap();
    assert_eq!(said.len(), 2, "{said:?}");
    for said in said.iter() {
        assert!(
            said.contains("hard links, whose data lie at other names: 1, the first of them sub/000001.copy")
        );
        assert!(said.contains("symbolic links: 1, the first of them sub/000000.alias.txt"), "{said}");
    }
}

#[test]
fn fields_are_equal_in_any_case() {
    let error = read(&tar_of(&[member("a.jpg", b'0', b""), member("a.JPG", b'0', b"")])).unwrap_err();
    assert!(error.contains("a.JPG") && error.contains("second") && error.contains("byte 0"), "{error}");
    assert_eq!(read(&tar_of(&[member("a.ÄÖ", b'0', b"x")])).unwrap(), [json!({"äö": "x"})]);
}

#[test]
fn the_end_of_a_tar_is_two_blocks_of_zeros() {
    let members = member("a.txt", b'0', b"1");
    let end = |zeros: usize| read(&[&members[..], &vec![0; zeros]].concat());
    assert!(end(1024).is_ok() && end(10_240).is_ok() && end(100_001).is_ok());
    assert!(end(0).unwrap_err().contains("no end mark"));
    assert!(end(100).unwrap_err().contains("ends inside a header"));
    for zeros in [512, 700, 1023] {
        assert!(end(zeros).unwrap_err().contains("end mark is cut"), "{zeros}");
    }
    assert!(read(b"").unwrap_err().contains("no end mark"));
    let behind = [tar_of(std::slice::from_ref(&members)), vec![0; 200_000], vec![1]].concat();
    let error = read(&behind).unwrap_err();
    assert!(error.contains("data follow the end mark at byte 1024"), "{error}");
}

#[test]
fn headers_that_apply_to_nothing_or_twice_are_errors() {
    let long = member("././@LongLink", b'L', b"name.txt\0");
    let pax = member("pax", b'x', b"12 path=b.c\n");
    let plain = member("a.txt", b'0', b"1");
    assert_eq!(read(&tar_of(&[long.clone(), plain.clone()])).unwrap(), [json!({"txt": "1"})]);
    // A PAX path counts more than a long name.
    assert_eq!(read(&tar_of(&[pax.clone(), long.clone(), plain.clone()])).unwrap(), [json!({"c": "1"})]);
    for (members, words) in [
        (vec![long.clone(), long.clone(), plain.clone()], "two extended headers of type L"),
        (vec![pax.clone(), pax.clone(), plain.clone()], "two extended headers of type x"),
        (vec![plain.clone(), pax.clone()], "no member follows"),
        (vec![member("g", b'g', b"12 path=b.c\n"), plain.clone()], "a global header sets path"),
        (
            vec![pax.clone(), member("g", b'g', b"6 a=b\n"), plain.clone()],
            "between the headers of one member",
        ),
        (vec![member("x", b'x', b"11 size=1x\n"), plain.clone()], "PAX size is no number"),
        (vec![member("a.bin", b'M', b"")], "another volume"),
    ] {
        let error = read(&tar_of(&members)).unwrap_err();
        assert!(error.contains(words), "no {words:?} in {error}");
    }
    let global = member("g", b'g', b"13 comment=x\n");
    assert_eq!(read(&tar_of(&[global.clone(), plain.clone(), global])).unwrap(), [json!({"txt": "1"})]);
    let long = header(b"x", b"77777777777\0", b'L', b"ustar  \0");
    assert!(read(&tar_of(&[long])).unwrap_err().contains("at most 16777216 are read"));
}

#[test]
fn a_folder_of_tars_is_opened_in_the_order_of_names() {
    let folder = tempfile::tempdir().unwrap();
    for (name, data) in [("b.tar", "2"), ("a.tar", "1"), ("c.tar.zst", "3")] {
        let bytes = tar_of(&[member("a.txt", b'0', data.as_bytes())]);
        let bytes = if name.ends_with("zst") { zstd::encode_all(&*bytes, 1).unwrap() } else { bytes };
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    assert!(!tar::is(Path::new("README.md"), b"# text"));
    fs::write(folder.path().join("README.md"), "text").unwrap();
    assert!(tar::is(folder.path(), b""));
    let read = records(folder.path(), &options(Access::Mapped, &[]), &tar::open).unwrap();
    assert_eq!(read, [json!({"txt": "1"}), json!({"txt": "2"}), json!({"txt": "3"})]);
}

#[test]
fn settings_are_checked() {
    let file = golden("webdataset/gnutar_ustar.tar");
    for (settings, words) in [
        (&[("groups", "run")][..], "\"groups\""),
        (&[("group", "all")], "run, once or shard"),
        (&[("group", "run"), ("group", "shard")], "given twice"),
    ] {
        let error = tar::open(&file, &options(Access::Read, settings)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let packed = golden("webdataset/gnutar_ustar.tar.zst");
    let error = tar::open(&packed, &options(Access::Read, &[("group", "shard")])).unwrap_err().to_string();
    assert!(error.contains("compressed as a whole"), "{error}");
}

#[test]
fn a_tar_that_has_changed_is_noticed_at_its_places() {
    let made = made("a.tar", tar_of(&[member("a.txt", b'0', b"1"), member("b.txt", b'0', b"2")]));
    let shard = tar::open(&made.path, &options(Access::Mapped, &[])).unwrap().remove(0);
    assert_eq!(shard.seeks(), Seeks::ByPlace);
    let mut cursor = shard.cursor().unwrap();
    cursor.seek([1024, 513], 1).unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().key, Key::Bytes(b"b"));
    assert!(cursor.advance().unwrap().is_none());
    for place in [[1024, 514], [1024, 512], [512, 513], [2048, 512], [100, 513], [1 << 40, 513]] {
        let result = cursor.seek(place, 1).and_then(|()| cursor.advance().map(|_| ()));
        let error = result.unwrap_err().to_string();
        assert!(error.contains("record 1") || place[0] == 512, "{place:?}: {error}");
    }
}

#[test]
fn the_index_of_dali_is_compared_with_its_tar() {
    for case in cases("dali-wds-index") {
        let files = files_of(case);
        let samples = tar::dali_index(&files[1], &files[0], &options(Access::Mapped, &[])).unwrap();
        assert_eq!(samples.len(), rows_of(case).len());
        let shard = tar::open(&files[0], &options(Access::Read, &[])).unwrap().remove(0);
        let mut cursor = shard.cursor().unwrap();
        for (position, (sample, row)) in samples.iter().zip(rows_of(case)).enumerate() {
            assert_eq!(row["key"].as_str().unwrap().as_bytes(), sample.key);
            assert_eq!(row["fields"].as_object().unwrap().len(), sample.members.len());
            for member in &sample.members {
                let name = std::str::from_utf8(&member.name).unwrap();
                let due = json!({"offset": member.offset, "size": member.bytes, "member": name});
                assert_eq!(row["fields"][&member.field], due);
            }
            cursor.seek(sample.place, position as u64).unwrap();
            assert_eq!(cursor.advance().unwrap().unwrap().key, Key::Bytes(&sample.key));
        }
    }
}

#[test]
fn an_index_that_does_not_fit_is_an_error() {
    let tar = golden("webdataset/gnutar_ustar.tar");
    let text = fs::read_to_string(golden("webdataset/gnutar_ustar.idx")).unwrap();
    let read = |text: &str| {
        let made = made("a.idx", text);
        tar::dali_index(&made.path, &tar, &Options::default()).map_err(|error| error.to_string())
    };
    for (from, to, words) in [
        ("v1.2 3", "v1.3 3", "not with \"v1.2\""),
        ("v1.2 3", "v1.2 4", "states 4 samples"),
        (
            "jpg 512 ",
            "jpg 513 ",
            "line 2: the offset of the member \"000000.jpg\" is 512 in the tar, not \"513\"",
        ),
        (" 552 ", " 55 ", "line 3: the size of the member \"000001.jpg\" is 552"),
        ("cls 8704", "cl 8704", "line 4"),
        ("000001.txt", "000002.txt", "line 3"),
        (" txt 9728 51 000002.txt", "", "is missing"),
        ("000000.txt\n", "000000.txt x 1 2 y\n", "follows the members"),
        ("000002.txt\n", "000002.txt\nmore\n", "lines follow"),
        ("v1.2", "v1.1", "line 2"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        let error = read(&changed).unwrap_err();
        assert!(error.contains(words), "no {words:?} in {error}");
    }
    let lines: Vec<&str> = text.lines().collect();
    assert!(read(&lines[..3].join("\n")).unwrap_err().contains("it is cut"));
    let without_names: String = text
        .lines()
        .map(|line| {
            line.split(' ').filter(|word| !word.starts_with("0000")).collect::<Vec<_>>().join(" ") + "\n"
        })
        .collect();
    assert_eq!(read(&without_names.replace("v1.2", "v1.1")).unwrap(), read(&text).unwrap());
}
