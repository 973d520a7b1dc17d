//! Whether what was read of damaged files is right.

use std::path::Path;

use super::case::Case;
use super::stated::Guard;
use super::{Format, Reading};

/// What reading damaged files gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An error, and before it nothing but the first of the whole.
    Refused,
    /// All that the undamaged files give.
    Whole,
    /// What the format says nothing can show.
    Unseen,
}

/// Judges one reading; the error says what is wrong with it.
pub fn judge<F: Format>(
    format: &F,
    case: &Case,
    way: &'static str,
    folder: &Path,
    whole: &[F::Item],
    found: &Reading<F::Item>,
) -> Result<Verdict, String> {
    if found.error.is_none() && found.items == whole {
        return match case.guard {
            Some(Guard::Checked) => Err("a checksum covers it, and nobody noticed".to_owned()),
            _ => Ok(Verdict::Whole),
        };
    }
    let must_be_whole = match case.guard {
        Some(Guard::Mended) => Some("what is lost of it is made anew"),
        Some(Guard::Unread) => Some("nobody uses it"),
        _ => None,
    };
    if let Some(why) = must_be_whole {
        return Err(format!("{why}, and the whole did not come: {}", shown(whole, found)));
    }
    if let Some(error) = &found.error
        && whole.starts_with(&found.items)
    {
        return match format.names(error, folder) {
            true => Ok(Verdict::Refused),
            false => Err(format!("the error does not name the file: {error}")),
        };
    }
    let may_be_unseen = !matches!(case.guard, Some(Guard::Checked | Guard::Structure));
    match may_be_unseen && format.allows(case, way, found) {
        true => Ok(Verdict::Unseen),
        false => Err(format!("neither an error nor the whole: {}", shown(whole, found))),
    }
}

fn shown<T: std::fmt::Debug + PartialEq>(whole: &[T], found: &Reading<T>) -> String {
    let (items, due) = (found.items.len(), whole.len());
    let same = found.items.iter().zip(whole).take_while(|(one, other)| one == other).count();
    let mut text = format!("{items} of {due} came, the first {same} right, {:?}", found.error);
    for (which, item) in [("found", found.items.get(same)), ("due", whole.get(same))] {
        let item: String = format!("{item:?}").chars().take(300).collect();
        text += &format!("\n  {which}: {item}");
    }
    text
}
