//! Operations of fixed parameters, as a feed does them, beside what torchvision with Pillow made of the same
//! files.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use percolator::transform::{Filter, Operation, PadMode, Resampling, ResizeLaw, WarpFilter};
use percolator::{ColorMode, Dtype, Layout, Transform};
use serde_json::{Value, json};

use crate::operations::{checksum, encoded, feed, file, first};

fn how(params: &Value) -> Resampling {
    let filter: Filter =
        serde_json::from_value(json!(params["interpolation"].as_str().unwrap().replace('-', "_"))).unwrap();
    Resampling { filter, law: ResizeLaw::Pillow13, ..Resampling::default() }
}

fn warp_filter(params: &Value) -> WarpFilter {
    serde_json::from_value(params["interpolation"].clone()).unwrap()
}

fn fill(params: &Value) -> Vec<u8> {
    let level = |value: &Value| u8::try_from(value.as_u64().unwrap()).unwrap();
    match &params["fill"] {
        Value::Null => Vec::new(),
        Value::Array(levels) => levels.iter().map(level).collect(),
        one => vec![level(one)],
    }
}

/// Left, top, right and bottom, unless pixels are cut off.
fn padding(params: &Value) -> Option<[u32; 4]> {
    let padding: Vec<i64> = serde_json::from_value(params["padding"].clone()).unwrap();
    let padding: Option<Vec<u32>> = padding.into_iter().map(|side| u32::try_from(side).ok()).collect();
    Some(match *padding? {
        [all] => [all; 4],
        [x, y] => [x, y, x, y],
        [left, top, right, bottom] => [left, top, right, bottom],
        _ => panic!("{params}"),
    })
}

fn of_geometry(op: &str, params: &Value) -> Option<Operation> {
    let number = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
    let angle = || [params["angle"].as_f64().unwrap(); 2];
    let size = &params["size"];
    Some(match op {
        "resize shorter side" => Operation::ResizeShorter {
            side: number(size.get(0).unwrap_or(size)),
            max_size: params.get("max_size").filter(|most| !most.is_null()).map(number),
            resampling: how(params),
        },
        "resize to h x w" => {
            Operation::Resize { height: number(&size[0]), width: number(&size[1]), resampling: how(params) }
        }
        "center_crop" => Operation::CenterCrop { height: number(&size[0]), width: number(&size[1]) },
        "pad" => {
            let mode: PadMode = serde_json::from_value(params["mode"].clone()).unwrap();
            Operation::Pad { padding: padding(params)?, mode, fill: fill(params) }
        }
        "hflip" => Operation::HorizontalFlip { probability: 1.0 },
        "vflip" => Operation::VerticalFlip { probability: 1.0 },
        "rotate" if params["center"].is_null() && params["expand"] == false => {
            Operation::RandomRotation { degrees: angle(), filter: warp_filter(params), fill: fill(params) }
        }
        "affine" if params.get("center").is_none() && params["translate"] == json!([0, 0]) => {
            let [x, y] = [0, 1].map(|axis| params["shear"][axis].as_f64().unwrap());
            Operation::RandomAffine {
                degrees: angle(),
                translate: [0.0; 2],
                scale: [params["scale"].as_f64().unwrap(); 2],
                shear: [x, x, y, y],
                filter: warp_filter(params),
                fill: fill(params),
            }
        }
        _ => return None,
    })
}

fn of_colour(op: &str, params: &Value) -> Option<Operation> {
    let (probability, float) = (1.0, |key: &str| params[key].as_f64().unwrap());
    Some(match op {
        "posterize" if params["bits"] != 0 => {
            let bits = u32::try_from(params["bits"].as_u64().unwrap()).unwrap();
            Operation::Posterize { bits, probability }
        }
        "invert" => Operation::Invert { probability },
        "solarize" => Operation::Solarize { threshold: float("threshold"), probability },
        "autocontrast" => Operation::AutoContrast { probability },
        "equalize" => Operation::Equalize { probability },
        "adjust_sharpness" => Operation::Sharpness { factor: float("factor"), probability },
        "rgb_to_grayscale" if params["channels"] == 3 => Operation::Grayscale { probability },
        "gaussian_blur"
            if params["kernel"][0] == params["kernel"][1] && params["sigma"][0] == params["sigma"][1] =>
        {
            let kernel = u32::try_from(params["kernel"][0].as_u64().unwrap()).unwrap();
            Operation::GaussianBlur { kernel, sigma: [params["sigma"][0].as_f64().unwrap(); 2], probability }
        }
        "ImageFilter.GaussianBlur(radius)" => {
            Operation::PillowBlur { radius: [float("radius"); 2], probability }
        }
        _ => return None,
    })
}

#[test]
fn operations_have_torchvisions_pixels() {
    let text = String::from_utf8(file("cases.jsonl")).unwrap();
    let (mut checked, mut differ) = (BTreeMap::<&str, u32>::new(), Vec::new());
    for case in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let (op, params) = (case["op"].as_str().unwrap(), &case["params"]);
        if case["library"] == "torchvision+torch" {
            continue;
        }
        let Some(operation) = of_geometry(op, params).or_else(|| of_colour(op, params)) else { continue };
        let source = case["source"].as_str().unwrap();
        let color = if source.contains("grey.png") { ColorMode::Gray } else { ColorMode::Rgb };
        *checked.entry(operation.name()).or_default() += 1;
        let transform = Transform::new().color(color).operation(operation);
        let feed = feed(vec![encoded(0, &file(source))], &transform);
        let batch = first(feed.dtype(Dtype::U8).layout(Layout::Nhwc));
        if checksum(batch.pixels::<u8>().unwrap()) != case["sha256"].as_str().unwrap() {
            differ.push(case["name"].as_str().unwrap().to_owned());
        }
    }
    let all: u32 = checked.values().sum();
    assert!(differ.is_empty(), "{} of {all} differ: {differ:?}", differ.len());
    let least =
        [("pad", 8), ("random_rotation", 15), ("random_affine", 10), ("pillow_blur", 6), ("posterize", 5)];
    for (name, least) in least {
        assert!(checked[name] >= least, "{name}: {checked:?}");
    }
    assert!(all >= 148, "{checked:?}");
}
