//! Folders of images, one for each class, as torchvision's `ImageFolder` reads them.
//!
//! The classes are the names of the folders in the root, in the order of their bytes; their images lie in
//! them at any depth. Parts: `image`, the file's bytes, and `label`, the class's number. The key is the path
//! from the root on.
//!
//! A class without images is an error, unless the setting `allow_empty` is `true`.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator_files::{input_file, shown};

use crate::known_settings::KnownSettings;
use crate::{
    Cursor, Fault, FormatError, Grammar, Key, Lent, Options, Part, Place, Record, Seeks, Shard, Value,
};

/// What an image's name ends with, in any case.
const EXTENSIONS: [&str; 9] = [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// The most bytes of a file. Some have a length and hardly any data.
const IMAGE_MAX: u64 = 1 << 31;

const IMAGE: &str = "image";
const LABEL: &str = "label";

/// Opens a folder of class folders.
///
/// # Errors
///
/// [`FormatError`] if a folder cannot be listed, there is no class, a class has no image, or a link leads
/// back to a folder that it is in.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let settings = KnownSettings::of(path, "class-folder", options, &["allow_empty"])?;
    let allow_empty = settings.truth("allow_empty")?.unwrap_or(false);
    let grammar = ClassFolderGrammar::of(options);
    let shard = ClassFolderShard::list(path, allow_empty, grammar)?;
    Ok(vec![Arc::new(shard)])
}

/// Whether a path is a folder in whose folders an image lies.
#[must_use]
pub fn is(path: &Path, _head: &[u8]) -> bool {
    let entries =
        |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_image = |path: PathBuf| path.file_name().is_some_and(is_image_name);
    path.is_dir() && entries(path).filter(|class| class.is_dir()).any(|class| entries(&class).any(is_image))
}

fn is_image_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    EXTENSIONS.iter().any(|extension| {
        let end = name.len().checked_sub(extension.len()).and_then(|begin| name.get(begin..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(extension.as_bytes()))
    })
}

/// A folder of class folders, as it was listed.
#[derive(Debug)]
struct ClassFolderShard {
    root: PathBuf,
    /// The paths of all images from the root on, one after the other.
    paths: Vec<u8>,
    /// For each image, where its path ends, and its class.
    images: Vec<(usize, u64)>,
    grammar: ClassFolderGrammar,
}

impl ClassFolderShard {
    fn list(root: &Path, allow_empty: bool, grammar: ClassFolderGrammar) -> Result<Self, FormatError> {
        let (classes, _) = entries(root)?;
        if classes.is_empty() {
            return Err(FormatError::damaged(root, "it has no folder, and each class is one"));
        }
        let (mut paths, mut images) = (Vec::new(), Vec::new());
        let mut others = OtherFiles::default();
        for (number, class) in (0..).zip(&classes) {
            let before = images.len();
            for folder in folders(root, class)? {
                let (_, files) = entries(&root.join(&folder))?;
                for file in files {
                    let file = folder.join(file);
                    if file.file_name().is_some_and(is_image_name) {
                        paths.extend_from_slice(file.as_os_str().as_bytes());
                        images.push((paths.len(), number));
                    } else {
                        others.note(&file);
                    }
                }
            }
            if images.len() == before && !allow_empty {
                let what = format!(
                    "the class {} has no image ({}); remove its folder, or set allow_empty=true",
                    shown::path(class),
                    EXTENSIONS.join(", ")
                );
                return Err(FormatError::damaged(root, what));
            }
        }
        others.warn(root);
        Ok(ClassFolderShard { root: root.to_owned(), paths, images, grammar })
    }

    /// An image's path from the root on, and its class.
    fn image(&self, position: u64) -> Option<(&[u8], u64)> {
        let index = usize::try_from(position).ok()?;
        let (end, class) = *self.images.get(index)?;
        let begin =
            index.checked_sub(1).and_then(|before| self.images.get(before)).map_or(0, |(end, _)| *end);
        Some((self.paths.get(begin..end)?, class))
    }
}

/// Files that are no images, by their names.
#[derive(Default)]
struct OtherFiles {
    count: u64,
    first: PathBuf,
}

impl OtherFiles {
    fn note(&mut self, path: &Path) {
        if self.count == 0 {
            path.clone_into(&mut self.first);
        }
        self.count = self.count.saturating_add(1);
    }

    fn warn(&self, root: &Path) {
        if self.count > 0 {
            let said = format!("{}, the first of them {}", self.count, shown::path(&self.first));
            tracing::warn!(
                folder = %shown::path(root),
                "files without an image's extension are passed over: {said}"
            );
        }
    }
}

/// The names of a folder's folders, and of what else is in it, in the order of their bytes. Links are
/// followed.
fn entries(folder: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), FormatError> {
    let list = || -> io::Result<_> {
        let (mut folders, mut files) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            // A link that leads nowhere is a file, which cannot be opened.
            let is_folder = kind.is_dir() || kind.is_symlink() && entry.path().is_dir();
            let names = if is_folder { &mut folders } else { &mut files };
            names.push(PathBuf::from(entry.file_name()));
        }
        folders.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
        files.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
        Ok((folders, files))
    };
    list().map_err(|error| FormatError::io(folder, "list the folder", error))
}

/// A class's folder and all below, in the order of their whole paths' bytes.
fn folders(root: &Path, class: &Path) -> Result<Vec<PathBuf>, FormatError> {
    let identity = |folder: &Path| {
        let metadata = fs::metadata(root.join(folder));
        let metadata =
            metadata.map_err(|error| FormatError::io(&root.join(folder), "open the folder", error))?;
        Ok((metadata.dev(), metadata.ino()))
    };
    let mut found = Vec::new();
    // With the folders that each one is in, the outermost first.
    let mut rest = vec![(class.to_owned(), vec![identity(class)?])];
    while let Some((folder, inside)) = rest.pop() {
        for name in entries(&root.join(&folder))?.0 {
            let below = folder.join(name);
            let id = identity(&below)?;
            if inside.contains(&id) {
                let what = "a link leads back to a folder that it is in, so the paths have no end; remove it";
                return Err(FormatError::refused(&root.join(below), what));
            }
            let mut inside = inside.clone();
            inside.push(id);
            rest.push((below, inside));
        }
        found.push(folder);
    }
    found.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    Ok(found)
}

impl Shard for ClassFolderShard {
    fn path(&self) -> &Path {
        &self.root
    }

    fn files(&self) -> Vec<PathBuf> {
        let images = (0..).map_while(|position| self.image(position));
        images.map(|(path, _)| self.root.join(OsStr::from_bytes(path))).collect()
    }

    fn records(&self) -> Option<u64> {
        Some(self.images.len() as u64)
    }

    fn seeks(&self) -> Seeks {
        Seeks::ByPosition
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::new(self.grammar)
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        let file = self.root.clone();
        Ok(Box::new(ClassFolderCursor { shard: self, position: 0, file, buffer: Vec::new() }))
    }
}

/// Reads image after image.
struct ClassFolderCursor {
    shard: Arc<ClassFolderShard>,
    position: u64,
    /// The path of the image that was read last.
    file: PathBuf,
    /// Its class in eight bytes, and its own bytes.
    buffer: Vec<u8>,
}

impl ClassFolderCursor {
    fn read(&mut self, path: &Path) -> Result<(), FormatError> {
        self.file.as_mut_os_string().clear();
        self.file.push(&self.shard.root);
        self.file.push(path);
        let failed = |error| FormatError::io(&self.file, "read the image", error);
        let damaged = |what: String| FormatError::damaged(&self.file, what).record(self.position);
        let (file, bytes) = input_file::open(&self.file).map_err(failed)?;
        if bytes == 0 {
            return Err(damaged("the image file is empty; copy it again, or remove it".to_owned()));
        }
        if bytes > IMAGE_MAX {
            return Err(damaged(format!(
                "the image file has {bytes} bytes, and at most {IMAGE_MAX} are read"
            )));
        }
        let room = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.buffer.try_reserve(room).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
        let read = file.take(bytes).read_to_end(&mut self.buffer).map_err(failed)?;
        if read as u64 == bytes {
            return Ok(());
        }
        Err(damaged(format!("the image file had {bytes} bytes, and {read} are read: it changes")))
    }
}

impl Cursor for ClassFolderCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let shard = Arc::clone(&self.shard);
        let Some((path, class)) = shard.image(self.position) else { return Ok(None) };
        self.buffer.clear();
        self.buffer.extend_from_slice(&class.to_le_bytes());
        if shard.grammar.image {
            self.read(Path::new(OsStr::from_bytes(path)))?;
        }
        let place = [self.position, 0];
        let key = self.shard.image(self.position).map_or(Key::None, |(path, _)| Key::Bytes(path));
        self.position = self.position.saturating_add(1);
        Ok(Some(Record { key, value: Lent::Buffer(&self.buffer), place }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        let place = self.shard.image(self.position).map(|_| [self.position, 0]);
        self.position = self.position.saturating_add(u64::from(place.is_some()));
        Ok(place)
    }

    fn seek(&mut self, place: Place, _position: u64) -> Result<(), FormatError> {
        let images = self.shard.images.len() as u64;
        if place[0] >= images {
            let what = format!("image {} is wanted, and there are {images}", place[0]);
            return Err(FormatError::damaged(&self.shard.root, what));
        }
        self.position = place[0];
        Ok(())
    }
}

/// Finds the class's number and the image behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClassFolderGrammar {
    image: bool,
    label: bool,
}

impl ClassFolderGrammar {
    fn of(options: &Options) -> Self {
        ClassFolderGrammar { image: options.wants(IMAGE), label: options.wants(LABEL) }
    }
}

impl Grammar for ClassFolderGrammar {
    fn description(&self) -> String {
        format!("an image and its class's number: {}", self.names().unwrap_or_default().join(", "))
    }

    fn names(&self) -> Option<Vec<String>> {
        let names = [(IMAGE, self.image), (LABEL, self.label)];
        Some(names.iter().filter(|(_, has)| *has).map(|(name, _)| (*name).to_owned()).collect())
    }

    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        [IMAGE, LABEL]
            .into_iter()
            .filter_map(|name| Some(self.part(value, name).transpose()?.map(|part| (name.into(), part))))
            .collect()
    }

    fn part<'a>(&'a self, value: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        let cut = || Fault::new("the record of an image is cut");
        let (class, image) = value.split_first_chunk::<8>().ok_or_else(cut)?;
        Ok(match name {
            IMAGE if self.image => Some(Value::Bytes(image.into())),
            LABEL if self.label => Some(Value::Int(i64::from_le_bytes(*class))),
            _ => None,
        })
    }
}
