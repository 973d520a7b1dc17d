//! What is said of an error.

/// Returns an error and its causes in one line. A cause that the error itself says is not said again.
pub(super) fn chain(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn each_cause_is_said_once() {
        let error = anyhow!("denied").context("f: cannot open the file: denied");
        assert_eq!(chain(&error), "f: cannot open the file: denied");
        assert_eq!(chain(&anyhow!("one").context("two").context("three")), "three: two: one");
    }
}
