//! What the system keeps in memory of a mapped file for the walk over it: what the walk will come to, and, where it is
//! asked to drop the rest, nothing else.

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
