//! The inputs: MNIST's files, CIFAR's, class folders, Examples; and what is skipped of them.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::write::GzEncoder;
use percolator::ColorMode;
use percolator::decoder::ImageFileDecoder;
use percolator::example::ExampleWriter;
use percolator::proto::Datum;
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator_data::convert::{
    Convert, ConvertError, Encoded, ExampleNames, ImageOptions, Progress, RecordOptions,
};
use percolator_data::input::{
    Cifar, CifarKind, CifarLabel, CifarSplit, ClassFolders, Idx, Input, ListedImages, Records as Stored,
};
use percolator_data::store::Backend;
use prost::Message as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::process::{is_alone, this_test};
use crate::{Records, golden, golden_records, names, read};

/// Converts an input, and returns its records.
fn records(input: impl Input + 'static) -> Records {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("made");
    let summary = Convert::new(input, &output, Backend::Lmdb).run(&Progress::new()).unwrap();
    assert_eq!(summary.skipped, 0);
    read(Backend::Lmdb, &output)
}

/// MNIST's files of the images of `gray_lmdb`.
fn write_idx(folder: &Path) {
    let datums = golden_records("gray_lmdb").into_iter().map(|(_, value)| Datum::decode(&value[..]).unwrap());
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    for datum in datums {
        images.extend(datum.data.unwrap());
        labels.push(datum.label.unwrap() as u8);
    }
    let head = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<_>>();
    fs::write(folder.join("images"), [head(&[0x803, 16, 28, 28]), images].concat()).unwrap();
    fs::write(folder.join("labels"), [head(&[0x801, 16]), labels].concat()).unwrap();
}

#[test]
fn mnists_files_become_caffes_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write_idx(folder.path());
    let idx = Idx::open(&path("images"), &path("labels")).unwrap();
    assert!(records(idx) == golden_records("gray_lmdb"));
    // Compressed, too.
    for name in ["images", "labels"] {
        let file = fs::File::create(path(&format!("{name}.gz"))).unwrap();
        let mut packer = GzEncoder::new(file, flate2::Compression::fast());
        packer.write_all(&fs::read(path(name)).unwrap()).unwrap();
        packer.finish().unwrap();
    }
    assert!(
        records(Idx::open(&path("images.gz"), &path("labels.gz")).unwrap()) == golden_records("gray_lmdb")
    );

    let refused =
        |images: &str, labels: &str| Idx::open(&path(images), &path(labels)).unwrap_err().to_string();
    assert!(refused("labels", "images").contains("starts with 0x801, and an IDX file of images with 0x803"));
    assert!(refused("images", "missing").contains("missing: cannot open the file"));
    let mut cut = fs::read(path("images")).unwrap();
    cut.truncate(cut.len() - 1);
    fs::write(path("cut"), cut).unwrap();
    let input = Idx::open(&path("cut"), &path("labels")).unwrap();
    let error = Convert::new(input, path("made"), Backend::Lmdb).run(&Progress::new()).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("cut short: it ends inside image 15; the output of the first 15"), "{message}");
}

#[test]
fn cifars_planes_stay_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let pixels = |image: u8| (0..3072).map(|at| (at % 251) as u8 ^ image).collect::<Vec<u8>>();
    let mut number = 0;
    for batch in 1..=5 {
        let images = (0..batch).flat_map(|_| {
            number += 1;
            [vec![number], pixels(number)].concat()
        });
        fs::write(folder.path().join(format!("data_batch_{batch}.bin")), images.collect::<Vec<u8>>())
            .unwrap();
    }
    let found = records(Cifar::open(folder.path(), CifarKind::Ten, CifarSplit::Train).unwrap());
    assert_eq!(found.len(), 15);
    for (number, (key, value)) in found.iter().enumerate() {
        assert_eq!(key, format!("{number:05}").as_bytes());
        let image = number as u8 + 1;
        let wanted = Datum {
            channels: Some(3),
            height: Some(32),
            width: Some(32),
            data: Some(pixels(image)),
            label: Some(image.into()),
            ..Datum::default()
        };
        assert_eq!(value, &wanted.encode_to_vec());
    }
    fs::write(folder.path().join("test.bin"), [vec![4, 90], pixels(1)].concat()).unwrap();
    for (label, wanted) in [(CifarLabel::Coarse, 4), (CifarLabel::Fine, 90)] {
        let kind = CifarKind::Hundred(label);
        let found = records(Cifar::open(folder.path(), kind, CifarSplit::Test).unwrap());
        assert_eq!(Datum::decode(&found[0].1[..]).unwrap().label, Some(wanted));
    }
    let file = folder.path().join("test.bin");
    let error = Cifar::open(&file, CifarKind::Ten, CifarSplit::Train).unwrap_err().to_string();
    assert!(error.contains("3074 bytes are no whole number of records of 3073"), "{error}");
}

/// A PNG file.
fn png() -> Vec<u8> {
    Datum::decode(&golden_records("png_gray_lmdb")[0].1[..]).unwrap().data.unwrap()
}

#[test]
fn samples_of_16_bits_are_encoded_anew() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 2, 1);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Sixteen);
    encoder.write_header().unwrap().write_image_data(&[0x12, 0x34, 0xff, 0xff]).unwrap();
    fs::write(folder.path().join("deep.png"), &file).unwrap();
    fs::write(folder.path().join("list"), "deep.png 3\n").unwrap();
    let root = format!("{}/", folder.path().display());
    let input = ListedImages::open(&folder.path().join("list"), root, None).unwrap();
    let output = folder.path().join("made");
    let options = ImageOptions { encoded: Some(Encoded::AsNamed), ..ImageOptions::default() };
    let summary = Convert::new(input, &output, Backend::Lmdb).images(options).run(&Progress::new()).unwrap();
    assert_eq!((summary.records, summary.skipped), (1, 0));
    let stored = Datum::decode(&read(Backend::Lmdb, &output)[0].1[..]).unwrap().data.unwrap();
    assert_ne!(stored, file);
    // As a feed decodes it that does not choose the channels.
    let mut decoder = ImageFileDecoder::new(ColorMode::Native);
    assert!(decoder.decode(&file).is_err());
    assert_eq!(decoder.decode(&stored).unwrap().bytes, [0x12, 0xff].repeat(3));
}

#[test]
fn the_folders_are_the_classes() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    for path in ["dog/b.PNG", "dog/a b.png", "dog/a/z.png", "dog/a-b/y.jpeg", "cat/1.png", "cat/notes.txt"] {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), png()).unwrap();
    }
    fs::write(root.join("readme.png"), png()).unwrap();
    let output = folder.path().join("made");
    let convert = || {
        Convert::new(ClassFolders::open(&root).unwrap(), &output, Backend::LevelDb)
            .images(ImageOptions { gray: true, ..ImageOptions::default() })
    };
    let summary = convert().run(&Progress::new()).unwrap();
    let found: Vec<_> = read(Backend::LevelDb, &output)
        .into_iter()
        .map(|(key, value)| {
            let datum = Datum::decode(&value[..]).unwrap();
            (String::from_utf8(key).unwrap(), datum.label.unwrap())
        })
        .collect();
    // As torchvision has them: a/z comes after a-b/y by the bytes of the paths.
    let wanted = [
        ("00000000_cat/1.png", 0),
        ("00000001_dog/a b.png", 1),
        ("00000002_dog/b.PNG", 1),
        ("00000003_dog/a/z.png", 1),
        ("00000004_dog/a-b/y.jpeg", 1),
    ];
    let wanted = wanted.map(|(key, label)| (key.to_owned(), label));
    assert_eq!(found, wanted);
    assert_eq!(fs::read(summary.labels.unwrap()).unwrap(), b"cat\ndog\n");
    // The names are not written over.
    fs::remove_dir_all(&output).unwrap();
    let error = convert().run(&Progress::new()).unwrap_err().to_string();
    assert!(error.contains("made.labels.txt: it already exists"), "{error}");
    assert_eq!(names(folder.path()), ["made.labels.txt", "root"]);
    fs::create_dir(root.join("empty")).unwrap();
    let error = ClassFolders::open(&root).unwrap_err().to_string();
    assert!(error.contains("root/empty: the class has no file whose name ends as an image's"), "{error}");
    // What cannot be looked at may be a class, or a folder of images: a disk that is not mounted.
    fs::remove_dir(root.join("empty")).unwrap();
    let class = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    for place in [root.join("linked"), class.unwrap().join("linked")] {
        std::os::unix::fs::symlink("not mounted", &place).unwrap();
        let error = ClassFolders::open(&root).unwrap_err().to_string();
        assert!(error.contains("linked: cannot look at it"), "{error}");
        fs::remove_file(place).unwrap();
    }
    ClassFolders::open(&root).unwrap();
}

/// A list's file that cannot be read this time, and may be good: here for want of a file handle.
#[test]
fn a_failure_to_read_is_not_an_image_that_cannot_be_converted() {
    if !is_alone(this_test!()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::write(root.join("good.png"), png()).unwrap();
    fs::write(root.join("list"), "good.png 1\ngood.png 2\n").unwrap();
    let before = getrlimit(Resource::Nofile);
    let (mut is_named, mut is_done) = (false, false);
    for limit in 3..40 {
        let made = root.join(format!("made {limit}"));
        let input = ListedImages::open(&root.join("list"), root.join(""), None).unwrap();
        let convert = Convert::new(input, &made, Backend::Lmdb);
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: before.maximum }).unwrap();
        let converted = convert.run(&Progress::new());
        setrlimit(Resource::Nofile, before).unwrap();
        match converted {
            Ok(summary) => {
                assert_eq!((summary.records, summary.skipped), (2, 0), "limit {limit}");
                is_done = true;
            }
            Err(error) => {
                is_named |= error.to_string().contains("good.png: cannot read the file");
                assert!(!made.exists(), "limit {limit}: {error}");
            }
        }
    }
    assert!(is_named && is_done);
}

#[test]
fn what_cannot_be_converted_is_skipped_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let long = format!("{}.png", "x".repeat(240));
    for name in ["good.png", &long, "noending", "other.bmp"] {
        fs::write(root.join(name), png()).unwrap();
    }
    fs::write(root.join("bad.png"), b"no image").unwrap();
    fs::create_dir_all(root.join(format!("{0}/{0}/{0}", "y".repeat(100)))).unwrap();
    let deep = format!("{0}/{0}/{0}/{1}", "y".repeat(100), long);
    fs::write(root.join(&deep), png()).unwrap();
    let lines = ["bad.png", "good.png", &deep, "missing.png", "noending", "other.bmp", &long];
    fs::write(root.join("list"), lines.map(|name| format!("{name} 5\n")).concat()).unwrap();
    let input = ListedImages::open(&root.join("list"), root.join(""), None).unwrap();
    let summary = Convert::new(input, root.join("made"), Backend::Lmdb)
        .images(ImageOptions { encoded: Some(Encoded::AsNamed), ..ImageOptions::default() })
        .run(&Progress::new())
        .unwrap();
    let keys: Vec<_> = read(Backend::Lmdb, &root.join("made")).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [b"00000001_good.png".to_vec(), format!("00000006_{long}").into_bytes()], "with gaps");
    let reasons = ["no known format", "an LMDB has 1 to 511", "cannot read ", "no ending", "ends with .bmp"];
    let items = [0, 2, 3, 4, 5];
    let listed = fs::read_to_string(summary.skipped_list.unwrap()).unwrap();
    assert_eq!((summary.records, summary.skipped), (2, 5));
    for (((skipped, line), reason), item) in
        summary.first_skipped.iter().zip(listed.lines()).zip(reasons).zip(items)
    {
        assert!(skipped.reason.contains(reason) && line.contains(reason), "{skipped:?}, {line}");
        assert_eq!(skipped.item, item);
        assert!(line.starts_with(&format!("{item}\t{item:08}_")), "{line}");
    }
    // A list of nothing else is an error, and leaves nothing.
    let input = ListedImages::open(&root.join("list"), "wrong/", None).unwrap();
    let error = Convert::new(input, root.join("none"), Backend::Lmdb).run(&Progress::new()).unwrap_err();
    assert!(matches!(error, ConvertError::Nothing { skipped: 7, .. }), "{error}");
    assert!(names(root).iter().all(|name| !name.starts_with("none")), "{:?}", names(root));
}

#[test]
fn examples_become_datums() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("examples");
    let mut writer = TfRecordWriter::create(&path, Compression::Gzip).unwrap();
    let mut example = ExampleWriter::new();
    example.bytes("image", [png()]).ints("label", [7]);
    writer.write(&example.to_bytes()).unwrap();
    example.clear();
    example.bytes("image", [png()]).ints("label", [7, 8]);
    writer.write(&example.to_bytes()).unwrap();
    example.clear();
    example.bytes("image", [b"no image"]).ints("label", [1]);
    writer.write(&example.to_bytes()).unwrap();
    writer.finish().unwrap();
    let names = ExampleNames { image: "image".to_owned(), label: "label".to_owned() };
    let output = folder.path().join("made");
    let summary = Convert::new(Stored::open(&path).unwrap(), &output, Backend::Lmdb)
        .records(RecordOptions { example: Some(names), ..RecordOptions::default() })
        .run(&Progress::new())
        .unwrap();
    let datum =
        Datum { data: Some(png()), label: Some(7), encoded: Some(true), ..Datum::default() }.encode_to_vec();
    assert_eq!(read(Backend::Lmdb, &output), [(b"00000000".to_vec(), datum)]);
    let reasons: Vec<_> = summary.first_skipped.iter().map(|skipped| &*skipped.reason).collect();
    assert_eq!(reasons[0], "its feature \"label\" is not an integer of 32 bits");
    assert!(reasons[1].contains("Could not decode"), "{reasons:?}");
}

#[test]
fn a_list_is_shuffled_before_it_is_numbered() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::write(root.join("a.png"), png()).unwrap();
    let list: String = (0..5).map(|label| format!("a.png {label}\n")).collect();
    fs::write(root.join("list"), list).unwrap();
    let input = ListedImages::open(&root.join("list"), root.join(""), Some(1701)).unwrap();
    let labels: Vec<_> = records(input)
        .iter()
        .enumerate()
        .map(|(number, (key, value))| {
            assert_eq!(key, format!("{number:08}_a.png").as_bytes());
            Datum::decode(&value[..]).unwrap().label.unwrap()
        })
        .collect();
    assert_eq!(labels, [3, 1, 4, 2, 0]);
}

#[test]
fn an_output_never_replaces_what_it_is_made_of() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let convert =
        |input: &Path| Convert::new(Stored::open(input).unwrap(), &store, Backend::Lmdb).force(true);
    convert(&golden("raw_lmdb")).run(&Progress::new()).unwrap();
    let before = read(Backend::Lmdb, &store);
    for input in [store.clone(), store.join("data.mdb")] {
        let error = convert(&input).run(&Progress::new()).unwrap_err();
        assert!(error.to_string().contains("it holds the input"), "{error}");
    }
    assert_eq!(read(Backend::Lmdb, &store), before);
}

#[test]
fn data_sets_with_files_of_the_same_names_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["mnist", "fashion"] {
        fs::create_dir(at(name)).unwrap();
        write_idx(&at(name));
        fs::write(at(name).join("test_batch.bin"), vec![7; 3073 * 2]).unwrap();
        fs::create_dir(at(name).join("class")).unwrap();
        fs::write(at(name).join("class/image.jpg"), "an image").unwrap();
    }
    let idx = |name: &str| Idx::open(&at(name).join("images"), &at(name).join("labels")).unwrap().identity();
    let cifar = |name: &str| Cifar::open(&at(name), CifarKind::Ten, CifarSplit::Test).unwrap().identity();
    let folders = |name: &str| ClassFolders::open(&at(name)).unwrap().identity();
    for identity in [&idx as &dyn Fn(&str) -> String, &cifar, &folders] {
        assert_eq!(identity("mnist"), identity("mnist"));
        assert_ne!(identity("mnist"), identity("fashion"));
    }
    let (images, batch, class) = (idx("mnist"), cifar("mnist"), folders("mnist"));
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    for name in ["images", "test_batch.bin"] {
        fs::File::options().write(true).open(at("mnist").join(name)).unwrap().set_modified(later).unwrap();
    }
    fs::write(at("mnist/class/another.jpg"), "an image").unwrap();
    assert!(images != idx("mnist") && batch != cifar("mnist") && class != folders("mnist"));
}

#[test]
fn an_output_may_be_a_link_to_another_place() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // Another file system, where the machine has one.
    let shm = Path::new("/dev/shm");
    let other = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap();
    write_idx(folder.path());
    let idx = || Idx::open(&at("images"), &at("labels")).unwrap();
    fs::create_dir(other.path().join("target")).unwrap();
    std::os::unix::fs::symlink(other.path().join("target"), at("made")).unwrap();
    let refused = Convert::new(idx(), at("made"), Backend::Lmdb).run(&Progress::new()).unwrap_err();
    assert!(refused.to_string().contains("already exists"), "{refused}");
    Convert::new(idx(), at("made"), Backend::Lmdb).force(true).run(&Progress::new()).unwrap();
    assert!(at("made").is_symlink());
    assert!(read(Backend::Lmdb, &at("made")) == golden_records("gray_lmdb"));
    assert_eq!(names(other.path()), ["target"], "nothing else is left there");
}
