//! What the kernel reads of a mapped file for one cursor, before the cursor reaches it.

#[cfg(all(target_os = "linux", not(miri)))]
mod ahead;
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
