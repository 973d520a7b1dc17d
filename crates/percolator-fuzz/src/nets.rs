//! Caffe's files: nets in text and on the wire, and mean images.

use percolator::net::{NetError, NetState};
use percolator::proto::{BlobProto, NetParameter};
use percolator::transform::MeanImage;
use percolator::{Net, Phase};
use prost::Message as _;

use crate::accepted::accepted;
use crate::memory::{Budget, within};

/// A layer of a few bytes is a message of about a thousand, in a vector that doubles; a net has at most
/// 65,536 of them.
const NET: Budget = Budget::mebibytes(2, 2048);

/// Elements of one byte on the wire are eight in memory, in a vector that doubles, and are converted.
const MEAN: Budget = Budget::per_byte(64);

/// A net in text (prototxt). What is read goes to the wire and comes back the same, with the same layers.
pub(crate) fn net_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let net = within(bytes, NET, || Net::from_text(text));
    if let Ok(net) = &net {
        accepted();
        check_layers(bytes, net);
    }
    if let Ok(parameter) = NetParameter::from_text(text) {
        let wire = parameter.encode_to_vec();
        let again =
            NetParameter::from_binary(&wire).expect("a net that was read from text is one on the wire");
        // NaN does not equal itself, but its bytes do.
        assert_eq!(again.encode_to_vec(), wire);
        assert!(net.is_ok() || Net::from_binary(&wire).is_err(), "one upgrade fails, and the other does not");
    }
}

/// A net on the wire, beside prost's decoding of it: what is refused is no message, or has too many layers.
pub(crate) fn net_binary(bytes: &[u8]) {
    let parameter = within(bytes, NET, || NetParameter::from_binary(bytes));
    let message = NetParameter::decode(bytes);
    match (&parameter, &message) {
        (Ok(parameter), Ok(message)) => assert_eq!(parameter.encode_to_vec(), message.encode_to_vec()),
        (Err(_), Err(_)) => {}
        (Err(error), Ok(message)) => {
            let layers = message.layer.len() + message.layers.len();
            assert!(layers > 1 << 16, "prost reads {layers} layers: {error}");
        }
        (Ok(_), Err(error)) => panic!("prost does not read it: {error}"),
    }
    if let Ok(net) = within(bytes, NET, || Net::from_binary(bytes)) {
        accepted();
        check_layers(bytes, &net);
    }
}

fn check_layers(bytes: &[u8], net: &Net) {
    for phase in [Phase::Train, Phase::Test] {
        let state = NetState::from(phase);
        let layers: Result<_, NetError> = within(bytes, NET, || net.data_layers(&state));
        let _ = layers.map(|layers| layers.iter().map(|layer| layer.batch_size).max());
        let _ = within(bytes, NET, || net.warnings(&state)).map(|warnings| warnings.len());
    }
}

/// A mean image (`.binaryproto`). Its shape has as many elements as it has pixels, and they are prost's.
pub(crate) fn mean(bytes: &[u8]) {
    let Ok(mean) = within(bytes, MEAN, || MeanImage::from_blob(bytes)) else { return };
    accepted();
    let shape = mean.shape();
    assert_eq!(shape.channels * shape.height * shape.width, mean.pixels().len());
    let blob = BlobProto::decode(bytes).expect("a mean is a blob");
    let elements = if blob.double_data.is_empty() { blob.data.len() } else { blob.double_data.len() };
    assert_eq!(elements, mean.pixels().len());
}
