//! Compares the arrays with those of the script's formulas, step by step on whole matrices, and checks the
//! rules.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// What the script's `_local_perm` returns. The mask of predicted tokens is of booleans.
struct Naive {
    perm_mask: Vec<Vec<bool>>,
    target: Vec<i32>,
    target_mask: Vec<bool>,
}

/// One half of a row, by the script's formulas. `index` is its shuffled `index`.
fn local_perm(inputs: &[i32], targets: &[i32], is_masked: &[bool], index: &[i32]) -> Naive {
    let len = inputs.len();
    let non_func: Vec<bool> = inputs.iter().map(|token| !(*token == 4 || *token == 3)).collect();
    let non_mask: Vec<bool> = (0..len).map(|at| !is_masked[at] && non_func[at]).collect();
    let masked_or_func: Vec<bool> = non_mask.iter().map(|is| !is).collect();
    let rev_index: Vec<i32> = (0..len).map(|at| if non_mask[at] { -1 } else { index[at] }).collect();
    let target_tokens: Vec<bool> = (0..len).map(|at| masked_or_func[at] && non_func[at]).collect();
    let self_rev_index: Vec<i32> =
        (0..len).map(|at| if target_tokens[at] { rev_index[at] } else { rev_index[at] + 1 }).collect();
    let perm_mask = (0..len)
        .map(|i| (0..len).map(|j| self_rev_index[i] <= rev_index[j] && masked_or_func[j]).collect())
        .collect();
    let target = [&inputs[..1], &targets[..len - 1]].concat();
    Naive { perm_mask, target, target_mask: target_tokens }
}

/// The two halves put together, as the script's `parser` does.
fn whole(row: &Example) -> Naive {
    let halves = [0..row.reuse, row.reuse..row.tokens.len()];
    let indices = [&row.orders[0], &row.orders[1]];
    let [first, second] = [0, 1].map(|number| {
        let half = halves[number].clone();
        let size = indices[number].len();
        // Blocks of consecutive positions, in each of which the same permutation is added.
        let index: Vec<i32> = (0..half.len())
            .map(|at| i32::try_from(at / size * size).unwrap() + indices[number][at % size])
            .collect();
        local_perm(&row.tokens[half.clone()], &row.next[half.clone()], &row.is_masked[half], &index)
    });
    let rest = row.tokens.len() - row.reuse;
    let above = first.perm_mask.into_iter().map(|line| [line, vec![true; rest]].concat());
    let below = second.perm_mask.into_iter().map(|line| [vec![false; row.reuse], line].concat());
    Naive {
        perm_mask: above.chain(below).collect(),
        target: [first.target, second.target].concat(),
        target_mask: [first.target_mask, second.target_mask].concat(),
    }
}

#[derive(Clone, Debug)]
struct Example {
    tokens: Vec<i32>,
    next: Vec<i32>,
    is_masked: Vec<bool>,
    reuse: usize,
    orders: [Vec<i32>; 2],
}

fn any_example() -> impl Strategy<Value = Example> {
    let sizes = (1_usize..12, 1_usize..4, 1_usize..4);
    sizes.prop_flat_map(|(perm_size, reused, others)| {
        let len = perm_size * (reused + others);
        let order = || Just((0..i32::try_from(perm_size).unwrap()).collect::<Vec<_>>()).prop_shuffle();
        let token = || prop_oneof![3 => 0_i32..9, 1 => 9_i32..900];
        (vec(token(), len), vec(token(), len), vec(any::<bool>(), len), order(), order()).prop_map(
            move |(tokens, next, is_masked, first, second)| Example {
                tokens,
                next,
                is_masked,
                reuse: perm_size * reused,
                orders: [first, second],
            },
        )
    })
}

fn set(row: &Example) -> Attention {
    let mut attention = Attention::new(row.tokens.len(), row.reuse);
    for (number, half) in [0..row.reuse, row.reuse..row.tokens.len()].into_iter().enumerate() {
        let order = &row.orders[number];
        attention.set(half.start, &row.tokens[half.clone()], &row.is_masked[half], order);
    }
    attention
}

fn reals<T: Real + PartialEq + std::fmt::Debug>(naive: &[bool]) -> Vec<T> {
    naive.iter().map(|is| if *is { T::ONE } else { T::ZERO }).collect()
}

fn agrees<T: Real + PartialEq + std::fmt::Debug>(row: &Example) -> Result<(), TestCaseError> {
    let (attention, naive) = (set(row), whole(row));
    let len = row.tokens.len();
    // Old values in the memory must be overwritten.
    let mut perm_mask = vec![T::ONE; len * len];
    attention.write_perm_mask(&mut perm_mask);
    prop_assert_eq!(perm_mask, reals::<T>(&naive.perm_mask.concat()));
    let mut predicted = vec![T::ONE; len];
    attention.write_predicted(&mut predicted);
    prop_assert_eq!(predicted, reals::<T>(&naive.target_mask));
    let mut targets = vec![-7; len];
    attention.write_targets(&row.tokens, &row.next, &mut targets);
    prop_assert_eq!(&targets, &naive.target);
    let indices: Vec<usize> = (0..len).filter(|at| naive.target_mask[*at]).collect();
    prop_assert_eq!(attention.predictions(), indices.len());
    for room in indices.len()..=len {
        let mut some = vec![-7; room];
        attention.write_predicted_targets(&row.tokens, &row.next, &mut some);
        let mut expected: Vec<i32> = indices.iter().map(|at| naive.target[*at]).collect();
        expected.resize(room, 0);
        prop_assert_eq!(some, expected);
        let mut mapping = vec![T::ONE; room * len];
        attention.write_mapping(&mut mapping);
        let one_hot = |number: usize| (0..len).map(move |at| (number, at));
        let expected: Vec<bool> =
            (0..room).flat_map(one_hot).map(|(number, at)| indices.get(number) == Some(&at)).collect();
        prop_assert_eq!(mapping, reals::<T>(&expected));
    }
    Ok(())
}

proptest! {
    #[test]
    fn arrays_are_those_of_the_naive_way(row in any_example()) {
        agrees::<f32>(&row)?;
        agrees::<percolator::half::bf16>(&row)?;
    }

    /// The rules at the head of the module, position by position.
    #[test]
    fn tokens_see_what_they_may(row in any_example()) {
        let attention = set(&row);
        let len = row.tokens.len();
        let mut perm_mask = vec![0.0_f32; len * len];
        attention.write_perm_mask(&mut perm_mask);
        let is_functional = |at: usize| [3, 4].contains(&row.tokens[at]);
        let is_open = |at: usize| !row.is_masked[at] && !is_functional(at);
        let is_predicted = |at: usize| row.is_masked[at] && !is_functional(at);
        let order = |at: usize| {
            let (half, from) = if at < row.reuse { (0, at) } else { (1, at - row.reuse) };
            let size = row.orders[half].len();
            (from / size, row.orders[half][from % size])
        };
        for i in 0..len {
            for j in 0..len {
                let sees = match (i < row.reuse, j < row.reuse) {
                    (true, false) => false,
                    (false, true) => true,
                    _ if is_open(j) => true,
                    _ if is_open(i) => false,
                    _ if is_predicted(i) => order(i) > order(j),
                    _ => order(i) >= order(j),
                };
                let found = perm_mask[i * len + j];
                prop_assert_eq!(found, if sees { 0.0 } else { 1.0 }, "{} looks at {}", i, j);
                // No predicted token sees itself.
                prop_assert!(i != j || sees != is_predicted(i));
            }
        }
    }
}
