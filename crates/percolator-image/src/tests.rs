//! Tests of the decoder as a worker uses it; `tests/image/decode.rs` tests the decoded content.

use super::*;

fn file(name: &str) -> Vec<u8> {
    let package = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_old = name.ends_with(".jpg") || name.ends_with(".png");
    let folder = package.join(if is_old { "../../tests/data/images" } else { "tests/data/formats" });
    std::fs::read(folder.join(name)).unwrap()
}

/// Earlier files and the state of the buffers do not affect the result.
#[test]
fn a_file_comes_to_the_same_after_any_other() {
    let names = [
        "420.jpg",
        "exif_6.jpg",
        "grey_1.png",
        "resize_rgba.png",
        "rgb.jpg",
        "1x1.jpg",
        "resize_1x1.png",
        "256_part_clear.gif",
        "8_runs_skip.bmp",
        "turn_6.tif",
        "frames_rgba_part.webp",
        "100.ppm",
    ];
    let wants = [ColorMode::Native, ColorMode::Color, ColorMode::Gray]
        .into_iter()
        .flat_map(|color| [None, Some((9, 30))].map(|resize| Decode { color, resize, scaled: false }))
        .flat_map(|wanted| [false, true].map(|scaled| Decode { scaled, ..wanted }));
    let cases = names.iter().flat_map(|name| wants.clone().map(move |wanted| (name, wanted)));
    let cases: Vec<_> = cases.step_by(if cfg!(miri) { 9 } else { 1 }).collect();
    let mut kept = Decoder::default();
    for repetition in 0..if cfg!(miri) { 1 } else { 3 } {
        for at in 0..cases.len() {
            // Each repetition uses another order: these steps have no divisor in common with the number of
            // cases.
            let (name, wanted) = cases[at * [1, 5, 11][repetition] % cases.len()];
            let (mut fresh, file) = (Decoder::default(), file(name));
            let (kept, fresh) = (
                kept.decode(&file, &wanted, |_| None).unwrap(),
                fresh.decode(&file, &wanted, |_| None).unwrap(),
            );
            assert_eq!(kept.shape, fresh.shape, "{name} {wanted:?}");
            assert!(kept == fresh, "{name} {wanted:?}");
        }
    }
}

#[test]
fn an_error_leaves_the_decoder_as_good_as_new() {
    let (good, grey, wanted) = (file("420.jpg"), file("grey.jpg"), Decode::default());
    let mut decoder = Decoder::default();
    let first = decoder.decode(&good, &wanted, |_| None).unwrap().bytes.to_vec();
    for name in ["420.jpg", "grey_progressive.jpg", "resize_rgb.png"] {
        let mut bad = file(name);
        let at = bad.len() / 2;
        bad.drain(at..at + 9);
        let _ = decoder.decode(&bad, &wanted, |_| None);
        assert!(decoder.decode(&good, &wanted, |_| None).unwrap().bytes == first, "after {name}");
        // A file with fewer components than the failed one.
        let _ = decoder.decode(&bad, &wanted, |_| None);
        assert!(decoder.decode(&grey, &wanted, |_| None).is_ok(), "grey after {name}");
    }
}

#[test]
fn buffers_are_kept() {
    let mut decoder = Decoder::default();
    let wanted = Decode { color: ColorMode::Color, resize: Some((20, 30)), scaled: false };
    let files = [file("exif_6.jpg"), file("resize_rgba.png"), file("420.jpg")];
    let buffers = |decoder: &mut Decoder| {
        for file in &files {
            decoder.decode(file, &wanted, |_| None).unwrap();
        }
        let mut buffers =
            [&decoder.interleaved, &decoder.planes, &decoder.spare].map(|buffer| buffer.as_ptr());
        // Two of them are swapped.
        buffers[1..].sort();
        buffers
    };
    let warm = [buffers(&mut decoder), buffers(&mut decoder)][1];
    assert_eq!(buffers(&mut decoder), warm);
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri many minutes")]
fn a_pixel_takes_no_more_than_is_said() {
    // One decoder for all: the buffers of one format stay while another is read.
    let (mut decoder, mut most) = (Decoder::default(), 0);
    for name in [
        "resize_rgba.png",
        "rgba_16.png",
        "420_progressive.jpg",
        "444_restart_progressive.jpg",
        "exif_6.jpg",
        "frames_rgba.webp",
        "frames_rgba_part.webp",
        "rgba_lossy_turned.webp",
        "256_clear.gif",
        "rgba_16.tif",
        "planar_16.tif",
        "turn_6.tif",
        "palette_8.tif",
        "32_bgra_v4.bmp",
        "8_runs.bmp",
        "65535.ppm",
    ] {
        for color in [ColorMode::Native, ColorMode::Color, ColorMode::Gray] {
            for (resize, scaled) in [
                (None, false),
                (Some((3, 5)), true),
                (Some((9, 9)), true),
                (Some((30, 50)), false),
                (Some((50, 70)), false),
            ] {
                let (wanted, file) = (Decode { color, resize, scaled }, file(name));
                let pixels = file_pixels(&file, &wanted);
                // For the second image, the planes and the turned planes have been swapped.
                for _ in 0..3 {
                    let Ok(image) = decoder.decode(&file, &wanted, |_| None) else { continue };
                    let shape = image.shape;
                    most = pixels.clone().unwrap().max(shape.height * shape.width).max(most);
                    let buffers = [&decoder.interleaved, &decoder.planes, &decoder.spare];
                    let bytes = buffers.into_iter().map(Vec::capacity).sum::<usize>() + decoder.jpeg.bytes();
                    assert!(bytes <= PIXEL_BYTES_MAX * most, "{name} {wanted:?}: {bytes} of {most}");
                }
            }
        }
    }
}

#[test]
fn pixels_are_the_files_own_in_whole_blocks() {
    for (name, pixels) in [("exif_6.jpg", 16 * 32), ("exif_before.png", 13 * 11), ("resize_rgb.png", 40 * 52)]
    {
        let wanted = Decode { color: ColorMode::Color, resize: Some((9, 9)), scaled: true };
        assert_eq!(file_pixels(&file(name), &wanted), Ok(pixels), "{name}");
    }
}
