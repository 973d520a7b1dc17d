//! The command's options for what the library says would help.

use percolator_measure::doctor::{Advice, Change, Finding};

/// The option that makes a change.
pub(super) fn of_change(change: Change) -> String {
    match change {
        Change::Workers { threads, .. } => format!("--threads {threads}"),
        Change::Ring { batches, .. } => format!("--prefetch {batches}"),
        Change::ReadFiles => "--access read".to_owned(),
        Change::MapFiles => "--access mapped".to_owned(),
        // The command is built with the library.
        other => other.to_string(),
    }
}

/// The option that follows an advice.
pub(super) fn of_advice(advice: Advice) -> Option<&'static str> {
    match advice {
        Advice::ScaledDecode => Some("--scaled-decode"),
        Advice::Bytes => Some("--dtype u8"),
        Advice::HalfFloats => Some("--dtype f16"),
        Advice::TransformOnDevice => Some("--transform-on device"),
        Advice::SmallerCrop => Some("--crop"),
        Advice::LargerBatches => Some("--batch-size"),
        Advice::LongerMeasurements => Some("--seconds"),
        _ => None,
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
