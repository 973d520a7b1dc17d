//! Checkpoints made by hand: of other machines, other layouts, and of somebody who means ill.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use percolator_files::Access;
use percolator_files::checksum::{crc32c, mask};
use percolator_tensorflow::proto::tensor_slice_proto::Extent;
use percolator_tensorflow::proto::tensor_slice_proto::extent::HasLengthHack;
use percolator_tensorflow::proto::{BundleEntryProto, TensorSliceProto};
use percolator_tensorflow::{Checkpoint, CheckpointError, DataType, Elements};
use proptest::prelude::*;

use crate::forge::{Bundle, Layout, PLAIN, shape, varint};
use crate::golden::{data, digest, manifest};

pub(crate) fn open(bundle: &Bundle) -> (tempfile::TempDir, Checkpoint) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::open(bundle.write(folder.path())).unwrap();
    (folder, checkpoint)
}

pub(crate) fn refused(bundle: &Bundle) -> CheckpointError {
    let folder = tempfile::tempdir().unwrap();
    Checkpoint::open(bundle.write(folder.path())).unwrap_err()
}

/// The stored bytes of strings or variants, and their crc32c: step by step as TensorFlow's comments say it.
pub(crate) fn stored_strings(strings: &[&[u8]], is_variant: bool, is_big_endian: bool) -> (Vec<u8>, u32) {
    let number = |value: u32| if is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let (mut bytes, mut covered) = (Vec::new(), Vec::new());
    if is_variant {
        for string in strings {
            let length = string.len() as u64;
            varint(&mut bytes, length);
            covered.extend(if is_big_endian { length.to_be_bytes() } else { length.to_le_bytes() });
            bytes.extend(*string);
            covered.extend(*string);
            let checksum = number(mask(crc32c(&covered)));
            bytes.extend(checksum);
            covered.extend(checksum);
        }
        return (bytes, crc32c(&covered));
    }
    for string in strings {
        varint(&mut bytes, string.len() as u64);
        covered.extend(number(string.len() as u32));
    }
    let checksum = number(mask(crc32c(&covered)));
    bytes.extend(checksum);
    covered.extend(checksum);
    bytes.extend(strings.concat());
    covered.extend(strings.concat());
    (bytes, crc32c(&covered))
}

/// The checkpoint of a little-endian machine as a big-endian one would have written it.
fn as_big_endian(prefix: &str) -> Bundle {
    let checkpoint = Checkpoint::open(data(prefix)).unwrap();
    let mut bundle = Bundle::new();
    bundle.header.endianness = 1;
    for info in checkpoint.tensors() {
        let extents: Vec<_> = info.shape.iter().map(|&extent| extent as i64).collect();
        let tensor = checkpoint.tensor(info.name).unwrap();
        match tensor.elements() {
            Elements::Bytes(bytes) => {
                let mut bytes = bytes.to_vec();
                bytes.chunks_mut(info.data_type.number_size().unwrap()).for_each(<[u8]>::reverse);
                bundle.add(info.name, info.data_type, &extents, &bytes);
            }
            Elements::Strings(strings) => {
                let strings: Vec<&[u8]> = strings.iter().map(|string| &string[..]).collect();
                let (bytes, sum) = stored_strings(&strings, false, true);
                bundle.add_summed(info.name, info.data_type, &extents, &bytes, sum);
            }
        }
    }
    bundle
}

#[test]
fn big_endian_files_are_converted() {
    for golden in manifest() {
        let prefix = golden["prefix"].as_str().unwrap();
        let little = Checkpoint::open(data(prefix)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let prefix = as_big_endian(prefix).write(folder.path());
        for access in [Access::Mapped, Access::Read] {
            let big = Checkpoint::open_with(&prefix, access).unwrap();
            assert!(big.is_big_endian() && !little.is_big_endian());
            assert!(big.tensors().map(|info| info.name).eq(little.tensors().map(|info| info.name)));
            let loaded = big.load_all(2).unwrap();
            for (info, loaded) in little.tensors().zip(loaded) {
                let due = little.tensor(info.name).unwrap();
                assert_eq!(big.tensor(info.name).unwrap(), due, "{}", info.name);
                assert_eq!(loaded, due, "{}", info.name);
            }
            assert_eq!(big.verify(1).faults, []);
        }
    }
}

#[test]
fn variants_are_kept_as_they_are_serialized() {
    for is_big_endian in [false, true] {
        let mut bundle = Bundle::new();
        bundle.header.endianness = i32::from(is_big_endian);
        let variants: [&[u8]; 3] = [b"one", b"", &[7; 300]];
        let (bytes, sum) = stored_strings(&variants, true, is_big_endian);
        bundle.add_summed("list", DataType::Variant, &[3], &bytes, sum);
        bundle.add("none", DataType::Variant, &[0], &[]);
        let (folder, checkpoint) = open(&bundle);
        assert_eq!(checkpoint.verify(1).faults, []);
        if is_big_endian {
            let error = checkpoint.tensor("list").unwrap_err().to_string();
            assert!(error.contains("big-endian") && error.contains("\"list\""), "{error}");
            continue;
        }
        let list = checkpoint.tensor("list").unwrap();
        assert_eq!(list.data_type(), DataType::Variant);
        let Elements::Strings(found) = list.elements() else { panic!("{list:?}") };
        assert!(found.iter().map(|one| &one[..]).eq(variants));
        assert_eq!(checkpoint.tensor("none").unwrap().shape(), [0]);
        for at in 0..bundle.data.len() {
            let mut damaged = bundle.clone();
            damaged.data[at] ^= 1;
            damaged.write(folder.path());
            let checkpoint = Checkpoint::open(folder.path().join("model")).unwrap();
            let error = checkpoint.tensor("list").unwrap_err();
            assert!(
                matches!(error, CheckpointError::Strings { .. } | CheckpointError::Checksum { .. }),
                "{error}"
            );
        }
    }
}

#[test]
fn an_index_is_read_however_its_table_is_laid_out() {
    let due = Checkpoint::open(data("many/model")).unwrap();
    let mut bundle = Bundle::new();
    for info in due.tensors() {
        let bytes = due.tensor(info.name).unwrap();
        bundle.add(info.name, info.data_type, &[2], bytes.bytes().unwrap());
    }
    for (entries_per_block, interval) in [(1, 1), (7, 3), (500, 16), (10_000, 10_000)] {
        for is_snappy in [false, true] {
            bundle.layout = Layout { entries_per_block, interval, is_snappy };
            let (_folder, found) = open(&bundle);
            assert_eq!(found.len(), due.len());
            for info in due.tensors() {
                assert_eq!(found.tensor(info.name).unwrap(), due.tensor(info.name).unwrap());
            }
        }
    }
}

pub(crate) fn extent(range: &Range<usize>) -> Extent {
    let length = Some(HasLengthHack::Length(range.len() as i64));
    Extent { start: range.start as i64, has_length_hack: length }
}

/// The key of a slice of a variable with a short name, by the shortest way to write it.
pub(crate) fn slice_key(name: &str, region: &[Range<usize>]) -> Vec<u8> {
    let mut key = [&[0], name.as_bytes(), &[0, 1, 1, region.len() as u8]].concat();
    // Numbers below 64 have one byte.
    let numbers = region.iter().flat_map(|range| [range.start, range.len()]);
    key.extend(numbers.map(|number| 0x80 | u8::try_from(number).unwrap()));
    key
}

/// A variable of this shape, its elements numbered, in slices of these regions.
fn sliced(shape_of: &[usize], regions: &[Vec<Range<usize>>]) -> Bundle {
    let mut bundle = Bundle::new();
    let extents: Vec<_> = shape_of.iter().map(|&extent| extent as i64).collect();
    for region in regions {
        let mut numbers = vec![0_u16];
        for (range, extent) in region.iter().zip(shape_of) {
            numbers = numbers
                .iter()
                .flat_map(|number| range.clone().map(move |at| number * *extent as u16 + at as u16))
                .collect();
        }
        let bytes: Vec<_> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let lengths: Vec<_> = region.iter().map(|range| range.len() as i64).collect();
        bundle.add(slice_key("v", region), DataType::Uint16, &lengths, &bytes);
    }
    let slices =
        regions.iter().map(|region| TensorSliceProto { extent: region.iter().map(extent).collect() });
    let entry = BundleEntryProto {
        dtype: DataType::Uint16.to_proto(),
        shape: Some(shape(&extents)),
        slices: slices.collect(),
        ..BundleEntryProto::default()
    };
    bundle.entries.insert(b"v".to_vec(), entry);
    bundle
}

/// A shape, and the regions that come of cutting it again and again.
fn cuts() -> impl Strategy<Value = (Vec<usize>, Vec<Vec<Range<usize>>>)> {
    let cuts = prop::collection::vec(any::<[prop::sample::Index; 3]>(), 1..8);
    (prop::collection::vec(2..6_usize, 1..4), cuts).prop_map(|(shape, cuts)| {
        let mut regions: Vec<Vec<_>> = vec![shape.iter().map(|&extent| 0..extent).collect()];
        for [which, axis, at] in cuts {
            let (which, axis) = (which.index(regions.len()), axis.index(shape.len()));
            let Range { start, end } = regions[which][axis];
            if end - start > 1 {
                let at = start + 1 + at.index(end - start - 1);
                let mut other = regions[which].clone();
                (regions[which][axis], other[axis]) = (start..at, at..end);
                regions.push(other);
            }
        }
        (shape, regions)
    })
}

/// The numbers of the elements of a region, one by one.
fn numbers_of(shape: &[usize], region: &[Range<usize>]) -> Vec<u16> {
    region.iter().zip(shape).fold(vec![0], |numbers, (range, extent)| {
        let next =
            |number: &u16| range.clone().map(|at| number * *extent as u16 + at as u16).collect::<Vec<_>>();
        numbers.iter().flat_map(next).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn slices_come_out_whole_or_any_region_of_them(
        (shape, regions) in cuts(), is_mapped: bool,
        wanted in prop::collection::vec(any::<[prop::sample::Index; 2]>(), 3),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let prefix = sliced(&shape, &regions).write(folder.path());
        let access = if is_mapped { Access::Mapped } else { Access::Read };
        let checkpoint = Checkpoint::open_with(prefix, access).unwrap();
        prop_assert_eq!(checkpoint.len(), 1);
        let info = checkpoint.info("v").unwrap();
        prop_assert_eq!(info.slices.len(), regions.len());
        let whole: Vec<_> = shape.iter().map(|&extent| 0..extent).collect();
        let due = numbers_of(&shape, &whole);
        let tensor = checkpoint.tensor("v").unwrap();
        prop_assert_eq!(&*tensor.values::<u16>().unwrap(), &due);
        let loaded = checkpoint.load(&["v"], 2).unwrap();
        prop_assert_eq!(&*loaded[0].values::<u16>().unwrap(), &due);
        let region: Vec<_> = shape.iter().zip(wanted).map(|(&extent, [start, end])| {
            let (start, end) = (start.index(extent + 1), end.index(extent + 1));
            start.min(end)..start.max(end)
        }).collect();
        let found = checkpoint.region("v", &region).unwrap();
        prop_assert!(found.shape().iter().copied().eq(region.iter().map(Range::len)));
        prop_assert_eq!(&*found.values::<u16>().unwrap(), &numbers_of(&shape, &region));
        prop_assert_eq!(checkpoint.verify(2).faults, []);
    }

    /// Entries say anything, with checksums that are right: every answer is an error or a tensor, at once.
    #[test]
    fn forged_entries_end(
        which in any::<prop::sample::Index>(), field in 0..9_u8, value in prop_oneof![
            any::<i64>(), -3..400_i64, Just(i64::MAX), Just(i64::MIN), Just(1 << 40), Just(-1),
        ],
    ) {
        let mut bundle = sliced(&[4, 6], &[vec![0..1, 0..6], vec![1..4, 0..2], vec![1..4, 2..6]]);
        let (bytes, sum) = stored_strings(&[b"a", b"bc"], false, false);
        bundle.add_summed("s", DataType::String, &[2], &bytes, sum);
        let (bytes, sum) = stored_strings(&[b"a", b"bc"], true, false);
        bundle.add_summed("t", DataType::Variant, &[2], &bytes, sum);
        bundle.add("w", DataType::Float32, &[2, 3], &[1; 24]);
        let which = which.index(bundle.entries.len());
        let entry = bundle.entries.values_mut().nth(which).unwrap();
        match field {
            0 => entry.dtype = value as i32,
            1 => entry.shape.as_mut().unwrap().dim[0].size = value,
            2 => entry.shape.as_mut().unwrap().dim.extend(shape(&[value]).dim),
            3 => entry.shard_id = value as i32,
            4 => entry.offset = value,
            5 => entry.size = value,
            6 => {
                let extent = vec![Extent { start: value, ..Extent::default() }];
                entry.slices.push(TensorSliceProto { extent });
            }
            7 => if let Some(slice) = entry.slices.first_mut() { slice.extent[0].start = value },
            _ => bundle.header.num_shards = value as i32,
        }
        let folder = tempfile::tempdir().unwrap();
        let prefix = bundle.write(folder.path());
        if let Ok(checkpoint) = Checkpoint::open(prefix) {
            let names: Vec<_> = checkpoint.tensors().map(|info| info.name).collect();
            let good = names.iter().filter(|name| checkpoint.tensor(name).is_ok()).count();
            prop_assert_eq!(checkpoint.load_all(1).is_ok(), good == names.len());
            prop_assert_eq!(checkpoint.verify(1).faults.is_empty(), good == names.len());
        }
    }

    /// Bytes of a block changed, with its checksum made right again.
    #[test]
    fn forged_tables_end(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bundle = sliced(&[4, 6], &[vec![0..1, 0..6], vec![1..4, 0..6]]);
        bundle.add("w", DataType::Float32, &[2, 3], &[1; 24]);
        let mut index = bundle.index();
        // One block of entries comes first; its handle is the first in the index.
        let filters = index.len() - 48;
        let (first, second) = (usize::from(index[filters]), usize::from(index[filters + 1]));
        let end = if first < 0x80 { first } else { (first & 0x7f) + 128 * second };
        prop_assume!(end > 60 && end < filters);
        for (at, byte) in changes {
            index[at.index(end - 5)] = byte;
        }
        let sum = mask(crc32c(&index[..end - 4])).to_le_bytes();
        index[end - 4..end].copy_from_slice(&sum);
        let folder = tempfile::tempdir().unwrap();
        let prefix = bundle.write(folder.path());
        std::fs::write(folder.path().join("model.index"), index).unwrap();
        if let Ok(checkpoint) = Checkpoint::open(prefix) {
            let _ = checkpoint.load_all(1);
            let _ = checkpoint.verify(1);
        }
    }
}

/// What is wrong with the variable `v` of a checkpoint, of which another tensor can be read.
fn faulty(bundle: &Bundle) -> String {
    let mut bundle = bundle.clone();
    bundle.add("w", DataType::Int8, &[2], &[1, 2]);
    let (_folder, checkpoint) = open(&bundle);
    let error = checkpoint.tensor("v").unwrap_err();
    assert_eq!(checkpoint.tensor("w").unwrap().bytes(), Some(&[1, 2][..]));
    assert!(checkpoint.tensors().map(|info| (info.name, info.is_complete)).eq([("v", false), ("w", true)]));
    let whole: Vec<_> = checkpoint.info("v").unwrap().shape.iter().map(|&extent| 0..extent).collect();
    assert_eq!(checkpoint.region("v", &whole), Err(error.clone()));
    assert_eq!(checkpoint.load(&["w", "v"], 2), Err(error.clone()));
    assert_eq!(checkpoint.load_into(&mut [("v", &mut [])], 1), Err(error.clone()));
    assert_eq!(checkpoint.verify(2).faults, std::slice::from_ref(&error));
    error.to_string()
}

/// A forged entry of 2^60 bytes is cut, whether it is read or loaded.
#[test]
fn a_place_is_checked_before_memory_is_reserved() {
    let mut bundle = Bundle::new();
    bundle.add("w", DataType::Uint8, &[4], &[1; 4]);
    bundle.entry("w").shape = Some(shape(&[1 << 60]));
    bundle.entry("w").size = 1 << 60;
    let (_folder, checkpoint) = open(&bundle);
    let error = checkpoint.tensor("w").unwrap_err();
    assert!(matches!(error, CheckpointError::Cut { .. }), "{error}");
    assert_eq!(checkpoint.load_all(1), Err(error));
}

#[test]
fn slices_that_do_not_make_up_their_variable_are_refused() {
    let regions = [vec![0..2, 0..3], vec![2..4, 0..3]];
    let message = faulty;
    assert!(Checkpoint::open(sliced(&[4, 3], &regions).write(tempfile::tempdir().unwrap().path())).is_ok());
    let gap = message(&sliced(&[5, 3], &regions));
    assert!(gap.contains("12 elements for the 15 of shape [5, 3]: some are in none"), "{gap}");
    let overlap = message(&sliced(&[4, 3], &[vec![0..2, 0..3], vec![1..4, 0..3]]));
    assert!(overlap.contains("some are in two or more"), "{overlap}");
    let mut bundle = sliced(&[4, 3], &regions);
    bundle.entries.remove(&slice_key("v", &regions[1]));
    let missing = message(&bundle);
    assert!(missing.contains("the entry of \"v\": its slice [2..4, 0..3] has no entry"), "{missing}");
    bundle = sliced(&[4, 3], &regions);
    bundle.entry("v").slices.pop();
    assert!(message(&bundle).contains("elements for the 12"));
    bundle = sliced(&[4, 3], &regions);
    bundle.entries.remove(&b"v"[..]);
    let orphan = refused(&bundle).to_string();
    assert!(orphan.contains("\"v\": there is an entry for a slice"), "{orphan}");
    bundle = sliced(&[4, 3], &regions);
    bundle.entry(slice_key("v", &regions[1])).dtype = DataType::Int16.to_proto();
    let other = message(&bundle);
    assert!(other.contains("uint16 of shape [2, 3]") && other.contains("int16 of shape [2, 3]"), "{other}");
}

#[test]
fn a_slice_that_is_named_again_is_refused_however_often() {
    let long = "x".repeat(100_000);
    let whole = [0..4, 0..1];
    let mut bundle = Bundle::new();
    bundle.add(slice_key(&long, &whole), DataType::Uint8, &[4, 1], &[1; 4]);
    let slice = TensorSliceProto { extent: whole.iter().map(extent).collect() };
    let entry = BundleEntryProto {
        dtype: DataType::Uint8.to_proto(),
        shape: Some(shape(&[4, 1])),
        slices: vec![slice; 100_000],
        ..BundleEntryProto::default()
    };
    bundle.entries.insert(long.clone().into_bytes(), entry);
    let (_folder, checkpoint) = open(&bundle);
    let message = checkpoint.tensor(&long).unwrap_err().to_string();
    assert!(message.contains("its slice [0..4, 0..1] is named twice"), "{}", &message[long.len()..]);
}

#[test]
fn a_slice_of_many_axes_is_refused_at_once() {
    // It has 2^62 corners.
    let message = faulty(&sliced_once(62));
    assert!(message.contains("have 1 elements for the 4611686018427387904"), "{message}");
}

/// A variable that is 2 long on each axis, and one slice of it, of its first element.
fn sliced_once(axes: usize) -> Bundle {
    sliced(&vec![2; axes], &[vec![0..1; axes]])
}

#[test]
fn entries_that_contradict_themselves_are_refused() {
    let check = |change: &dyn Fn(&mut BundleEntryProto), due: &str| {
        let mut bundle = Bundle::new();
        bundle.add("w", DataType::Float32, &[2, 3], &[1; 24]);
        change(bundle.entry("w"));
        let message = refused(&bundle).to_string();
        assert!(message.contains("model.index: the entry of \"w\"") && message.contains(due), "{message}");
    };
    check(&|entry| entry.dtype = 99, "its type has the number 99");
    check(&|entry| entry.dtype = 20, "its type is resource");
    check(
        &|entry| entry.shape.as_mut().unwrap().dim[1].size = -1,
        "its shape is [2, -1], and -1 is no extent",
    );
    check(&|entry| entry.shape.as_mut().unwrap().unknown_rank = true, "its shape is not known");
    check(&|entry| entry.shape = Some(shape(&[1; 255])), "255 axes, and at most 254");
    check(&|entry| entry.shape = Some(shape(&[i64::MAX, i64::MAX])), "takes more than there can be");
    check(&|entry| entry.size = 23, "it states 23 bytes, and float32 of shape [2, 3] takes 24");
    check(&|entry| entry.offset = -1, "24 bytes from byte -1 on");
    check(&|entry| entry.shard_id = 1, "it is in data file 1, and the checkpoint has 1");
}

#[test]
fn a_type_of_strings_takes_bytes_at_least() {
    let mut bundle = Bundle::new();
    bundle.add("s", DataType::String, &[1 << 50], b"abcdefgh");
    let message = refused(&bundle).to_string();
    assert!(
        message.contains("string of shape [1125899906842624] takes at least 1125899906842628"),
        "{message}"
    );
}

#[test]
fn a_verification_can_be_watched_and_ended() {
    let mut bundle = Bundle::new();
    for number in 0..20 {
        bundle.add(format!("t{number}"), DataType::Uint8, &[100], &[number; 100]);
    }
    let (_folder, checkpoint) = open(&bundle);
    let done = AtomicU64::new(0);
    let watch = |bytes| {
        done.fetch_add(bytes, Ordering::Relaxed);
        Ok::<_, ()>(())
    };
    assert_eq!(checkpoint.verify_watched(2, watch), Ok(checkpoint.verify(1)));
    assert_eq!(done.into_inner(), checkpoint.tensors().map(|tensor| tensor.bytes).sum::<u64>());
    let calls = AtomicU64::new(0);
    let end = |_| if calls.fetch_add(1, Ordering::Relaxed) == 4 { Err("enough") } else { Ok(()) };
    assert_eq!(checkpoint.verify_watched(1, end), Err("enough"));
    assert_eq!(calls.into_inner(), 5, "nothing is verified after that");
}

#[test]
fn tensors_that_claim_the_same_bytes_are_not_loaded() {
    let mut bundle = Bundle::new();
    bundle.add("a", DataType::Uint8, &[1000], &[1; 1000]);
    let entry = bundle.entry("a").clone();
    for number in 0..1000 {
        bundle.entries.insert(format!("b{number}").into_bytes(), entry.clone());
    }
    let (_folder, checkpoint) = open(&bundle);
    assert!(checkpoint.tensor("b7").is_ok());
    let error = checkpoint.load_all(1).unwrap_err();
    assert!(matches!(&error, CheckpointError::Shared { tensor, .. } if tensor == "b0"), "{error}");
    assert_eq!(checkpoint.verify(1).faults, [error]);
    assert_eq!(checkpoint.load(&["a"; 3], 2).unwrap().len(), 3, "one tensor may be wanted often");
}

#[test]
fn names_that_take_more_than_an_index_can_have_are_refused() {
    // Each entry has a long name, of which it stores two bytes.
    let mut bundle = Bundle::new();
    let long = "x".repeat(100_000);
    for number in 0..2000 {
        bundle.add(format!("{long}{number:05}"), DataType::Uint8, &[0], &[]);
    }
    bundle.layout = Layout { entries_per_block: 10_000, interval: 10_000, ..PLAIN };
    let message = refused(&bundle).to_string();
    assert!(message.contains("the names have more than 64 times the bytes of the index"), "{message}");
    assert!(message.len() < 2000, "{message}");
}

#[test]
fn odd_names_and_empty_tensors_are_tensors() {
    let mut bundle = Bundle::new();
    let names = ["\0leads", "ü/ñ", " ", "a\nb"];
    for name in names {
        bundle.add(name, DataType::Int8, &[0, 5], &[]);
    }
    bundle.add("scalar", DataType::Float64, &[], &1.5_f64.to_le_bytes());
    bundle.add_summed("strings", DataType::String, &[0], &[], 0);
    let (folder, checkpoint) = open(&bundle);
    for name in names {
        assert_eq!(checkpoint.tensor(name).unwrap().shape(), [0, 5]);
    }
    assert_eq!(*checkpoint.tensor("scalar").unwrap().values::<f64>().unwrap(), [1.5]);
    assert_eq!(checkpoint.tensor("strings").unwrap().shape(), [0]);
    assert_eq!(checkpoint.load_all(3).unwrap().len(), checkpoint.len());
    // A checksum of nothing is checked too.
    bundle.entry(" ").crc32c ^= 1;
    let error = Checkpoint::open(bundle.write(folder.path())).unwrap().tensor(" ").unwrap_err();
    assert!(matches!(error, CheckpointError::Checksum { bytes: 0, .. }), "{error}");
    let mut bundle = Bundle::new();
    bundle.add([b'a', 0xff], DataType::Int8, &[0], &[]);
    assert!(refused(&bundle).to_string().contains("its name is not UTF-8"));
}

#[test]
fn what_a_header_forbids_is_not_read() {
    let mut bundle = Bundle::new();
    bundle.header.version.as_mut().unwrap().min_consumer = 2;
    let message = refused(&bundle).to_string();
    assert!(message.contains("format is 1: it is for readers of version 2 and later"), "{message}");
    bundle.header.version.as_mut().unwrap().min_consumer = 0;
    bundle.header.version.as_mut().unwrap().bad_consumers = vec![1];
    let message = refused(&bundle).to_string();
    assert!(message.contains("it excludes readers of version 1, and this one is of version 1"), "{message}");
    bundle.header.version = None;
    assert!(open(&bundle).1.is_empty(), "a checkpoint of before versions");
    let folder = tempfile::tempdir().unwrap();
    bundle.write(folder.path());
    let table = crate::forge::table(&[(b"key".to_vec(), b"value".to_vec())], PLAIN);
    std::fs::write(folder.path().join("model.index"), table).unwrap();
    let error = Checkpoint::open(folder.path().join("model")).unwrap_err().to_string();
    assert!(error.contains("not the index of a checkpoint"), "{error}");
}

#[test]
fn what_is_no_prefix_is_told_what_is() {
    let folder = tempfile::tempdir().unwrap();
    let message = |name: &str| Checkpoint::open(folder.path().join(name)).unwrap_err().to_string();
    assert!(message("model").contains("there is no other checkpoint in the folder"));
    let prefix = Bundle::new().write(folder.path());
    assert!(message("modle").contains(&format!("the folder has {}", prefix.display())));
    assert!(message("").contains("the folder has"));
    for name in ["model.meta", "model.data-00000-of-00001"] {
        let message = message(name);
        assert!(message.contains("begin with:") && message.ends_with("/model"), "{message}");
    }
    assert_eq!(Checkpoint::open(folder.path().join("model.index")).unwrap().prefix(), prefix);
    // A checkpoint of the first format is a table itself.
    let table = crate::forge::table(&[], PLAIN);
    for name in ["old", "parts-00000-of-00002"] {
        std::fs::write(folder.path().join(name), &table).unwrap();
    }
    for name in ["old", "parts", "./parts", "parts-?????-of-00002"] {
        let message = message(name);
        let is_first = message.contains("first format (V1)") && message.contains("write_version");
        assert_eq!(is_first, !name.contains('?'), "{message}");
    }
    assert!(message("nowhere/model").contains("there is no such file"));
}

#[test]
fn tensors_are_loaded_into_the_callers_memory() {
    let checkpoint = Checkpoint::open(data("sharded/model")).unwrap();
    let (mut one, mut two) = (vec![1; 20], vec![2; 40]);
    checkpoint.load_into(&mut [("shard_1", &mut two[..]), ("shard_0", &mut one[..])], 2).unwrap();
    for (name, found) in [("shard_0", &one), ("shard_1", &two)] {
        assert_eq!(checkpoint.tensor(name).unwrap().bytes().unwrap(), found);
    }
    let error = checkpoint.load_into(&mut [("shard_0", &mut two[..])], 1).unwrap_err().to_string();
    assert!(error.contains("it takes 20 bytes, and the memory for it has 40"), "{error}");
    let types = Checkpoint::open(data("types/model")).unwrap();
    let error = types.load_into(&mut [("types/string", &mut two[..])], 1).unwrap_err().to_string();
    assert!(error.contains("no fixed length"), "{error}");
    let error = checkpoint.load(&["shard_0", "shard_9"], 1).unwrap_err();
    assert!(matches!(&error, CheckpointError::Unknown { near, .. } if near.len() >= 3), "{error}");
    assert!(
        error.to_string().contains("there is no tensor \"shard_9\"; names like it: \"shard_0\""),
        "{error}"
    );
}

#[test]
#[allow(
    clippy::single_range_in_vec_init,
    clippy::reversed_empty_ranges,
    reason = "regions are arrays of ranges"
)]
fn a_region_must_be_within_its_tensor() {
    let checkpoint = Checkpoint::open(data("sliced/model")).unwrap();
    for region in [&[0..1][..], &[0..3, 0..8], &[2..1, 0..7], &[0..1, 0..1, 0..1]] {
        let error = checkpoint.region("p/columns", region).unwrap_err().to_string();
        assert!(error.contains("has the shape [3, 7]: the region"), "{error}");
    }
    let types = Checkpoint::open(data("types/model")).unwrap();
    let all = types.tensor("types/string").unwrap();
    let whole: Vec<_> = all.shape().iter().map(|&extent| 0..extent).collect();
    let mut part = whole.clone();
    part[0] = 1..all.shape()[0];
    let Elements::Strings(strings) = all.elements() else { panic!("{all:?}") };
    let found = types.region("types/string", &part).unwrap();
    assert_eq!(found.elements(), &Elements::Strings(strings[strings.len() / all.shape()[0]..].to_vec()));
}

#[test]
fn only_slices_that_a_region_touches_are_read() {
    let mut bundle = sliced(&[4, 6], &[vec![0..2, 0..6], vec![2..4, 0..6]]);
    *bundle.data.last_mut().unwrap() ^= 1;
    let (_folder, checkpoint) = open(&bundle);
    assert!(checkpoint.region("v", &[0..2, 3..5]).is_ok());
    assert!(checkpoint.region("v", &[2..2, 0..6]).is_ok(), "nothing is in it");
    for region in [[0..3, 0..1], [3..4, 0..1]] {
        let error = checkpoint.region("v", &region).unwrap_err();
        assert!(matches!(error, CheckpointError::Checksum { offset: 24, bytes: 24, .. }), "{error}");
    }
}

#[test]
fn objects_are_found_by_path_and_by_key() {
    let checkpoint = Checkpoint::open(data("object/ckpt-3")).unwrap();
    let objects = checkpoint.objects().unwrap();
    assert_eq!(objects.key_of("net/w"), Ok("net/w/.ATTRIBUTES/VARIABLE_VALUE"));
    for name in ["net/w", "net/w/.ATTRIBUTES/VARIABLE_VALUE"] {
        assert_eq!(checkpoint.key(name).unwrap(), "net/w/.ATTRIBUTES/VARIABLE_VALUE");
    }
    assert_eq!(checkpoint.key("net/layers/0").unwrap(), "net/layers/0/.ATTRIBUTES/VARIABLE_VALUE");
    let error = checkpoint.key("net/v").unwrap_err().to_string();
    assert!(error.contains("\"net/v\""), "{error}");
    let error = checkpoint.key("net").unwrap_err().to_string();
    assert!(error.contains("has no tensor of its own"), "{error}");
    assert!(objects.tree().count() >= 6);
    let error = Checkpoint::open(data("types/model")).unwrap().objects().unwrap_err().to_string();
    assert!(error.contains("it was not made of objects"), "{error}");
    let due = manifest().into_iter().find(|one| one["name"] == "object").unwrap();
    let graph = checkpoint.tensor("_CHECKPOINTABLE_OBJECT_GRAPH").unwrap();
    assert_eq!(digest(&graph), due["tensors"][0]["sha256"].as_str().unwrap());
}
