//! Text for people, wrapped at a width.

/// The most columns of a report.
pub(crate) const WIDTH: usize = 100;

/// A text after what begins its first line, in lines of this width at most unless a word is longer. The other
/// lines are indented as much, by 4 columns at most.
pub(crate) fn wrapped(begin: &str, text: &str, width: usize) -> String {
    let indent = " ".repeat(begin.len().min(4));
    let (mut lines, mut line) = (String::new(), begin.to_owned());
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            lines += &line;
            lines.push('\n');
            line.clone_from(&indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_and_no_word_is_cut() {
        let text = wrapped("  ", &"word and word ".repeat(30), WIDTH);
        assert!(text.lines().count() > 3 && text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.lines().all(|line| line.starts_with("  ") && !line.starts_with("   ")), "{text}");
        assert_eq!(wrapped("", &"x".repeat(200), WIDTH).split_whitespace().count(), 1);
    }
}
