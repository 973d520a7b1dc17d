//! No thread can be started (RLIMIT_NPROC). The system does not hold root to that limit, so a child of root's
//! is somebody else.

use std::error::Error as _;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::Resource;

use crate::common::process::{check_without_root, child_command, must_end, role, this_test};
use crate::common::words_of;
use crate::data::{self, Data, FORMATS};
use crate::limited::under;

/// More threads than a feed of one lane has.
const THREADS: u64 = 12;

#[test]
fn a_feed_that_gets_no_thread_says_which_or_goes_on_without() {
    if let Some(folder) = role() {
        return FORMATS.iter().for_each(|format| with_ever_more_threads(Path::new(&folder), format));
    }
    let data = Data::write();
    data.open_to_all();
    let child = child_command(this_test!(), data.path().to_str().unwrap());
    // The folder of the crate can be written by nobody else, whoever runs the tests.
    check_without_root(this_test!(), child, Path::new("/"));
}

fn with_ever_more_threads(folder: &Path, format: &'static str) {
    let reason = words_of(Errno::AGAIN);
    let (mut refused, mut fed) = (0, 0);
    for threads in 0..THREADS {
        for is_shuffled in [false, true] {
            data::remove_sidecars(folder);
            let path = folder.to_owned();
            let what = format!("{format}, shuffled: {is_shuffled}, {threads} threads");
            let run = move || {
                under(Resource::Nproc, threads, || {
                    data::labels(data::feed(&path, format, is_shuffled)?.threads(2))
                })
            };
            match must_end(&what, run) {
                Ok(labels) => {
                    assert_eq!(labels, data::all(), "{what}");
                    fed += 1;
                }
                Err(error) => {
                    let said = error.to_string();
                    assert!(said.contains("cannot start the "), "{what}: {said}");
                    let cause: &io::Error = error.source().unwrap().downcast_ref().unwrap();
                    assert!(cause.to_string().starts_with(&reason), "{what}: {cause}");
                    refused += 1;
                }
            }
        }
    }
    println!("{format}: refused {refused}, fed {fed}");
    assert!(refused > 0, "{format}: fed {fed} times without a thread");
}
