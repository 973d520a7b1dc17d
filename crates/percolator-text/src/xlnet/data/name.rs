//! The flags that the script writes into the names of its files.

use std::fmt;
use std::path::Path;

use percolator_files::shown;

use super::DataError;
use crate::xlnet::{Flags, Split};

/// The flags in the names of a data set's files. All of its records were made with them.
///
/// Displayed as in a name: `bsz-8.seqlen-128.reuse-64.uncased.bi.alpha-6.beta-1.fnp-21`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataFlags {
    /// Rows per batch, of all cores of a host together.
    pub bsz_per_host: u32,
    /// Tokens per row.
    pub seq_len: u32,
    /// The length of a row's reused part: the tokens at its front, which the row of the next batch continues.
    pub reuse_len: u32,
    /// The text is in lower case.
    pub uncased: bool,
    /// Half of the rows run backwards.
    pub bi_data: bool,
    /// Tokens of context for each token of a masked n-gram, before [`mask_beta`](Self::mask_beta) divides
    /// them.
    pub mask_alpha: u32,
    /// What the context of a masked n-gram is divided by.
    pub mask_beta: u32,
    /// How many tokens of a row are masked, if that is fixed.
    pub num_predict: Option<u32>,
}

impl From<&Flags> for DataFlags {
    fn from(flags: &Flags) -> Self {
        DataFlags {
            bsz_per_host: flags.bsz_per_host,
            seq_len: flags.seq_len,
            reuse_len: flags.reuse_len,
            uncased: flags.uncased,
            bi_data: flags.bi_data,
            mask_alpha: flags.mask_alpha,
            mask_beta: flags.mask_beta,
            num_predict: flags.num_predict,
        }
    }
}

impl fmt::Display for DataFlags {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let case = if self.uncased { "uncased." } else { "" };
        let direction = if self.bi_data { "bi" } else { "uni" };
        write!(
            to,
            "bsz-{}.seqlen-{}.reuse-{}.{case}{direction}.alpha-{}.beta-{}",
            self.bsz_per_host, self.seq_len, self.reuse_len, self.mask_alpha, self.mask_beta
        )?;
        self.num_predict.map_or(Ok(()), |predict| write!(to, ".fnp-{predict}"))
    }
}

/// What the name of a `record_info` states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::xlnet) struct InfoName {
    pub(in crate::xlnet) task: u32,
    pub(in crate::xlnet) pass: u32,
    pub(in crate::xlnet) flags: DataFlags,
}

impl InfoName {
    /// Reads a file's name. `None` if it is not a `record_info` of the split.
    pub(in crate::xlnet) fn of(path: &Path, split: Split) -> Option<Result<Self, DataError>> {
        let name = path.file_name()?.to_str()?;
        let rest = name.strip_prefix(&format!("record_info-{split}-"))?.strip_suffix(".json")?;
        let wrong = |wrong: String| {
            DataError::Refused(format!(
                "{} is not named as XLNet's data_utils.py names its files: {wrong}; the flags are read from \
                 names such as \
                 record_info-train-0-0.bsz-32.seqlen-512.reuse-256.uncased.bi.alpha-6.beta-1.fnp-85.json",
                shown::path(path)
            ))
        };
        Some(parse(rest).map_err(wrong))
    }
}

/// Reads `0-0.bsz-8.seqlen-128.reuse-64.uncased.bi.alpha-6.beta-1.fnp-21`.
fn parse(text: &str) -> Result<InfoName, String> {
    let (place, rest) = text.split_once('.').ok_or("there are no flags")?;
    let (task, pass) = place.split_once('-').ok_or_else(|| format!("{place:?} is not a task and a pass"))?;
    let (task, pass) = (number(task)?, number(pass)?);
    let mut parts = rest.split('.').peekable();
    let valued = |name: &str, parts: &mut dyn Iterator<Item = &str>| {
        let part = parts.next().unwrap_or_default();
        let value = part.strip_prefix(name).and_then(|value| value.strip_prefix('-'));
        number(value.ok_or_else(|| format!("found {part:?} instead of {name}-N"))?)
    };
    let bsz_per_host = valued("bsz", &mut parts)?;
    let seq_len = valued("seqlen", &mut parts)?;
    let reuse_len = valued("reuse", &mut parts)?;
    let uncased = parts.next_if_eq(&"uncased").is_some();
    let bi_data = match parts.next() {
        Some("bi") => true,
        Some("uni") => false,
        other => return Err(format!("{:?} is neither bi nor uni", other.unwrap_or_default())),
    };
    let mask_alpha = valued("alpha", &mut parts)?;
    let mask_beta = valued("beta", &mut parts)?;
    let num_predict = match parts.peek() {
        Some(_) => Some(valued("fnp", &mut parts)?),
        None => None,
    };
    if let Some(more) = parts.next() {
        return Err(format!("{more:?} comes after the flags"));
    }
    if bsz_per_host == 0 {
        return Err("bsz-0 is no batch".to_owned());
    }
    let flags =
        DataFlags { bsz_per_host, seq_len, reuse_len, uncased, bi_data, mask_alpha, mask_beta, num_predict };
    Ok(InfoName { task, pass, flags })
}

fn number(text: &str) -> Result<u32, String> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value = is_plain.then(|| text.parse().ok()).flatten();
    value.ok_or_else(|| format!("{text:?} is not a number below 2^32"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_are_read_as_they_are_written(
            [bsz_per_host, seq_len, reuse_len, mask_alpha, mask_beta] in any::<[u32; 5]>(),
            [uncased, bi_data] in any::<[bool; 2]>(),
            num_predict in any::<Option<u32>>(),
            task in any::<u32>(),
            pass in any::<u32>(),
        ) {
            let flags = Flags {
                bsz_per_host: bsz_per_host.max(1),
                seq_len, reuse_len, mask_alpha, mask_beta, uncased, bi_data, num_predict,
                split: Split::Dev,
                ..Flags::default()
            };
            let name = flags.info_name(task, pass);
            let expected = InfoName { task, pass, flags: DataFlags::from(&flags) };
            prop_assert_eq!(InfoName::of(Path::new(&name), Split::Dev).unwrap().unwrap(), expected);
            prop_assert!(InfoName::of(Path::new(&name), Split::Train).is_none());
            prop_assert_eq!(name, format!("record_info-dev-{task}-{pass}.{}.json", expected.flags));
        }
    }

    #[test]
    fn other_names_are_refused() {
        let whole = "0-0.bsz-8.seqlen-128.reuse-64.uncased.bi.alpha-6.beta-1.fnp-21";
        assert!(parse(whole).is_ok());
        for wrong in [
            "",
            "0-0",
            "00.bsz-8",
            "0-0.bsz-8.seqlen-128.uncased.bi.alpha-6.beta-1.fnp-21",
            "0-0.bsz-0.seqlen-128.reuse-64.uncased.bi.alpha-6.beta-1.fnp-21",
            "0-0.bsz-8.seqlen-128.reuse-64.both.alpha-6.beta-1.fnp-21",
            "0-0.bsz-8.seqlen-128.reuse-64.uncased.bi.alpha-6.beta-1.fnp-21.more",
            "0-0.bsz-8.seqlen-128.reuse-64.uncased.bi.alpha-6.beta-1.fnp-",
            "0-0.bsz-8.seqlen-128.reuse-64.uncased.bi.alpha-6.beta-+1",
            "0-4294967296.bsz-8.seqlen-128.reuse-64.uncased.bi.alpha-6.beta-1",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
