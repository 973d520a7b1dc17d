//! Which records of a data set are read.

/// Some of the records, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// All records.
    #[default]
    All,
    /// So many of `records` records, as evenly spread as whole numbers allow, the first among them. If there
    /// are no more than `wanted`, all of them.
    Spread {
        /// How many to read.
        wanted: u64,
        /// How many there are.
        records: u64,
    },
}

impl Selection {
    /// The number of records selected, if it is known.
    #[must_use]
    pub fn count(self) -> Option<u64> {
        match self {
            Selection::All => None,
            Selection::Spread { wanted, records } => Some(wanted.min(records)),
        }
    }

    /// The position of a selected record; `None` past the last one.
    pub(crate) fn position(self, place: u64) -> Option<u64> {
        match self {
            Selection::All => Some(place),
            Selection::Spread { wanted, records } => {
                let selected = wanted.min(records);
                let position = u128::from(place) * u128::from(records) / u128::from(selected.max(1));
                (place < selected).then(|| u64::try_from(position).unwrap_or(u64::MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_spread_is_even_and_in_order(wanted in 0u64..500, records in 0u64..5000) {
            let spread = Selection::Spread { wanted, records };
            let positions: Vec<u64> = (0..).map_while(|place| spread.position(place)).collect();
            prop_assert_eq!(positions.len() as u64, wanted.min(records));
            prop_assert_eq!(Some(positions.len() as u64), spread.count());
            prop_assert!(positions.iter().all(|&position| position < records));
            if let Some(&first) = positions.first() {
                prop_assert_eq!(first, 0);
                let step = records / wanted.min(records);
                let steps = positions.windows(2).map(|pair| pair[1] - pair[0]);
                prop_assert!(steps.clone().all(|found| found == step || found == step + 1));
            }
        }
    }
}
