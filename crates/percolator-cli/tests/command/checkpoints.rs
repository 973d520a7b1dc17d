//! `percolator checkpoints` lists, verifies, takes out and cleans up the checkpoints of processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{Checkpoints, Entry, Parts};
use percolator_cluster::metadata::{FolderMetadata, Metadata as _, Transaction};
use percolator_cluster::store::FolderStore;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with a store and records.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["store", "records"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        drop(FolderMetadata::open(folder.path().join("records")).unwrap());
        Place { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn into_folder(self) -> TempDir {
        self.folder
    }

    pub(crate) fn metadata(&self) -> FolderMetadata {
        FolderMetadata::open(self.path().join("records")).unwrap()
    }

    pub(crate) fn begin(&self, id: &str, keep: usize) -> Checkpoints<Parts> {
        let store = Arc::new(FolderStore::open(self.path().join("store")).unwrap());
        let how = Checkpointer::new(store, Arc::new(self.metadata()), id).unwrap();
        how.keep(keep).restore(|| Parts::new().with("a", vec![0_u8]).with("b", String::new())).unwrap()
    }

    pub(crate) fn file(&self, id: &str, entry: &Entry) -> PathBuf {
        self.path().join("store").join(id).join(entry.uuid.to_string())
    }

    pub(crate) fn names(&self, id: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(self.path().join("store").join(id)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// As a process does before it begins a file.
    fn announce(&self, id: &str, name: &str) {
        let key = format!("/checkpoints-begun/{id}");
        let mut names = self.metadata().read(&key).unwrap().records.remove(0).value;
        names.extend(format!("{name}\n").bytes());
        self.put(&key, &names);
    }

    pub(crate) fn put(&self, key: &str, value: &[u8]) {
        self.metadata().transact(&Transaction::new().put(key, value)).unwrap();
    }

    /// The command, with what all its subcommands need.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command.env_remove("RUST_LOG").arg("checkpoints").args(arguments.split(' '));
        command.args(["--store", "store", "--metadata-folder", "records"]).current_dir(self.path());
        command
    }

    /// Its exit code, what it printed, and its messages.
    pub(crate) fn run(&self, arguments: &str) -> (i32, String, String) {
        outcome(self.command(arguments))
    }

    pub(crate) fn pass(&self, arguments: &str) -> String {
        let (code, printed, said) = self.run(arguments);
        assert_eq!((code, &*said), (0, ""), "{arguments}: {printed}");
        printed
    }

    /// The lines of JSON that a command prints.
    fn json(&self, arguments: &str) -> Vec<Value> {
        let printed = self.pass(&format!("{arguments} --json"));
        let found: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let schema = format!("percolator.checkpoints.{}/1", arguments.split(' ').next().unwrap());
        assert!(found.iter().all(|line| line["schema"] == *schema), "{printed}");
        found
    }
}

pub(crate) fn outcome(mut command: Command) -> (i32, String, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let [printed, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code().unwrap(), printed, said)
}

pub(crate) fn save(checkpoints: &Checkpoints<Parts>, bytes: &[u8]) -> Entry {
    {
        let mut state = checkpoints.state().write();
        *state.get_mut::<Vec<u8>>("a").unwrap() = bytes.to_vec();
        *state.get_mut::<String>("b").unwrap() = format!("{} bytes", bytes.len());
    }
    checkpoints.save_now().unwrap()
}

#[test]
fn each_id_is_listed_with_its_checkpoints() {
    let place = Place::new();
    assert_eq!(place.pass("list"), "there are no checkpoints\n");
    assert!(place.json("list").is_empty());
    let one = place.begin("one", 2);
    let (first, second) = (save(&one, b"first"), save(&one, b"second"));
    drop(place.begin("empty", 1));
    let other = place.begin("\u{fc}ber 2", 1);
    let third = save(&other, b"third");
    drop(other);
    fs::write(place.path().join("store/one/67e55044-10b1-426f-9247-bb680e5fe0c8"), "left over").unwrap();

    let listed = place.pass("list");
    let pid = std::process::id();
    assert!(listed.starts_with(&format!("one: held by process {pid} on ")), "{listed}");
    for (what, entry) in [("newest", &second), ("kept", &first), ("newest", &third)] {
        let bytes = entry.bytes.unwrap();
        let due = format!("  {what}: {}, {bytes} bytes, md5 {}, 20", entry.uuid, entry.md5);
        let line = listed.lines().find(|line| line.starts_with(&due));
        let line = line.unwrap_or_else(|| panic!("{due}: {listed}"));
        assert!(line.contains("Z, ") && line.contains(" s ago, step 0, process "), "{line}");
    }
    assert!(listed.contains("  no record names 67e55044-10b1-426f-9247-bb680e5fe0c8, 9 bytes\n"), "{listed}");
    assert!(listed.contains("\n\u{fc}ber 2\n") && !listed.contains("empty"), "{listed}");

    let found = place.json("list");
    assert_eq!(found.len(), 2);
    let of_one = &found[0];
    assert_eq!((&of_one["id"], &of_one["held"]["pid"]), (&json!("one"), &json!(pid)));
    assert_eq!(of_one["newest"]["uuid"], json!(second.uuid.to_string()));
    assert_eq!(of_one["newest"]["file_bytes"], json!(second.bytes));
    assert!(of_one["newest"]["age_seconds"].as_f64().unwrap() >= 0.0);
    assert_eq!(of_one["kept"][0]["md5"], json!(first.md5));
    assert_eq!(of_one["unnamed"][0]["bytes"], 9);
    assert_eq!((&found[1]["held"], &found[1]["fault"]), (&Value::Null, &Value::Null));
    assert_eq!(place.json("list one").len(), 1);

    fs::remove_file(place.file("one", &first)).unwrap();
    assert!(place.pass("list one").contains(&format!("kept: {}, its file is missing", first.uuid)));
    assert_eq!(place.json("list one")[0]["kept"][0]["file_bytes"], Value::Null);
}

#[test]
fn checkpoints_are_verified() {
    let place = Place::new();
    assert_eq!(place.pass("verify"), "there are no checkpoints\n");
    let one = place.begin("one", 2);
    let (first, second) = (save(&one, b"first"), save(&one, b"second"));
    let other = save(&place.begin("other", 1), b"other");
    let verified = place.pass("verify");
    for (id, entry) in [("one", &first), ("one", &second), ("other", &other)] {
        let due = format!("{id}: {} is whole, {} bytes\n", entry.uuid, entry.bytes.unwrap());
        assert!(verified.contains(&due), "{verified}");
    }
    // Whoever is named and has none is missed.
    let (code, printed, _) = place.run("verify none");
    assert_eq!((code, &*printed), (1, "none: there is no record\n"));

    let mut bytes = fs::read(place.file("one", &first)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(place.file("one", &first), &bytes).unwrap();
    fs::write(place.file("other", &other), &bytes[..7]).unwrap();
    let (code, printed, said) = place.run("verify");
    assert_eq!((code, &*said), (1, ""));
    assert!(printed.contains(&format!("one: {} is whole", second.uuid)), "{printed}");
    assert!(printed.contains(&format!("one: {}: the MD5 of its file is ", first.uuid)), "{printed}");
    assert!(printed.contains(&format!("other: {}: its file has 7 bytes, and had", other.uuid)), "{printed}");
    fs::remove_file(place.file("one", &second)).unwrap();
    let (code, printed, _) = place.run("verify one --json");
    let found: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(found["schema"], "percolator.checkpoints.verify/1");
    assert_eq!((code, &found["is_whole"]), (1, &json!(false)));
    assert!(found["checkpoints"][0]["fault"].as_str().unwrap().contains("there is no file"), "{found}");
}

#[test]
fn a_checkpoint_or_a_part_of_it_is_written_to_a_file() {
    let place = Place::new();
    let one = place.begin("one", 3);
    let (first, second) = (save(&one, b"first"), save(&one, b"second"));
    let third = save(&one, b"third");
    let out = place.path().join("out");
    let printed = place.pass("restore --id one --out out --part a");
    let due = format!("restored from the newest checkpoint, {}\n5 bytes written to out\n", third.uuid);
    assert_eq!((printed, fs::read(&out).unwrap()), (due, b"third".to_vec()));
    let (code, _, said) = place.run("restore --id one --out out");
    assert_eq!(code, 2);
    assert!(said.contains("out: it already exists; give another path, or --force"), "{said}");
    assert_eq!(fs::read(&out).unwrap(), b"third");

    // The newest is damaged, the one before it gone.
    fs::write(place.file("one", &third), "cut").unwrap();
    fs::remove_file(place.file("one", &second)).unwrap();
    let printed = place.pass("restore --id one --out out --force");
    assert!(
        printed.starts_with(&format!("restored from an older checkpoint, {}; ", first.uuid)),
        "{printed}"
    );
    for (entry, due) in [(&third, "its file has 3 bytes"), (&second, "there is no file")] {
        assert!(printed.contains(&format!("checkpoint {}: {due}", entry.uuid)), "{printed}");
    }
    assert_eq!(fs::read(&out).unwrap(), fs::read(place.file("one", &first)).unwrap());
    let found = &place.json("restore --id one --out out --force --part b")[0];
    assert_eq!((&found["origin"], &found["bytes"]), (&json!("older"), &json!(7)));
    assert_eq!(found["rejected"].as_array().unwrap().len(), 2);
    assert_eq!(fs::read(&out).unwrap(), b"5 bytes");

    let (code, _, said) = place.run("restore --id one --out new --part model");
    assert_eq!(code, 2);
    assert!(said.contains("there is no part \"model\": there are {\"a\", \"b\"}"), "{said}");
    assert!(!place.path().join("new").exists());
    // It goes on, and so does its writer.
    save(&one, b"fourth");
}

#[test]
fn what_no_record_names_is_removed() {
    const LEFT_OVER: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

    let place = Place::new();
    assert_eq!(place.pass("gc"), "there are no checkpoints\n");
    let one = place.begin("one", 3);
    let (first, second, third) = (save(&one, b"first"), save(&one, b"second"), save(&one, b"third"));
    let others = place.begin("other", 1);
    let other = save(&others, b"other");
    drop(others);
    let at = |id: &str, name: &str| place.path().join("store").join(id).join(name);
    for id in ["one", "other"] {
        fs::write(at(id, LEFT_OVER), "left over").unwrap();
        place.announce(id, LEFT_OVER);
        fs::write(at(id, "notes.txt"), "a user's").unwrap();
    }
    let partial = format!("{LEFT_OVER}.ffffffff-7f-1a2b-0.percolator-partial");
    fs::write(at("other", &partial), "half").unwrap();
    let before = (place.names("one"), place.names("other"));

    let would = place.pass("gc --dry-run");
    assert!(would.contains("one: it is held by process "), "{would}");
    assert!(would.contains(&format!("other: would remove {LEFT_OVER}: no record names it\n")), "{would}");
    assert!(would.contains("other: would remove 1 unfinished file(s)\n"), "{would}");
    assert_eq!((place.names("one"), place.names("other")), before);

    let removed = place.pass("gc");
    assert_eq!(removed, would.replace("would remove", "removed"));
    let due: BTreeSet<_> = [other.uuid.to_string(), "notes.txt".to_owned()].into();
    assert_eq!((place.names("one"), place.names("other")), (before.0, due));
    assert_eq!(place.pass("gc other"), "other: nothing to remove\n");
    // It was named, and could not be.
    let (code, printed, _) = place.run("gc one --keep 1");
    assert_eq!(code, 1, "{printed}");

    drop(one);
    let removed = place.json("gc one --keep 2");
    assert_eq!(removed[0]["taken_out"], json!([first.uuid.to_string()]));
    let all = removed[0]["removed"].as_array().unwrap().iter().map(|uuid| uuid.as_str().unwrap().to_owned());
    assert_eq!(all.collect::<BTreeSet<_>>(), [first.uuid.to_string(), LEFT_OVER.to_owned()].into());
    let due = [third.uuid.to_string(), second.uuid.to_string(), "notes.txt".to_owned()];
    assert_eq!(place.names("one"), due.into());
    assert_eq!(place.json("list one")[0]["kept"].as_array().unwrap().len(), 1);
    assert!(place.pass("verify").lines().all(|line| line.contains("is whole")));
    // Whoever begins finds the newest, and goes on.
    let one = place.begin("one", 1);
    assert_eq!(one.restored().entry(), Some(&third));
    save(&one, b"fourth");
    assert_eq!(place.names("one").len(), 2);
}

#[test]
fn files_that_a_record_may_name_are_not_removed() {
    const FILE: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

    let place = Place::new();
    for id in ["lost", "strange", "replaced"] {
        fs::create_dir(place.path().join("store").join(id)).unwrap();
        fs::write(place.path().join("store").join(id).join(FILE), "state").unwrap();
    }
    let foreign = save(&place.begin("foreign", 1), b"state");
    fs::write(place.path().join("store/foreign").join(FILE), "of other metadata").unwrap();
    place.put("/checkpoints/strange", br#"{"version":7}"#);
    place.put(&format!("/checkpoints-unreadable/replaced/{FILE}"), b"no JSON");
    let (code, printed, said) = place.run("gc");
    assert_eq!((code, &*said), (1, ""), "{printed}");
    assert!(printed.contains("lost: there is no record of it, and its 1 file(s) stay"), "{printed}");
    assert!(printed.contains("strange: the record has version 7"), "{printed}");
    assert!(printed.contains("replaced: there is no record of it"), "{printed}");
    assert!(printed.contains("foreign: these metadata do not know 1 file(s) of it, which stay"), "{printed}");
    let (code, printed, _) = place.run("gc lost");
    assert_eq!(code, 1, "{printed}");
    // Whoever says so means it; but not for what may be named.
    let (code, printed, _) = place.run("gc --without-record");
    assert_eq!(code, 1);
    assert!(printed.contains(&format!("lost: removed {FILE}: no record names it\n")), "{printed}");
    assert!(printed.contains("replaced: files stay that no record names"), "{printed}");
    assert!(printed.contains(&format!("foreign: removed {FILE}: no record names it\n")), "{printed}");
    assert_eq!(place.names("foreign"), [foreign.uuid.to_string()].into());
    assert_eq!(place.names("lost").len(), 0);
    for id in ["strange", "replaced"] {
        assert_eq!(place.names(id), [FILE.to_owned()].into(), "{id}");
    }
}

#[test]
fn one_that_could_not_be_read_goes_if_it_is_said() {
    let place = Place::new();
    let one = place.begin("one", 1);
    let first = save(&one, b"first");
    drop(one);
    // Another program's state, which does not take it: so it is spared.
    let store = Arc::new(FolderStore::open(place.path().join("store")).unwrap());
    let how = Checkpointer::new(store, Arc::new(place.metadata()), "one").unwrap();
    let checkpoints = how.restore(|| Parts::new().with("c", vec![0_u8])).unwrap();
    checkpoints.save_now().unwrap();
    drop(checkpoints);
    assert!(place.pass("list").contains(&format!("  spared: {}, ", first.uuid)));
    assert_eq!(place.pass("gc"), "one: nothing to remove\n");
    assert_eq!(place.pass("gc --spared"), format!("one: removed {}: was kept\n", first.uuid));
    assert_eq!(place.json("list")[0]["spared"], json!([]));
}
