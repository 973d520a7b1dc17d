//! A worker's part: it turns an item into the value of its record.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use percolator::ColorMode;
use percolator::decoder::ImageFileDecoder;
use percolator::source::RecordParts;
use percolator::transform::DecodeError;
use percolator_files::input_file::is_of_file;
use percolator_files::shown;

use super::image::ImageOptions;
use super::record::{RecordOptions, put_file, put_pixels};
use crate::content::check_datum_bytes;
use crate::input::{InputError, Item, read_file};

/// Channels, rows and columns.
pub(super) type Size = [usize; 3];

/// Why an item has no value.
#[derive(Debug)]
pub(super) enum Unmade {
    /// What is wrong with it.
    Item(String),
    /// Its file cannot be read this time, or there is no memory to decode it. Nothing is known about the
    /// item.
    Unknown(InputError),
}

impl From<String> for Unmade {
    fn from(reason: String) -> Self {
        Unmade::Item(reason)
    }
}

/// Makes values, one after another, and keeps its buffers.
#[derive(Debug)]
pub(super) struct Maker<'a> {
    images: &'a ImageOptions,
    records: &'a RecordOptions,
    /// What finds the parts of records that have some.
    parts: Option<Arc<dyn RecordParts>>,
    decoder: ImageFileDecoder,
    file: Vec<u8>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(
        images: &'a ImageOptions,
        records: &'a RecordOptions,
        parts: Option<Arc<dyn RecordParts>>,
    ) -> Self {
        Maker { images, records, parts, decoder: images.decoder(), file: Vec::new() }
    }

    /// Appends the value of an item's record, and returns the size of its image if it is one's. An error says
    /// why there is none; `out` then stays as it was.
    pub(super) fn make(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<Option<Size>, Unmade> {
        if let Item::File { path, .. } = item {
            read_file(path, &mut self.file).map_err(|error| match is_of_file(&error) {
                true => Unmade::Item(format!("cannot read {}: {error}", shown::path(path))),
                false => Unmade::Unknown(InputError::io(path, "read the file")(error)),
            })?;
        }
        let before = out.len();
        let made = catch_unwind(AssertUnwindSafe(|| match item {
            Item::File { path, label, key } => {
                self.make_image(path, &String::from_utf8_lossy(key), *label, out).map(Some)
            }
            Item::Pixels { shape, pixels, label, .. } => {
                let size = shape.map(usize::from);
                put_pixels(size, pixels, *label, false, out)?;
                Ok(Some(size))
            }
            Item::Record { value, .. } => {
                match &self.parts {
                    Some(parts) => self.records.make_of_parts(&**parts, value, out)?,
                    None => self.records.make(value, out)?,
                }
                Ok(None)
            }
            Item::Unreadable { reason, .. } => Err(Unmade::Item(reason.clone())),
        }));
        let made = made.unwrap_or_else(|_| {
            self.decoder = self.images.decoder();
            Err(Unmade::Item("its conversion panicked, which is a bug of this program".to_owned()))
        });
        let is_copied = matches!(item, Item::Record { .. })
            && self.parts.is_none()
            && *self.records == RecordOptions::default();
        let made = made.and_then(|size| {
            if !is_copied {
                check_datum_bytes(out.len() - before)?;
            }
            Ok(size)
        });
        if made.is_err() {
            out.truncate(before);
        }
        made
    }

    /// Appends the Datum of the file that was read. Every file is decoded, so one that is stored unchanged
    /// can be decoded later, even by a feed that does not choose the channels, which takes no samples of 16
    /// bits.
    fn make_image(&mut self, path: &Path, name: &str, label: i32, out: &mut Vec<u8>) -> Result<Size, Unmade> {
        let encoding = self.images.encoding_of(name)?;
        // As a feed that does not choose the channels finds it.
        let as_it_is = ImageFileDecoder::new(ColorMode::Native).shape(&self.file);
        let is_kept = as_it_is.is_ok_and(|shape| !self.images.gray || shape.channels == 1);
        let image = self.decoder.decode(&self.file).map_err(|error| match error {
            DecodeError::Memory { .. } => Unmade::Unknown(InputError::format(path, error.to_string())),
            _ => Unmade::Item(error.to_string()),
        })?;
        let size = [image.shape.channels, image.shape.height, image.shape.width];
        match encoding {
            Some((_, true)) if is_kept => {
                put_file(&self.file, label, out);
            }
            Some((encoding, _)) => {
                let mut file = Vec::new();
                encoding.encode(image, &mut file)?;
                put_file(&file, label, out);
            }
            None => put_pixels(size, image.bytes, label, true, out)?,
        }
        Ok(size)
    }
}
