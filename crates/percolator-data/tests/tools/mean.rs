//! The mean is compute_image_mean's, bit for bit, on any number of threads.

use std::fs;
use std::num::NonZeroUsize;

use percolator_data::mean::{Mean, MeanError, MeanOptions, Sums, mean};
use percolator_data::scan::Progress;
use percolator_data::{ChannelOrder, DataSet};

use crate::common::{data, datum, encoded, golden, lmdb};

fn of(path: &std::path::Path, options: &MeanOptions) -> Result<Mean, MeanError> {
    mean(&DataSet::open(path).unwrap(), options, &Progress::new())
}

#[test]
fn golden_means_are_equal_byte_for_byte() {
    for name in ["raw", "gray", "float", "jpg_color", "png_color"] {
        let wanted = fs::read(golden(&format!("{name}_mean.binaryproto"))).unwrap();
        for sums in [Sums::Exact, Sums::Caffe] {
            for threads in [1, 2, 7] {
                let options = MeanOptions { sums, threads: NonZeroUsize::new(threads), ..Default::default() };
                let mean = of(&golden(&format!("{name}_lmdb")), &options).unwrap();
                assert_eq!(mean.to_binaryproto().unwrap(), wanted, "{name}, {sums:?}, {threads} threads");
                assert_eq!(mean.beyond_caffe, 0);
            }
        }
    }
    // The same records in a LevelDB, and as JPEGs in a TFRecord file.
    let wanted = fs::read(golden("raw_mean.binaryproto")).unwrap();
    for name in ["raw_leveldb_log", "raw_leveldb_ldb"] {
        let mean = of(&golden(name), &MeanOptions::default()).unwrap();
        assert_eq!(mean.to_binaryproto().unwrap(), wanted, "{name}");
    }
    let wanted = fs::read(golden("jpg_color_mean.binaryproto")).unwrap();
    let mean = of(&data("tensorflow/jpg_color.tfrecord"), &MeanOptions::default()).unwrap();
    assert_eq!(mean.to_binaryproto().unwrap(), wanted);
}

#[test]
fn a_gray_mean_is_caffes() {
    let mean = of(&golden("gray_lmdb"), &MeanOptions::default()).unwrap();
    assert_eq!(mean.to_binaryproto().unwrap(), fs::read(golden("gray_mean.binaryproto")).unwrap());
}

/// Beyond 2^24, Caffe's sums stand still at an even number: adding 1 is rounded away.
#[test]
fn exact_sums_stay_exact_where_caffes_round() {
    let folder = tempfile::tempdir().unwrap();
    // 65,794 white images sum up to 255 more than 2^24 - 1 + 255: past it, odd sums are rounded.
    let records = (0..66_001).map(|number| (format!("{number:08}"), datum([1, 1, 1], 0, vec![255])));
    lmdb(folder.path(), records);
    let exact = of(folder.path(), &MeanOptions::default()).unwrap();
    assert_eq!((exact.pixels[0], exact.beyond_caffe), (255.0, 1));
    let caffe = of(folder.path(), &MeanOptions { sums: Sums::Caffe, ..Default::default() }).unwrap();
    let mut running = 0f32;
    (0..66_001).for_each(|_| running += 255.0);
    assert_eq!(caffe.pixels[0].to_bits(), (running / 66_001.0).to_bits());
    assert_ne!(caffe.pixels[0], 255.0);
}

#[test]
fn channels_have_their_mean_and_deviation() {
    let folder = tempfile::tempdir().unwrap();
    let first = datum([3, 1, 2], 0, vec![0, 10, 100, 100, 255, 0]);
    let second = datum([3, 1, 2], 0, vec![20, 30, 100, 100, 255, 0]);
    lmdb(folder.path(), [("0", first), ("1", second)]);
    for sums in [Sums::Exact, Sums::Caffe] {
        let mean = of(folder.path(), &MeanOptions { sums, ..Default::default() }).unwrap();
        let means: Vec<f64> = mean.channels.iter().map(|channel| channel.mean).collect();
        assert_eq!(means, [15.0, 100.0, 127.5]);
        assert!((mean.channels[0].std - 125f64.sqrt()).abs() < 1e-12);
        assert_eq!((mean.channels[1].std, mean.channels[2].std), (0.0, 127.5));
        assert_eq!(mean.for_caffe(), ["mean_value: 15.0", "mean_value: 100.0", "mean_value: 127.5"]);
        assert_eq!(mean.for_pytorch(ChannelOrder::Bgr).0, [0.5, 100.0 / 255.0, 15.0 / 255.0]);
    }
}

#[test]
fn what_has_no_mean_is_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let small = datum([1, 1, 1], 0, vec![1]);
    lmdb(&path("sizes"), [("a", small.clone()), ("b", datum([1, 1, 2], 0, vec![1, 2]))]);
    let error = of(&path("sizes"), &MeanOptions::default()).unwrap_err().to_string();
    assert!(error.contains("record 1, key \"b\": the image is 1x1x2, and the first is 1x1x1"), "{error}");
    let only_channels = MeanOptions { only_channels: true, ..Default::default() };
    assert_eq!(of(&path("sizes"), &only_channels).unwrap().channels[0].mean, 4.0 / 3.0);
    let resized = MeanOptions { resize: Some((1, 1)), ..Default::default() };
    assert_eq!(of(&path("sizes"), &resized).unwrap().records, 2);

    lmdb(&path("damaged"), [("a", small.clone()), ("b", encoded(0, b"\xff\xd8no".to_vec()))]);
    let error = of(&path("damaged"), &MeanOptions::default()).unwrap_err().to_string();
    assert!(error.contains("record 1, key \"b\": Could not decode datum"), "{error}");

    let error = of(&data("tensorflow/sequence.tfrecord"), &MeanOptions::default()).unwrap_err().to_string();
    assert!(error.contains("there is no image in it"), "{error}");

    lmdb(&path("none"), [("a", small)].into_iter().take(0));
    let error = of(&path("none"), &MeanOptions::default()).unwrap_err().to_string();
    assert!(error.contains("there is no record"), "{error}");
}

/// Examples of TensorFlow's tutorial and of TFDS.
#[test]
fn an_image_of_any_name_has_a_mean() {
    use percolator::example::ExampleWriter;
    use percolator::tfrecord::{Compression, TfRecordWriter};

    let folder = tempfile::tempdir().unwrap();
    let file = fs::read(data("images/rgb_8.png")).unwrap();
    let write = |name: &str, record: Vec<u8>| {
        let path = folder.path().join(name);
        let mut writer = TfRecordWriter::create(&path, Compression::Plain).unwrap();
        writer.write(&record).unwrap();
        writer.finish().unwrap();
        path
    };
    let wanted = of(&write("0.tfrecord", encoded(0, file.clone())), &MeanOptions::default()).unwrap();
    let one = write("1.tfrecord", ExampleWriter::new().bytes("image_raw", [&file]).to_bytes());
    assert_eq!(of(&one, &MeanOptions::default()).unwrap().pixels, wanted.pixels);
    // Of two, one must be named, unless one has the name that TensorFlow gives it.
    let grey = fs::read(data("images/grey_8.png")).unwrap();
    let two = ExampleWriter::new().bytes("image", [&file]).bytes("mask", [&grey]).to_bytes();
    let two = write("2.tfrecord", two);
    let error = of(&two, &MeanOptions::default()).unwrap_err().to_string();
    assert!(error.contains("there are images in the features image, mask: say which is meant"), "{error}");
    let named = percolator_data::OpenOptions::default().image_feature("image").open(&two).unwrap();
    let found = mean(&named, &MeanOptions::default(), &Progress::new()).unwrap();
    assert_eq!(found.pixels, wanted.pixels);
    let usual = ExampleWriter::new().bytes("a", [&grey]).bytes("image/encoded", [&file]).to_bytes();
    let usual = write("3.tfrecord", usual);
    assert_eq!(of(&usual, &MeanOptions::default()).unwrap().pixels, wanted.pixels);
}
