//! What the kernel keeps in memory of a mapped file for one cursor: what the cursor will reach, and, if it
//! drops what is behind it, nothing else.

#[cfg(target_os = "linux")]
mod ahead;
pub(super) mod behind;
#[cfg(target_os = "linux")]
pub(super) mod dropped;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod mapped;

#[cfg(not(target_os = "linux"))]
pub(super) use self::elsewhere::PageCache;
#[cfg(target_os = "linux")]
pub(super) use self::linux::PageCache;
