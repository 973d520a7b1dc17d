//! Address space for liblmdb's map of the data file.
//!
//! liblmdb begins no transaction on a file that has outgrown its map (`MDB_MAP_RESIZED`). It allows a new map
//! only while the process has no live transaction on that file, so one long-lived cursor could keep all
//! others from starting. The map is therefore longer than the file from the start. This costs only addresses:
//! liblmdb touches no page of its map except the two meta pages.
//!
//! A process usually has 47 bits of addresses. All environments together take at most an eighth of them. If
//! the address space is limited (`ulimit -v`), the map is only as long as the file, and
//! [`Slots`](super::slot::Slots) replaces it when nobody reads.

#![expect(unsafe_code, reason = "getrlimit is C")]

use parking_lot::Mutex;

/// The room of all environments of the process together.
const ALL_BYTES: u64 = 16 << 40;

/// Each environment takes one part in this many of the rest: the first one 1 TiB, the 44th one 64 GiB.
const PART: u64 = 16;

/// The length of a map is a multiple of this, and so of the system's page length.
const UNIT_BYTES: u64 = 64 << 10;

/// What is left of the room of all environments.
static LEFT: Mutex<u64> = Mutex::new(ALL_BYTES);

/// Addresses after the end of a mapped file. Dropping it returns them.
#[derive(Debug)]
pub(super) struct Room {
    bytes: u64,
    /// Where the addresses come from.
    left: &'static Mutex<u64>,
}

impl Room {
    pub(super) fn take() -> Self {
        if is_limited() { Self::none() } else { Self::of(&LEFT) }
    }

    fn of(left: &'static Mutex<u64>) -> Self {
        let mut all = left.lock();
        let bytes = *all / PART;
        *all -= bytes;
        Room { bytes, left }
    }

    pub(super) fn none() -> Self {
        Room { bytes: 0, left: &LEFT }
    }

    pub(super) fn is_none(&self) -> bool {
        self.bytes == 0
    }

    /// The length of the map of a file of this length.
    pub(super) fn map_bytes(&self, file_bytes: u64) -> usize {
        let bytes = file_bytes.saturating_add(self.bytes);
        let bytes = bytes.checked_next_multiple_of(UNIT_BYTES).unwrap_or(bytes);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *self.left.lock() += self.bytes;
    }
}

/// Whether the address space of this process is limited.
fn is_limited() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes the limit, and `limit` is a valid place for it.
    let code = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    code != 0 || limit.rlim_cur != libc::RLIM_INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_environments_have_room_and_together_take_no_more_than_there_is() {
        // Other tests take from the process's own meanwhile.
        static LEFT: Mutex<u64> = Mutex::new(ALL_BYTES);
        let rooms: Vec<Room> = (0..1000).map(|_| Room::of(&LEFT)).collect();
        let bytes: Vec<u64> = rooms.iter().map(|room| room.bytes).collect();
        assert_eq!(bytes[0], 1 << 40);
        assert!(bytes[43] >= 63 << 30, "{} bytes", bytes[43]);
        assert!(bytes.iter().sum::<u64>() <= ALL_BYTES);
        drop(rooms);
        assert_eq!(Room::of(&LEFT).bytes, 1 << 40, "what was returned is available again");
    }

    #[test]
    fn a_map_is_at_least_as_long_as_its_file() {
        assert_eq!(Room::none().map_bytes(1), 64 << 10);
        assert_eq!(Room::none().map_bytes(128 << 10), 128 << 10);
        static LEFT: Mutex<u64> = Mutex::new(ALL_BYTES);
        let room = Room::of(&LEFT);
        assert_eq!(room.map_bytes(5), (1 << 40) + (64 << 10));
        assert_eq!(room.map_bytes(u64::MAX), usize::MAX);
    }
}
