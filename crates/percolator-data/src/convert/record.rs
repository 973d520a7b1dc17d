//! What another store's record becomes, and how a Datum is written: with the fields that Caffe's tools set,
//! in their order.

use percolator::ColorMode;
use percolator::decoder::ImageFileDecoder;
use percolator::example::Example;
use percolator::record::Datum;
use prost::encoding::{WireType, bool, encode_key, encode_varint, float, int32};

use crate::content::{only_bytes, only_int};

/// What a store's records become. By default, they are copied unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordOptions {
    /// Treats each value as a Datum, and keeps only its image and its label. Other tools' fields are left
    /// out, and so are fields that are set twice.
    pub strip: bool,
    /// Treats each value as a `tf.train.Example`, and makes a Datum of its image and its label.
    pub example: Option<ExampleNames>,
}

/// The names of an Example's features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExampleNames {
    /// An encoded image, a JPEG or PNG file: `image/encoded` in many data sets.
    pub image: String,
    /// Its label, an integer: `image/class/label` in many data sets.
    pub label: String,
}

/// The fields of a Datum.
mod field {
    pub(super) const CHANNELS: u32 = 1;
    pub(super) const HEIGHT: u32 = 2;
    pub(super) const WIDTH: u32 = 3;
    pub(super) const DATA: u32 = 4;
    pub(super) const LABEL: u32 = 5;
    pub(super) const FLOATS: u32 = 6;
    pub(super) const ENCODED: u32 = 7;
}

/// Appends a Datum with pixels. `encoded`, if it is written, is false.
pub(super) fn put_pixels(
    shape: [usize; 3],
    pixels: &[u8],
    label: i32,
    has_encoded: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    for (tag, extent) in [field::CHANNELS, field::HEIGHT, field::WIDTH].into_iter().zip(shape) {
        let extent = i32::try_from(extent).map_err(|_| "it is too large for a Datum")?;
        int32::encode(tag, &extent, out);
    }
    put_data(pixels, out);
    int32::encode(field::LABEL, &label, out);
    if has_encoded {
        bool::encode(field::ENCODED, &false, out);
    }
    Ok(())
}

/// Appends a Datum with an encoded file.
pub(super) fn put_file(file: &[u8], label: i32, out: &mut Vec<u8>) {
    put_data(file, out);
    int32::encode(field::LABEL, &label, out);
    bool::encode(field::ENCODED, &true, out);
}

fn put_data(data: &[u8], out: &mut Vec<u8>) {
    encode_key(field::DATA, WireType::LengthDelimited, out);
    encode_varint(data.len() as u64, out);
    out.extend_from_slice(data);
}

impl RecordOptions {
    /// Appends the converted value.
    pub(super) fn make(&self, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        match (&self.example, self.strip) {
            (Some(names), _) => names.make(value, out),
            (None, true) => strip(value, out),
            (None, false) => {
                out.extend_from_slice(value);
                Ok(())
            }
        }
    }
}

/// Appends a Datum's image and label.
fn strip(value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let datum = Datum::parse(value).map_err(|error| format!("it is no Datum: {error}"))?;
    let extents = [datum.channels, datum.height, datum.width];
    for (tag, extent) in [field::CHANNELS, field::HEIGHT, field::WIDTH].into_iter().zip(extents) {
        if extent != 0 {
            int32::encode(tag, &extent, out);
        }
    }
    if !datum.data.is_empty() {
        put_data(datum.data, out);
    }
    int32::encode(field::LABEL, &datum.label, out);
    let mut floats = Vec::new();
    datum.floats.gather(&mut floats);
    float::encode_repeated(field::FLOATS, &floats, out);
    if datum.encoded {
        bool::encode(field::ENCODED, &true, out);
    }
    Ok(())
}

impl ExampleNames {
    /// Appends the Datum of an Example's image and label.
    fn make(&self, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let example = Example::parse(value).map_err(|error| format!("it is no tf.train.Example: {error}"))?;
        let features = example.features();
        let lacks = |name: &str, what: &str| format!("its feature {name:?} is not {what}");
        let image = features.get(&self.image).and_then(only_bytes);
        let image = image.ok_or_else(|| lacks(&self.image, "a string of bytes"))?;
        let label = features.get(&self.label).and_then(only_int).and_then(|label| i32::try_from(label).ok());
        let label = label.ok_or_else(|| lacks(&self.label, "an integer of 32 bits"))?;
        ImageFileDecoder::new(ColorMode::Native).shape(image).map_err(|error| error.to_string())?;
        put_file(image, label, out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use percolator::proto;
    use prost::Message as _;

    use super::*;

    #[test]
    fn a_stripped_record_has_its_image_and_label_alone() {
        let strip = RecordOptions { strip: true, ..RecordOptions::default() };
        let datums = [
            proto::Datum {
                channels: Some(1),
                height: Some(1),
                width: Some(2),
                data: Some(vec![7, 9]),
                label: Some(-3),
                ..proto::Datum::default()
            },
            proto::Datum {
                data: Some(vec![0xff]),
                label: Some(0),
                encoded: Some(true),
                ..proto::Datum::default()
            },
            proto::Datum { float_data: vec![0.5, -2.0], label: Some(1), ..proto::Datum::default() },
        ];
        for datum in datums {
            // NVIDIA's Caffe adds a record_id, field 8.
            let value = [datum.encode_to_vec(), vec![0x40, 5]].concat();
            let mut out = Vec::new();
            strip.make(&value, &mut out).unwrap();
            assert_eq!(out, datum.encode_to_vec());
        }
        let error = strip.make(b"\xff", &mut Vec::new()).unwrap_err();
        assert!(error.starts_with("it is no Datum"), "{error}");
    }
}
