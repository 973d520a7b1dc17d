//! No file handle is left (RLIMIT_NOFILE). Whatever is opened, at whatever moment there is none for it: the
//! feed delivers every record, or says that too many files are open.

use std::path::Path;

use rustix::io::Errno;
use rustix::process::Resource;

use crate::common::process::{check, child_command, must_end, open_files, role, this_test};
use crate::common::words_of;
use crate::data::{self, Data, FORMATS};
use crate::limited::under;

/// The highest limit: more than this process has open, and any of the formats opens. The system's limit is
/// not on how many files are open, but on their numbers, of which the lowest free one is given.
const LIMIT_MAX: u64 = 48;

#[test]
fn a_feed_that_gets_no_file_handle_says_so_or_goes_on_without() {
    if let Some(folder) = role() {
        return FORMATS.iter().for_each(|format| with_ever_more_handles(Path::new(&folder), format));
    }
    // The limit is that of a whole process, and so a child's alone.
    let data = Data::write();
    let child = child_command(this_test!(), data.path().to_str().unwrap()).output().unwrap();
    check(this_test!(), &child);
}

fn with_ever_more_handles(folder: &Path, format: &'static str) {
    let reason = words_of(Errno::MFILE);
    for is_shuffled in [false, true] {
        let (mut refused, mut fed) = (0, 0);
        for limit in 3..LIMIT_MAX {
            data::remove_sidecars(folder);
            let path = folder.to_owned();
            let what = format!("{format}, shuffled: {is_shuffled}, limit {limit}");
            let run = move || {
                under(Resource::Nofile, limit, || data::labels(data::feed(&path, format, is_shuffled)?))
            };
            match must_end(&what, run) {
                Ok(labels) => {
                    assert_eq!(labels, data::all(), "{what}");
                    fed += 1;
                }
                Err(error) => {
                    let said = error.to_string();
                    assert!(said.contains(&reason), "{what}: {said}");
                    refused += 1;
                }
            }
        }
        println!("{format}, shuffled: {is_shuffled}: refused {refused}, fed {fed}");
        assert!(refused > 0 && fed > 0, "{format}: refused {refused}, fed {fed}");
    }
    // What failed left nothing open.
    data::remove_sidecars(folder);
    let before = open_files();
    let _ = under(Resource::Nofile, before as u64 + 1, || data::labels(data::feed(folder, format, true)?));
    assert_eq!(open_files(), before, "{format}");
}
