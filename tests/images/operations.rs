//! Operations on whole images, as a feed does them: beside what torchvision with Pillow made of the same
//! files (`crates/percolator-image/tests/data/pillow`), and beside themselves with other threads, from other
//! records, after a resume.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;

use bytemuck::Pod;
use half::{bf16, f16};
use percolator::batch::Element;
use percolator::decoder::ImageFileDecoder;
use percolator::proto::Datum;
use percolator::source::Matching;
use percolator::transform::{
    AutoAugmentPolicy, ErasedValue, Filter, Operation, PadMode, Resampling, ResizeLaw, TransformPlace,
    WarpFilter,
};
use percolator::{Batch, ColorMode, Dtype, Epochs, Feed, FeedBuilder, Layout, Target, Transform};
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::common::source::MemorySource;
use crate::common::{datum, float_datum, key, repository};

const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];

pub(crate) fn file(name: &str) -> Vec<u8> {
    std::fs::read(repository().join("crates/percolator-image/tests/data/pillow").join(name)).unwrap()
}

pub(crate) fn encoded(index: usize, file: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let label = i32::try_from(index).ok();
    let datum = Datum { data: Some(file.to_vec()), encoded: Some(true), label, ..Datum::default() };
    (key(index), datum.encode_to_vec())
}

pub(crate) fn feed(records: Vec<(Vec<u8>, Vec<u8>)>, transform: &Transform) -> FeedBuilder {
    Feed::builder().source(MemorySource::new("pictures", records)).transform(transform.clone()).batch_size(1)
}

pub(crate) fn first(feed: FeedBuilder) -> Batch {
    feed.build().unwrap().take_lanes().unwrap().remove(0).next().unwrap().unwrap()
}

pub(crate) fn checksum<T: Pod>(elements: &[T]) -> String {
    Sha256::digest(bytemuck::cast_slice::<T, u8>(elements)).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn an_evaluation_has_torchvisions_pixels() {
    let transform = Transform::new()
        .color(ColorMode::Rgb)
        .operations([Operation::resize_shorter(256), Operation::center_crop(224)]);
    let tensors = Resampling { law: ResizeLaw::Torch, ..Resampling::default() };
    for (transform, wanted) in [
        (transform.clone(), "61941fadbf4dccd4ce9d8117ca6e2d27dbacb9868158e73ca2806a93c275c8b1"),
        (transform.resampled(tensors), "e01c84de6b436e9b564e0fe17f873cfcea3542f3f2bce78ebb92e9be0c991258"),
    ] {
        let feed = feed(vec![encoded(0, &file("g_large.jpg"))], &transform);
        let batch = first(feed.dtype(Dtype::U8).layout(Layout::Nhwc));
        assert_eq!(checksum(batch.pixels::<u8>().unwrap()), wanted);
    }
}

#[test]
fn a_normalization_is_torchvisions_in_each_type_and_layout() {
    fn made<T: Element + Pod>(dtype: Dtype, layout: Layout) -> String {
        let transform = Transform::new().color(ColorMode::Rgb).normalize(MEAN, STD);
        let feed = feed(vec![encoded(0, &file("c_photo.png"))], &transform);
        checksum(first(feed.dtype(dtype).layout(layout)).pixels::<T>().unwrap())
    }
    let found = [Layout::Nchw, Layout::Nhwc].map(|layout| {
        [made::<f32>(Dtype::F32, layout), made::<f16>(Dtype::F16, layout), made::<bf16>(Dtype::Bf16, layout)]
    });
    let wanted = [
        [
            "6a2392ff6990db562715be37f372a8b4f2afffc78783e0978aaf68a4d3cb8625",
            "174ef28b79dd7592610a90dc40a9353370d7f76914f49598c4a51839d05499fe",
            "a232846da83267c07a5753a63ba8718f0b99e6cfec650aed359f19201ee38edf",
        ],
        [
            "36dbd6e6a9eb0d953ede9b553e991e418df073102d72f6e70a79fdb45fa9ead5",
            "e45379b0a2ac52735062ac045a40aab4deef17f5239cda517f6ae002f5a18b95",
            "ac01a28be6e47c53ccfb3a1397d626380ebf7bc312422eabecf69d15ee732978",
        ],
    ];
    assert_eq!(found, wanted.map(|row| row.map(str::to_owned)));
}

const PICTURES: [&str; 6] = [
    "jpg_420.jpg",
    "jpg_420_prog.jpg",
    "jpg_cmyk_adobe_inv.jpg",
    "g_large.jpg",
    "jpg_exif6.jpg",
    "png_rgba8.png",
];

/// One of every kind of file, as files and as the pixels that they are decoded to.
fn pictures(are_encoded: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut decoder = ImageFileDecoder::new(ColorMode::Rgb);
    let records = PICTURES.iter().enumerate().map(|(index, name)| {
        let file = file(name);
        if are_encoded {
            return encoded(index, &file);
        }
        let image = decoder.decode(&file).unwrap();
        let [channels, height, width] = [image.shape.channels, image.shape.height, image.shape.width]
            .map(|side| i32::try_from(side).unwrap());
        (key(index), datum(channels, height, width, i32::try_from(index).unwrap(), image.bytes.to_vec()))
    });
    records.collect()
}

/// All pixels of two epochs.
fn epochs(feed: FeedBuilder) -> Vec<Vec<u8>> {
    let mut feed = feed.dtype(Dtype::U8).epochs(2).seed(7).build().unwrap();
    let lane = feed.take_lanes().unwrap().remove(0);
    lane.map(|batch| batch.unwrap().pixels::<u8>().unwrap().to_vec()).collect()
}

#[test]
fn what_is_drawn_depends_on_the_record_alone() {
    let train = Transform::new()
        .color(ColorMode::Rgb)
        .operations([Operation::random_resized_crop(24), Operation::horizontal_flip()]);
    let crops = Transform::new()
        .color(ColorMode::Rgb)
        .operation(Operation::VerticalFlip { probability: 0.5 })
        .operation(Operation::horizontal_flip())
        .operation(Operation::random_crop(32, 4));
    for transform in [train, crops] {
        let one = epochs(feed(pictures(true), &transform).threads(1));
        assert_eq!(one.len(), 2 * PICTURES.len());
        assert_ne!(one[..PICTURES.len()], one[PICTURES.len()..], "each epoch draws anew");
        let many = epochs(feed(pictures(true), &transform).threads(4).batch_size(3)).concat();
        assert!(many == one.concat(), "of other batches, by other threads");
        // Of a file, only the part that is read is decoded.
        assert!(epochs(feed(pictures(false), &transform)) == one, "of pixels");
        let mut begun = feed(pictures(true), &transform).dtype(Dtype::U8).epochs(2).seed(7).build().unwrap();
        begun.steps().take(8).for_each(|step| drop(step.unwrap()));
        let resumed = feed(pictures(true), &transform).resume(&begun.snapshot().unwrap());
        assert!(epochs(resumed) == one[8..], "after a resume");
    }
}

/// Every operation in one chain.
fn everything() -> Transform {
    let usual = Transform::new().color(ColorMode::Rgb);
    usual.operations([
        Operation::resize_shorter(40),
        Operation::random_resized_crop(30),
        Operation::Pad { padding: [3, 0, 40, 1], mode: PadMode::Reflect, fill: vec![] },
        Operation::RandomCrop {
            height: 40,
            width: 28,
            padding: 2,
            pad_if_needed: true,
            mode: PadMode::Symmetric,
            fill: vec![9],
        },
        Operation::random_rotation(15.0),
        Operation::RandomAffine {
            degrees: [-5.0, 5.0],
            translate: [0.1, 0.2],
            scale: [0.9, 1.1],
            shear: [-3.0, 3.0, 0.0, 0.0],
            filter: WarpFilter::Bicubic,
            fill: vec![1, 2, 3],
        },
        Operation::random_perspective(),
        Operation::horizontal_flip(),
        Operation::VerticalFlip { probability: 0.2 },
        Operation::rand_augment(),
        Operation::TrivialAugmentWide,
        Operation::AutoAugment { policy: AutoAugmentPolicy::Cifar10 },
        Operation::timm_rand_augment(),
        Operation::aug_mix(),
        Operation::color_jitter(0.4, 0.4, 0.4, 0.1),
        Operation::Grayscale { probability: 0.2 },
        Operation::PillowBlur { radius: [0.1, 2.0], probability: 0.5 },
        Operation::Posterize { bits: 6, probability: 0.2 },
        Operation::Invert { probability: 0.2 },
        Operation::GaussianBlur { kernel: 5, sigma: [0.1, 2.0], probability: 0.5 },
        Operation::Solarize { threshold: 128.0, probability: 0.2 },
        Operation::Sharpness { factor: 1.5, probability: 0.5 },
        Operation::AutoContrast { probability: 0.2 },
        Operation::Equalize { probability: 0.2 },
        Operation::center_crop(26),
        Operation::resize(24, 25),
        Operation::random_erasing(0.5),
    ])
}

#[test]
fn a_chain_of_everything_is_data_and_gives_the_same_pixels() {
    let one = epochs(feed(pictures(true), &everything()).threads(1)).concat();
    let many = epochs(feed(pictures(true), &everything()).threads(4).batch_size(3)).concat();
    assert!(one == many);
    let text = serde_json::to_string(&everything()).unwrap();
    assert_eq!(serde_json::from_str::<Transform>(&text).unwrap(), everything(), "{text}");
    assert!(!serde_json::to_string(&Transform::new()).unwrap().contains("operations"));
    let short = r#"{"color_jitter": {"brightness": 0.4}}"#;
    assert_eq!(
        serde_json::from_str::<Operation>(short).unwrap(),
        Operation::color_jitter(0.4, 0.0, 0.0, 0.0)
    );
    let short = r#"{"random_resized_crop": {"height": 3, "width": 3, "resampling": {"filter": "bicubic"}}}"#;
    let how = Resampling { filter: Filter::Bicubic, ..Resampling::default() };
    let long = Operation::random_resized_crop(3).resampled(how);
    assert_eq!(serde_json::from_str::<Operation>(short).unwrap(), long);
    for (short, long) in [
        (r#"{"timm_rand_augment": {}}"#, Operation::timm_rand_augment()),
        (r#"{"aug_mix": {}}"#, Operation::aug_mix()),
        (r#"{"random_perspective": {}}"#, Operation::random_perspective()),
        (r#"{"random_rotation": {"degrees": [-9, 9]}}"#, Operation::random_rotation(9.0)),
        (r#"{"random_crop": {"height": 32, "width": 32, "padding": 4}}"#, Operation::random_crop(32, 4)),
        (r#"{"random_erasing": {"probability": 0.25}}"#, Operation::random_erasing(0.25)),
    ] {
        assert_eq!(serde_json::from_str::<Operation>(short).unwrap(), long);
    }
    let noise = r#"{"random_erasing": {"value": "random"}}"#;
    let found = serde_json::from_str::<Operation>(noise).unwrap();
    assert!(matches!(found, Operation::RandomErasing { value: ErasedValue::Random, .. }));
}

#[test]
fn what_is_erased_is_zero_after_the_normalization() {
    for layout in [Layout::Nchw, Layout::Nhwc] {
        let plain = Transform::new().color(ColorMode::Rgb).operation(Operation::resize(40, 50));
        let elements = |transform: Transform| {
            let feed = feed(pictures(true), &transform.normalize(MEAN, STD));
            let mut feed = feed.layout(layout).epochs(1).build().unwrap();
            let lane = feed.take_lanes().unwrap().remove(0);
            lane.map(|batch| batch.unwrap().pixels::<f32>().unwrap().to_vec()).collect::<Vec<_>>()
        };
        let whole = elements(plain.clone());
        let erased = elements(plain.operation(Operation::random_erasing(1.0)));
        for (whole, erased) in whole.iter().zip(&erased) {
            let zeros = erased.iter().zip(whole).filter(|(erased, whole)| erased != whole);
            let zeros: Vec<_> = zeros.map(|(erased, _)| *erased).collect();
            assert!(zeros.iter().all(|element| element.to_bits() == 0));
            // From 0.02 of the area, less rounding, to 0.33; and of all three channels.
            assert!((100..2100).contains(&zeros.len()) && zeros.len() % 3 == 0, "{}", zeros.len());
        }
    }
}

#[test]
fn pixels_of_a_flip_are_those_of_the_image_in_another_order() {
    let flipped = |probability| {
        let transform = Transform::new()
            .color(ColorMode::Rgb)
            .operation(Operation::resize(9, 11))
            .operation(Operation::HorizontalFlip { probability });
        epochs(feed(pictures(true), &transform)).concat()
    };
    let (never, always) = (flipped(0.0), flipped(1.0));
    assert_ne!(never, always);
    let mirrored: Vec<u8> = never.chunks_exact(11).flat_map(|row| row.iter().rev().copied()).collect();
    assert!(always == mirrored);
}

fn refused(transform: &Transform, set: impl FnOnce(FeedBuilder) -> FeedBuilder) -> String {
    set(feed(pictures(true), transform)).build().unwrap_err().to_string()
}

#[test]
fn what_is_impossible_is_refused_before_the_first_batch() {
    let new = || Transform::new().color(ColorMode::Rgb);
    let plain = |transform: Transform| refused(&transform, |feed| feed);
    let crop = || Operation::center_crop(24);
    for (found, words) in [
        (
            plain(new().operation(crop()).operation(Operation::resize(0, 3))),
            "operation 2, resize: a height of 0",
        ),
        (
            plain(new().operation(Operation::HorizontalFlip { probability: 1.5 })),
            "operation 1, horizontal_flip: a probability of 1.5: allowed are 0 to 1",
        ),
        (
            plain(new().operation(Operation::RandomResizedCrop {
                height: 4,
                width: 4,
                scale: [0.5, 0.2],
                ratio: [1.0, 1.0],
                resampling: Resampling::default(),
            })),
            "a scale from 0.5 to 0.2",
        ),
        (
            plain(new().operation(crop().resampled(Resampling::default())).operation(
                Operation::resize(4, 4).resampled(Resampling { antialias: false, ..Resampling::default() }),
            )),
            "operation 2, resize: Pillow always antialiases",
        ),
        (
            refused(&Transform::new().operation(Operation::rand_augment()), |feed| feed),
            "rand_augment takes red first: decode images to RGB or to grey",
        ),
        (
            plain(new().operation(Operation::random_erasing(0.1)).operation(crop())),
            "operation 1, random_erasing: others after it: it comes last",
        ),
        (
            plain(new().operation(Operation::color_jitter(0.4, 0.4, 0.4, 0.6))),
            "a hue of 0.6: allowed are 0 to 0.5",
        ),
        (plain(new().operation(Operation::gaussian_blur(4))), "a kernel of 4: allowed are odd sides"),
        (
            plain(new().operation(Operation::RandAugment { operations: 2, magnitude: 31 })),
            "2 operations of magnitude 31",
        ),
        (plain(new().operation(Operation::random_crop(4000, 4))), "random_crop: 4000x4000 are cut out"),
        (
            plain(new().operation(Operation::GaussianBlur {
                kernel: 3,
                sigma: [1e-50, 1.0],
                probability: 1.0,
            })),
            "allowed are 0.001 and more",
        ),
        (plain(new().operation(Operation::random_crop(8, 1 << 20))), "pixels would be made of an image of"),
    ] {
        assert!(found.contains(words), "{found}");
    }
}

/// The parameters of one operation as data, and what is said about them.
const IMPOSSIBLE: [(&str, &str); 22] = [
    (r#"{"random_rotation": {"degrees": [9, 3]}}"#, "degrees from 9 to 3: allowed are numbers from -360 to"),
    (r#"{"random_rotation": {"degrees": [0, 361]}}"#, "degrees from 0 to 361"),
    (
        r#"{"random_rotation": {"degrees": [0, 1], "fill": [1, 2]}}"#,
        "a fill of 2 levels: allowed are 1 or as many",
    ),
    (r#"{"random_affine": {"degrees": [0, 0], "translate": [0.1, 1.5]}}"#, "a translate of 1.5"),
    (r#"{"random_affine": {"degrees": [0, 0], "scale": [0, 1]}}"#, "a scale from 0 to 1"),
    (r#"{"random_affine": {"degrees": [0, 0], "shear": [0, 1, 0, 90]}}"#, "a shear from 0 to 90: allowed"),
    (r#"{"random_perspective": {"distortion": 1.1}}"#, "a distortion of 1.1: allowed are 0 to 1"),
    (r#"{"pillow_blur": {"radius": [-1, 1]}}"#, "a radius of -1: allowed are 0 to 1000"),
    (r#"{"pillow_blur": {"radius": [3, 1]}}"#, "a radius from 3 to 1"),
    (r#"{"posterize": {"bits": 0}}"#, "bits of 0: allowed are 1 to 8"),
    (r#"{"invert": {"probability": -1}}"#, "a probability of -1"),
    (r#"{"aug_mix": {"severity": 11}}"#, "a severity of 11: allowed are 1 to 10"),
    (r#"{"aug_mix": {"mixture_width": 65}}"#, "a mixture_width of 65: allowed are 1 to 64"),
    (r#"{"aug_mix": {"chain_depth": 0}}"#, "a chain_depth of 0"),
    (r#"{"aug_mix": {"alpha": 0}}"#, "an alpha of 0: allowed are 0.001 to 1000"),
    (r#"{"timm_rand_augment": {"magnitude": 11}}"#, "a magnitude of 11: allowed are 0 to 10"),
    (r#"{"timm_rand_augment": {"magnitude_std": -1}}"#, "a magnitude_std of -1"),
    (r#"{"timm_rand_augment": {"operations": 0}}"#, "operations of 0: allowed are 1 to 100"),
    (
        r#"{"resize_shorter": {"side": 9, "max_size": 9}}"#,
        "a max_size of 9: allowed is more than the shorter side's 9",
    ),
    (r#"{"pad": {"padding": [0, 0, 0, 2000000]}}"#, "a padding of 2000000"),
    (r#"{"pad": {"padding": [1000000, 9, 9, 9]}}"#, "pixels would be made of an image of"),
    (
        r#"{"random_crop": {"height": 20000, "width": 20000, "pad_if_needed": true}}"#,
        "pixels would be made of an image of",
    ),
];

#[test]
fn an_impossible_parameter_is_refused_by_its_name() {
    for (operation, words) in IMPOSSIBLE {
        let parsed: Operation = serde_json::from_str(operation).unwrap();
        let named = format!("operation 1, {}: ", parsed.name());
        let found = refused(&Transform::new().color(ColorMode::Rgb).operation(parsed), |feed| feed);
        assert!(found.contains(&named) && found.contains(words), "{operation}: {found}");
    }
}

#[test]
fn what_does_not_go_together_is_refused_before_the_first_batch() {
    let new = || Transform::new().color(ColorMode::Rgb);
    let plain = |transform: Transform| refused(&transform, |feed| feed);
    let crop = || Operation::center_crop(24);
    for (found, words) in [
        (plain(new().operation(crop()).crop(3)), "operations take the place of the crop"),
        (plain(new().operation(crop()).mirror(true)), "operations take the place of the mirror"),
        (plain(new().operation(crop()).resize(3, 3)), "operations take the place of the resize"),
        (plain(new().operation(crop()).normalize(MEAN, [0.1, 0.0, 0.2])), "no deviation of 0"),
        (
            plain(new().operation(crop()).normalize([0.1; 2], [0.1; 2])),
            "1 mean or as many as channels: 3, found 2",
        ),
        (plain(new().operation(crop()).normalize([0.1; 3], [0.1; 1])), "as many means as deviations"),
        (plain(new().normalize(MEAN, STD).scale(0.5)), "takes the place of mean and scale, found a scale"),
        (plain(new().normalize(MEAN, STD).mean_value(3.0)), "found a mean as well"),
        (refused(&new().normalize(MEAN, STD), |feed| feed.dtype(Dtype::U8)), "u8 output takes no mean"),
        (
            refused(&new().normalize(MEAN, STD), |feed| feed.transform_on(TransformPlace::Device)),
            "normalizations are for images alone, on the host, and not on a device",
        ),
        (
            refused(&new(), |feed| {
                let masks = MemorySource::new("masks", pictures(true));
                let of_target = new().operation(crop());
                feed.target(Target::paired(masks, Matching::Keys).transform(of_target))
            }),
            "operations are for images alone, on the host, and not of a target",
        ),
        (
            refused(&new().operation(crop()), |feed| feed.target(Target::float_data())),
            "operations are for images alone, on the host, and not beside a target",
        ),
    ] {
        assert!(found.contains(words), "{found}");
    }
}

#[test]
fn records_that_no_operation_takes_are_errors_that_name_them() {
    let normalized = Transform::new().normalize([0.5], [0.5]);
    let floats = (key(0), float_datum(1, 3, 3, 0, vec![0.5; 9]));
    let lane = feed(vec![floats], &normalized).build().unwrap().take_lanes().unwrap().remove(0);
    let error = lane.last().unwrap().unwrap_err().to_string();
    assert!(error.contains("normalizations take images of bytes"), "{error}");
    let transform = Transform::new().operation(Operation::center_crop(2));
    let good = (key(0), datum(1, 3, 3, 0, vec![1; 9]));
    for (bad, words) in [
        (float_datum(1, 3, 3, 0, vec![0.5; 9]), "operations take images of bytes, found a record of floats"),
        (datum(1, 3, 3, 0, vec![1; 8]), "8"),
    ] {
        let feed =
            feed(vec![good.clone(), (key(1), bad)], &transform).dtype(Dtype::F32).epochs(Epochs::OnePass);
        let lane = feed.build().unwrap().take_lanes().unwrap().remove(0);
        let error = lane.last().unwrap().unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("record 1"), "{error}");
    }
}

/// Images of one pixel, of one row and of one column.
#[test]
fn thin_images_are_resized_too() {
    let records: Vec<_> = [(1, 1), (1, 300), (300, 1), (2, 65)]
        .into_iter()
        .enumerate()
        .map(|(index, (height, width))| {
            (key(index), datum(3, height, width, 0, vec![77; (3 * height * width) as usize]))
        })
        .collect();
    for filter in
        [Filter::Nearest, Filter::Box, Filter::Bilinear, Filter::Hamming, Filter::Bicubic, Filter::Lanczos]
    {
        let how = Resampling { filter, ..Resampling::default() };
        let transform = Transform::new().operation(Operation::random_resized_crop(8).resampled(how));
        let pixels = epochs(feed(records.clone(), &transform)).concat();
        assert_eq!(pixels.len(), 2 * 4 * 3 * 64);
        assert!(pixels.iter().all(|pixel| *pixel == 77), "{filter:?}");
    }
}

#[test]
fn memory_is_counted() {
    let budget = |transform: &Transform| {
        let feed = feed(pictures(true), transform).threads(1).dtype(Dtype::U8);
        feed.build().unwrap().memory_budget().total_bytes()
    };
    let plain = Transform::new().color(ColorMode::Rgb);
    // Batches of both are the same.
    let large = [Operation::resize(600, 600), Operation::center_crop(24)];
    let small = budget(&plain.clone().operation(Operation::center_crop(24)));
    assert!(budget(&plain.operations(large)) > small + 2 * 600 * 600 * 3);
}
