//! Affine, rotated and tilted images against Pillow's, and against its arithmetic pixel by pixel.

use percolator_image::warp::{Affine, Rotation, Warp, WarpFilter};
use percolator_image::{ImageShape, Planes};
use proptest::prelude::*;
use serde_json::Value;

use crate::pillow::{Picture, cases, check, opened, text};

const FILTERS: [WarpFilter; 3] = [WarpFilter::Nearest, WarpFilter::Bilinear, WarpFilter::Bicubic];

fn filter(params: &Value) -> WarpFilter {
    match text(params, "interpolation") {
        "nearest" => WarpFilter::Nearest,
        "bilinear" => WarpFilter::Bilinear,
        "bicubic" => WarpFilter::Bicubic,
        name => panic!("{name}"),
    }
}

fn real(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn reals<const N: usize>(value: &Value) -> [f64; N] {
    let numbers: Vec<f64> = value.as_array().unwrap().iter().map(real).collect();
    numbers.try_into().unwrap()
}

fn level(value: &Value) -> u8 {
    u8::try_from(value.as_u64().unwrap()).unwrap()
}

/// The levels outside the image: one, or as many as it has planes.
fn fill(params: &Value) -> Vec<u8> {
    match &params["fill"] {
        Value::Null => vec![0],
        Value::Array(levels) => levels.iter().map(level).collect(),
        one => vec![level(one)],
    }
}

fn center(params: &Value) -> Option<[f64; 2]> {
    params.get("center").filter(|center| !center.is_null()).map(reals)
}

/// The warp of a case, if it is one of Pillow's.
fn warp(case: &Value, size: [usize; 2]) -> Option<Warp> {
    let params = &case["params"];
    if text(case, "library") == "torchvision+torch" {
        return None;
    }
    let magnitude = || real(&params["magnitude"]);
    let rotation = |angle| {
        let expand = params["expand"].as_bool().unwrap_or_default();
        Warp::rotation(Rotation { angle, expand, center: center(params) }, size)
    };
    Some(match text(case, "op") {
        "rotate" | "timm rotate" => rotation(real(&params["angle"])),
        "affine" => {
            let affine = Affine {
                angle: real(&params["angle"]),
                translate: reals(&params["translate"]),
                scale: real(&params["scale"]),
                shear: reals(&params["shear"]),
                center: center(params),
            };
            Warp::affine(affine, size)
        }
        "perspective" => {
            let points = |key: &str| -> [[f64; 2]; 4] { std::array::from_fn(|at| reals(&params[key][at])) };
            // The parser of JSON may be an ulp of an f64 off; they are f32.
            #[allow(clippy::cast_possible_truncation, reason = "rounded")]
            let coefficients = reals::<8>(&params["coefficients"]).map(|number| f64::from(number as f32));
            let warp = Warp::perspective(coefficients, size);
            assert_eq!(Warp::tilt(points("startpoints"), points("endpoints"), size), warp);
            warp
        }
        "RandAugment's ShearX" => Warp::shear_x(magnitude(), size),
        "RandAugment's ShearY" => Warp::shear_y(magnitude(), size),
        "RandAugment's TranslateX" => Warp::translate_x(magnitude(), size),
        "RandAugment's TranslateY" => Warp::translate_y(magnitude(), size),
        "RandAugment's Rotate" => rotation(magnitude()),
        op if op.starts_with("timm ") && params.get("matrix").is_some() => {
            Warp::matrix(reals(&params["matrix"]), size)
        }
        _ => return None,
    })
}

fn applied(warp: &Warp, image: Planes<'_>, filter: WarpFilter, fill: &[u8]) -> Picture {
    let [height, width] = warp.size();
    let shape = ImageShape { height, width, ..image.shape };
    let mut bytes = vec![0; shape.checked_elements().unwrap()];
    warp.apply(image, filter, fill, &mut bytes);
    Picture { shape, bytes }
}

#[test]
fn warps_are_pillows() {
    for (group, least) in [("geometry", 56), ("augment", 10), ("timm", 10)] {
        let found = cases(group).into_iter().filter_map(|case| {
            let picture = opened(text(&case, "source"));
            let warp = warp(&case, [picture.shape.height, picture.shape.width])?;
            let params = &case["params"];
            let made = applied(&warp, picture.planes(), filter(params), &fill(params));
            Some((text(&case, "name").to_owned(), made.checksum(), text(&case, "sha256").to_owned()))
        });
        check(found, least);
    }
}

/// An image whose pixels differ from their neighbours.
fn noise(shape: ImageShape) -> Picture {
    let elements = u32::try_from(shape.checked_elements().unwrap()).unwrap();
    let bytes = (0..elements).map(|at| at.wrapping_mul(0x9E37_79B1).to_be_bytes()[0]).collect();
    Picture { shape, bytes }
}

/// The pixel of a plane, where the edge is repeated.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn pixel(plane: &[u8], shape: ImageShape, x: f64, y: f64) -> f64 {
    let at = |place: f64, side: usize| (place.max(0.0) as usize).min(side - 1);
    f64::from(plane[at(y, shape.height) * shape.width + at(x, shape.width)])
}

fn cubic([a, b, c, d]: [f64; 4], t: f64) -> f64 {
    b + t * ((-a + c) + t * ((2.0 * (a - b) + c - d) + t * (-a + b - c + d)))
}

/// One pixel of Pillow's transform, at a place of the image.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "truncated, as in Pillow")]
fn sampled(plane: &[u8], shape: ImageShape, [x, y]: [f64; 2], filter: WarpFilter, fill: u8) -> u8 {
    let (width, height) = (shape.width as f64, shape.height as f64);
    if !(x >= 0.0 && x < width && y >= 0.0 && y < height) {
        return fill;
    }
    let (left, top) = ((x - 0.5).floor(), (y - 0.5).floor());
    let (dx, dy) = (x - 0.5 - left, y - 0.5 - top);
    let at = |right: f64, down: f64| pixel(plane, shape, left + right, top + down);
    match filter {
        WarpFilter::Nearest => pixel(plane, shape, x.floor(), y.floor()) as u8,
        WarpFilter::Bilinear => {
            let [upper, lower] = [0.0, 1.0].map(|down| at(0.0, down) + (at(1.0, down) - at(0.0, down)) * dx);
            (upper + (lower - upper) * dy) as u8
        }
        WarpFilter::Bicubic => {
            let steps = [-1.0, 0.0, 1.0, 2.0];
            let rows = steps.map(|down| cubic(steps.map(|right| at(right, down)), dx));
            cubic(rows, dy).clamp(0.0, 255.0) as u8
        }
        _ => panic!("{filter:?}"),
    }
}

/// The places of all pixels of an output, row by row, as Pillow's affine transform finds them.
#[allow(clippy::cast_possible_truncation, reason = "saturated, where Pillow does not care")]
fn places(m: [f64; 6], [height, width]: [usize; 2], filter: WarpFilter) -> Vec<[f64; 2]> {
    let (rows, columns) = (height as f64, width as f64);
    let mut places = Vec::new();
    if filter != WarpFilter::Nearest {
        for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
            let (x, y) = (column as f64 + 0.5, row as f64 + 0.5);
            places.push([m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]]);
        }
        return places;
    }
    let near = |x: f64, y: f64| {
        (x * m[0] + y * m[1] + m[2]).abs() < 32768.0 && (x * m[3] + y * m[4] + m[5]).abs() < 32768.0
    };
    let all_near = near(0.0, 0.0) && near(columns, 0.0) && near(0.0, rows) && near(columns, rows);
    if all_near && !(m[1] == 0.0 && m[3] == 0.0) {
        let fixed = |number: f64| (number * 65536.0 + 0.5).floor() as i64;
        let start = [fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), fixed(m[5] + m[3] * 0.5 + m[4] * 0.5)];
        for (row, column) in (0..height as i64).flat_map(|row| (0..width as i64).map(move |at| (row, at))) {
            let x = start[0] + fixed(m[0]) * column + fixed(m[1]) * row;
            let y = start[1] + fixed(m[3]) * column + fixed(m[4]) * row;
            places.push([x, y].map(|place| (place >> 16) as f64));
        }
        return places;
    }
    let (mut x_of_row, mut y_of_row) = (m[2] + m[1] * 0.5 + m[0] * 0.5, m[5] + m[4] * 0.5 + m[3] * 0.5);
    for _ in 0..height {
        let (mut x, mut y) = (x_of_row, y_of_row);
        for _ in 0..width {
            places.push([x, y]);
            x += m[0];
            y += m[3];
        }
        x_of_row += m[1];
        y_of_row += m[4];
    }
    places
}

fn modelled(m: [f64; 6], image: &Picture, size: [usize; 2], filter: WarpFilter, fill: &[u8]) -> Vec<u8> {
    let places = places(m, size, filter);
    let planes = image.bytes.chunks_exact(image.shape.height * image.shape.width);
    let planes = planes.enumerate().flat_map(|(channel, plane)| {
        let fill = fill[channel % fill.len()];
        places.iter().map(move |place| sampled(plane, image.shape, *place, filter, fill))
    });
    planes.collect()
}

proptest! {
    #[test]
    fn a_matrix_is_applied_as_pillow_does_it(
        sides in prop::array::uniform4(1_usize..80),
        linear in prop::array::uniform4(prop_oneof![Just(0.0), Just(1.0), -2.0..2.0]),
        moved in prop::array::uniform2(prop_oneof![Just(0.0), -40.0..60.0, -40_000.0..40_000.0]),
        channels in 1_usize..4,
    ) {
        let [height, width, to_height, to_width] = sides;
        let [a, b, c, d] = linear;
        let matrix = [a, b, moved[0], c, d, moved[1]];
        let image = noise(ImageShape { channels, height, width });
        let size = [to_height, to_width];
        let fill = &[3, 200, 90][..channels];
        for filter in FILTERS {
            let made = applied(&Warp::matrix(matrix, size), image.planes(), filter, fill);
            prop_assert!(made.bytes == modelled(matrix, &image, size, filter, fill), "{:?}", filter);
        }
    }
}

/// Corners of more than 32768 pixels rule out fixed point, though most pixels are in the image.
#[test]
fn a_matrix_that_reaches_far_is_applied_as_pillow_does_it() {
    let image = noise(ImageShape { channels: 1, height: 3, width: 40_000 });
    for m in [
        [0.9999, 0.3, 0.2, 0.00001, 1.0, 0.1],
        [100.7, 0.5, 0.0, 0.001, 0.02, 0.0],
        [-33.3, 0.0, 39_999.9, 0.0, 0.7, 0.0],
    ] {
        for filter in FILTERS {
            let size = [3, if m[0] < 1.0 && m[0] > 0.0 { 40_000 } else { 500 }];
            let made = applied(&Warp::matrix(m, size), image.planes(), filter, &[7]);
            assert!(made.bytes == modelled(m, &image, size, filter, &[7]), "{m:?} {filter:?}");
        }
    }
}

#[test]
fn a_warp_that_changes_nothing_leaves_any_image_as_it_is() {
    for (height, width) in [(1, 1), (1, 77), (77, 1), (31, 33), (64, 32)] {
        let image = noise(ImageShape { channels: 3, height, width });
        let size = [height, width];
        let warps = [
            Warp::affine(Affine::default(), size),
            Warp::rotation(Rotation::default(), size),
            Warp::rotation(Rotation { angle: 720.0, expand: true, center: None }, size),
            Warp::perspective([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0], size),
            Warp::shear_x(0.0, size),
            Warp::translate_y(-0.9, size),
        ];
        for (warp, filter) in warps.iter().flat_map(|warp| FILTERS.map(|filter| (warp, filter))) {
            let made = applied(warp, image.planes(), filter, &[9]);
            assert!(made.bytes == image.bytes, "{warp:?} {filter:?}");
        }
    }
}

#[test]
fn a_shift_moves_whole_pixels() {
    let image = noise(ImageShape { channels: 2, height: 4, width: 70 });
    let right = applied(&Warp::translate_x(3.9, [4, 70]), image.planes(), WarpFilter::Nearest, &[5, 6]);
    let rows = right.bytes.chunks(70).zip(image.bytes.chunks(70));
    for (row, (right, image)) in rows.enumerate() {
        assert_eq!(right[..3], [if row < 4 { 5 } else { 6 }; 3]);
        assert_eq!(right[3..], image[..67]);
    }
    let up = applied(&Warp::translate_y(-2.9, [4, 70]), image.planes(), WarpFilter::Nearest, &[5]);
    assert_eq!(up.bytes[..140], image.bytes[140..280]);
    assert_eq!(up.bytes[140..280], [5; 140]);
}

/// Numbers that no image has: most pixels are outside, and nothing panics.
#[test]
fn any_numbers_are_applied_to_any_image() {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, 1e-300, 1e9, -40_000.0, 0.0];
    for (height, width) in [(1, 1), (1, 40), (40, 1), (7, 5)] {
        let (image, size) = (noise(ImageShape { channels: 2, height, width }), [height, width]);
        for number in odd {
            let mut warps = vec![
                Warp::shear_x(number, size),
                Warp::shear_y(number, size),
                Warp::translate_x(number, size),
                Warp::translate_y(number, size),
                Warp::affine(Affine { scale: number, ..Affine::default() }, size),
                Warp::affine(Affine { angle: number, shear: [number, 3.0], ..Affine::default() }, size),
            ];
            for (expand, center) in [(false, None), (true, None), (true, Some([number, 1.0]))] {
                warps.push(Warp::rotation(Rotation { angle: number, expand, center }, size));
                warps.push(Warp::rotation(Rotation { angle: 30.0, expand, center }, size));
            }
            for at in 0..6 {
                let mut matrix = [1.0, 0.1, 0.0, 0.1, 1.0, 0.0];
                matrix[at] = number;
                warps.push(Warp::matrix(matrix, size));
            }
            for at in 0..8 {
                let mut coefficients = [1.0, 0.1, 0.0, 0.1, 1.0, 0.0, 0.01, -0.02];
                coefficients[at] = number;
                warps.push(Warp::perspective(coefficients, size));
            }
            for (warp, filter) in warps.iter().flat_map(|warp| FILTERS.map(|filter| (warp, filter))) {
                assert!(warp.size().iter().all(|side| (1..=height + width + 2).contains(side)), "{warp:?}");
                applied(warp, image.planes(), filter, &[9]);
            }
        }
        let nowhere = Warp::matrix([f64::NAN; 6], size);
        for filter in FILTERS {
            let made = applied(&nowhere, image.planes(), filter, &[9]);
            assert!(made.bytes.iter().all(|level| *level == 9), "{filter:?}");
        }
    }
}

#[test]
#[should_panic(expected = "one level for all planes, or one for each")]
fn levels_for_other_planes_are_refused() {
    let image = noise(ImageShape { channels: 3, height: 2, width: 2 });
    applied(&Warp::shear_x(0.1, [2, 2]), image.planes(), WarpFilter::Nearest, &[1, 2]);
}

#[test]
#[should_panic(expected = "a turn of an image of this size")]
fn a_turn_of_another_size_is_refused() {
    let image = noise(ImageShape { channels: 1, height: 2, width: 3 });
    let rotation = Rotation { angle: 90.0, expand: true, center: None };
    applied(&Warp::rotation(rotation, [3, 2]), image.planes(), WarpFilter::Nearest, &[0]);
}
