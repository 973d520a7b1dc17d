//! Real images of handwritten digits, and how Caffe would store them.

use std::path::Path;

use anyhow::{Context as _, ensure};
use lmdb::{Environment, Transaction as _, WriteFlags};
use percolator::proto::Datum;
use prost::Message as _;

/// The files are small enough to be embedded in the program, which then runs from any folder.
macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../digits/", $name))
    };
}

/// An LMDB cannot outgrow its map. Its unused part costs only address space.
const MAP_BYTES: usize = 64 << 20;

/// Images and their labels, one for each image.
pub(crate) struct Digits {
    height: usize,
    width: usize,
    pixels: &'static [u8],
    labels: &'static [u8],
}

impl Digits {
    pub(crate) fn train() -> anyhow::Result<Self> {
        Self::read(file!("train-images-idx3-ubyte"), file!("train-labels-idx1-ubyte"))
    }

    pub(crate) fn test() -> anyhow::Result<Self> {
        Self::read(file!("t10k-images-idx3-ubyte"), file!("t10k-labels-idx1-ubyte"))
    }

    #[allow(dead_code, reason = "only some of the examples print it")]
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    fn read(images: &'static [u8], labels: &'static [u8]) -> anyhow::Result<Self> {
        let ([count, height, width], pixels) = read_idx(images).context("the file of images")?;
        let ([label_count], labels) = read_idx(labels).context("the file of labels")?;
        ensure!(count == label_count, "{count} images have {label_count} labels");
        Ok(Digits { height, width, pixels, labels })
    }

    /// The records that Caffe's `convert_mnist_data` makes of them: a `Datum` each, under a key of eight
    /// digits.
    pub(crate) fn records(&self) -> anyhow::Result<impl Iterator<Item = (String, Datum)>> {
        let (height, width) = (self.height.try_into()?, self.width.try_into()?);
        let images = self.pixels.chunks_exact(self.height * self.width);
        Ok(images.zip(self.labels).enumerate().map(move |(index, (image, &label))| {
            let datum = Datum {
                channels: Some(1),
                height: Some(height),
                width: Some(width),
                data: Some(image.to_vec()),
                label: Some(label.into()),
                ..Datum::default()
            };
            (format!("{index:08}"), datum)
        }))
    }

    /// Writes the records to an LMDB.
    pub(crate) fn write_lmdb(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir(folder)?;
        let environment = Environment::new().set_map_size(MAP_BYTES).open(folder)?;
        let database = environment.open_db(None)?;
        let mut transaction = environment.begin_rw_txn()?;
        for (key, datum) in self.records()? {
            transaction.put(database, &key, &datum.encode_to_vec(), WriteFlags::empty())?;
        }
        transaction.commit()?;
        Ok(())
    }
}

/// Reads MNIST's IDX format: two zeros, the type of an element (8 is a byte), the number of axes, the length
/// of each as a big-endian u32, and the elements.
fn read_idx<const AXES: usize>(file: &[u8]) -> anyhow::Result<([usize; AXES], &[u8])> {
    let (&[0, 0, 8, axes], mut rest) = file.split_first_chunk().context("the file has no header")? else {
        anyhow::bail!("not an IDX file of bytes");
    };
    ensure!(usize::from(axes) == AXES, "the file has {axes} axes, and {AXES} are wanted");
    let mut lengths = [0; AXES];
    for length in &mut lengths {
        let (bytes, after) = rest.split_first_chunk().context("the header is cut short")?;
        *length = u32::from_be_bytes(*bytes).try_into()?;
        rest = after;
    }
    let elements: usize = lengths.iter().product();
    ensure!(elements > 0 && rest.len() == elements, "{lengths:?} elements are wanted, found {}", rest.len());
    Ok((lengths, rest))
}
