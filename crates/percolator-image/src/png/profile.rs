//! The colour profile of a PNG, as far as libpng uses it.
//!
//! libpng recognises a few profiles by their checksums, and treats a file with one of them as sRGB. It only
//! validates any other. In a file with an invalid profile, no later chunk sets a gamma.

use std::io::Cursor;
use std::ops::RangeInclusive;

use ::png::{Decoder, Limits};

use super::SIGNATURE;
use super::crc32;

/// The shortest chunk that is considered: a name, assumed to take 79 bytes, and the shortest deflated data.
const CHUNK_BYTES_MIN: usize = 92;
/// The length of a profile's name, which comes first.
const NAME_BYTES: RangeInclusive<usize> = 1..=79;
/// The longest profile that libpng reads, in bytes.
const PROFILE_BYTES_MAX: usize = 8_000_000;

/// The offset of the table of contents, after the number of its entries.
const ENTRIES: usize = 132;
const ENTRY_BYTES: usize = 12;
/// Intents from this value on are invalid; those from 4 up to it are unknown but allowed.
const INTENT_MAX: u32 = 0xffff;

/// What a profile says about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    /// It is sRGB.
    Srgb,
    /// It is not a valid profile.
    Invalid,
    /// It is ignored.
    Other,
}

/// An sRGB profile that libpng knows.
struct Known {
    len: usize,
    adler: u32,
    crc: u32,
    intent: u32,
    /// The first word of its profile ID. Zero is none.
    id: u32,
}

const fn known(len: usize, adler: u32, crc: u32, intent: u32, id: u32) -> Known {
    Known { len, adler, crc, intent, id }
}

/// Four from color.org, and three by Hewlett-Packard and Microsoft without a profile ID.
const KNOWN: [Known; 7] = [
    known(3_048, 0x0a3f_d9f6, 0x3b87_72b9, 0, 0x29f8_3dde),
    known(3_052, 0x4909_e5e1, 0x427e_bb21, 1, 0xc95b_d637),
    known(60_988, 0xfd21_44a1, 0x306f_d8ae, 0, 0xfc66_3378),
    known(60_960, 0x209c_35d2, 0xbbef_7812, 0, 0x3456_2abf),
    known(3_024, 0xa054_d762, 0x5d51_29ce, 1, 0),
    known(3_144, 0xf784_f3fb, 0x182e_a552, 0, 0),
    known(3_144, 0x0398_f3fc, 0xf29e_526d, 1, 0),
];

impl Profile {
    /// Classifies the data of an iCCP chunk, in a file with colours.
    pub(super) fn parse(chunk: &[u8]) -> Self {
        if chunk.len() < CHUNK_BYTES_MIN {
            return Profile::Other;
        }
        let name = chunk.iter().position(|&byte| byte == 0);
        if !name.is_some_and(|name| NAME_BYTES.contains(&name)) {
            return Profile::Invalid;
        }
        let Some(inflated) = inflate(chunk) else { return Profile::Invalid };
        let Some(profile) = checked(&inflated) else { return Profile::Invalid };
        if KNOWN.iter().any(|known| known.is(profile)) { Profile::Srgb } else { Profile::Other }
    }
}

impl Known {
    fn is(&self, profile: &[u8]) -> bool {
        self.len == profile.len()
            && word(profile, 64) == Some(self.intent)
            && word(profile, 84) == Some(self.id)
            && adler_of(profile) == self.adler
            && crc32([profile]) == self.crc
    }
}

/// The profile without trailing bytes. `None` if it is not valid in a file with colours.
fn checked(inflated: &[u8]) -> Option<&[u8]> {
    let len = word(inflated, 0)? as usize;
    if !(ENTRIES..=PROFILE_BYTES_MAX).contains(&len) {
        return None;
    }
    let profile = inflated.get(..len)?;
    let entries = word(profile, 128)? as usize;
    let table = profile.get(ENTRIES..ENTRIES.checked_add(entries.checked_mul(ENTRY_BYTES)?)?)?;
    let is_whole = profile[8] <= 3 || len.is_multiple_of(4);
    let is_class = !matches!(&profile[12..16], b"abst" | b"link");
    let is_space = &profile[16..20] == b"RGB " && matches!(&profile[20..24], b"XYZ " | b"Lab ");
    let is_signed = &profile[36..40] == b"acsp";
    let is_intent = word(profile, 64)? < INTENT_MAX;
    let inside = |entry: &[u8; ENTRY_BYTES]| {
        let (start, bytes) = (word(entry, 4)? as usize, word(entry, 8)? as usize);
        len.checked_sub(start)?.checked_sub(bytes)
    };
    let is_table = table.as_chunks().0.iter().all(|entry| inside(entry).is_some());
    (is_whole && is_class && is_space && is_signed && is_intent && is_table).then_some(profile)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

fn adler_of(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), &byte| {
        let a = (a + u32::from(byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    b << 16 | a
}

/// Inflates the chunk's profile with the crate that reads PNGs, which is given a minimal file around the
/// chunk.
fn inflate(chunk: &[u8]) -> Option<Vec<u8>> {
    let mut file = SIGNATURE.to_vec();
    let parts: [(&[u8; 4], &[u8]); 3] = [
        // One grey pixel.
        (b"IHDR", &[0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0]),
        (b"iCCP", chunk),
        (b"IDAT", &[]),
    ];
    for (kind, data) in parts {
        file.extend(u32::try_from(data.len()).ok()?.to_be_bytes());
        file.extend_from_slice(kind);
        file.extend_from_slice(data);
        file.extend(crc32([kind, data]).to_be_bytes());
    }
    let limits = Limits { bytes: PROFILE_BYTES_MAX.saturating_add(2 * file.len()) };
    let reader = Decoder::new_with_limits(Cursor::new(file), limits).read_info().ok()?;
    Some(reader.info().icc_profile.as_ref()?.to_vec())
}
