//! Some records whose images somebody wants to feed: each as a Datum, whatever it is stored as.

use percolator::proto;
use prost::Message as _;

use super::pictures::PictureOptions;
use crate::content::{ChannelOrder, Picture};
use crate::open::DataSet;
use crate::scan::{Progress, ScanError};

/// A record with an image.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Sample {
    /// The record's number.
    pub number: u64,
    /// The wire bytes of a Datum with its image.
    pub datum: Vec<u8>,
    /// The order of the image's channels, if it is not encoded.
    pub channels: Option<ChannelOrder>,
}

/// Takes records that are evenly spread over the data set. Those without an image are left out, and so are
/// those that are no records of its kind.
///
/// # Errors
///
/// [`ScanError`] if the data set cannot be read.
pub fn samples(
    data: &DataSet,
    options: &PictureOptions,
    progress: &Progress,
) -> Result<Vec<Sample>, ScanError> {
    let (values, scan) = options.chosen(data, progress)?;
    let mut samples = Vec::new();
    let sample = |number: u64, value: &[u8]| {
        let picture = values.parts(value).ok()?.picture?;
        let (datum, is_encoded) = match picture {
            Picture::Datum(datum) => (value.to_vec(), datum.encoded),
            Picture::File(file) => {
                let datum =
                    proto::Datum { data: Some(file.to_vec()), encoded: Some(true), ..Default::default() };
                (datum.encode_to_vec(), true)
            }
        };
        Some(Sample { number, datum, channels: (!is_encoded).then_some(options.channels) })
    };
    scan.run(
        data,
        progress,
        || (),
        |(), seen| Ok::<_, ScanError>(sample(seen.number, seen.value)),
        |event| {
            samples.extend(event.done()??);
            Ok::<_, ScanError>(())
        },
    )?;
    Ok(samples)
}
