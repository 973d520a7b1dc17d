//! Files as sloppy writers leave them: what OpenCV reads is read to the same pixels, and what it refuses is
//! refused in plain words. OpenCV 5.0.0 (libpng 1.6, libjpeg-turbo 3.1.2) was asked of every line here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::cast_possible_truncation, reason = "a test's numbers are small")]

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use percolator_image::{ColorMode, ImageFileDecoder};

fn decode(file: &[u8], color: ColorMode) -> Result<Vec<u8>, String> {
    let mut decoder = ImageFileDecoder::new(color);
    decoder.decode(file).map(|planes| planes.bytes.to_vec()).map_err(|error| error.to_string())
}

fn read(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/images");
    std::fs::read(folder.join(name)).unwrap()
}

/// Where each segment up to the first scan starts and ends, with its marker.
fn segments(file: &[u8]) -> Vec<(u8, usize, usize)> {
    let (mut at, mut found) = (2, Vec::new());
    loop {
        let end = at + 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
        found.push((file[at + 1], at, end));
        if file[at + 1] == 0xda {
            return found;
        }
        at = end;
    }
}

const DHT: u8 = 0xc4;

/// Frames of Motion JPEG (AVI1, UVC cameras) leave out the standard's tables.
#[test]
fn huffman_tables_that_are_left_out_are_the_standards() {
    for name in ["444.jpg", "420.jpg", "grey.jpg", "420_restart.jpg"] {
        let file = read(name);
        let tables: Vec<_> = segments(&file).into_iter().filter(|segment| segment.0 == DHT).collect();
        assert!(tables.len() >= 2, "{name}");
        for without in (0..tables.len()).map(Some).chain([None]) {
            let mut frame = file.clone();
            for (number, &(_, start, end)) in tables.iter().enumerate().rev() {
                if without.is_none_or(|without| without == number) {
                    frame.drain(start..end);
                }
            }
            for color in [ColorMode::Native, ColorMode::Color, ColorMode::Gray] {
                let found = decode(&frame, color);
                assert!(found == decode(&file, color), "{name}, {without:?}: {:?}", found.err());
            }
        }
    }
    // libjpeg gives them to no progressive file.
    let file = read("420_progressive.jpg");
    let (_, start, end) = segments(&file).into_iter().find(|segment| segment.0 == DHT).unwrap();
    let error = decode(&[&file[..start], &file[end..]].concat(), ColorMode::Native).unwrap_err();
    assert!(error.contains("a scan whose Huffman table is missing"), "{error}");
}

#[test]
fn stray_bytes_between_segments_are_skipped() {
    let long = [0; 3000];
    for name in ["444.jpg", "grey.jpg", "420_restart.jpg", "420_progressive.jpg"] {
        let file = read(name);
        let mut places: Vec<_> = segments(&file).into_iter().map(|(_, start, _)| start).collect();
        places.push(file.len() - 2);
        let whole = decode(&file, ColorMode::Native);
        // Some are a marker without a segment: a restart, or one of no meaning.
        for stray in
            [&[0][..], &[1, 2, 3], &[0xff, 0xff], &[0xff, 0, 7, 0xff, 0xff, 0, 0xff], &[0xff, 0xd3], &long]
        {
            // The third byte of a file belongs to its signature.
            // In the scan's data, such a marker ends an interval.
            let last = places.len() - usize::from(stray == [0xff, 0xd3]);
            for &place in &places[1..last] {
                let file = [&file[..place], stray, &file[place..]].concat();
                let found = decode(&file, ColorMode::Native);
                assert!(found == whole, "{name}, {:x?} at {place}: {:?}", &stray[..1], found.err());
            }
        }
        for (code, length) in [0xfe, 0xdc, 0xe0, 0xe1, 0xe5, 0xee]
            .into_iter()
            .flat_map(|code| (0..3).map(move |length| (code, length)))
        {
            let place = places[1];
            let file = [&file[..place], &[0xff, code, 0, length], &file[place..]].concat();
            assert!(decode(&file, ColorMode::Native) == whole, "{name}, {code:x} of length {length}");
        }
    }
    // A segment without room for its own length hides no orientation.
    let (file, empty) = (read("exif_6.jpg"), [0xff, 0xe1, 0, 0]);
    assert_eq!(
        decode(&[&file[..2], &empty, &file[2..]].concat(), ColorMode::Color),
        decode(&file, ColorMode::Color)
    );
}

const HEIGHT: usize = 9;
const WIDTH: usize = 11;

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let covered = [&kind[..], data].concat();
    [&(data.len() as u32).to_be_bytes()[..], &covered, &crc(&covered).to_be_bytes()].concat()
}

/// The same with a wrong checksum.
fn damaged(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let mut chunk = chunk(kind, data);
    *chunk.last_mut().unwrap() ^= 1;
    chunk
}

fn header(methods: &[u8]) -> Vec<u8> {
    chunk(b"IHDR", &[&[0, 0, 0, WIDTH as u8, 0, 0, 0, HEIGHT as u8, 8, 2], methods].concat())
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Rows of noise, each after the byte that says that it is not filtered.
fn rows() -> Vec<u8> {
    let pixels = (0..HEIGHT * WIDTH * 3).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[2]);
    let pixels: Vec<u8> = pixels.collect();
    pixels.chunks(WIDTH * 3).flat_map(|row| [&[0], row].concat()).collect()
}

/// A PNG of these chunks before its data, at its data, and behind them.
fn png(before: &[Vec<u8>], data: &[Vec<u8>], behind: &[Vec<u8>]) -> Vec<u8> {
    let (start, end) = (header(&[0, 0, 0]), chunk(b"IEND", b""));
    [b"\x89PNG\r\n\x1a\n", &start[..], &before.concat(), &data.concat(), &behind.concat(), &end].concat()
}

fn frame(number: u8, width: usize) -> Vec<u8> {
    let sizes = [0, 0, 0, number, 0, 0, 0, width as u8, 0, 0, 0, HEIGHT as u8];
    chunk(b"fcTL", &[&sizes[..], &[0; 8], &[0, 1, 0, 10, 0, 0]].concat())
}

#[test]
fn chunks_that_pixels_do_not_need_do_not_matter() {
    let packed = zlib(&rows());
    let data = [chunk(b"IDAT", &packed)];
    let whole = decode(&png(&[], &data, &[]), ColorMode::Color);
    assert_eq!(whole.as_ref().map(Vec::len), Ok(HEIGHT * WIDTH * 3));
    let same = |what: &str, file: Vec<u8>| {
        for color in [ColorMode::Native, ColorMode::Color] {
            let found = decode(&file, color);
            assert!(found == whole, "{what}: {:?}", found.err());
        }
    };
    let gamma = chunk(b"gAMA", &[0, 0, 0xb1, 0x8f]);
    same("a text's checksum", png(&[damaged(b"tEXt", b"a\0b")], &data, &[]));
    same("a gamma's checksum", png(&[damaged(b"gAMA", &[0, 0, 1, 2])], &data, &[]));
    same("two gammas", png(&[gamma.clone(), gamma.clone()], &data, &[]));
    same("a short cHRM", png(&[chunk(b"cHRM", b"abc")], &data, &[]));
    same("a wrong sBIT", png(&[chunk(b"sBIT", &[9, 9, 9])], &data, &[]));
    same("a short pHYs", png(&[chunk(b"pHYs", &[1])], &data, &[]));
    same("an unknown chunk", png(&[chunk(b"abCD", b"abc")], &data, &[]));
    same("a malformed tRNS", png(&[chunk(b"tRNS", b"abc")], &data, &[]));
    same("a malformed palette of colours", png(&[chunk(b"PLTE", b"abcd")], &data, &[]));
    same("two of them", png(&[chunk(b"PLTE", b"abc"), chunk(b"PLTE", b"abc")], &data, &[]));
    same("bKGD behind the data", png(&[], &data, &[chunk(b"bKGD", b"abcdef"), gamma]));
    let parts = [chunk(b"IDAT", &packed[..50]), chunk(b"IDAT", &[]), chunk(b"IDAT", &packed[50..])];
    same("data in parts", png(&[], &parts, &[]));
    same("data behind the data", png(&[], &data, &[chunk(b"tEXt", b"a\0b"), chunk(b"IDAT", b"junk")]));
    same("bytes behind the packed ones", png(&[], &[chunk(b"IDAT", &[&packed[..], b"junk"].concat())], &[]));
    same(
        "more rows than there should be",
        png(&[], &[chunk(b"IDAT", &zlib(&[rows(), vec![7; 99]].concat()))], &[]),
    );
    same("bytes behind the end", [png(&[], &data, &[]), vec![7; 200]].concat());
    same("an end with bytes", png(&[], &data, &[chunk(b"IEND", b"abc")]));
    // Animations: the image is what readers of other PNGs see.
    let animation = chunk(b"acTL", &[0, 0, 0, 2, 0, 0, 0, 0]);
    let part = |number: u8| chunk(b"fdAT", &[&[0, 0, 0, number], &packed[..]].concat());
    let at_first = [animation.clone(), frame(0, WIDTH)];
    same("an animation", png(&at_first, &data, &[frame(1, WIDTH), part(2)]));
    same("an animation out of order", png(&at_first, &data, &[frame(5, WIDTH), part(2)]));
    same("frames behind each other", png(&at_first, &data, &[part(9), frame(0, WIDTH), part(0), part(1)]));
    same(
        "an animation without the image",
        png(std::slice::from_ref(&animation), &data, &[frame(0, WIDTH), part(1)]),
    );
    same("an animation behind the image", png(&[], &data, &[animation.clone(), frame(0, WIDTH), part(1)]));
    same("frames without their chunks", png(std::slice::from_ref(&animation), &data, &[part(0)]));
    same(
        "a frame beyond the image",
        png(&[animation.clone(), frame(0, 100)], &data, &[frame(1, WIDTH), part(2)]),
    );
    same("a small first frame", png(&[animation, frame(0, 5)], &data, &[frame(1, WIDTH), part(2)]));
    same("a malformed acTL", png(&[chunk(b"acTL", b"abc")], &data, &[]));
}

#[test]
fn what_is_wrong_with_a_png_is_said_in_plain_words() {
    let packed = zlib(&rows());
    let data = |bytes: &[u8]| [chunk(b"IDAT", bytes)];
    let refused = |file: Vec<u8>, words: &str| {
        let error = decode(&file, ColorMode::Color).map(|_| words).unwrap_err();
        println!("{error}");
        assert!(error.contains(words), "{words}: {error}");
        for of_rust in ["{", "}", "Some(", "ChunkType", "::"] {
            assert!(!error.contains(of_rust), "{error}");
        }
    };
    let end = packed.len();
    for missing in 1..=4 {
        refused(png(&[], &data(&packed[..end - missing]), &[]), "(Adler-32) is wrong, or is missing");
    }
    for (at, bit) in [(end - 1, 1), (end - 2, 4), (end - 4, 128)] {
        let mut packed = packed.clone();
        packed[at] ^= bit;
        refused(png(&[], &data(&packed), &[]), "(Adler-32) is wrong, or is missing");
    }
    let parts = [chunk(b"IDAT", &packed[..end - 4]), chunk(b"IDAT", &[1, 2, 3, 4])];
    refused(png(&[], &parts, &[]), "(Adler-32) is wrong, or is missing");
    refused(png(&[], &data(&zlib(&rows()[..200])), &[]), "too little data");
    refused(png(&[], &data(&packed[..end / 2]), &[]), "");
    refused(png(&[], &data(b"\x78\x9cno deflated data at all, but noise"), &[]), "cannot be unpacked");
    refused(png(&[], &data(&zlib(&[&[7], &rows()[1..]].concat())), &[]), "filtered in a way");
    refused(png(&[], &[damaged(b"IDAT", &packed)], &[]), "a chunk IDAT, whose checksum is wrong");
    refused(png(&[damaged(b"PLTE", b"abc")], &data(&packed), &[]), "a chunk PLTE, whose checksum is wrong");
    refused(png(&[chunk(b"ABCD", b"abc")], &data(&packed), &[]), "a chunk ABCD, which PNG does not have");
    refused(png(&[header(&[0, 0, 0])], &data(&packed), &[]), "a chunk IHDR, which");
    let parts = [chunk(b"IDAT", &packed[..50]), chunk(b"tEXt", b"a\0b"), chunk(b"IDAT", &packed[50..])];
    refused(png(&[], &parts, &[]), "");
    for methods in [&[1, 0, 0][..], &[0, 64, 0], &[0, 0, 2], &[0, 0, 0, 0]] {
        let end = chunk(b"IEND", b"");
        let file = [b"\x89PNG\r\n\x1a\n", &header(methods)[..], &data(&packed)[0], &end].concat();
        refused(file, "a header with the methods");
    }
    let palette = read("palette_4.png");
    let at = palette.windows(4).position(|name| name == b"PLTE").unwrap() - 4;
    let length = 12 + usize::from(palette[at + 3]);
    refused([&palette[..at], &palette[at + length..]].concat(), "before the palette that it needs");
    let twice = [&palette[..at + length], &palette[at..]].concat();
    refused(twice, "a second palette");
}
