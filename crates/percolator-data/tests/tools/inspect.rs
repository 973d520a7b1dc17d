//! Reports say what is in the databases that real Caffe wrote, and in some made on the spot.

use std::fs;

use percolator::net::NetState;
use percolator::{Net, source::ImageList};
use percolator_data::inspect::{
    InspectOptions, PictureOptions, Record, Report, Which, inspect, pictures, record,
};
use percolator_data::scan::Progress;
use percolator_data::{ChannelOrder, Content, DataSet, Kind, PictureEncoding};

use crate::common::{data, datum, encoded, golden, golden_databases, lmdb};

pub(crate) fn report(path: &std::path::Path, all: bool) -> Report {
    let options = InspectOptions { all, ..InspectOptions::default() };
    inspect(&DataSet::open(path).unwrap(), &options, &Progress::new()).unwrap()
}

#[test]
fn golden_databases_are_reported() {
    for name in golden_databases() {
        let path = golden(&name);
        let report = report(&path, true);
        assert_eq!(report.content, Content::Datum, "{name}");
        assert_eq!(
            (report.looked_at, report.damaged, report.without_image),
            (report.records, 0, 0),
            "{name}"
        );
        assert_eq!(report.kind, if name.ends_with("lmdb") { Kind::Lmdb } else { Kind::LevelDb });
        let images: u64 = report.shapes.iter().map(|count| count.records).sum();
        let labels: u64 = report.labels.as_ref().unwrap().counts.iter().map(|count| count.records).sum();
        assert_eq!((images, labels), (report.records, report.records), "{name}");
        let keys = report.keys.as_ref().unwrap();
        assert!(keys.pattern.starts_with("%0"), "{name}: {keys:?}");
        let wanted = match &*name {
            name if name.starts_with("raw") || name.starts_with("gray") => PictureEncoding::Raw,
            "float_lmdb" => PictureEncoding::Float,
            name if name.starts_with("jpg") => PictureEncoding::Jpeg,
            name if name.starts_with("png") => PictureEncoding::Png,
            _ => report.encodings[0].encoding,
        };
        assert_eq!(report.encodings[0].encoding, wanted, "{name}");
        // Caffe's net reads what the report says, and its layer names this database.
        let net = Net::from_text(&report.net).unwrap();
        let layers = net.data_layers(&NetState::default()).unwrap();
        assert_eq!(layers.len(), 1, "{}", report.net);
        assert!(format!("{:?}", layers[0].source).contains(&name), "{:?}", layers[0].source);
    }
}

#[test]
fn a_sample_is_spread_over_all() {
    let options = InspectOptions { sample: 4, ..InspectOptions::default() };
    let data = DataSet::open(golden("raw_lmdb")).unwrap();
    let sampled = inspect(&data, &options, &Progress::new()).unwrap();
    let whole = report(&golden("raw_lmdb"), false);
    assert_eq!((sampled.records, sampled.looked_at, whole.looked_at), (whole.records, 4, whole.records));
    assert!(sampled.same_values.is_none() && whole.same_values.is_some() && whole.same_pixels.is_none());
    let last = sampled.keys.unwrap().last;
    assert!(last > whole.keys.as_ref().unwrap().first && last < whole.keys.unwrap().last);
}

#[test]
fn duplicates_are_found_by_value_and_by_pixel() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    let png = fs::read(data("images/rgb_8.png")).unwrap();
    let srgb = fs::read(data("images/rgb_srgb.png")).unwrap();
    let records = [
        ("0", datum([1, 1, 2], 3, vec![1, 2])),
        ("1", datum([1, 1, 2], 4, vec![1, 2])),
        ("2", datum([1, 1, 2], 3, vec![1, 2])),
        ("3", datum([1, 2, 1], 3, vec![1, 2])),
        ("4", encoded(5, png.clone())),
        ("5", encoded(5, srgb)),
        ("6", encoded(5, png)),
        ("7", encoded(9, b"no image".to_vec())),
    ];
    lmdb(&path, records);
    let report = report(&path, true);
    let values = report.same_values.unwrap();
    let listed = |found: &percolator_data::inspect::Duplicates| -> Vec<Vec<u64>> {
        found.listed.iter().map(|group| group.records.clone()).collect()
    };
    assert_eq!((listed(&values), values.superfluous), (vec![vec![0, 2], vec![4, 6]], 2));
    let pixels = report.same_pixels.unwrap();
    assert_eq!((pixels.compared, &listed(&pixels)[0][..]), (7, &[0, 1, 2][..]));
    assert!(pixels.listed[0].labels_differ && !pixels.listed[1].labels_differ);
    assert_eq!(report.damaged, 1);
    assert!(report.first_damaged.unwrap().starts_with("record 7, key \"7\": Could not decode datum"));
    assert!(report.net.contains("crop_size: 1\n") && report.net.contains("force_color"), "{}", report.net);
}

#[test]
fn tensorflows_records_are_reported() {
    let jpegs = report(&data("tensorflow/jpg_color.tfrecord"), true);
    assert_eq!((jpegs.kind, jpegs.content, jpegs.damaged), (Kind::TfRecord, Content::Example, 0));
    let names: Vec<&str> = jpegs.features.iter().map(|feature| &*feature.name).collect();
    assert_eq!(names, ["image/class/label", "image/encoded"]);
    assert_eq!((jpegs.features[0].kinds[0], jpegs.features[0].records), ("int64", jpegs.records));
    assert!(jpegs.net.contains("--image image/encoded --label image/class/label"), "{}", jpegs.net);
    assert_eq!(jpegs.keys.unwrap().are_positions, Some(true));
    let wanted = report(&golden("jpg_color_lmdb"), true);
    assert_eq!((jpegs.shapes, jpegs.labels), (wanted.shapes, wanted.labels));
    assert_eq!(report(&data("tensorflow/sequence.tfrecord"), true).content, Content::SequenceExample);
    assert!(report(&data("tensorflow/examples.gz.tfrecord"), true).net.contains("--fields '"));
}

#[test]
fn a_list_of_images_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("a list.txt");
    let [one, other] = ["images/rgb.jpg", "images/grey_8.png"].map(|name| data(name).display().to_string());
    fs::write(&list, format!("{one} 3\n{other} 4\n")).unwrap();
    assert_eq!(ImageList::open(&list).unwrap().len(), 2);
    let report = report(&list, true);
    assert_eq!((report.kind, report.records, report.shapes.len()), (Kind::ImageList, 2, 2));
    assert!(report.net.contains("ImageData") && report.net.contains("new_height"), "{}", report.net);
    assert_eq!(Net::from_text(&report.net).unwrap().data_layers(&NetState::default()).unwrap().len(), 1);
    assert!(!report.net.contains("root_folder"));
    // The net names the folder that the names were looked for in.
    fs::write(&list, "images/rgb.jpg 3\n").unwrap();
    let root = format!("{}/", data("").display());
    let opened = percolator_data::OpenOptions::default().root_folder(&root).open(&list).unwrap();
    let report = inspect(&opened, &InspectOptions::default(), &Progress::new()).unwrap();
    assert!(report.net.contains(&format!("root_folder: {root:?}")), "{}", report.net);
}

#[test]
fn a_record_is_found_by_number_and_by_key() {
    for name in ["raw_lmdb", "raw_leveldb_log", "raw_leveldb_ldb"] {
        let data = DataSet::open(golden(name)).unwrap();
        let find = |word: &str| record(&data, &Which::parse(word.as_ref()));
        let third = find("3").unwrap();
        let again = find(std::str::from_utf8(&third.key).unwrap()).unwrap();
        assert_eq!((third.number, &again.value), (Some(3), &third.value), "{name}");
        let text: Vec<_> = third.fields().iter().map(|field| field.name.clone()).collect();
        assert_eq!(text, ["channels", "height", "width", "label", "encoded", "data", "image"]);
        let missing = find("99999").unwrap_err().to_string();
        assert!(missing.contains("no record with the key \"99999\", and none with that number"), "{missing}");
        let missing = find("cat").unwrap_err().to_string();
        assert!(missing.contains("no record with the key \"cat\"; a number"), "{missing}");
    }
    let data = DataSet::open(data("tensorflow/jpg_color.tfrecord")).unwrap();
    let found: Record = record(&data, &Which::parse("00000002".as_ref())).unwrap();
    assert_eq!(found.number, Some(2));
    let (encoding, _, pixels) = found.image(ChannelOrder::Bgr).unwrap().unwrap();
    assert_eq!((encoding, pixels.rgb.len()), (PictureEncoding::Jpeg, 3 * pixels.width * pixels.height));
    assert!(
        found
            .fields()
            .iter()
            .any(|field| field.name == "image/class/label" && field.value.starts_with("int64: ["))
    );
}

#[test]
fn pictures_are_shown_if_there_are_any() {
    let data = DataSet::open(golden("jpg_mixed_lmdb")).unwrap();
    let nine = PictureOptions { count: 9, ..PictureOptions::default() };
    let shown = pictures(&data, &nine, &Progress::new()).unwrap();
    assert!(
        shown.len() == 9 && shown.iter().all(|picture| picture.pixels.is_ok() && picture.label.is_some())
    );
    let sequence = DataSet::open(crate::common::data("tensorflow/sequence.tfrecord")).unwrap();
    let shown = pictures(&sequence, &nine, &Progress::new()).unwrap();
    assert!(shown.is_empty(), "{shown:?}");
}
