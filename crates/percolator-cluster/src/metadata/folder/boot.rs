//! Which boot of which machine this is.

use std::fmt;
use std::fs;
use std::io;

/// A number that the kernel draws when it starts. It is another one after a reboot, and on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BootId(pub(super) u128);

impl BootId {
    /// This machine's.
    pub(super) fn read() -> io::Result<Self> {
        const PATH: &str = "/proc/sys/kernel/random/boot_id";
        let text = fs::read_to_string(PATH)?;
        Self::parsed(&text).ok_or_else(|| {
            let text = text.escape_debug();
            io::Error::new(io::ErrorKind::InvalidData, format!("{PATH} says \"{text}\", which is no UUID"))
        })
    }

    fn parsed(text: &str) -> Option<Self> {
        let digits: String = text.trim_end().split('-').collect();
        let is_uuid = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(&digits, 16).ok()?;
        is_uuid.then_some(BootId(number))
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_number_is_read() {
        assert_eq!(BootId::read().unwrap(), BootId::read().unwrap());
        let parsed = BootId::parsed("01234567-89ab-cdef-0123-456789abcdef\n");
        assert_eq!(parsed.unwrap().to_string(), "0123456789abcdef0123456789abcdef");
        assert!(
            ["", "0123", "+1234567-89ab-cdef-0123-456789abcdef"]
                .into_iter()
                .all(|text| BootId::parsed(text).is_none())
        );
    }
}
