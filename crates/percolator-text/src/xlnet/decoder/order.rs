//! The order in which a row's tokens are predicted: a permutation, drawn at random.

/// Writes the numbers from 0 on, shuffled. `below` returns a random number below its argument; if all are
/// equally likely, so are all orders.
pub(super) fn permutation(mut below: impl FnMut(u64) -> u64, out: &mut [i32]) {
    out.iter_mut().zip(0..).for_each(|(to, number)| *to = number);
    for last in (1..out.len()).rev() {
        let drawn = usize::try_from(below(last as u64 + 1)).expect("it is at most `last`");
        out.swap(last, drawn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sequence_of_numbers_gives_another_order() {
        let mut orders = Vec::new();
        for code in 0..24 {
            let mut rest = code;
            let below = |end| {
                let drawn = rest % end;
                rest /= end;
                drawn
            };
            let mut order = [0; 4];
            permutation(below, &mut order);
            orders.push(order);
        }
        orders.sort_unstable();
        orders.dedup();
        assert_eq!(orders.len(), 24, "each of the orders once");
        let mut sorted = orders[7];
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3]);
        permutation(|_| unreachable!("there is nothing to draw"), &mut []);
    }
}
