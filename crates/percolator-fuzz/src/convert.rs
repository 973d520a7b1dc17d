//! What a conversion that ended early leaves for one that goes on with it.

use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::LazyLock;

use percolator::Progress;
use percolator_data::DataSet;
use percolator_data::convert::{Convert, ConvertError, Summary};
use percolator_data::input::{Input, InputError, Item, ItemReader};
use percolator_data::store::Backend;
use serde_json::{Map, Value};

use crate::accepted::accepted;
use crate::files::{Folder, Walked, walk};
use crate::memory::{Budget, within};

/// Buffers of the reader and of the outputs; the state is JSON.
const BUDGET: Budget = Budget::mebibytes(8, 512);

/// The state of a conversion, as it is and with the facts of the conversion that goes on with it. A run that
/// gets no further saves what it has read. The state that a run has left leads to what one that never ended
/// makes.
pub(crate) fn convert_state(bytes: &[u8]) {
    let stated = serde_json::from_slice::<Map<String, Value>>(bytes).ok();
    let mark = stated.as_ref().and_then(|state| state.get("mark")?.as_object()?.keys().next());
    let left = match mark.map(String::as_str) {
        Some("lmdb") => &LEFT[0],
        Some("leveldb") => &LEFT[1],
        _ => &LEFT[2],
    };
    go_on(left, bytes);
    if let Some(mut state) = stated {
        state.insert("about".to_owned(), left.state["about"].clone());
        go_on(left, &serde_json::to_vec(&state).expect("a map is JSON"));
    }
}

/// Goes on with this state: with an input that cannot be read, and then to the end.
fn go_on(left: &Left, state: &[u8]) {
    let folder = Folder::new();
    for (name, file) in &left.files {
        folder.with(&format!("{PARTIAL}/{name}"), file);
    }
    let path = folder.with(&format!("{PARTIAL}/{STATE}"), state);
    let run = |readable| within(state, BUDGET, || convert(&folder, left.backend, readable));
    match run(0) {
        Err(ConvertError::Kept { .. }) => {
            let saved = fs::read(&path).expect("it is kept");
            assert_eq!(facts(&saved), facts(state), "what was read is saved");
        }
        // There is nothing left to read.
        Ok(_) | Err(ConvertError::Nothing { .. }) => return,
        Err(_) => {
            assert!(fs::read(&path).is_ok_and(|there| there == state), "a state that is refused has changed");
            return;
        }
    }
    let done = run(ITEMS);
    if facts(state) == facts_of(&left.state) {
        done.as_ref().expect("the state is the one that was left");
        assert_eq!(outputs(&folder), left.due);
    }
    if done.is_ok() {
        accepted();
    }
    let names = fs::read_dir(folder.path()).expect("the folder is there").flatten();
    for name in names.map(|entry| entry.file_name()) {
        assert!(name.as_encoded_bytes().starts_with(OUTPUT.as_bytes()), "there is {name:?}");
    }
}

const OUTPUT: &str = "out";
const PARTIAL: &str = "out.percolator-converting";
const STATE: &str = "state.json";
const SHARDS: u32 = 2;
const ITEMS: u64 = 4;

/// A conversion to two outputs, of which the items from this number on cannot be read.
fn convert(folder: &Folder, backend: Backend, readable: u64) -> Result<Summary, ConvertError> {
    Convert::new(Items { readable }, folder.path().join(OUTPUT), backend)
        .shards(NonZeroU32::new(SHARDS).expect("it is not zero"))
        .threads(1)
        .resume(true)
        .run(&Progress::new())
}

/// Records, one of which is skipped.
#[derive(Debug)]
struct Items {
    readable: u64,
}

impl Input for Items {
    fn path(&self) -> &Path {
        Path::new("items")
    }

    fn identity(&self) -> String {
        "items".to_owned()
    }

    fn items(&self) -> Option<u64> {
        Some(ITEMS)
    }

    fn reader(&self, from: u64) -> Result<ItemReader<'_>, InputError> {
        Ok(Box::new((from..ITEMS).map(|number| {
            let key = format!("{number:08}").into_bytes();
            match number {
                _ if number >= self.readable => {
                    Err(InputError::Format { path: "items".into(), found: "they end here".to_owned() })
                }
                1 => Ok(Item::Unreadable { key, reason: "it is torn".to_owned() }),
                _ => Ok(Item::Record { value: key.repeat(3), key }),
            }
        })))
    }
}

/// What a conversion leaves that has come to its second output.
struct Left {
    backend: Backend,
    /// The files in its folder, but for the state.
    files: Vec<(String, Vec<u8>)>,
    state: Value,
    /// The outputs of one that never ended.
    due: Vec<Walked>,
}

static LEFT: LazyLock<[Left; 3]> = LazyLock::new(|| {
    [Backend::Lmdb, Backend::LevelDb, Backend::TfRecord].map(|backend| {
        let folder = Folder::new();
        convert(&folder, backend, ITEMS).expect("all can be read");
        let due = outputs(&folder);
        let folder = Folder::new();
        convert(&folder, backend, ITEMS - 1).expect_err("one cannot be read");
        let partial = folder.path().join(PARTIAL);
        let state = fs::read(partial.join(STATE)).expect("it has a state");
        let state = serde_json::from_slice(&state).expect("it is JSON");
        fs::remove_file(partial.join(STATE)).expect("it is there");
        Left { backend, files: files(&partial, ""), state, due }
    })
});

/// The records of each output.
fn outputs(folder: &Folder) -> Vec<Walked> {
    let paths = (0..SHARDS).map(|shard| format!("{OUTPUT}-{shard:05}-of-{SHARDS:05}"));
    let read = |name: String| {
        let data = DataSet::open(folder.path().join(name)).expect("an output is a data set");
        walk(&*data.sources()[0], 1000)
    };
    paths.map(read).collect()
}

/// The files in a folder and below it: names and bytes.
fn files(folder: &Path, front: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("it is a folder").flatten();
    let file = |entry: fs::DirEntry| {
        let name = format!("{front}{}", entry.file_name().display());
        match entry.path() {
            path if path.is_dir() => files(&path, &format!("{name}/")),
            path => vec![(name, fs::read(path).expect("it is a file"))],
        }
    };
    entries.flat_map(file).collect()
}

/// What a state says. What it lacks is as if it were null. The mark of an LMDB is left out: a writer goes on
/// from the end of the file, and saves that.
fn facts(state: &[u8]) -> Option<Map<String, Value>> {
    serde_json::from_slice(state).ok().and_then(|state| facts_of(&state))
}

fn facts_of(state: &Value) -> Option<Map<String, Value>> {
    let mut facts = state.as_object()?.clone();
    facts.retain(|_, fact| !fact.is_null());
    if facts.get("mark").is_some_and(|mark| mark.get("lmdb").is_some()) {
        facts.remove("mark");
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// But for the facts of each conversion, which the target puts in.
    #[test]
    fn the_corpus_has_what_conversions_leave() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/convert_state");
        for (left, name) in LEFT.iter().zip(["lmdb", "leveldb", "tfrecord"]) {
            let state = fs::read(corpus.join(name)).expect("a seed can be read");
            let mut state: Value = serde_json::from_slice(&state).expect("it is JSON");
            state["about"] = left.state["about"].clone();
            assert_eq!(state, left.state, "{name}");
        }
    }
}
