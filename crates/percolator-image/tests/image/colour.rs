//! Changes of colours as Pillow, torchvision and timm make them of PIL images.

use percolator_image::ImageShape;
use percolator_image::colour::{Picture as Colours, Scratch};
use serde_json::Value;

use crate::pillow::{Picture, cases, check, number, opened, text};

fn float(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn pair<T>(value: &Value, each: impl Fn(&Value) -> T) -> [T; 2] {
    [each(&value[0]), each(&value[1])]
}

/// Does an operation, by torchvision's name of its function. `false` if it is not one of colours.
fn change(colours: &mut Colours<'_>, op: &str, params: &Value, scratch: &mut Scratch) -> bool {
    let factor = params["factor"].as_f64().unwrap_or(f64::NAN);
    match op {
        "adjust_brightness" => colours.brightness(factor),
        "adjust_contrast" => colours.contrast(factor),
        "adjust_saturation" => colours.saturation(factor),
        "adjust_sharpness" => colours.sharpness(factor, scratch).unwrap(),
        "adjust_hue" => colours.hue(factor),
        "adjust_gamma" => colours.gamma(float(&params["gamma"]), float(&params["gain"])),
        "rgb_to_grayscale" => colours.grey(),
        "posterize" => colours.posterize(u32::try_from(number(&params["bits"])).unwrap()),
        "solarize" => colours.solarize(float(&params["threshold"])),
        "autocontrast" => colours.autocontrast(),
        "equalize" => colours.equalize(),
        "invert" => colours.invert(),
        "gaussian_blur" => {
            let (kernel, sigma) = (pair(&params["kernel"], number), pair(&params["sigma"], float));
            colours.gaussian_blur(kernel, sigma, scratch).unwrap();
        }
        "ImageFilter.GaussianBlur(radius)" => {
            colours.pillow_blur(float(&params["radius"]), scratch).unwrap();
        }
        "timm solarize_add" => {
            let add = u8::try_from(number(&params["add"])).unwrap();
            colours.solarize_add(add, float(&params["threshold"]));
        }
        "timm desaturate" => colours.saturation((1.0 - factor).clamp(0.0, 1.0)),
        _ => return false,
    }
    true
}

/// Does an operation of the policies, by its name.
fn augment(colours: &mut Colours<'_>, op: &str, wanted: &Value, scratch: &mut Scratch) -> bool {
    let magnitude = wanted.as_f64().unwrap_or_default();
    let (op, params) = match op {
        "Identity" => return true,
        "Brightness" => ("adjust_brightness", serde_json::json!({ "factor": 1.0 + magnitude })),
        "Color" => ("adjust_saturation", serde_json::json!({ "factor": 1.0 + magnitude })),
        "Contrast" => ("adjust_contrast", serde_json::json!({ "factor": 1.0 + magnitude })),
        "Sharpness" => ("adjust_sharpness", serde_json::json!({ "factor": 1.0 + magnitude })),
        "Posterize" => ("posterize", serde_json::json!({ "bits": wanted })),
        "Solarize" => ("solarize", serde_json::json!({ "threshold": 255.0 * magnitude })),
        "AutoContrast" => ("autocontrast", Value::Null),
        "Equalize" => ("equalize", Value::Null),
        "Invert" => ("invert", Value::Null),
        _ => return false,
    };
    change(colours, op, &params, scratch)
}

#[test]
fn colours_change_as_in_pillow() {
    let mut scratch = Scratch::default();
    let groups = ["colour", "augment", "timm"].into_iter().flat_map(cases);
    let found = groups.filter_map(|case| {
        if text(&case, "library") == "torchvision+torch" {
            return None;
        }
        let (op, params) = (text(&case, "op"), &case["params"]);
        let Picture { shape, mut bytes } = opened(text(&case, "source"));
        let mut colours = Colours::new(shape, &mut bytes);
        let is_known = if let Some(order) = params["order"].as_array() {
            order.iter().all(|step| {
                let name = ["brightness", "contrast", "saturation", "hue"][number(step)];
                let params = serde_json::json!({ "factor": params[name] });
                change(&mut colours, &format!("adjust_{name}"), &params, &mut scratch)
            })
        } else if let Some(op) = op.strip_prefix("RandAugment's ") {
            augment(&mut colours, op, &params["magnitude"], &mut scratch)
        } else {
            change(&mut colours, op, params, &mut scratch)
        };
        if !is_known {
            return None;
        }
        let mut made = Picture { shape, bytes };
        if params["channels"] == 1 {
            // The other way to grey gives the same.
            let Picture { shape, mut bytes } = opened(text(&case, "source"));
            let grey = Colours::new(shape, &mut bytes).into_grey();
            assert!(
                made.bytes.chunks_exact(grey.planes().bytes.len()).all(|plane| plane == grey.planes().bytes)
            );
            made = Picture { shape: grey.shape(), bytes: grey.planes().bytes.to_vec() };
        }
        Some((text(&case, "name").to_owned(), made.checksum(), text(&case, "sha256").to_owned()))
    });
    check(found.collect::<Vec<_>>().into_iter(), 121);
}

/// Every operation, with parameters that are not neutral.
fn all(colours: &mut Colours<'_>, scratch: &mut Scratch) {
    colours.brightness(1.3);
    colours.contrast(0.6);
    colours.saturation(1.7);
    colours.hue(-0.3);
    colours.gamma(0.8, 1.0);
    colours.solarize(200.5);
    colours.solarize_add(30, 128.0);
    colours.sharpness(1.8, scratch).unwrap();
    colours.gaussian_blur([5, 3], [1.1, 0.7], scratch).unwrap();
    colours.gaussian_blur([23, 23], [2.0, 2.0], scratch).unwrap();
    colours.pillow_blur(0.4, scratch).unwrap();
    colours.pillow_blur(9.5, scratch).unwrap();
    colours.autocontrast();
    colours.equalize();
    colours.posterize(6);
    colours.invert();
    colours.grey();
}

#[test]
fn images_of_any_size_change() {
    let mut scratch = Scratch::default();
    for channels in [1, 3] {
        for [height, width] in [[1, 1], [1, 7], [7, 1], [2, 2], [3, 3], [2, 70], [70, 2], [33, 31], [5, 66]] {
            let shape = ImageShape { channels, height, width };
            let len = shape.checked_elements().unwrap();
            let image: Vec<u8> = (0..len).map(|at| u8::try_from(at * at * 7 % 251).unwrap()).collect();
            let [mut fresh, mut again] = [image.clone(), image];
            all(&mut Colours::new(shape, &mut fresh), &mut Scratch::default());
            all(&mut Colours::new(shape, &mut again), &mut scratch);
            assert_eq!(fresh, again, "{shape}");
        }
    }
}

#[test]
fn what_has_one_level_keeps_to_it() {
    let mut scratch = Scratch::default();
    let shape = ImageShape { channels: 3, height: 9, width: 40 };
    for level in [0, 1, 127, 254, 255] {
        let mut image = vec![level; 3 * 9 * 40];
        let mut colours = Colours::new(shape, &mut image);
        colours.autocontrast();
        colours.equalize();
        colours.contrast(1.9);
        colours.saturation(0.2);
        colours.hue(0.4);
        colours.sharpness(0.3, &mut scratch).unwrap();
        colours.gaussian_blur([9, 7], [1.3, 2.0], &mut scratch).unwrap();
        colours.pillow_blur(3.7, &mut scratch).unwrap();
        colours.grey();
        assert!(image.iter().all(|found| *found == level), "{level}");
    }
}
