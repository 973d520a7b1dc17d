//! MNIST's files.
//!
//! ```text
//! images: 0x803, number, rows, columns: 4 bytes each, big-endian | pixels: a byte each, image by image
//! labels: 0x801, number: 4 bytes each, big-endian                | labels: a byte each
//! ```

use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use percolator_files::input_file;
use percolator_files::shown;

use super::identity;
use super::{Input, InputError, Item, ItemReader};

/// The numbers that the files start with.
const IMAGES: u32 = 0x803;
const LABELS: u32 = 0x801;

/// The most pixels of an image. Several images are in memory for each worker.
const PIXELS_MAX: usize = 1 << 26;

/// Images and labels in the format of MNIST, IDX, as Caffe's `convert_mnist_data` takes them; compressed with
/// gzip or not. Records have one channel, and their numbers as keys.
#[derive(Clone, Debug)]
pub struct Idx {
    images: PathBuf,
    labels: PathBuf,
    items: u32,
    height: u16,
    width: u16,
    identity: String,
}

impl Idx {
    /// Reads the heads of the two files.
    ///
    /// # Errors
    ///
    /// [`InputError`] if a file cannot be read or is of another format, or if they do not belong together.
    pub fn open(images: &Path, labels: &Path) -> Result<Self, InputError> {
        let [items, height, width] = head(&mut open(images)?, images, IMAGES, "images")?;
        let [found] = head(&mut open(labels)?, labels, LABELS, "labels")?;
        if found != items {
            let found = format!("it has {found} labels, and {} has {items} images", shown::path(images));
            return Err(InputError::format(labels, found));
        }
        let side = |found: u32| u16::try_from(found).ok().filter(|&side| side > 0);
        let Some((height, width)) = side(height).zip(side(width)) else {
            let found = format!("its images are {height}x{width}: each side must be 1 to {}", u16::MAX);
            return Err(InputError::format(images, found));
        };
        if usize::from(height) * usize::from(width) > PIXELS_MAX {
            let found = format!("its images are {height}x{width}: at most {PIXELS_MAX} pixels are allowed");
            return Err(InputError::format(images, found));
        }
        let of = |path| identity::of_file(path).map_err(InputError::io(path, "look at the file"));
        let identity = format!("images {}, labels {}", of(images)?, of(labels)?);
        Ok(Idx { images: images.to_owned(), labels: labels.to_owned(), items, height, width, identity })
    }

    fn pixels(&self) -> usize {
        usize::from(self.height) * usize::from(self.width)
    }
}

impl Input for Idx {
    fn path(&self) -> &Path {
        &self.images
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.images.clone(), self.labels.clone()]
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn items(&self) -> Option<u64> {
        Some(self.items.into())
    }

    fn reader(&self, from: u64) -> Result<ItemReader<'_>, InputError> {
        let (mut images, mut labels) = (open(&self.images)?, open(&self.labels)?);
        let _: [u32; 3] = head(&mut images, &self.images, IMAGES, "images")?;
        let _: [u32; 1] = head(&mut labels, &self.labels, LABELS, "labels")?;
        pass(&mut images, from * self.pixels() as u64).map_err(InputError::io(&self.images, "read it"))?;
        pass(&mut labels, from).map_err(InputError::io(&self.labels, "read it"))?;
        Ok(Box::new((from..self.items.into()).map(move |number| {
            let pixels = read_pixels(&mut images, self.pixels());
            let pixels = pixels.map_err(|error| ended(&self.images, number, "image", error))?;
            let mut label = [0];
            labels.read_exact(&mut label).map_err(|error| ended(&self.labels, number, "label", error))?;
            if number + 1 == u64::from(self.items) {
                check_end(&mut images, &self.images, "image")?;
                check_end(&mut labels, &self.labels, "label")?;
            }
            let key = format!("{number:08}").into_bytes();
            let shape = [1, self.height, self.width];
            Ok(Item::Pixels { key, shape, pixels, label: label[0].into() })
        })))
    }
}

/// Reads the pixels of an image. Memory grows with the data that are there: the head of a short file may
/// state millions of them.
fn read_pixels(images: &mut dyn BufRead, count: usize) -> io::Result<Vec<u8>> {
    /// The pixels of an image of 256x256, for which memory is taken at once.
    const SMALL: usize = 1 << 16;

    let mut pixels = Vec::with_capacity(count.min(SMALL));
    images.take(count as u64).read_to_end(&mut pixels)?;
    if pixels.len() == count { Ok(pixels) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Checks that a file ends after its last image or label. If it goes on, its head belongs to another file, or
/// bytes were inserted, and it is unknown where the images begin.
fn check_end(file: &mut dyn BufRead, path: &Path, what: &str) -> Result<(), InputError> {
    match file.fill_buf().map_err(InputError::io(path, "read it"))? {
        [] => Ok(()),
        _ => Err(InputError::format(path, format!("it goes on after the last {what} that its head states"))),
    }
}

/// Opens a file that may be compressed.
fn open(path: &Path) -> Result<Box<dyn BufRead>, InputError> {
    let (file, _) = input_file::open(path).map_err(InputError::io(path, "open the file"))?;
    let mut file = BufReader::with_capacity(1 << 18, file);
    let is_packed = file.fill_buf().map_err(InputError::io(path, "read it"))?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_packed { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) })
}

/// Reads the numbers at the front of a file, after the one that names its kind.
fn head<const COUNT: usize>(
    file: &mut dyn BufRead,
    path: &Path,
    kind: u32,
    what: &str,
) -> Result<[u32; COUNT], InputError> {
    let mut number = || {
        let mut bytes = [0; 4];
        file.read_exact(&mut bytes).map(|()| u32::from_be_bytes(bytes))
    };
    let short = |_| InputError::format(path, format!("it is too short for an IDX file of {what}"));
    let found = number().map_err(short)?;
    if found != kind {
        let found = format!("it starts with {found:#x}, and an IDX file of {what} with {kind:#x}");
        return Err(InputError::format(path, found));
    }
    let mut numbers = [0; COUNT];
    for place in &mut numbers {
        *place = number().map_err(short)?;
    }
    Ok(numbers)
}

/// Skips bytes.
pub(super) fn pass(file: &mut dyn BufRead, bytes: u64) -> io::Result<()> {
    let passed = io::copy(&mut file.take(bytes), &mut io::sink())?;
    if passed == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The error of a record that cannot be read.
pub(super) fn ended(path: &Path, number: u64, what: &str, error: io::Error) -> InputError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            InputError::format(path, format!("it is cut short: it ends inside {what} {number}"))
        }
        _ => InputError::io(path, "read it")(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    #[test]
    fn a_file_that_goes_on_after_its_last_image_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (images, labels) = (folder.path().join("images"), folder.path().join("labels"));
        std::fs::write(&labels, [head(&[LABELS, 2]), vec![7, 8]].concat()).unwrap();
        let whole = [head(&[IMAGES, 2, 1, 2]), vec![1, 2, 3, 4]].concat();
        let read = |bytes: &[u8]| {
            std::fs::write(&images, bytes).unwrap();
            let idx = Idx::open(&images, &labels).unwrap();
            let items = idx.reader(0).unwrap().collect::<Result<Vec<_>, _>>();
            items.map(|items| items.len())
        };
        assert_eq!(read(&whole).unwrap(), 2);
        // A byte behind the head moves all pixels.
        let moved = [&whole[..16], &[0], &whole[16..]].concat();
        let said = read(&moved).unwrap_err().to_string();
        assert!(said.ends_with("it goes on after the last image that its head states"), "{said}");
    }

    #[test]
    fn images_that_are_too_large_are_refused_before_memory_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (images, labels) = (folder.path().join("images"), folder.path().join("labels"));
        std::fs::write(&labels, head(&[LABELS, 1])).unwrap();
        std::fs::write(&images, head(&[IMAGES, 1, 65_535, 65_535])).unwrap();
        let said = Idx::open(&images, &labels).unwrap_err().to_string();
        assert!(said.ends_with("its images are 65535x65535: at most 67108864 pixels are allowed"), "{said}");
        std::fs::write(&images, head(&[IMAGES, 1, 8192, 8192])).unwrap();
        assert!(Idx::open(&images, &labels).is_ok());
    }
}
