//! What the kernel keeps in memory of a mapped file for one cursor: what the cursor will reach, and, if it
//! drops what is behind it, nothing else.

#[cfg(all(target_os = "linux", not(miri)))]
mod ahead;
pub(super) mod behind;
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) mod dropped;
#[cfg(not(all(target_os = "linux", not(miri))))]
mod elsewhere;
#[cfg(all(target_os = "linux", not(miri)))]
mod linux;
#[cfg(all(target_os = "linux", not(miri)))]
mod mapped;

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) use self::elsewhere::PageCache;
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) use self::linux::PageCache;
