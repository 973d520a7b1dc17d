//! What another store's record becomes, and how a Datum is written: with the fields that Caffe's tools set,
//! in their order.

use half::{bf16, f16};
use percolator::decoder::ImageFileDecoder;
use percolator::example::{Example, ExampleWriter};
use percolator::record::Datum;
use percolator::source::{Part, RecordParts};
use percolator::{ColorMode, Dtype};
use prost::encoding::{WireType, bool, encode_key, encode_varint, float, int32};

use crate::content::{label_of, only_bytes, only_int};

/// What a store's records become. By default, they are copied unchanged, and those with named parts become
/// `tf.train.Example`s with a feature for each part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordOptions {
    /// Treats each value as a Datum, and keeps only its image and its label. Other tools' fields are left
    /// out, and so are fields that are set twice.
    pub strip: bool,
    /// Treats each value as a `tf.train.Example`, and makes a Datum of its image and its label: two features,
    /// or two parts of a record that has parts.
    pub example: Option<ExampleNames>,
}

/// The names of an Example's features, or of a record's parts.
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

    /// Appends the value of a record with named parts.
    pub(super) fn make_of_parts(
        &self,
        parts: &dyn RecordParts,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        match (&self.example, self.strip) {
            (Some(names), _) => names.make_of_parts(parts, value, out),
            (None, true) => Err("it has named parts, and is no Datum".to_owned()),
            (None, false) => {
                parts.check(value).map_err(|fault| fault.to_string())?;
                let mut writer = ExampleWriter::new();
                for name in parts.names(value) {
                    if let Some(part) = parts.part(value, &name).map_err(|fault| fault.to_string())? {
                        put_feature(&mut writer, &name, &part)?;
                    }
                }
                out.extend_from_slice(&writer.to_bytes());
                Ok(())
            }
        }
    }
}

/// Adds a part as a feature: integers as they are, floats as 32 bits.
fn put_feature(writer: &mut ExampleWriter, name: &str, part: &Part<'_>) -> Result<(), String> {
    match part {
        Part::Bytes(bytes) => writer.bytes(name, [bytes]),
        Part::Strings(strings) => writer.bytes(name, strings),
        Part::Int(number) => writer.ints(name, [*number]),
        #[expect(clippy::cast_possible_truncation, reason = "an Example's floats have 32 bits")]
        Part::Float(number) => writer.floats(name, [*number as f32]),
        Part::Numbers { dtype, values } => match numbers(*dtype, values) {
            Some(Numbers::Ints(numbers)) => writer.ints(name, numbers),
            Some(Numbers::Floats(numbers)) => writer.floats(name, numbers),
            None => return Err(format!("its part {name:?} has numbers beyond 64 bits with a sign")),
        },
        _ => return Err(format!("its part {name:?} is of a kind that no feature has")),
    };
    Ok(())
}

/// An Example's numbers.
enum Numbers {
    Ints(Vec<i64>),
    Floats(Vec<f32>),
}

/// Numbers as an Example has them; `None` if one does not fit.
fn numbers(dtype: Dtype, values: &[u8]) -> Option<Numbers> {
    macro_rules! of {
        ($number:ty) => {
            values
                .as_chunks::<{ size_of::<$number>() }>()
                .0
                .iter()
                .map(|bytes| <$number>::from_le_bytes(*bytes))
        };
    }
    Some(match dtype {
        Dtype::I8 => Numbers::Ints(of!(i8).map(i64::from).collect()),
        Dtype::I16 => Numbers::Ints(of!(i16).map(i64::from).collect()),
        Dtype::I32 => Numbers::Ints(of!(i32).map(i64::from).collect()),
        Dtype::I64 => Numbers::Ints(of!(i64).collect()),
        Dtype::U8 | Dtype::Bool => Numbers::Ints(of!(u8).map(i64::from).collect()),
        Dtype::U16 => Numbers::Ints(of!(u16).map(i64::from).collect()),
        Dtype::U32 => Numbers::Ints(of!(u32).map(i64::from).collect()),
        Dtype::U64 => {
            Numbers::Ints(of!(u64).map(|number| i64::try_from(number).ok()).collect::<Option<_>>()?)
        }
        Dtype::F16 => Numbers::Floats(of!(f16).map(f32::from).collect()),
        Dtype::Bf16 => Numbers::Floats(of!(bf16).map(f32::from).collect()),
        Dtype::F32 => Numbers::Floats(of!(f32).collect()),
        #[expect(clippy::cast_possible_truncation, reason = "an Example's floats have 32 bits")]
        Dtype::F64 => Numbers::Floats(of!(f64).map(|number| number as f32).collect()),
        _ => return None,
    })
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
        put_image(image, label, out)
    }

    /// Appends the Datum of two parts.
    fn make_of_parts(&self, parts: &dyn RecordParts, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let part = |name: &str| parts.part(value, name).map_err(|fault| fault.to_string());
        let lacks = |name: &str, what: &str| format!("its part {name:?} is not {what}");
        let image = part(&self.image)?;
        let Some(Part::Bytes(image)) = &image else { return Err(lacks(&self.image, "a string of bytes")) };
        let label = part(&self.label)?.as_ref().and_then(label_of);
        let label = label.and_then(|label| i32::try_from(label).ok());
        let label = label.ok_or_else(|| lacks(&self.label, "an integer of 32 bits"))?;
        put_image(image, label, out)
    }
}

/// Appends the Datum of an image's file, if it begins like one.
fn put_image(file: &[u8], label: i32, out: &mut Vec<u8>) -> Result<(), String> {
    ImageFileDecoder::new(ColorMode::Native).shape(file).map_err(|error| error.to_string())?;
    put_file(file, label, out);
    Ok(())
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
