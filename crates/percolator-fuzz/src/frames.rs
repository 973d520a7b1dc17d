//! A naive reader of TFRecord's frames, without a thought for speed.

use percolator_files::checksum::masked_crc32c;

/// The frames of a file, as far as their heads lead.
pub(crate) struct Frames<'a> {
    /// The data of each; `None` if its checksum is wrong.
    pub(crate) records: Vec<Option<&'a [u8]>>,
    /// What is behind the last of them.
    pub(crate) rest: &'a [u8],
    /// Whether that begins with a head whose checksum is wrong.
    pub(crate) is_damaged: bool,
}

pub(crate) fn frames(mut rest: &[u8]) -> Frames<'_> {
    let sum = |bytes: &[u8]| masked_crc32c(bytes, &[]).to_le_bytes();
    let (mut records, mut is_damaged) = (Vec::new(), false);
    while let Some((head, after)) = rest.split_first_chunk::<12>() {
        is_damaged = sum(&head[..8]) != head[8..];
        let length = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
        let length = usize::try_from(length).ok().filter(|_| !is_damaged);
        let Some((data, after)) = length.and_then(|length| after.split_at_checked(length)) else { break };
        let Some((stored, after)) = after.split_first_chunk() else { break };
        records.push((*stored == sum(data)).then_some(data));
        rest = after;
    }
    Frames { records, rest, is_damaged }
}
