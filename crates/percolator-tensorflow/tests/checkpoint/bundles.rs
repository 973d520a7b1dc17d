//! Checkpoints on the damage harness: the index, the data files, and the file that lists checkpoints.
//!
//! Everything in a checkpoint has a checksum, except the table's footer. The list, `checkpoint`, is a text
//! without one: what it says is read, as long as the checkpoints that it names are there.

use std::fs;
use std::path::Path;

use percolator_files::Access;
use percolator_tensorflow::checkpoint::{StateError, StateFile};
use percolator_tensorflow::{Checkpoint, CheckpointError, Tensor};

use crate::golden::data;
use crate::harness::process::this_test;
use crate::harness::{self, Case, Format, Guard, Number, Reading, Stated, Way};

const MAPPED: &str = "mapped";
const READ: &str = "read";
const LOADED: &str = "loaded together";

/// A checkpoint that TensorFlow wrote, and another one of the same tensors.
struct Bundle {
    of: &'static str,
    donor: Option<&'static str>,
}

const FOOTER_BYTES: usize = 48;
/// The kind and the checksum behind a block.
const TRAILER_BYTES: usize = 5;

/// The parts of a table: blocks of entries, the empty one that says where filters are, the index, the footer.
fn table(name: &str, bytes: Vec<u8>) -> Stated {
    let mut file = Stated::of(name, bytes, Guard::Structure);
    let footer = file.bytes.len() - FOOTER_BYTES;
    let mut at = footer;
    let [filters, filter_bytes] = [(); 2].map(|()| Number::varint(&file.bytes, &mut at));
    let [index, index_bytes] = [(); 2].map(|()| Number::varint(&file.bytes, &mut at));
    file.mark("entries", Guard::Checked, 0..filters - TRAILER_BYTES);
    file.mark("kind of the entries", Guard::Checked, filters - TRAILER_BYTES..filters - 4);
    file.mark("checksum of the entries", Guard::Checked, filters - 4..filters);
    file.mark("filters", Guard::Unread, filters..filters + filter_bytes + TRAILER_BYTES);
    file.mark("index", Guard::Checked, index..index + index_bytes);
    file.mark("kind of the index", Guard::Checked, index + index_bytes..index + index_bytes + 1);
    file.mark("checksum of the index", Guard::Checked, index + index_bytes + 1..footer);
    file.mark_footer(footer);
    file
}

/// The files of a checkpoint, as `model`.
fn stated(of: &str) -> Vec<Stated> {
    let prefix = data(of);
    let name = prefix.file_name().unwrap().to_str().unwrap();
    let index = fs::read(prefix.with_file_name(format!("{name}.index"))).unwrap();
    let mut files = vec![table("model.index", index)];
    let checkpoint = Checkpoint::open(&prefix).unwrap();
    let mut shards: Vec<_> =
        fs::read_dir(prefix.parent().unwrap()).unwrap().map(|file| file.unwrap()).collect();
    shards.sort_by_key(std::fs::DirEntry::file_name);
    let is_own =
        |file: &fs::DirEntry| file.file_name().to_str().unwrap().starts_with(&format!("{name}.data-"));
    for (number, file) in shards.into_iter().filter(is_own).enumerate() {
        let own = file.file_name().to_str().unwrap().replacen(name, "model", 1);
        let mut stated = Stated::of(own, fs::read(file.path()).unwrap(), Guard::Structure);
        let tensors = checkpoint.tensors();
        let places =
            tensors.flat_map(|info| info.place.into_iter().chain(info.slices.iter().map(|one| one.place)));
        let mut places: Vec<_> = places
            .filter(|place| place.shard as usize == number && place.bytes > 0)
            .map(|place| place.offset as usize..(place.offset + place.bytes) as usize)
            .collect();
        places.sort_by_key(|place| place.start);
        places.into_iter().for_each(|place| stated.mark("tensor", Guard::Checked, place));
        files.push(stated);
    }
    assert!(files.len() > 1, "{of}");
    files
}

impl Format for Bundle {
    type Item = (String, Tensor<'static>);

    const BYTES_MAX: usize = 2000;

    fn name(&self) -> String {
        format!("checkpoint, {}", self.of)
    }

    fn files(&self) -> Vec<Stated> {
        stated(self.of)
    }

    fn donor(&self) -> Vec<Stated> {
        self.donor.map(stated).unwrap_or_default()
    }

    fn others(&self) -> Vec<Vec<Stated>> {
        let others = self.donor.into_iter().chain(["more/merged/model", "more/sliced/model"]);
        others.map(stated).collect()
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way::of(MAPPED), Way::of(READ), Way::seldom(LOADED, 2)]
    }

    fn read(&self, folder: &Path, way: &'static str) -> Reading<Self::Item> {
        let access = if way == MAPPED { Access::Mapped } else { Access::Read };
        Reading::of(|items| {
            let checkpoint = Checkpoint::open_with(folder.join("model"), access)?;
            let names = || checkpoint.tensors().map(|info| info.name.to_owned());
            if way == LOADED {
                let loaded = checkpoint.load_all(2)?;
                items.extend(names().zip(loaded.into_iter().map(Tensor::into_owned)));
                return Ok(());
            }
            for name in names() {
                let tensor = checkpoint.tensor(&name)?.into_owned();
                items.push((name, tensor));
            }
            let faults = checkpoint.verify(1).faults;
            assert_eq!(faults, [], "all tensors are read, and verify finds fault");
            Ok::<(), CheckpointError>(())
        })
    }

    /// Another checkpoint's index and data are whole, but not under one name: that shows. Its index alone is
    /// as good as this one's if it says the same.
    fn allows(&self, _case: &Case, _way: &'static str, _found: &Reading<Self::Item>) -> bool {
        false
    }
}

#[test]
fn checkpoints_of_all_types() {
    harness::check(this_test!(), 400, || Bundle { of: "types/model", donor: Some("more/types/model") });
}

#[test]
fn checkpoints_in_several_data_files() {
    harness::check(this_test!(), 300, || Bundle { of: "sharded/model", donor: None });
}

#[test]
fn checkpoints_of_slices() {
    harness::check(this_test!(), 300, || Bundle { of: "sliced/model", donor: None });
}

#[test]
fn checkpoints_of_objects() {
    harness::check(this_test!(), 400, || Bundle { of: "object/ckpt-3", donor: Some("object/ckpt-2") });
}

#[test]
fn checkpoints_of_large_tensors() {
    harness::check(this_test!(), 150, || Bundle {
        of: "article_ref_steps/model-30",
        donor: Some("article_ref_steps/model-40"),
    });
}

/// The list of a folder's checkpoints.
struct State;

const LISTED: [&str; 2] = ["model-30", "model-40"];
const BARE: Guard = Guard::Bare("the list is a text without a checksum");

impl State {
    fn text(latest: &str) -> Vec<Stated> {
        let mut file = Stated::of("checkpoint", Vec::new(), BARE);
        let mut line = |field: &str, value: &str, number: Option<Number>| {
            file.add("field", BARE, field.as_bytes());
            file.add("colon", BARE, b": ");
            match number {
                None => file.add("name", BARE, format!("\"{value}\"").as_bytes()),
                Some(number) => file.add_number("time", BARE, number, value.as_bytes()),
            }
            file.add("line break", BARE, b"\n");
        };
        line("model_checkpoint_path", latest, None);
        for name in LISTED {
            line("all_model_checkpoint_paths", name, None);
        }
        for time in ["1795331791", "1795331792"] {
            line("all_model_checkpoint_timestamps", time, Some(Number::Decimal));
        }
        let checkpoint = |name: &&str| {
            let file = |end: &str| {
                let bytes = fs::read(data(&format!("article_ref_steps/{name}{end}"))).unwrap();
                Stated::kept(format!("{name}{end}"), bytes)
            };
            [file(".index"), file(".data-00000-of-00001")]
        };
        [file].into_iter().chain(LISTED.iter().flat_map(checkpoint)).collect()
    }
}

impl Format for State {
    /// The latest checkpoint, and all.
    type Item = (Option<String>, Vec<String>);

    fn name(&self) -> String {
        "list of checkpoints".to_owned()
    }

    fn files(&self) -> Vec<Stated> {
        Self::text("model-40")
    }

    fn donor(&self) -> Vec<Stated> {
        Self::text("model-30")
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way::of(READ)]
    }

    fn read(&self, folder: &Path, _way: &'static str) -> Reading<Self::Item> {
        let state = StateFile::of(folder);
        let name = |path: std::path::PathBuf| path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
        let read = || {
            let latest = state.latest()?.map(name);
            Ok::<_, StateError>((latest, state.all()?.into_iter().map(name).collect()))
        };
        Reading::whole(read())
    }

    /// Nothing but names that the text has, of checkpoints that are there. Without the list, there is none.
    fn allows(&self, case: &Case, _way: &'static str, found: &Reading<Self::Item>) -> bool {
        let [(latest, all)] = &found.items[..] else { return found.error.is_some() };
        let Some(text) = case.bytes("checkpoint") else { return latest.is_none() && all.is_empty() };
        let text = String::from_utf8_lossy(text);
        let is_said = |name: &String| LISTED.contains(&&**name) && text.contains(&**name);
        latest.as_ref().is_some_and(is_said) && all.iter().all(is_said)
    }
}

#[test]
fn lists_of_checkpoints() {
    harness::check(this_test!(), 1000, || State);
}
