//! Nets in binary format (wire bytes), `.caffemodel` files among them.

use prost::Message as _;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};

use super::error::{NetCause, NetError};
use super::{BYTES_MAX, LAYERS_MAX};
use crate::proto::NetParameter;

/// Reads a net from wire bytes. Weights are skipped without a copy: the schema has no field for them.
///
/// # Errors
///
/// The bytes are not a `NetParameter`, or are too large, or hold too many layers.
pub(super) fn parse(bytes: &[u8]) -> Result<NetParameter, NetError> {
    if bytes.len() as u64 > BYTES_MAX {
        return Err(NetError::new(NetCause::TooLarge { allowed: BYTES_MAX }));
    }
    // Three bytes can encode a layer, which takes a thousand in memory: layers are counted before any is
    // decoded.
    if count_layers(bytes).map_err(unreadable)? > LAYERS_MAX {
        return Err(NetError::new(NetCause::TooManyLayers { allowed: LAYERS_MAX }));
    }
    NetParameter::decode(bytes).map_err(unreadable)
}

fn unreadable(error: prost::DecodeError) -> NetError {
    NetError::new(NetCause::Binary { message: error.to_string() })
}

/// The number of layers, of both `layer` and `layers`.
fn count_layers(mut bytes: &[u8]) -> Result<usize, prost::DecodeError> {
    const LAYERS: u32 = 2;
    const LAYER: u32 = 100;
    let mut count = 0;
    while !bytes.is_empty() {
        let (number, wire_type) = decode_key(&mut bytes)?;
        count += usize::from(matches!(number, LAYERS | LAYER) && wire_type == WireType::LengthDelimited);
        skip_field(wire_type, number, &mut bytes, DecodeContext::default())?;
    }
    Ok(count)
}

/// Whether these bytes cannot be text: they contain a control character that is not whitespace.
///
/// The key of every layer is such a character, or contains one, so the bytes of a net with a layer always
/// qualify.
pub(super) fn cannot_be_text(bytes: &[u8]) -> bool {
    bytes.iter().any(|&byte| matches!(byte, 0..=8 | 0x0e..=0x1f | 0x7f))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{LayerParameter, V1LayerParameter};

    #[test]
    #[cfg_attr(miri, ignore = "it decodes as many layers as a net may have")]
    fn layers_are_counted_before_they_are_decoded() {
        let bytes = [0xa2, 0x06, 0x00].repeat(LAYERS_MAX);
        assert_eq!(parse(&bytes).unwrap().layer.len(), LAYERS_MAX);
        let error = parse(&[bytes, vec![0x12, 0x00]].concat()).unwrap_err();
        assert_eq!(*error.cause, NetCause::TooManyLayers { allowed: LAYERS_MAX });
    }

    #[test]
    fn the_bytes_of_a_layer_are_never_text() {
        let v2 = NetParameter { layer: vec![LayerParameter::default()], ..NetParameter::default() };
        let v1 = NetParameter { layers: vec![V1LayerParameter::default()], ..NetParameter::default() };
        assert!(cannot_be_text(&v2.encode_to_vec()) && cannot_be_text(&v1.encode_to_vec()));
        assert!(!cannot_be_text("layer { }\r\n\t\u{c}# größe".as_bytes()));
    }

    #[test]
    fn what_is_no_net_is_refused() {
        for bad in [&b"\xa2\x06\x05"[..], &[0xff; 20], b"\x12\x02\x08", b"\x0b", b"\x08\x01"] {
            let error = parse(bad).unwrap_err();
            assert!(matches!(*error.cause, NetCause::Binary { .. }), "{bad:?}: {error}");
        }
    }
}
