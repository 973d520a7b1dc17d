//! There is no `/proc` and no `/sys`: nothing says where memory, files and control groups are. A feed needs
//! none of it.

use std::path::Path;

use crate::common::process::{check, child_command, role, this_test};
use crate::data::{self, Data, FORMATS};
use crate::limited::{in_own_namespace, is_possible};

#[test]
fn a_feed_runs_without_proc_and_sys() {
    if let Some(folder) = role() {
        assert!(!Path::new("/proc/self").exists() && !Path::new("/sys/fs").exists());
        for format in FORMATS {
            for is_shuffled in [false, true] {
                let feed = data::feed(Path::new(&folder), format, is_shuffled).unwrap();
                assert_eq!(data::labels(feed).unwrap(), data::all(), "{format}, shuffled: {is_shuffled}");
            }
        }
        return;
    }
    let hide = "mount -t tmpfs none /proc && mount -t tmpfs none /sys";
    if !is_possible(hide, "/proc cannot be hidden here") {
        return;
    }
    let data = Data::write();
    let child = in_own_namespace(hide, &child_command(this_test!(), data.path().to_str().unwrap()));
    let mut child = child;
    check(this_test!(), &child.output().unwrap());
}
