//! The options of the command that do what the library says would help.

use percolator_measure::doctor::{Binds, Change, Finding};

/// The option that makes a change.
pub(super) fn of_change(change: Change) -> String {
    match change {
        Change::Workers { threads, .. } => format!("--threads {threads}"),
        Change::Ring { batches, .. } => format!("--prefetch {batches}"),
        Change::ReadFiles => "--access read".to_owned(),
        Change::MapFiles => "--access mapped".to_owned(),
        Change::DropBehind => "--drop-behind".to_owned(),
        // The command is built with the library.
        other => other.to_string(),
    }
}

/// The options that may help against what binds.
pub(super) fn of_binds(binds: Binds) -> &'static [&'static str] {
    match binds {
        Binds::Disk => &["--drop-behind"],
        Binds::Decode => &["--scaled-decode"],
        Binds::Memory | Binds::Copy => &["--dtype u8", "--dtype f16", "--transform-on device"],
        Binds::Processors => &["--dtype u8"],
        Binds::Nothing => &["--seconds"],
        _ => &[],
    }
}

/// The command, or the option, that mends what looks wrong.
pub(super) fn of_finding(finding: &Finding) -> Option<&'static str> {
    match finding {
        Finding::Undecodable { .. } => {
            Some("percolator verify lists all of them, and verify --repair leaves them out")
        }
        Finding::LabelsTogether { .. } => Some("--shuffle global"),
        Finding::MeanDoesNotFit { is_of_unit_pixels: false, .. } => Some("percolator mean"),
        Finding::MuchLarger { is_resized: true, .. } => Some("--scaled-decode"),
        _ => None,
    }
}
