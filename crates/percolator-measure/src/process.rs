//! The processor time and the memory that this process has used.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time of all threads together.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// The bytes that this process has caused to be read from storage; `None` if the system does not say.
pub(crate) fn storage_bytes() -> Option<u64> {
    bytes_after("read_bytes:", &std::fs::read_to_string("/proc/self/io").ok()?)
}

/// The bytes that a line of one of Linux's accounts states after this: a number, which may be in kB.
pub(crate) fn bytes_after(name: &str, account: &str) -> Option<u64> {
    let stated = account.lines().find_map(|line| line.strip_prefix(name))?.trim();
    match stated.strip_suffix("kB") {
        Some(kibibytes) => Some(kibibytes.trim().parse::<u64>().ok()? * 1024),
        None => stated.parse().ok(),
    }
}

/// Samples the memory of this process.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Linux's status file; `None` on other systems.
    status: Option<File>,
    buffer: Vec<u8>,
}

impl Memory {
    pub(crate) fn open() -> Self {
        Memory { status: File::open("/proc/self/status").ok(), buffer: vec![0; 8192] }
    }

    /// The resident anonymous memory, in bytes.
    pub(crate) fn anonymous_bytes(&mut self) -> Option<u64> {
        let length = self.status.as_ref()?.read_at(&mut self.buffer, 0).ok()?;
        bytes_after("RssAnon:", std::str::from_utf8(&self.buffer[..length]).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_of_linux_is_read() {
        let status = "VmRSS:\t  9 kB\nRssAnon:\t    1672 kB\nRssFile: 3 kB";
        assert_eq!(bytes_after("RssAnon:", status), Some(1672 * 1024));
        assert_eq!(bytes_after("RssAnon:", "VmRSS:\t  9 kB\n"), None);
        let account = "rchar: 5\nread_bytes: 8192\nwrite_bytes: 1\n";
        assert_eq!(bytes_after("read_bytes:", account), Some(8192));
        assert_eq!(bytes_after("read_bytes:", ""), None);
    }
}
