//! What is asked of the sources, and how they are named.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::*;
use crate::base::offload::NotYet;
use crate::source::image_list::ImageList;
use crate::source::leveldb::LevelDb;

/// A feed's budget has no room for numbers then.
#[test]
fn records_of_a_list_that_skips_lines_are_numbered_by_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let list = |names: &[&str]| {
        let path = folder.path().join("list.txt");
        std::fs::write(&path, names.iter().map(|name| format!("{name} 1\n")).collect::<String>()).unwrap();
        names.iter().for_each(|name| std::fs::write(folder.path().join(name), name).unwrap());
        ImageList::open(path).unwrap().relative_to(folder.path()).skipping(1).unwrap()
    };
    let joined = Joined::new(list(&["a", "b", "c"])).and(list(&["d", "e"]));
    assert_eq!(joined.passes(), Passes::Alike);
    let mut cursor = joined.cursor().unwrap();
    for name in [b"a", b"b", b"c", b"d", b"e"] {
        let entry = cursor.advance().unwrap().unwrap();
        assert_eq!((entry.key(), entry.number()), (&name[..], None));
    }
    assert!(cursor.advance().unwrap().is_none());
}

/// A source of one record that counts what is asked of it.
#[derive(Debug)]
struct Counted(PathBuf, Arc<AtomicUsize>);

impl Counted {
    fn note(&self) {
        self.1.fetch_add(1, Relaxed);
    }
}

impl Source for Counted {
    fn path(&self) -> &Path {
        &self.0
    }

    fn records(&self) -> Option<u64> {
        self.note();
        Some(1)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.note();
        Ok(Box::new(CountedCursor(Counted(self.0.clone(), self.1.clone()), 0)))
    }
}

/// Its cursor, with its position.
struct CountedCursor(Counted, u64);

impl Cursor for CountedCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        Ok(self.skip()?.then(|| Entry::borrowed(b"key", b"value")))
    }

    fn skip(&mut self) -> Result<bool, SourceError> {
        self.0.note();
        self.1 += 1;
        Ok(self.1 == 1)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.seek(0)
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        self.0.note();
        self.1 = position;
        Ok(())
    }

    fn reads_until(&mut self, _position: u64) {
        self.0.note();
    }

    fn check_end(&mut self) -> Result<(), SourceError> {
        self.0.note();
        Ok(())
    }

    fn set_aside(&mut self) {
        self.0.note();
    }
}

/// Joining, and each record in order or out of it, asks as much of a source if there are many others.
#[test]
fn what_is_asked_of_the_sources_does_not_grow_with_their_number() {
    let asked = |sources: usize| {
        let asked = Arc::new(AtomicUsize::new(0));
        let source = |number: usize| Counted(number.to_string().into(), asked.clone());
        let joined = (1..sources).fold(Joined::new(source(0)), |joined, number| joined.and(source(number)));
        let joining = asked.swap(0, Relaxed);
        let mut cursor = joined.cursor().unwrap();
        asked.store(0, Relaxed);
        let step = |cursor: &mut Box<dyn Cursor>| {
            assert_eq!(cursor.advance().unwrap().unwrap().value(), b"value");
        };
        (0..20).for_each(|_| step(&mut cursor));
        let in_order = asked.swap(0, Relaxed);
        for position in (20..40).rev() {
            cursor.reads_until(position + 1);
            cursor.seek(position).unwrap();
            step(&mut cursor);
        }
        (joining.div_ceil(sources), in_order, asked.load(Relaxed))
    };
    let few = asked(50);
    assert!(few.0 <= 3 && few.1 > 20 && few.2 > 20, "{few:?}");
    assert_eq!(asked(2000), few);
}

#[test]
fn a_data_set_of_many_databases_has_a_short_name() {
    let joined = |sources: u32| {
        let source = |number: u32| Counted(format!("part-{number:05}").into(), Arc::default());
        (1..sources).fold(Joined::new(source(0)), |joined, number| joined.and(source(number)))
    };
    let names = [1, 2, 3, 4, 9999].map(|sources| joined(sources).path().to_str().unwrap().to_owned());
    assert_eq!(names[..2], ["part-00000", "part-00000, part-00001"]);
    assert_eq!(names[2], "part-00000, part-00001, part-00002");
    assert_eq!(names[3], "part-00000 to part-00003 (4 databases)");
    assert_eq!(names[4], "part-00000 to part-09998 (9999 databases)");
}

#[test]
#[cfg_attr(miri, ignore = "only what is mapped is deferred")]
fn databases_share_the_pool_of_unpacked_blocks() {
    let open = || {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/leveldb/snappy");
        LevelDb::open(data).unwrap()
    };
    let held = |source: &dyn Source, steps: usize| {
        let helpers = Arc::new(NotYet { threads: 4 });
        let mut cursor = source.deferring_cursor(VerifiesLater::promised(Some(helpers))).unwrap();
        for _ in 0..steps {
            cursor.advance().unwrap().unwrap();
        }
        cursor.held_bytes(0).shared
    };
    let joined = (1..8).fold(Joined::new(open()), |joined, _| joined.and(open()));
    let (one, eight) = (held(&open(), 1), held(&joined, 1));
    assert!(one < eight && eight < 2 * one, "{one} {eight}");
    let mut records = 0;
    let mut cursor = open().cursor().unwrap();
    while cursor.skip().unwrap() {
        records += 1;
    }
    assert_eq!(held(&joined, 8 * records), eight, "as known at the first record");
}
