//! Which parts of a file the kernel has in memory.

#![allow(unsafe_code, reason = "the system is asked by the address of a map")]

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;
use rustix::fs::{Advice, fadvise};

use super::need::missing;

pub const PAGE_BYTES: usize = 4096;

/// For each page, whether it is in memory. The check brings no page there.
pub fn pages(path: &Path) -> Vec<bool> {
    let file = File::open(path).unwrap();
    // SAFETY: the file is a test's own, which does not write to it meanwhile.
    let map = unsafe { Mmap::map(&file) }.unwrap();
    let mut pages = vec![0_u8; map.len().div_ceil(PAGE_BYTES)];
    // SAFETY: the map has this many pages, and there is a byte for each.
    let asked = unsafe { libc::mincore(map.as_ptr() as *mut libc::c_void, map.len(), pages.as_mut_ptr()) };
    assert_eq!(asked, 0, "{}", std::io::Error::last_os_error());
    pages.into_iter().map(|page| page & 1 == 1).collect()
}

/// The share of these pages that are in memory.
pub fn share(pages: &[bool]) -> f64 {
    pages.iter().filter(|&&is_resident| is_resident).count() as f64 / pages.len().max(1) as f64
}

/// A character for each MiB: all of it in memory (#), a part (+), or nothing (.).
pub fn picture(pages: &[bool]) -> String {
    let sign = |pages: &[bool]| match share(pages) {
        0.0 => '.',
        1.0 => '#',
        _ => '+',
    };
    pages.chunks((1 << 20) / PAGE_BYTES).map(sign).collect()
}

/// Makes the kernel drop a file from memory. Says that the test did not run, and returns `false`, if it does
/// not, as on a tmpfs.
pub fn evict(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let is_gone = share(&pages(path)) < 0.01;
    if !is_gone {
        missing("EVICTION", format_args!("the file system keeps {} in memory", path.display()));
    }
    is_gone
}
