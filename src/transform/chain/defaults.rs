//! What torchvision's and timm's classes do if nothing is said: for serde, and for constructors.

#![cfg_attr(not(feature = "serde"), allow(dead_code, reason = "some of them are for specs alone"))]

use percolator_image::warp::WarpFilter;

macro_rules! defaults {
    ($($name:ident: $of:ty = $value:expr;)+) => {
        $(pub(super) fn $name() -> $of {
            $value
        })+
    };
}

defaults! {
    yes: bool = true;
    always: f64 = 1.0;
    half: f64 = 0.5;
    tenth: f64 = 0.1;
    three: u32 = 3;
    one: [f64; 2] = [1.0, 1.0];
    scale: [f64; 2] = [0.08, 1.0];
    ratio: [f64; 2] = [3.0 / 4.0, 4.0 / 3.0];
    sigma: [f64; 2] = [0.1, 2.0];
    erased: [f64; 2] = [0.02, 0.33];
    erased_ratio: [f64; 2] = [0.3, 3.3];
    rand_operations: u32 = 2;
    rand_magnitude: u32 = 9;
    timm_magnitude: f64 = 9.0;
    mean_colour: Vec<u8> = vec![124, 116, 104];
    bilinear: WarpFilter = WarpFilter::Bilinear;
}
