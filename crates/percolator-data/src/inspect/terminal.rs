//! A picture in a terminal: each character is two pixels, one above the other, in 24-bit colours.

use std::fmt::Write as _;

use super::pictures::Pixels;

/// Draws a picture with so many columns and lines at most. Each line ends with the colours reset.
#[must_use]
pub fn half_blocks(pixels: &Pixels, columns: usize, lines: usize) -> String {
    let fitted = pixels.fitted(columns, 2 * lines);
    let row_bytes = 3 * fitted.width;
    let rows: Vec<&[u8]> = fitted.rgb.chunks_exact(row_bytes).collect();
    let mut drawn = String::new();
    for pair in rows.chunks(2) {
        for column in 0..fitted.width {
            let upper = &pair[0][3 * column..3 * column + 3];
            let _ = write!(drawn, "\x1b[38;2;{};{};{}m", upper[0], upper[1], upper[2]);
            if let Some(lower) = pair.get(1) {
                let lower = &lower[3 * column..3 * column + 3];
                let _ = write!(drawn, "\x1b[48;2;{};{};{}m", lower[0], lower[1], lower[2]);
            }
            drawn.push('\u{2580}');
        }
        drawn += "\x1b[0m\n";
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rows_are_a_line() {
        let rgb = (0..9).flat_map(|n| [n, 100, 200]).collect();
        let drawn = half_blocks(&Pixels { width: 3, height: 3, rgb }, 3, 2);
        let lines: Vec<_> = drawn.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("\x1b[38;2;0;100;200m\x1b[48;2;3;100;200m\u{2580}"), "{drawn:?}");
        assert!(lines[1].starts_with("\x1b[38;2;6;100;200m\u{2580}"), "{drawn:?}");
        assert!(lines.iter().all(|line| line.matches('\u{2580}').count() == 3 && line.ends_with("\x1b[0m")));
    }
}
