//! Links in a data set that somebody else made: none leads to a file that is written, or removed.

use std::fs;
use std::os::unix::fs::symlink;

use percolator::source::{IndexPlace, Lmdb, Source as _, TfRecord};
use percolator_text::sentencepiece::SentencePiece;

use crate::files::Folder;

const LETTER: &str = "dear all, this is longer than the head of any file of ours";

/// Calls `body` with a file at the end of a link, with an empty one, and with a link that leads nowhere; the
/// file stays as it was.
fn each_end_of_a_link(link: &str, body: impl Fn(&Folder)) {
    for text in [Some(LETTER), Some(""), None] {
        let folder = Folder::new();
        let letter = folder.path().join("letter");
        if let Some(text) = text {
            folder.with("letter", text.as_bytes());
        }
        symlink(&letter, folder.path().join(link)).expect("a link can be made");
        body(&folder);
        assert_eq!(fs::read_to_string(&letter).ok().as_deref(), text, "{link}");
    }
}

#[test]
fn no_lock_of_an_lmdb_is_written_through_a_link() {
    each_end_of_a_link("lock.mdb", |folder| {
        folder.with("data.mdb", include_bytes!("../seeds/few.mdb"));
        let source = Lmdb::open(folder.path()).expect("it is read without a lock");
        let mut cursor = source.cursor().expect("it is whole");
        assert!(cursor.advance().expect("it is whole").is_some());
    });
}

#[test]
fn no_index_is_written_through_a_link() {
    // In a folder of indexes: in place of one beside the data, another would be made in the user's cache.
    let folder = Folder::new();
    let path = folder.with("few.tfrecord", include_bytes!("../seeds/few.tfrecord"));
    let indexes = folder.path().join("indexes");
    let index = || {
        let source = TfRecord::open(&path).expect("it is whole");
        source.index(&IndexPlace::Folder(indexes.clone())).expect("it is in memory at the least");
        assert_eq!(source.records(), Some(7));
    };
    index();
    let made =
        fs::read_dir(&indexes).expect("the folder was made").flatten().next().expect("the index").path();
    fs::remove_file(&made).expect("it is there");
    let letter = folder.with("letter", LETTER.as_bytes());
    symlink(&letter, &made).expect("a link can be made");
    index();
    assert_eq!(fs::read_to_string(&letter).expect("it is there"), LETTER);
}

#[test]
fn a_model_is_read_from_a_regular_file_of_a_possible_length() {
    let folder = Folder::new();
    let long = folder.with("long.model", b"");
    // It takes no memory, and would take as much as it says.
    let file = fs::File::options().write(true).open(&long).expect("it was made");
    file.set_len(1 << 42).expect("a file may have holes");
    assert!(SentencePiece::open(&long).is_err());
    assert!(SentencePiece::open("/dev/zero".as_ref()).is_err());
}
