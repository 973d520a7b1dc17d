//! Each format gives back what was written to it, bit for bit.

use std::fs;
use std::path::Path;

use percolator_tensorflow::checkpoint::Extent;
use percolator_tensorflow::convert::{Conversion, Progress};
use percolator_tensorflow::convert::{
    CopyOptions, Format, LeftOut, Model, NameRules, Options, copy_checkpoint,
};
use percolator_tensorflow::{Checkpoint, CheckpointWriter, Tensor};
use proptest::prelude::*;
use tempfile::tempdir;

use crate::harness::process::sample::times;
use crate::tensors::{self, Named};

/// Those that a format keeps.
fn kept(tensors: &[Named], format: Format) -> Vec<Named> {
    let mut kept: Vec<_> =
        tensors.iter().filter(|(_, tensor)| format.keeps(tensor.data_type())).cloned().collect();
    kept.sort_by(|one, other| one.0.cmp(&other.0));
    kept
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(times(48, 12)))]

    #[test]
    fn tensors_come_back_from_each_format(written in tensors::tensors()) {
        let folder = tempdir().unwrap();
        let model = tensors::checkpoint(folder.path(), &written);
        prop_assert_eq!(tensors::read(&model), kept(&written, Format::Checkpoint));
        for format in [Format::Safetensors, Format::Npz, Format::NpyFolder, Format::Checkpoint] {
            let options = Options { leave_out: true, ..Options::default() };
            let path = tensors::convert_with(&model, folder.path(), format, &options).unwrap();
            let converted = Model::open_as(&path, format).unwrap();
            prop_assert_eq!(converted.format(), format);
            let expected = kept(&written, format);
            prop_assert_eq!(tensors::read(&converted), expected.clone(), "{}", format);
            // And back again, to a checkpoint.
            let back = tempdir().unwrap();
            let path = tensors::convert(&converted, back.path(), Format::Checkpoint).unwrap();
            prop_assert_eq!(tensors::read(&Model::open(path).unwrap()), expected);
        }
    }

    #[test]
    fn a_single_tensor_comes_back_from_an_array(written in tensors::tensors()) {
        for (name, tensor) in written {
            let folder = tempdir().unwrap();
            let model = tensors::checkpoint(folder.path(), &[(name, tensor.clone())]);
            let path = tensors::convert(&model, folder.path(), Format::Npy).unwrap();
            let array = Model::open(&path).unwrap();
            prop_assert_eq!(tensors::read(&array), [("converted".to_owned(), tensor)]);
        }
    }
}

/// TensorFlow tells a whole axis from a part that has all of it.
#[test]
fn a_copy_of_slices_keeps_what_they_say_of_each_axis() {
    let folder = tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let half = Tensor::from_values([1, 3], &[1.0_f32, 2.0, 3.0]).unwrap();
    let mut writer = CheckpointWriter::create(&from).unwrap();
    let rows = [Extent::from(0..1), Extent::from(1..2)];
    for row in &rows {
        writer.add_slice("all", &[2, 3], &[row.clone(), Extent::All], &half).unwrap();
        writer.add_slice("part", &[2, 3], &[row.clone(), Extent::from(0..3)], &half).unwrap();
    }
    writer.finish().unwrap();
    copy_checkpoint(&Checkpoint::open(&from).unwrap(), &to, &CopyOptions::default(), &Progress::new())
        .unwrap();
    for ending in [".index", ".data-00000-of-00001"] {
        let read = |prefix: &Path| fs::read(format!("{}{ending}", prefix.display())).unwrap();
        assert_eq!(read(&from), read(&to), "{ending}");
    }
}

#[test]
fn what_a_format_lacks_is_named_or_left_out() {
    let folder = tempdir().unwrap();
    let model = tensors::checkpoint(folder.path(), &tensors::of_each_type(&[2]));
    let error = tensors::convert(&model, folder.path(), Format::Safetensors).unwrap_err().to_string();
    let expected = "tensor \"complex128/1\": .safetensors has no type complex128: leave the tensor out, or \
                    write a checkpoint or .npz";
    assert_eq!(error, expected);
    let options = Options { leave_out: true, ..Options::default() };
    let target = folder.path().join("x.safetensors");
    let conversion = Conversion::plan(&model, &target, Format::Safetensors, &options).unwrap();
    let mut lacking: Vec<_> = conversion
        .left_out()
        .iter()
        .map(|left_out| match left_out {
            LeftOut::Type { data_type, .. } => data_type.name(),
            LeftOut::Dropped { name } => panic!("{name} was dropped by no rule"),
        })
        .collect();
    lacking.sort_unstable();
    let expected = [
        "complex128",
        "float4_e2m1fn",
        "float8_e4m3b11fnuz",
        "int2",
        "int4",
        "qint16",
        "qint32",
        "qint8",
        "quint16",
        "quint8",
        "string",
        "uint2",
        "uint4",
    ];
    assert_eq!(lacking, expected);
    assert!(!target.exists(), "a plan writes nothing");
}

#[test]
fn names_follow_the_rules() {
    let folder = tempdir().unwrap();
    let tensors = tensors::of_each_type(&[]);
    let model = tensors::checkpoint(folder.path(), &tensors);
    let rules = NameRules::none().drop("^string/0$").unwrap().rename("^int8/0$=eight").unwrap();
    let rules = rules.rename("^(.*)/0$=x.$1").unwrap();
    let options = Options { rules, ..Options::default() };
    let path = tensors::convert_with(&model, folder.path(), Format::Npz, &options).unwrap();
    let renamed = |(name, tensor): Named| match &*name {
        "string/0" => None,
        "int8/0" => Some(("eight".to_owned(), tensor)),
        name => Some((format!("x.{}", name.strip_suffix("/0").unwrap()), tensor)),
    };
    let mut expected: Vec<_> = tensors.into_iter().filter_map(renamed).collect();
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(tensors::read(&Model::open(path).unwrap()), expected);
}

#[test]
fn the_texts_of_safetensors_are_kept() {
    let folder = tempdir().unwrap();
    let texts = r#""__metadata__":{"format":"pt","b":"\u00fc"}"#;
    let header = format!(r#"{{{texts},"a":{{"dtype":"U8","shape":[],"data_offsets":[0,1]}}}}"#);
    let path = folder.path().join("with.safetensors");
    fs::write(&path, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[7]].concat()).unwrap();
    let model = Model::open(&path).unwrap();
    let copy = tensors::convert(&model, folder.path(), Format::Safetensors).unwrap();
    let copy = Model::open(copy).unwrap();
    assert_eq!(copy.metadata(), model.metadata());
    assert_eq!(copy.metadata()["b"], "ü");
    let options = Options::default();
    let conversion = Conversion::plan(&model, folder.path().join("x.npz"), Format::Npz, &options).unwrap();
    assert_eq!(conversion.lost_metadata(), 2);
}

#[test]
fn a_conversion_that_is_stopped_leaves_nothing() {
    let folder = tempdir().unwrap();
    let model = tensors::checkpoint(folder.path(), &tensors::of_each_type(&[3]));
    let out = tempdir().unwrap();
    for format in [Format::Npz, Format::NpyFolder, Format::Checkpoint] {
        let target = tensors::target(out.path(), format);
        let conversion = Conversion::plan(&model, &target, format, &Options::default()).unwrap();
        let progress = Progress::new();
        progress.stop();
        let error = conversion.run(&progress).unwrap_err().to_string();
        assert!(error.starts_with("stopped"), "{error}");
        assert!(!target.exists());
    }
    let left: Vec<_> = walk(out.path());
    assert!(left.is_empty(), "{left:?}");
    let checkpoint = model.checkpoint().unwrap();
    let progress = Progress::new();
    progress.stop();
    assert!(
        copy_checkpoint(checkpoint, out.path().join("copy/model"), &CopyOptions::default(), &progress)
            .is_err()
    );
    assert!(walk(out.path()).is_empty());
}

/// All files below a folder.
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
