//! A folder with a folder of images for each class.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use percolator_files::input_file;
use sha2::{Digest as _, Sha256};

use super::{Input, InputError, Item, ItemReader, file_key};

/// The endings of image files, in lower case: those of torchvision's `ImageFolder`.
const ENDINGS: [&str; 9] = [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// How deep folders may be nested: links may make them endless.
const DEPTH_MAX: usize = 40;

/// A folder of class folders, as torchvision's `ImageFolder` takes it: the folders are the classes, and their
/// numbers in the order of their names are the labels. The images of a class are all files below its folder
/// that end as images do, folder by folder in the order of their paths. A record's key is its number, and the
/// image's path in the root folder.
#[derive(Clone, Debug)]
pub struct ClassFolders {
    root: PathBuf,
    classes: Vec<Vec<u8>>,
    /// Paths in the root folder, and labels.
    files: Vec<(PathBuf, i32)>,
}

impl ClassFolders {
    /// Lists the folders. The files are not read.
    ///
    /// # Errors
    ///
    /// [`InputError`] if a folder cannot be listed, if an entry that may be a folder cannot be examined, if
    /// there is no class, or a class has no image.
    pub fn open(root: &Path) -> Result<Self, InputError> {
        let (mut folders, _) = entries(root)?;
        folders.sort();
        if folders.is_empty() {
            return Err(InputError::format(root, "it has no folder: each class has a folder of images"));
        }
        let mut files = Vec::new();
        for (label, class) in folders.iter().enumerate() {
            let label = i32::try_from(label)
                .map_err(|_| InputError::format(root, "it has more classes than there are labels"))?;
            let before = files.len();
            add_images(root, Path::new(class), label, &mut files)?;
            if files.len() == before {
                let found =
                    format!("the class has no file whose name ends as an image's: {}", ENDINGS.join(", "));
                return Err(InputError::format(&root.join(class), found));
            }
        }
        let classes: Vec<_> = folders.iter().map(|class| class.as_bytes().to_vec()).collect();
        if let Some(class) = folders.iter().find(|class| class.as_bytes().contains(&b'\n')) {
            let found = "a line of the list of classes cannot have its name, which has a line break";
            return Err(InputError::format(&root.join(class), found));
        }
        Ok(ClassFolders { root: root.to_owned(), classes, files })
    }
}

impl Input for ClassFolders {
    fn path(&self) -> &Path {
        &self.root
    }

    fn identity(&self) -> String {
        let root = self.root.canonicalize().unwrap_or_else(|_| self.root.clone());
        let mut names = Sha256::new();
        for (name, label) in &self.files {
            let name = name.as_os_str().as_bytes();
            names.update((name.len() as u64).to_le_bytes());
            names.update(name);
            names.update(label.to_le_bytes());
        }
        let names = names.finalize();
        format!("{root:?}, {} files, names {}", self.files.len(), BASE64_STANDARD.encode(names))
    }

    fn items(&self) -> Option<u64> {
        Some(self.files.len() as u64)
    }

    fn reader(&self, from: u64) -> Result<ItemReader<'_>, InputError> {
        let from_file = usize::try_from(from).unwrap_or(usize::MAX);
        let files = (from..).zip(self.files.iter().skip(from_file));
        Ok(Box::new(files.map(|(number, (name, label))| {
            let key = file_key(number, name.as_os_str().as_bytes());
            Ok(Item::File { key, path: self.root.join(name), label: *label })
        })))
    }

    fn classes(&self) -> Option<&[Vec<u8>]> {
        Some(&self.classes)
    }
}

type Names = Vec<std::ffi::OsString>;

/// The names of the folders and of the other entries in a folder. Links are followed.
fn entries(folder: &Path) -> Result<(Names, Names), InputError> {
    let failed = || InputError::io(folder, "list the folder");
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        let is_folder = match fs::metadata(entry.path()) {
            Ok(found) => found.is_dir(),
            // It has been removed since.
            Err(_) if matches!(input_file::is_there(&entry.path()), Ok(false)) => continue,
            // An image is missed when it is read. Programs keep broken links of their own under hidden names.
            Err(_) if is_image(&entry.file_name()) || entry.file_name().as_bytes().starts_with(b".") => false,
            // It may be a folder of images: a link may lead to a disk that is not mounted.
            Err(error) => return Err(InputError::io(&entry.path(), "look at it")(error)),
        };
        if is_folder { &mut folders } else { &mut files }.push(entry.file_name());
    }
    Ok((folders, files))
}

/// Adds the images in a folder and in those below it: folder by folder, in the order of their paths.
fn add_images(
    root: &Path,
    class: &Path,
    label: i32,
    images: &mut Vec<(PathBuf, i32)>,
) -> Result<(), InputError> {
    let mut found = Vec::new();
    let mut waiting = vec![class.to_owned()];
    while let Some(folder) = waiting.pop() {
        if folder.components().count() > DEPTH_MAX {
            let found = format!("folders are nested more than {DEPTH_MAX} deep: a link may lead back");
            return Err(InputError::format(&root.join(&folder), found));
        }
        let (folders, mut files) = entries(&root.join(&folder))?;
        waiting.extend(folders.iter().map(|name| folder.join(name)));
        files.retain(|name| is_image(name));
        files.sort();
        found.push((folder, files));
    }
    // As Python sorts them: by the bytes of the path, and not name by name.
    found.sort_by(|(one, _), (other, _)| one.as_os_str().cmp(other.as_os_str()));
    images
        .extend(found.iter().flat_map(|(folder, files)| files.iter().map(|file| (folder.join(file), label))));
    Ok(())
}

fn is_image(name: &OsStr) -> bool {
    let name = name.as_bytes().to_ascii_lowercase();
    ENDINGS.iter().any(|ending| name.ends_with(ending.as_bytes()))
}
