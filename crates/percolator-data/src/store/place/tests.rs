use super::super::replace::REPLACED;
use super::super::{Backend, Existing, StoreError};
use super::*;

/// A LevelDB with this record.
fn write(path: &Path, value: &str) {
    let mut writer = Backend::LevelDb.create(path).unwrap();
    writer.put(b"key", value.as_bytes()).unwrap();
    writer.finish().unwrap();
}

fn read(path: &Path) -> String {
    use percolator::source::Source as _;

    let database = percolator::leveldb::LevelDb::open(path).unwrap();
    let mut cursor = database.cursor().unwrap();
    let entry = cursor.advance().unwrap().unwrap();
    String::from_utf8(entry.value().to_vec()).unwrap()
}

/// What a process that replaces `name` and its list leaves behind if it is killed after this many steps.
fn killed_after(steps: usize, name: &Path) {
    write(name, "old");
    let list = with_ending(name, ".skipped.txt");
    fs::write(&list, "old").unwrap();
    let partial = with_ending(name, CONVERTING);
    let done = with_ending(name, DONE);
    fs::create_dir(&partial).unwrap();
    let all: [&dyn Fn(); 12] = [
        &|| fs::write(partial.join("lock"), "").unwrap(),
        &|| write(&partial.join("store-00000"), "new"),
        &|| fs::write(partial.join(STATE), "").unwrap(),
        &|| fs::write(partial.join(WHOLE), r#"["store-00000"]"#).unwrap(),
        &|| fs::rename(name, with_ending(name, REPLACED)).unwrap(),
        &|| fs::rename(partial.join("store-00000"), name).unwrap(),
        &|| fs::rename(&list, with_ending(&list, REPLACED)).unwrap(),
        &|| fs::remove_file(with_ending(&list, REPLACED)).unwrap(),
        &|| fs::remove_dir_all(with_ending(name, REPLACED)).unwrap(),
        &|| fs::rename(&partial, &done).unwrap(),
        &|| fs::remove_file(done.join(WHOLE)).unwrap(),
        &|| fs::remove_dir_all(&done).unwrap(),
    ];
    all.iter().take(steps).for_each(|step| step());
}

#[test]
fn a_kill_at_any_step_loses_nothing() {
    use Earlier::{Refuse, Remove, Resume};

    for steps in 0..=12 {
        for (existing, earlier) in [
            (Existing::Refuse, Refuse),
            (Existing::Refuse, Resume),
            (Existing::Replace, Remove),
            (Existing::Replace, Resume),
        ] {
            let context = format!("after {steps} steps, {existing:?} and {earlier:?}");
            let folder = tempfile::tempdir().unwrap();
            let name = folder.path().join("name");
            killed_after(steps, &name);
            let wanted = if steps < 6 { "old" } else { "new" };
            let outputs = vec![
                Output::store(0, name.clone()),
                Output::file("skipped.txt", with_ending(&name, ".skipped.txt")),
            ];
            let taken = Place::take(&name, outputs, existing, earlier);
            assert_eq!(read(&name), wanted, "{context}");
            let place = match (taken, existing) {
                (Ok(place), _) => place,
                (Err(StoreError::Exists { .. }), Existing::Refuse) => continue,
                (Err(error), _) => panic!("{context}: {error}"),
            };
            assert!(existing == Existing::Replace || (6..10).contains(&steps), "{context}");
            // What was whole has its names in the end; otherwise this run writes it.
            if !place.is_whole() {
                place.clear().unwrap();
                write(&place.store(0), "newer");
            }
            let wanted = match place.is_whole() {
                true => "new",
                false => "newer",
            };
            assert_eq!(place.is_whole(), earlier == Resume && (4..10).contains(&steps), "{context}");
            place.finish().unwrap();
            assert_eq!(read(&name), wanted, "{context}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{context}");
        }
    }
}

#[test]
fn what_comes_to_an_output_meanwhile_stays() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("name");
    let list = with_ending(&name, ".skipped.txt");
    let take = |existing, earlier| {
        let outputs = vec![Output::store(0, name.clone()), Output::file("skipped.txt", list.clone())];
        Place::take(&name, outputs, existing, earlier)
    };
    let place = take(Existing::Refuse, Earlier::Refuse).unwrap();
    write(&place.store(0), "new");
    fs::write(place.folder().join("skipped.txt"), "new").unwrap();
    write(&name, "another's");
    let error = place.finish().unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error}");
    assert_eq!(read(&name), "another's");
    drop(place);
    // An empty folder is not silently replaced either, nor is a list.
    fs::remove_dir_all(&name).unwrap();
    fs::write(&list, "another's").unwrap();
    let error = take(Existing::Refuse, Earlier::Resume).unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error}");
    let place = take(Existing::Replace, Earlier::Resume).unwrap();
    assert!(place.is_whole());
    fs::create_dir(&name).unwrap();
    fs::write(name.join("photo.jpg"), "a photograph").unwrap();
    let error = place.finish().unwrap_err();
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    assert!(name.join("photo.jpg").exists());
    drop(place);
    fs::remove_dir_all(&name).unwrap();
    take(Existing::Replace, Earlier::Resume).unwrap().finish().unwrap();
    assert_eq!((read(&name), fs::read_to_string(&list).unwrap()), ("new".into(), "new".into()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// Three old stores, and a place with three new ones.
fn three(folder: &Path) -> (Vec<PathBuf>, Place) {
    let paths: Vec<_> = ["one", "two", "three"].iter().map(|name| folder.join(name)).collect();
    paths.iter().for_each(|path| write(path, "old"));
    let place = take_all(folder, &paths, Earlier::Refuse).unwrap();
    (0..3).for_each(|number| write(&place.store(number), "new"));
    (paths, place)
}

fn take_all(folder: &Path, paths: &[PathBuf], earlier: Earlier) -> Result<Place, StoreError> {
    let outputs = paths.iter().enumerate().map(|(number, path)| Output::store(number, path.clone()));
    Place::take(&folder.join("name"), outputs.collect(), Existing::Replace, earlier)
}

#[test]
fn outputs_that_cannot_all_have_their_names_leave_the_old_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (paths, place) = three(folder.path());
    fs::write(paths[2].join("photo.jpg"), "a photograph").unwrap();
    let error = place.finish().unwrap_err();
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    assert!(paths.iter().all(|path| read(path) == "old"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "nothing is beside them");
    drop(place);
    fs::remove_file(paths[2].join("photo.jpg")).unwrap();
    let place = take_all(folder.path(), &paths, Earlier::Resume).unwrap();
    assert!(place.is_whole());
    place.finish().unwrap();
    assert!(paths.iter().all(|path| read(path) == "new"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_run_that_starts_over_leaves_no_old_outputs_beside_new_ones() {
    // Killed before, between and after the moves of the first output and the second.
    for moves in 0..=4 {
        let folder = tempfile::tempdir().unwrap();
        let (paths, place) = three(folder.path());
        place.list().unwrap();
        let aside = |path: &Path| fs::rename(path, with_ending(path, REPLACED)).unwrap();
        let all: [&dyn Fn(); 4] = [
            &|| aside(&paths[0]),
            &|| fs::rename(place.store(0), &paths[0]).unwrap(),
            &|| aside(&paths[1]),
            &|| fs::rename(place.store(1), &paths[1]).unwrap(),
        ];
        all.iter().take(moves).for_each(|step| step());
        drop(place);
        let wanted = if moves < 2 { "old" } else { "new" };
        // Of another number of outputs, the paths are not known.
        let other = take_all(folder.path(), &paths[..2], Earlier::Remove);
        if moves < 2 {
            drop(other.unwrap());
        } else {
            let error = other.unwrap_err();
            assert!(matches!(error, StoreError::HalfNamed { found: 3, outputs: 2, .. }), "{error}");
        }
        let place = take_all(folder.path(), &paths, Earlier::Remove).unwrap();
        assert!(paths.iter().all(|path| read(path) == wanted), "after {moves} moves");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "after {moves} moves");
        assert!(!place.is_whole() && !place.store(2).exists());
    }
}

#[test]
fn a_run_starts_over_where_one_that_was_being_named_is_no_longer_whole() {
    for lost in ["an output", "the list", "a list past the limit"] {
        let folder = tempfile::tempdir().unwrap();
        let (paths, place) = three(folder.path());
        place.list().unwrap();
        fs::rename(&paths[0], with_ending(&paths[0], REPLACED)).unwrap();
        fs::rename(place.store(0), &paths[0]).unwrap();
        let list = place.folder().join(WHOLE);
        match lost {
            "an output" => {
                fs::remove_dir_all(&paths[0]).unwrap();
                fs::remove_dir_all(with_ending(&paths[0], REPLACED)).unwrap();
            }
            "the list" => fs::write(list, "[").unwrap(),
            _ => File::create(list).unwrap().set_len(1 << 40).unwrap(),
        }
        drop(place);
        let place = take_all(folder.path(), &paths, Earlier::Remove).unwrap();
        (0..3).for_each(|number| write(&place.store(number), "newer"));
        place.finish().unwrap();
        assert!(paths.iter().all(|path| read(path) == "newer"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}

#[test]
fn the_loss_of_a_store_is_noticed_before_the_old_one_goes() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("name");
    write(&name, "old");
    let outputs = vec![Output::store(0, name.clone())];
    let place = Place::take(&name, outputs, Existing::Replace, Earlier::Refuse).unwrap();
    write(&place.store(0), "new");
    fs::remove_dir_all(place.store(0)).unwrap();
    let error = place.finish().unwrap_err();
    assert!(matches!(error, StoreError::Changed { .. }), "{error}");
    assert_eq!(read(&name), "old");
}

#[test]
fn what_cannot_be_removed_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("name");
    let mut place = Place::take(&name, Vec::new(), Existing::Refuse, Earlier::Refuse).unwrap();
    // No file system has so long a name.
    place.done = folder.path().join("x".repeat(300));
    let error = place.discard().unwrap_err();
    assert!(matches!(&error, StoreError::Io { path, .. } if *path == place.done), "{error}");
    assert!(place.partial.exists());
}

#[test]
fn only_what_a_run_can_go_on_with_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("name");
    let take = |earlier| Place::take(&name, vec![Output::store(0, name.clone())], Existing::Refuse, earlier);
    drop(take(Earlier::Refuse).unwrap());
    let place = take(Earlier::Refuse).unwrap();
    fs::write(place.folder().join(STATE), "").unwrap();
    let error = take(Earlier::Refuse).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    drop(place);
    let error = take(Earlier::Refuse).unwrap_err();
    assert!(matches!(error, StoreError::Partial { .. }), "{error}");
    assert!(take(Earlier::Resume).unwrap().folder().join(STATE).exists());
    assert!(!take(Earlier::Remove).unwrap().folder().join(STATE).exists());
}

#[test]
fn an_output_that_was_whole_and_is_gone_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("name");
    killed_after(7, &name);
    fs::remove_dir_all(&name).unwrap();
    fs::remove_dir_all(with_ending(&name, REPLACED)).unwrap();
    let outputs = vec![Output::store(0, name.clone())];
    let error = Place::take(&name, outputs, Existing::Replace, Earlier::Resume).unwrap_err();
    assert!(error.to_string().contains("it was whole, and is gone"), "{error}");
}

/// On NFS and FUSE, a file that is open is hidden beside where it was, and its folder stays.
#[test]
#[cfg(target_os = "linux")]
fn no_file_of_the_folder_is_open_when_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().canonicalize().unwrap().join("name");
    let outputs = vec![Output::store(0, name.clone())];
    let place = Place::take(&name, outputs, Existing::Refuse, Earlier::Refuse).unwrap();
    write(&place.store(0), "new");
    let open_in_folder = || {
        let files =
            fs::read_dir("/proc/self/fd").unwrap().filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        files.filter(|file| file.starts_with(folder.path().canonicalize().unwrap())).count()
    };
    assert_eq!(open_in_folder(), 1, "the lock");
    place.finish().unwrap();
    assert_eq!((open_in_folder(), read(&name).as_str()), (0, "new"));
}
