//! A progressive file brings its coefficients a few bits at a time, in any order. A decoder that misplaces
//! one, or loses a bit, makes a picture that looks right. So random coefficients are written twice: as a
//! progressive file of random scans (`forge/progressive.rs`), and as a baseline file, which another part of
//! the decoder reads. Both must have the same pixels. With libjpeg-turbo at hand, `jpeg_twin` compares them
//! with its own.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test of small numbers"
)]

use percolator_image::{ColorMode, DecodeError, ImageFileDecoder};

use crate::forge::Numbers;
use crate::forge::progressive::{MadeOf, Twins, twins};
use crate::giant::giant_jpeg;
use crate::process::{check, child_command, role, this_test, under_a_limit_of_address_space};

const FILES: usize = 1000;

#[test]
fn a_progressive_file_has_the_pixels_of_the_baseline_file_of_its_coefficients() {
    let mut numbers = Numbers(1704);
    let modes = [ColorMode::Native, ColorMode::Color, ColorMode::Gray];
    let mut decoders = modes.map(|color| [ImageFileDecoder::new(color), ImageFileDecoder::new(color)]);
    let mut all = MadeOf::default();
    for at in 0..FILES {
        let Twins { progressive, baseline, made_of } = twins(&mut numbers);
        for [ours, reference] in &mut decoders {
            let found =
                ours.decode(&progressive).unwrap_or_else(|error| panic!("file {at}: {error}, {made_of:?}"));
            let wanted = reference.decode(&baseline).unwrap();
            assert_eq!(found.shape, wanted.shape, "file {at}");
            assert!(found.bytes == wanted.bytes, "file {at}, of {}: {made_of:?}", wanted.shape);
        }
        all.refinements += made_of.refinements;
        all.restarts += made_of.restarts;
        all.scans = all.scans.max(made_of.scans);
        all.longest_run = all.longest_run.max(made_of.longest_run);
    }
    // Every part of the format occurred often enough.
    assert!(all.refinements > FILES && all.restarts > FILES && all.scans > 30, "{all:?}");
    assert!(all.longest_run > 64, "{all:?}");
}

/// The address space of a child that decodes a file of a few megabytes.
const LIMIT_KIB: usize = 1500 << 10;

#[test]
fn a_file_whose_coefficients_there_is_no_memory_for_is_an_error() {
    if role().is_none() {
        let child = child_command(this_test!(), "child");
        let output = under_a_limit_of_address_space(&child, Some(LIMIT_KIB)).output().unwrap();
        return check(this_test!(), &output);
    }
    let error = ImageFileDecoder::default().decode(&giant_jpeg()).unwrap_err();
    // 64 coefficients of two bytes for each of 4,096 x 4,096 blocks.
    assert_eq!(error, DecodeError::Memory { bytes: 2 << 30 });
}
