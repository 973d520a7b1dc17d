//! A file of a few megabytes whose image takes gigabytes.

/// A grey file of the most pixels that an image may have, with a bit for each of its blocks.
pub(crate) fn giant_jpeg() -> Vec<u8> {
    const SIDE: [u8; 2] = 32768_u16.to_be_bytes();
    let mut file = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
    file.extend([1; 64]);
    // A progressive frame of one component.
    file.extend([0xff, 0xc2, 0, 11, 8, SIDE[0], SIDE[1], SIDE[0], SIDE[1], 1, 1, 0x11, 0]);
    // A table of two codes, of which the first says that a block's average is that of the one before.
    file.extend([0xff, 0xc4, 0, 21, 0, 1, 1]);
    file.extend([0; 14]);
    file.extend([0, 1]);
    // The first scan of the averages.
    file.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 0, 0]);
    file.resize(file.len() + (32768 / 8) * (32768 / 8) / 8, 0);
    file.extend([0xff, 0xd9]);
    file
}
