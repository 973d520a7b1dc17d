//! What a batch holds is the plain computation over its records: crops, means, types and layouts, labels, and
//! images of many sizes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;

use half::{bf16, f16};
use percolator::batch::{FieldError, ImageShape};
use percolator::transform::MeanImage;
use percolator::{Dtype, Epochs, Layout, Phase, Transform};

use crate::common;
use crate::common::source::MemorySource;
use crate::lanes::{SHAPE, images, only_lane, over, pixels};

/// A window of an image, cropped and mirrored element by element.
fn cut(
    image: &[u8],
    [channels, height, width]: [usize; 3],
    crop: usize,
    top: usize,
    left: usize,
    mirrored: bool,
) -> Vec<u8> {
    let mut out = Vec::new();
    for channel in 0..channels {
        for row in 0..crop {
            for column in 0..crop {
                let column = if mirrored { crop - 1 - column } else { column };
                out.push(image[(channel * height + top + row) * width + left + column]);
            }
        }
    }
    out
}

#[test]
fn a_random_crop_is_a_window_of_its_record_and_every_window_comes() {
    let transform = Transform::new().crop(9).mirror(true);
    let mut feed =
        over(images("crops", 50)).batch_size(10).dtype(Dtype::U8).transform(transform).build().unwrap();
    let mut windows = HashSet::new();
    for batch in only_lane(&mut feed).take(100) {
        let batch = batch.unwrap();
        for (found, id) in batch.bytes().chunks(3 * 9 * 9).zip(batch.records()) {
            let image = pixels(usize::try_from(id.index).unwrap(), SHAPE);
            let all =
                (0..4).flat_map(|top| (0..4).flat_map(move |left| [(top, left, false), (top, left, true)]));
            let mut fits =
                all.filter(|&(top, left, mirrored)| cut(&image, SHAPE, 9, top, left, mirrored) == found);
            windows.insert(fits.next().unwrap_or_else(|| panic!("{id} is no window of its record")));
        }
    }
    assert_eq!(windows.len(), 4 * 4 * 2, "1000 records see all windows");
}

/// The expected f32 pixels of a record in a TEST feed of 10 records, with a centre crop of 9 and a mean.
fn centre(index: usize, mean: impl Fn(usize) -> f32, scale: f32) -> Vec<f32> {
    let image = pixels(index, SHAPE);
    let positions: Vec<usize> = (0..image.len()).collect();
    let mut out = Vec::new();
    for channel in 0..3 {
        for row in 1..10 {
            for column in 1..10 {
                let at = positions[(channel * 12 + row) * 12 + column];
                out.push((f32::from(image[at]) - mean(at)) * scale);
            }
        }
    }
    out
}

fn to_nhwc<T: Copy>(planar: &[T], channels: usize) -> Vec<T> {
    let plane = planar.len() / channels;
    (0..plane).flat_map(|at| (0..channels).map(move |channel| planar[channel * plane + at])).collect()
}

#[test]
fn every_type_and_layout_is_the_plain_computation() {
    let shape = ImageShape { channels: 3, height: 12, width: 12 };
    let mean_pixels: Vec<f32> = (0..432_u16).map(|at| f32::from(at) * 0.37 + 0.1).collect();
    let mean = MeanImage::new(shape, mean_pixels.clone()).unwrap();
    let with_mean = Transform::new().crop(9).mean_image(mean).scale(0.017);
    let with_values = Transform::new().crop(9).mean_values([104.0, 117.5, 123.0]).scale(1.7);
    let by_channel = |at: usize| [104.0, 117.5, 123.0][at / 144];
    type Mean<'a> = &'a dyn Fn(usize) -> f32;
    let by_pixel = |at: usize| mean_pixels[at];
    let cases: [(&Transform, Mean<'_>, f32); 2] =
        [(&with_mean, &by_pixel, 0.017), (&with_values, &by_channel, 1.7)];
    for (transform, mean, scale) in cases {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            let batch = |dtype| {
                let builder =
                    over(images("types", 10)).phase(Phase::Test).batch_size(10).transform(transform.clone());
                only_lane(&mut builder.dtype(dtype).layout(layout).build().unwrap()).next().unwrap().unwrap()
            };
            let mut want: Vec<f32> = Vec::new();
            for index in 0..10 {
                let planar = centre(index, mean, scale);
                want.extend(if layout == Layout::Nhwc { to_nhwc(&planar, 3) } else { planar });
            }
            let found = batch(Dtype::F32);
            let dims = if layout == Layout::Nhwc { [10, 9, 9, 3] } else { [10, 3, 9, 9] };
            assert_eq!(found.shape().dims(), dims);
            assert_eq!(found.pixels::<f32>().unwrap(), want, "{layout}");
            let halves: Vec<f16> = want.iter().map(|&value| f16::from_f32(value)).collect();
            assert_eq!(batch(Dtype::F16).pixels::<f16>().unwrap(), halves, "{layout}");
            let brains: Vec<bf16> = want.iter().map(|&value| bf16::from_f32(value)).collect();
            assert_eq!(batch(Dtype::Bf16).pixels::<bf16>().unwrap(), brains, "{layout}");
        }
    }
}

#[test]
fn bytes_are_cropped_and_left_as_they_are() {
    for layout in [Layout::Nchw, Layout::Nhwc] {
        let builder = over(images("bytes", 10)).phase(Phase::Test).batch_size(10).layout(layout);
        let mut feed = builder.dtype(Dtype::U8).transform(Transform::new().crop(9)).build().unwrap();
        let batch = only_lane(&mut feed).next().unwrap().unwrap();
        let want = (0..10).flat_map(|index| {
            let planar = cut(&pixels(index, SHAPE), SHAPE, 9, 1, 1, false);
            if layout == Layout::Nhwc { to_nhwc(&planar, 3) } else { planar }
        });
        assert!(want.eq(batch.bytes().iter().copied()), "{layout}");
        assert_eq!(batch.pixels::<u8>().unwrap(), batch.bytes());
    }
}

#[test]
fn float_records_feed_as_bytes_do() {
    let records = (0..6).map(|index| {
        let data = pixels(index, [2, 3, 4]).iter().map(|&pixel| f32::from(pixel) - 100.25).collect();
        (common::key(index), common::float_datum(2, 3, 4, 9, data))
    });
    let builder =
        over(MemorySource::new("floats", records)).batch_size(6).transform(Transform::new().scale(2.0));
    let batch = only_lane(&mut builder.build().unwrap()).next().unwrap().unwrap();
    let want =
        (0..6).flat_map(|index| pixels(index, [2, 3, 4])).map(|pixel| (f32::from(pixel) - 100.25) * 2.0);
    assert!(want.eq(batch.pixels::<f32>().unwrap().iter().copied()));
}

#[test]
fn labels_are_whole_and_their_floats_are_caffes() {
    let labels = [-5, i32::MIN, i32::MAX, 0, 16_777_217, -1];
    let records = labels
        .iter()
        .enumerate()
        .map(|(at, &label)| (common::key(at), common::datum(1, 1, 1, label, vec![0])));
    let mut feed = over(MemorySource::new("labels", records)).batch_size(6).build().unwrap();
    let batch = only_lane(&mut feed).next().unwrap().unwrap();
    assert_eq!(batch.labels().unwrap(), labels);
    assert_eq!(
        batch.labels_f32().unwrap(),
        [-5.0, -2_147_483_648.0, 2_147_483_648.0, 0.0, 16_777_216.0, -1.0]
    );
}

#[test]
fn a_batch_of_another_type_is_a_typed_mismatch() {
    let mut feed = over(images("mismatch", 3)).build().unwrap();
    let batch = only_lane(&mut feed).next().unwrap().unwrap();
    let mismatch = batch.pixels::<u8>().unwrap_err();
    let (found, wanted) = (Dtype::F32, Dtype::U8);
    assert_eq!(mismatch, FieldError::Dtype { field: "data".to_owned(), found, wanted });
    assert!(mismatch.to_string().contains("holds f32, but u8 was requested"));
}

#[test]
fn records_of_many_sizes_come_out_alike_when_they_are_cropped() {
    let shape = |index: usize| [1, 5 + index % 7, 5 + index % 4];
    let records = (0..28).map(move |index| {
        let [c, h, w] = shape(index);
        common::image(index, c, h, w)
    });
    let builder = over(MemorySource::new("sizes", records)).phase(Phase::Test).batch_size(5).dtype(Dtype::U8);
    let mut feed = builder.transform(Transform::new().crop(4)).epochs(Epochs::OnePass).build().unwrap();
    let mut index = 0;
    for batch in only_lane(&mut feed) {
        for found in batch.unwrap().bytes().chunks(16) {
            let [c, h, w] = shape(index);
            assert_eq!(found, cut(&pixels(index, [c, h, w]), [c, h, w], 4, (h - 4) / 2, (w - 4) / 2, false));
            index += 1;
        }
    }
    assert_eq!(index, 28);
    assert_eq!(feed.stats().lanes[0].growths, 0);
}

#[test]
fn a_batch_larger_than_any_before_grows_its_buffer_and_is_counted() {
    let records = (0..20).map(|index| common::image(index, 1, 4 + index * 30, 40));
    let mut feed = over(MemorySource::new("growing", records))
        .dtype(Dtype::U8)
        .prefetch(2)
        .epochs(Epochs::OnePass)
        .build()
        .unwrap();
    for (index, batch) in only_lane(&mut feed).enumerate() {
        let batch = batch.unwrap();
        assert_eq!(batch.shape().dims(), [1, 1, 4 + index * 30, 40]);
        assert_eq!(batch.bytes(), pixels(index, [1, 4 + index * 30, 40]));
    }
    let growths = feed.stats().lanes[0].growths;
    assert!((1..20).contains(&growths), "{growths}");
}
